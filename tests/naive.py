"""The oracle of the test suite: every equation once, in plain loops over NumPy, slow and obviously right.

It imports nothing of the library, so that no mistake can be shared. Every tracker starts at theta = 0 and
returns the list of its theta after each row. The conventions, once for all of them:

    n           rows seen so far, the present one included (from 1)
    m           rows held now: what every average divides by
    clock       what lam(.) and ridge(.) are called with: m for a window, n for everything else
    gamma       called as gamma(n, largest squared row norm seen so far, lam), once a row
    lam         the ridge per row: over the rows held, the exact reference has the total ridge m * lam(clock)
    ridge       the total ridge, a number or a function of the clock
    uniforms    numbers in [0, 1), used in order: with a reservoir one for each arriving row (also while it
                is not full), then one for each inner step, which picks slot int(u * m)
    history     ("growing",), ("window", capacity) or ("reservoir", capacity)
"""

import numpy as np


def schedule(scale, offset=0.0, exponent=0.0):
    """n -> scale / (offset + n)^exponent"""

    def value(n):
        return scale / (offset + n) ** exponent

    return value


def at(ridge, clock):
    """The total ridge at this clock, of a number or of a function."""
    return ridge(clock) if callable(ridge) else ridge


class History:
    """Which row (counted from 0) sits in which slot, for the three kinds of history."""

    def __init__(self, history, uniforms=()):
        self.kind = history[0]
        self.capacity = history[1] if len(history) > 1 else None
        self.uniforms = iter(uniforms)
        self.rows = []
        self.n = 0

    def add(self):
        """Take in the next row: the slot it now has, or None if it was dropped."""
        row = self.n
        self.n += 1
        u = next(self.uniforms) if self.kind == "reservoir" else None
        if self.kind == "growing" or len(self.rows) < self.capacity:
            self.rows.append(row)
            return len(self.rows) - 1
        if self.kind == "window":
            slot = row % self.capacity
        elif self.kind == "reservoir":
            slot = int(u * self.n)
        else:
            raise ValueError(self.kind)
        if slot >= self.capacity:
            return None
        self.rows[slot] = row
        return slot

    def draw(self):
        """A slot, uniformly among those in use."""
        return int(next(self.uniforms) * len(self.rows))

    @property
    def clock(self):
        """What lam and ridge are functions of: rows held for a window, rows seen otherwise."""
        return len(self.rows) if self.kind == "window" else self.n


def rounds(X, uniforms, gamma, lam, history):
    """For each row: store it, then yield (memory, its slot, this round's gamma, this round's lam)."""
    memory = History(history, uniforms)
    max_norm2 = 0.0
    for x in X:
        slot = memory.add()
        max_norm2 = max(max_norm2, x @ x)
        l = lam(memory.clock)
        yield memory, slot, gamma(memory.n, max_norm2, l), l


def gradient(X, y, k, theta):
    """(x_k'theta - y_k) x_k, the gradient of row k's half squared error, without lam"""
    return (X[k] @ theta - y[k]) * X[k]


def gd(X, y, uniforms, gamma, lam, *, steps=1, averaging=None, history=("growing",)):
    """theta += gamma ((y_i - theta'x_i) x_i - lam theta); averaging: None, "polyak" (the mean of iterates)
    or "tail" (average <- (1 - w) average + w theta, w = 4/(t + 3), t inner steps so far)
    """
    theta = np.zeros(X.shape[1])
    tail = np.zeros(X.shape[1])
    iterates = []
    result = []
    for memory, _, g, l in rounds(X, uniforms, gamma, lam, history):
        for _ in range(steps):
            k = memory.rows[memory.draw()]
            theta = theta + g * ((y[k] - theta @ X[k]) * X[k] - l * theta)
            iterates.append(theta)
            w = 4.0 / (len(iterates) + 3.0)
            tail = (1.0 - w) * tail + w * theta
        if averaging is None:
            result.append(theta)
        elif averaging == "polyak":
            result.append(np.mean(iterates, axis=0))
        elif averaging == "tail":
            result.append(tail)
        else:
            raise ValueError(averaging)
    return result


def nlms(X, y, mu, lam, *, steps=1):
    """theta += mu/||x_n||^2 ((y_n - theta'x_n) x_n - lam theta), on the newest row; a zero row is no step"""
    theta = np.zeros(X.shape[1])
    result = []
    for n in range(1, len(y) + 1):
        x = X[n - 1]
        norm2 = x @ x
        g = mu(n) / norm2 if norm2 > 0.0 else 0.0
        for _ in range(steps):
            theta = theta + g * ((y[n - 1] - theta @ x) * x - lam(n) * theta)
        result.append(theta)
    return result


