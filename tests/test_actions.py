"""Action sets: G is the best action, J is its Lipschitz constant, and the basis lies in the set."""

from __future__ import annotations

import numpy as np
import pytest

from driftls.errors import DimensionError, InputError, SettingsError
from driftls.paper.actions import ActionSet, Ball, Ellipsoid, Sphere


def directions(count, dim, seed=0):
    drawn = np.random.default_rng(seed).standard_normal((count, dim))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


TILTED = np.array([[0.5, 0.2, 0.0], [0.2, 0.4, 0.1], [0.0, 0.1, 0.3]])
ROOT = np.linalg.cholesky(TILTED)

# a set, and many of its members
SETS = {
    "sphere": (Sphere(3, radius=0.8), 0.8 * directions(2000, 3)),
    "ball": (Ball(3), directions(2000, 3) * np.random.default_rng(3).random((2000, 1))),
    "ellipsoid": (Ellipsoid(TILTED), directions(2000, 3) @ ROOT.T),
    "given": (ActionSet(lambda theta: 0.5 * theta, 0.5 * np.eye(3), longest=0.5, J=0.5), 0.5 * directions(2000, 3)),
}


def contains(name, x):
    if name == "ellipsoid":
        return x @ np.linalg.solve(TILTED, x) <= 1 + 1e-12
    return np.linalg.norm(x) <= SETS[name][0].max_norm + 1e-12


@pytest.mark.parametrize("name", SETS)
def test_no_member_is_better_than_the_best(name):
    actions, members = SETS[name]
    for theta in 5.0 * directions(20, 3, seed=2):
        best = actions.best(theta)
        assert contains(name, best)
        assert (members @ theta).max() <= best @ theta + 1e-12


@pytest.mark.parametrize("name", SETS)
def test_the_best_action_does_not_depend_on_the_length_of_theta(name):
    actions, _ = SETS[name]
    theta = np.array([0.3, -0.2, 0.5])
    for length in (1e-200, 1.0, 1e200):
        np.testing.assert_allclose(actions.best(length * theta), actions.best(theta), rtol=1e-12)
    np.testing.assert_array_equal(actions.best(np.zeros(3)), actions.best([1.0, 0.0, 0.0]))


@pytest.mark.parametrize("name", SETS)
def test_the_basis_spans_and_lies_in_the_set(name):
    actions, _ = SETS[name]
    basis = actions.basis()
    assert basis.shape == (3, 3)
    assert all(contains(name, b) for b in basis)
    assert actions.lambda_min == pytest.approx(np.linalg.eigvalsh(basis.T @ basis)[0])
    assert actions.lambda_min > 0.01


@pytest.mark.parametrize("name", SETS)
def test_max_norm_is_the_length_of_the_longest_action(name):
    actions, members = SETS[name]
    lengths = np.linalg.norm(members, axis=1)
    assert lengths.max() <= actions.max_norm + 1e-12
    assert lengths.max() == pytest.approx(actions.max_norm, rel=0.02)


@pytest.mark.parametrize("name", SETS)
def test_J_is_the_lipschitz_constant(name):
    actions, _ = SETS[name]
    far = zip(directions(500, 3, seed=4), directions(500, 3, seed=5))
    near = [(u, u + 1e-5 * v) for u, v in zip(directions(3000, 3, seed=6), directions(3000, 3, seed=7))]
    ratios = []
    for u, v in [*far, *near]:
        v = v / np.linalg.norm(v)
        ratios.append(np.linalg.norm(actions.best(u) - actions.best(v)) / np.linalg.norm(u - v))
    assert max(ratios) <= actions.lipschitz * (1 + 1e-6)
    assert max(ratios) >= 0.95 * actions.lipschitz  # and no much smaller number will do


def test_values_by_hand():
    stretched = Ellipsoid(np.diag([4.0, 0.25]))
    assert stretched.lipschitz == pytest.approx(4.0 / 0.5)
    assert stretched.max_norm == pytest.approx(2.0)
    assert stretched.lambda_min == pytest.approx(0.25)
    assert Sphere(4, radius=0.5).lambda_min == pytest.approx(0.25)
    np.testing.assert_allclose(Ball(2).best([0.0, -3.0]), [0.0, -1.0])


def test_a_given_set_without_J_says_what_is_missing():
    cube = ActionSet(np.sign, b=np.array([[1.0, 1.0], [1.0, -1.0]]), longest=2**0.5)
    np.testing.assert_array_equal(cube.best([3.0, -4.0]), [1.0, -1.0])
    with pytest.raises(SettingsError, match=r"\(A5\).*no J"):
        _ = cube.lipschitz


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sphere(0),
        lambda: Sphere(3, radius=0.0),
        lambda: Sphere(3, radius=np.inf),
        lambda: Ellipsoid(np.array([[1.0, 0.5], [0.0, 1.0]])),
        lambda: Ellipsoid(np.diag([1.0, -1.0])),
        lambda: Ellipsoid(np.ones((2, 3))),
        lambda: Ellipsoid(np.empty((0, 3))),
        lambda: Ellipsoid(np.array([[1.0, np.nan], [np.nan, 1.0]])),
        lambda: ActionSet(np.sign, b=np.ones((2, 2)), longest=1.0),
    ],
)
def test_settings_that_cannot_work_are_refused(make):
    with pytest.raises(SettingsError):
        make()


@pytest.mark.parametrize("name", SETS)
def test_a_theta_that_does_not_fit_is_refused(name):
    actions, _ = SETS[name]
    with pytest.raises(DimensionError, match="dim=3"):
        actions.best([1.0, 2.0])
    with pytest.raises(InputError, match="not finite"):
        actions.best([1.0, np.nan, 0.0])


def test_sets_keep_their_own_arrays():
    Q, b = np.eye(2), np.eye(2)
    sets = [Ellipsoid(Q), ActionSet(np.sign, b, longest=1.0)]
    Q[0, 0] = b[0, 0] = 9.0
    np.testing.assert_allclose(sets[0].best([1.0, 0.0]), [1.0, 0.0])
    for actions in [*sets, Sphere(2)]:
        actions.basis()[0] = 7.0
        np.testing.assert_array_equal(np.abs(actions.basis()), np.eye(2))
    for name in ("lipschitz", "lambda_min"):
        with pytest.raises(AttributeError):
            setattr(sets[0], name, 2.0)
