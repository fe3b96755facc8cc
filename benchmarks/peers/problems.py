"""What is played: rounds that depend on problem and seed alone. NumPy and SciPy only, so that peers can read it.

Arms have norm 1, the means of a round's arms a standard deviation of about `MEANS`, the noise one of `SIGMA`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

SIGMA, MEANS = 0.3, 0.5
CHUNK = 1 << 18  # numbers that are drawn at once: few, since they count as a player's memory


class Problem(NamedTuple):
    """dim, arms a round (None: as many as there are), non-zeros of an arm (None: dense), and the most rounds."""

    name: str
    kind: str
    dim: int
    arms: int | None
    nnz: int | None = None
    most: int = 2000


class Round(NamedTuple):
    """What a player may see (arms; ids where arms recur; user, of articles), then what it may not.

    With `clicks` the noise is a uniform, and the reward 1 if it lies under the mean. One row of a regression is a round
    with one arm.
    """

    arms: Any
    ids: Any
    user: Any
    means: Any
    noise: float
    clicks: bool = False

    def reward(self, k: int) -> float:
        """Of the k-th arm."""
        mean = float(self.means[k])
        return float(self.noise < mean) if self.clicks else mean + self.noise


def _dense(dim: int) -> Problem:
    return Problem(f"dense-{dim}", "dense", dim, 20)


PROBLEMS = {
    problem.name: problem
    for problem in (
        *map(_dense, (16, 136, 1000, 4000)),
        Problem("sparse-136", "sparse", 136, 20, 15, 5000),
        Problem("sparse-100000", "sparse", 100_000, 20, 50, 5000),
        Problem("fixed", "fixed", 50, 100, None, 5000),
        Problem("articles", "articles", 136, None, None, 20_000),
        Problem("regression", "regression", 136, 1, None, 5000),
    )
}


def rounds(problem: Problem, seed: int, file: str | None = None) -> Iterator[Round]:
    """The rounds of one seed, without end but for those of a file: a day, or a table's users or rows."""
    if problem.kind == "articles":
        if file is None:
            raise ValueError("articles need the file of a day: see benchmarks.peers.write_day.")
        return _articles(file, problem.dim)
    if file is not None:
        return _classes(file) if problem.kind == "classes" else _rows(file)
    truth, draws = (np.random.default_rng([0xBE, seed, part]) for part in (0, 1))
    make = {"dense": _fresh, "regression": _fresh, "sparse": _fields, "fixed": _fixed}[problem.kind]
    return make(problem, truth, draws)


def _directions(draws: np.random.Generator, *shape: int) -> Any:
    values = draws.standard_normal(shape)
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def _fresh(problem: Problem, truth: np.random.Generator, draws: np.random.Generator) -> Iterator[Round]:
    """New dense arms every round."""
    theta = MEANS * np.sqrt(problem.dim) * _directions(truth, problem.dim)
    count = problem.arms or 1
    chunk = max(1, CHUNK // (count * problem.dim))
    while True:
        noise = SIGMA * draws.standard_normal(chunk)
        for arms, luck in zip(_directions(draws, chunk, count, problem.dim), noise.tolist()):
            yield Round(arms, None, None, arms @ theta, luck)


def _fields(problem: Problem, truth: np.random.Generator, draws: np.random.Generator) -> Iterator[Round]:
    """One-hot fields: each arm has one feature of each of nnz ranges, the r-th most popular one as often as 1/r."""
    count, nnz = problem.arms or 1, problem.nnz or 1
    theta = MEANS * truth.standard_normal(problem.dim)
    edges = np.arange(nnz + 1) * problem.dim // nnz
    laws = [np.cumsum(1.0 / np.arange(1, size + 1)) for size in np.diff(edges)]
    start = np.arange(count + 1) * nnz
    chunk = max(1, CHUNK // (count * nnz))
    while True:
        noise, uniform = SIGMA * draws.standard_normal(chunk), draws.random((chunk, count, nnz))
        columns = np.empty(uniform.shape, np.int32)
        for field, law in enumerate(laws):
            columns[..., field] = edges[field] + np.searchsorted(law, uniform[..., field] * law[-1], side="right")
        for indices, luck in zip(columns, noise.tolist()):
            values = np.full(indices.size, nnz**-0.5)
            means = theta[indices].sum(axis=1) * nnz**-0.5
            yield Round(
                csr_array((values, indices.ravel(), start), shape=(count, problem.dim)), None, None, means, luck
            )


def _fixed(problem: Problem, truth: np.random.Generator, draws: np.random.Generator) -> Iterator[Round]:
    """The same arms every round: here widths decide, since nobody else explores for us."""
    theta = MEANS * np.sqrt(problem.dim) * _directions(truth, problem.dim)
    arms, ids = _directions(truth, problem.arms or 1, problem.dim), np.arange(problem.arms or 1)
    means = arms @ theta
    while True:
        for luck in (SIGMA * draws.standard_normal(1024)).tolist():
            yield Round(arms, ids, None, means, luck)


def _articles(file: str, dim: int) -> Iterator[Round]:
    """A day of a news front page: a user's features, the articles on offer, and what each would be clicked with."""
    with np.load(file) as arrays:
        kept = dict(arrays)
    pools = [kept["pool_ids"][a:b] for a, b in zip(kept["pool_start"][:-1], kept["pool_start"][1:])]
    user_start, at = kept["user_start"], 0
    for line, pool in enumerate(kept["pool"].tolist()):
        part, ids = slice(user_start[line], user_start[line + 1]), pools[pool]
        indices, values = kept["user_index"][part], kept["user_value"][part]
        user = csr_array((values, indices, np.array([0, indices.size])), shape=(1, dim))
        yield Round(None, ids, user, kept["truth"][at : at + ids.size], float(kept["noise"][line]), True)
        at += ids.size


def _classes(file: str) -> Iterator[Round]:
    """The rows of a table as users: the right one of its classes has reward 1."""
    with np.load(file) as arrays:
        X, right = arrays["X"], np.eye(arrays["y"].max() + 1)[arrays["y"]]
    for row, means in zip(X, right):
        yield Round(None, np.arange(len(means)), row, means, 0.5, True)


def _rows(file: str) -> Iterator[Round]:
    """The rows of a regression, in the order of the file."""
    with np.load(file) as arrays:
        X, y = arrays["X"], arrays["y"]
    for row, target in zip(X[:, None], y[:, None]):
        yield Round(row, None, None, target, 0.0)