def svrg_step(X, y, rows, k, theta, anchor, g, l):
    """theta - g (f_k'(theta) - f_k'(anchor) + F'(anchor)), where f_k'(t) = (x_k't - y_k) x_k + l t and
    F'(t) = (1/m) sum of f_i'(t) over the rows held
    """
    full = np.zeros(X.shape[1])
    for i in rows:
        full = full + (gradient(X, y, i, anchor) + l * anchor)
    full = full / len(rows)
    here = gradient(X, y, k, theta) + l * theta
    there = gradient(X, y, k, anchor) + l * anchor
    return theta - g * (here - there + full)


def svrg_average(X, y, uniforms, gamma, lam, *, steps=1, history=("growing",)):
    """SVRG whose anchor is the mean of all previous iterates, one an inner step (0 before the first)."""
    theta = np.zeros(X.shape[1])
    iterates = []
    result = []
    for memory, _, g, l in rounds(X, uniforms, gamma, lam, history):
        for _ in range(steps):
            anchor = np.mean(iterates, axis=0) if iterates else np.zeros(X.shape[1])
            k = memory.rows[memory.draw()]
            theta = svrg_step(X, y, memory.rows, k, theta, anchor, g, l)
            iterates.append(theta)
        result.append(theta)
    return result


def svrg(X, y, uniforms, gamma, lam, *, refresh, steps=1, history=("growing",)):
    """SVRG whose anchor (0 at first) becomes theta whenever refresh(n, n of the last refresh or 0) says so,
    which is asked once a row, after the row was stored and before its inner steps
    """
    theta = np.zeros(X.shape[1])
    anchor = np.zeros(X.shape[1])
    last = 0
    result = []
    for memory, _, g, l in rounds(X, uniforms, gamma, lam, history):
        if refresh(memory.n, last):
            anchor = theta
            last = memory.n
        for _ in range(steps):
            k = memory.rows[memory.draw()]
            theta = svrg_step(X, y, memory.rows, k, theta, anchor, g, l)
        result.append(theta)
    return result


def enter(table, slot, entry):
    """Put a new row's entry into its slot, over that of the row it evicts; a dropped row has no slot."""
    if slot is None:
        return
    if slot == len(table):
        table.append(entry)
    else:
        table[slot] = entry


def sag(X, y, uniforms, gamma, lam, *, steps=1, history=("growing",)):
    """g_i <- (x_i'theta - y_i) x_i; theta -= gamma ((1/m) sum of g + lam theta); a new row brings its g"""
    theta = np.zeros(X.shape[1])
    table = []
    result = []
    for memory, slot, g, l in rounds(X, uniforms, gamma, lam, history):
        enter(table, slot, gradient(X, y, memory.n - 1, theta))
        for _ in range(steps):
            i = memory.draw()
            table[i] = gradient(X, y, memory.rows[i], theta)
            theta = theta - g * (sum(table) / len(table) + l * theta)
        result.append(theta)
    return result


def saga(X, y, uniforms, gamma, lam, *, steps=1, history=("growing",)):
    """new = (x_i'theta - y_i) x_i; theta -= gamma (new - g_i + (1/m) sum of all g + lam theta); g_i <- new"""
    theta = np.zeros(X.shape[1])
    table = []
    result = []
    for memory, slot, g, l in rounds(X, uniforms, gamma, lam, history):
        enter(table, slot, gradient(X, y, memory.n - 1, theta))
        for _ in range(steps):
            i = memory.draw()
            new = gradient(X, y, memory.rows[i], theta)
            theta = theta - g * (new - table[i] + sum(table) / len(table) + l * theta)
            table[i] = new
        result.append(theta)
    return result


def moments(X, y, rows, discount=1.0):
    """A = sum_k discount^(n-k) x_k x_k' and b = sum_k discount^(n-k) y_k x_k, n the newest of rows"""
    A = np.zeros((X.shape[1], X.shape[1]))
    b = np.zeros(X.shape[1])
    for k in rows:
        weight = discount ** (max(rows) - k)
        A = A + weight * np.outer(X[k], X[k])
        b = b + weight * y[k] * X[k]
    return A, b


def cd_step(M, b, theta):
    """r = b - M theta; j = argmax r_j^2/M_jj (the first, where M_jj > 0); theta_j += r_j/M_jj"""
    r = b - M @ theta
    best = None
    for j in range(len(b)):
        if M[j, j] > 0.0 and (best is None or r[j] ** 2 / M[j, j] > r[best] ** 2 / M[best, best]):
            best = j
    theta = theta.copy()
    if best is not None:
        theta[best] += r[best] / M[best, best]
    return theta


def cd(X, y, ridge, *, steps=1, discount=1.0, history=None):
    """Gauss-Southwell on M theta = b, M = sum_k discount^(n-k) x_k x_k' + ridge I, of all rows or a window"""
    memory = History(history or ("growing",))
    theta = np.zeros(X.shape[1])
    result = []
    for _ in range(len(y)):
        memory.add()
        A, b = moments(X, y, memory.rows, discount)
        M = A + at(ridge, memory.clock) * np.eye(X.shape[1])
        for _ in range(steps):
            theta = cd_step(M, b, theta)
        result.append(theta)
    return result


def auto_discount(X, y, ridge, discounts, *, steps):
    """Mean of cd over discounts, w_k <- w_k (1 + e_k^2/(4 s^2))^(-5/2) (Student's t, 4 degrees), normalised, and
    w_k <- (1 - a) w_k + a/K, a = 1/(n + 10); s^2 is the mean's squared error, with weight max(4/(n + 2), 1/100) from n = 2 on
    """
    each = [cd(X, y, ridge, steps=steps, discount=discount) for discount in discounts]
    count, s2 = len(discounts), 0.0
    w = np.ones(count) / count
    result = []
    for n in range(1, len(y) + 1):
        told = np.array([thetas[n - 2] @ X[n - 1] if n > 1 else 0.0 for thetas in each])
        e2, mixed = (y[n - 1] - told) ** 2, (y[n - 1] - w @ told) ** 2
        if s2 > 0.0:
            w = w * (1.0 + e2 / (4.0 * s2)) ** -2.5
            w = (1.0 - 1.0 / (n + 10.0)) * w / w.sum() + 1.0 / (n + 10.0) / count
        a = max(4.0 / (n + 2.0), 0.01) if n > 1 else 0.0
        s2 = (1.0 - a) * s2 + a * mixed
        result.append(sum(w[k] * each[k][n - 1] for k in range(count)))
    return result


def diagonal(X, y, ridge, *, discount=1.0):
    """s_j <- discount s_j + x_j^2; w = sum_j x_j^2/(ridge + s_j);
    theta_j += (y - theta'x)/max(1, w) x_j/(ridge + s_j), where x_j is not 0
    """
    s = np.zeros(X.shape[1])
    theta = np.zeros(X.shape[1])
    result = []
    for n in range(1, len(y) + 1):
        x = X[n - 1]
        s = discount * s + x**2
        used = [j for j in range(len(x)) if x[j] != 0.0]
        w = sum(x[j] ** 2 / (at(ridge, n) + s[j]) for j in used)
        error = y[n - 1] - theta @ x
        theta = theta.copy()
        for j in used:
            theta[j] += error / max(1.0, w) * x[j] / (at(ridge, n) + s[j])
        result.append(theta)
    return result


def ols(X, y):
    """The least-squares solution of the first n rows; of all of them the one of least norm."""
    return [np.linalg.lstsq(X[:n], y[:n], rcond=None)[0] for n in range(1, len(y) + 1)]


def rls(X, y, ridge, *, discount=1.0, fading=False, history=None):
    """(A + ridge I)^-1 b, A and b the moments of all rows or a window; fading: discount^n ridge for ridge"""
    memory = History(history or ("growing",))
    result = []
    for _ in range(len(y)):
        memory.add()
        A, b = moments(X, y, memory.rows, discount)
        total = at(ridge, memory.clock)
        if fading:
            total = discount**memory.n * total
        result.append(np.linalg.solve(A + total * np.eye(X.shape[1]), b))
    return result


# Widths. `rows` is (n, d); an arm x that arrives when n0 rows were seen takes its steps after each of
# the rows n0+1, ..., n, and the list has its phi after each of these. For an arm met only now, n0 = n - 1.


def phi_printed(x, rows, uniforms, gamma, *, steps=1, n0=0):
    """phi_0 = 0; phi += gamma(n) (x/n - (phi'x_i) x_i), as printed: no ridge"""
    uniforms = iter(uniforms)
    phi = np.zeros(len(x))
    result = []
    for n in range(n0 + 1, len(rows) + 1):
        for _ in range(steps):
            x_i = rows[int(next(uniforms) * n)]
            phi = phi + gamma(n) * (x / n - (phi @ x_i) * x_i)
        result.append(phi)
    return result


def phi_regularised(x, rows, uniforms, g, ridge, steps=1, *, n0=0, phi=None):
    """phi_0 = x/ridge unless given; phi += g (x/n - (phi'x_i) x_i - ridge phi/n)"""
    uniforms = iter(uniforms)
    phi = x / ridge if phi is None else phi
    result = []
    for n in range(n0 + 1, len(rows) + 1):
        for _ in range(steps):
            x_i = rows[int(next(uniforms) * n)]
            phi = phi + g * (x / n - (phi @ x_i) * x_i - ridge * phi / n)
        result.append(phi)
    return result


def gram(rows, ridge):
    """M = sum_k x_k x_k' + ridge I"""
    M = ridge * np.eye(rows.shape[1])
    for x in rows:
        M = M + np.outer(x, x)
    return M


def exact_width2(x, M):
    """x'M^-1 x"""
    return x @ np.linalg.solve(M, x)


def phi_width2(x, phi):
    """x'phi, or 0 where that is negative"""
    return max(0.0, x @ phi)


def diagonal_width2(x, M):
    """sum_j x_j^2/M_jj, over the x_j that are not 0"""
    return sum(x[j] ** 2 / M[j, j] for j in range(len(x)) if x[j] != 0.0)


def best(scores, kappa=0.0):
    """The first of the scores that are within 1e-9 of the highest, or of kappa, if that is larger"""
    scores = np.asarray(scores)
    return int(np.flatnonzero(scores >= scores.max() - 1e-9 * max(abs(scores.max()), kappa))[0])


class LinUCB:
    """theta = A^-1 b, scores theta.x + kappa sqrt(x'A^-1 x), A = ridge I + sum x x'; kappa given, or sigmas times
    sqrt((1/n) sum e^2/(1 + x'A^-1 x)) with the errors e and widths before each row
    """

    def __init__(self, dim, kappa=None, sigmas=1.0, ridge=1.0):
        self.A, self.b = ridge * np.eye(dim), np.zeros(dim)
        self.given, self.sigmas, self.errors, self.n = kappa, sigmas, 0.0, 0

    @property
    def kappa(self):
        if self.given is not None:
            return self.given
        return self.sigmas * (np.sqrt(self.errors / self.n) if self.errors > 0.0 else 1.0)

    @property
    def theta(self):
        return np.linalg.solve(self.A, self.b)

    def score(self, x):
        return x @ self.theta + self.kappa * np.sqrt(exact_width2(x, self.A))

    def learn(self, x, y):
        self.errors += (y - x @ self.theta) ** 2 / (1.0 + exact_width2(x, self.A))
        self.n += 1
        self.A = self.A + np.outer(x, x)
        self.b = self.b + y * x


def settled(X, lam):
    """gamma = sum_j a_j/(lambda + a_j) over the eigenvalues of X'X"""
    values = np.linalg.eigvalsh(X.T @ X)
    return float((values / (lam + values)).sum())


# -- off-policy estimates ----------------------------------------------------------------------------------------------


def off_policy(reward, weight, predicted, model_value, clip, switch):
    """Each estimate as a sum over the lines, one line after the other."""
    n = len(reward)
    sums = dict.fromkeys(("ips", "clipped_ips", "dm", "dr", "switch_dr"), 0.0)
    weights = 0.0
    for r, w, q, v in zip(reward, weight, predicted, model_value):
        weights += w
        sums["ips"] += w * r
        sums["clipped_ips"] += min(w, clip) * r
        sums["dm"] += v
        sums["dr"] += v + w * (r - q)
        sums["switch_dr"] += v + (w if w <= switch else 0.0) * (r - q)
    found = {"snips": sums["ips"] / weights, **{name: value / n for name, value in sums.items()}}
    correction = found["dr"] - found["dm"]
    variance = sum((w * (r - q) - correction) ** 2 for r, w, q in zip(reward, weight, predicted)) / n / n
    found["shrunk_dr"] = found["dm"] + correction * max(0.0, 1.0 - variance / correction**2)
    return found


def log_likelihood_ratio(x, low, high):
    """max over t of sum log(1 + t x), 1 + t x at least 0 for x from low to high: by thirds, since it is concave in t"""
    left, right = -1.0 / high, -1.0 / low

    def value(t):
        with np.errstate(divide="ignore"):
            return float(np.log(np.maximum(1.0 + t * x, 0.0)).sum())

    for _ in range(300):
        a, b = left + (right - left) / 3.0, right - (right - left) / 3.0
        if value(a) < value(b):
            left = a
        else:
            right = b
    return value((left + right) / 2.0)


def evidence(theta, variances, dim, lam, sigma2):
    """The next strengths of coefficients and intercept, from lam of both, anchored at 1."""
    free = [1.0 - lam * v for v in variances]
    gamma, size = sum(free[:dim]), sum(t * t for t in theta[:dim])
    return (gamma + 1.0) / (size / sigma2 + 1.0), (free[dim] + 1.0) / (theta[dim] ** 2 / sigma2 + 1.0)


def centred_width2(X: np.ndarray, x: np.ndarray, ridge: float, prior: float) -> float:
    """x'(A + P)^-1 x over rows (X, 1), P = diag(ridge, ..., prior), with the Schur complement of the constant made diagonal"""
    rows = np.hstack([X, np.ones((len(X), 1))])
    A = rows.T @ rows + np.diag([*[ridge] * X.shape[1], prior])
    shift = A[:-1, -1] / A[-1, -1]
    schur = A[:-1, :-1] - np.outer(A[:-1, -1], shift)
    return float(1.0 / A[-1, -1] + ((x - shift) ** 2 / np.diag(schur)).sum())
