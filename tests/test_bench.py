"""Benchmarks: what is measured and printed, problems, players, and processes of their own. No network."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest
from scipy.sparse import issparse

from benchmarks import BENCHMARKS, peers, tables
from benchmarks.measure import Mean, Options, Table, cell, difference, markdown, ratio, text, timed
from benchmarks.peers import TUNED, exact, libraries, write_day
from benchmarks.peers.environments import MARKER, PEERS, Peer
from benchmarks.peers.play import later
from benchmarks.peers.players import ON_TABLES, PLAYERS, STREAM_PLAYERS, TABLE_PLAYERS, Player
from benchmarks.peers.problems import PROBLEMS, rounds

NOBODY = Peer("a-package-that-nobody-made", "1.0")


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    path = tmp_path_factory.mktemp("day") / "day.npz"
    write_day(path, seed=3, lines=300)
    return str(path)


def dense(arms):
    return arms.toarray() if issparse(arms) else arms


def untied(given):
    """Arms of norm 1 are all the same to who knows nothing, and rounding would choose; these are not."""
    if given.arms is None or given.arms.shape[0] == 1:
        return given
    arms = given.arms * np.linspace(1.0, 1.5, given.arms.shape[0])[:, None]
    return given._replace(arms=arms.tocsr() if issparse(arms) else arms)


def decisions(names, problem, count, day=None, **settings):
    """What players choose or predict in the first rounds; all learn what the first one chose."""
    players = [exact.PLAYERS[name](problem, 0, **settings) for name in names]
    found = []
    for given in map(untied, islice(rounds(problem, 5, day), count)):
        arms = [player.prepare(given) for player in players]
        found.append([float(player.choose(mine)) for player, mine in zip(players, arms)])
        k = 0 if problem.kind == "regression" else int(found[-1][0])
        for player, mine in zip(players, arms):
            player.learn(mine, k, given.reward(k))
    return np.array(found).T


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "articles"])
def test_one_seed_gives_one_problem(name):
    one, again, other = (list(islice(rounds(PROBLEMS[name], seed), 3)) for seed in (1, 1, 2))
    for first, second, third in zip(one, again, other):
        assert first.noise == second.noise != third.noise
        assert np.array_equal(dense(first.arms), dense(second.arms))
        assert np.array_equal(first.means, second.means)
        assert not np.array_equal(first.means, third.means)


@pytest.mark.parametrize("name", ["dense-136", "sparse-136", "fixed", "sparse-100000"])
def test_arms_have_norm_one_and_means_the_spread_that_is_said(name):
    some = list(islice(rounds(PROBLEMS[name], 0), 50))
    norms = [((one.arms * one.arms).sum(axis=1)) for one in some[:3]]
    assert np.allclose(norms, 1.0)
    assert 0.3 < np.std([one.means for one in some]) < 0.8


def test_a_sparse_arm_has_its_features_sorted_and_one_of_each_field():
    arms = next(rounds(PROBLEMS["sparse-100000"], 0)).arms
    assert arms.shape == (20, 100_000)
    assert (np.diff(arms.indptr) == 50).all()
    assert (arms.indices.reshape(20, 50) // 2000 == np.arange(50)).all()


def test_a_day_has_a_truth_for_every_article_on_offer(day):
    for one in rounds(PROBLEMS["articles"], 3, day):
        assert one.means.shape == one.ids.shape
        assert 0.0 < one.means.min() <= one.means.max() < 1.0
        assert one.reward(0) in (0.0, 1.0)
    with pytest.raises(ValueError, match="articles need the file of a day"):
        rounds(PROBLEMS["articles"], 3)


@pytest.mark.parametrize(
    ("problem", "others"),
    [
        ("dense-16", ["Inversion", "Batched"]),
        ("sparse-136", ["SparseScored", "Batched"]),
        ("fixed", ["Inversion", "Gram"]),
        ("regression", ["Inversion", "Batched"]),
    ],
)
def test_exact_methods_decide_alike(problem, others):
    kappa = 4.0 if problem == "fixed" else 0.3  # else it settles on an arm at once
    base, *found = decisions(["ShermanMorrison", *others], PROBLEMS[problem], 150, kappa=kappa, ridge=1.0)
    for name, each in zip(others, found):
        assert each == pytest.approx(base, abs=1e-9), name
    assert len(set(base)) > 10


def test_single_precision_and_models_of_articles_decide_nearly_alike(day):
    one, other = decisions(["ShermanMorrison", "ShermanMorrison32"], PROBLEMS["dense-16"], 200)
    assert np.mean(one == other) > 0.95
    one, other = decisions(["ArticlesOnBlas", "ArticlesSparse"], PROBLEMS["articles"], 300, day)
    assert np.mean(one == other) > 0.8  # models that have seen nothing tie, and rounding decides


def test_a_time_is_the_mean_of_the_later_half():
    assert later([10**9] * 50 + [1000] * 25 + [3000] * 25) == 2.0
    assert later([3000]) == 3.0


def test_every_player_has_a_class_and_every_setting_was_found():
    found = json.loads(TUNED.read_text())
    for player in PLAYERS.values():
        if player.file != "ours":
            assert player.name in {"exact": exact, "libraries": libraries}[player.file].PLAYERS
        for problem in PROBLEMS.values():
            fit = problem.kind in player.kinds and not player.unfit(problem) and problem.name != "dense-4000"
            if player.grid and fit:
                assert found[player.like or player.key][problem.name] in player.settings(problem.kind), player.key


def test_every_player_of_a_real_table_is_known_and_can_play():
    for keys, kind in ((TABLE_PLAYERS, "classes"), (STREAM_PLAYERS, "regression")):
        for key in keys:
            player = (ON_TABLES | PLAYERS)[key]
            assert kind in player.kinds
            if player.file != "ours":
                assert player.name in {"exact": exact, "libraries": libraries}[player.file].PLAYERS


def test_a_table_is_a_bandit_whose_right_class_has_reward_one(tmp_path):
    X, y = np.array([[0.0, 2.0], [3.0, 0.0], [1.0, 1.0]]), np.array([1, 0, 2])
    plain, rescaled = (tables._case("t", (X, y), flag, [4], tmp_path) for flag in (False, True))
    assert plain.problem == ("t", "classes", 2, 3, None, 3)
    seen = [(one.user.tolist(), one.means.tolist()) for one in rounds(plain.problem, 4, plain.files[4])]
    assert sorted(seen) == sorted((row.tolist(), np.eye(3)[c].tolist()) for row, c in zip(X, y))
    first = next(rounds(plain.problem, 4, plain.files[4]))
    assert [first.reward(k) for k in range(3)] == first.means.tolist()
    others = [one.user for one in rounds(rescaled.problem, 4, rescaled.files[4])]
    factors = np.max(others, axis=0) / X.max(axis=0)
    assert np.allclose(others, [row * factors for row, _ in seen])  # the same order
    assert not np.allclose(factors, 1.0)


def test_a_table_of_numbers_is_a_stream(tmp_path):
    X, y = np.arange(6.0).reshape(3, 2), np.array([0.5, 1.5, 2.5])
    case = tables._case("t", (X, y), False, [4], tmp_path)
    seen = [(one.arms[0].tolist(), one.reward(0)) for one in rounds(case.problem, 4, case.files[4])]
    assert sorted(seen) == sorted(zip(X.tolist(), y.tolist()))


def played(*names, monkeypatch):
    """The table of `peers` for a problem of 12 rounds: so few that a busy machine gets through them."""
    problem = PROBLEMS["dense-16"]._replace(most=12)
    monkeypatch.setitem(PROBLEMS, "dense-16", problem)
    return peers.peers(Options(seeds=1, only=("dense-16", *names)))


def test_players_play_in_processes_of_their_own(monkeypatch):
    table = played("exact:ShermanMorrison", "exact:Inversion", monkeypatch=monkeypatch)
    assert [row[0] for row in table.rows] == ["Sherman-Morrison, BLAS f64", "inversion each round"]
    for row in table.rows:
        time, share = row[1].rstrip(")").split(" (")
        assert float(time.replace(",", "")) > 0.0
        assert 0.0 < float(share) < 1.1
        assert len(row) == len(BENCHMARKS["peers"].columns)
    assert table.rows[0][1].split(" ")[1] == table.rows[1][1].split(" ")[1]  # the same decisions


def test_a_peer_that_does_not_install_is_skipped_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setitem(PEERS, NOBODY.package, NOBODY)
    monkeypatch.setitem(PLAYERS, "nobody", Player("nobody", NOBODY.package, "libraries", "RiverSGD", ("dense",)))
    NOBODY.folder.mkdir(parents=True)
    (NOBODY.folder / "left").write_text("by an installation that was interrupted")
    table = played("nobody", "inversion", monkeypatch=monkeypatch)
    assert [row[0] for row in table.rows] == ["inversion each round"]
    assert "a-package-that-nobody-made 1.0: No matching distribution found" in table.note
    assert not (NOBODY.folder / "left").exists()
    assert not (NOBODY.folder / MARKER).exists()  # so it is tried again, not taken for whole


def test_a_player_that_fails_is_skipped_with_what_it_said(monkeypatch):
    monkeypatch.setitem(PLAYERS, "broken", Player("broken", "exact", "exact", "SparseScored", ("dense",)))
    table = played("broken", monkeypatch=monkeypatch)
    assert not table.rows
    assert "broken failed on dense-16: AttributeError: 'numpy.ndarray' object has no attribute 'indptr'" in table.note


def test_what_keeps_d_by_d_numbers_does_not_play_where_they_are_too_many():
    assert PLAYERS["exact:Inversion"].unfit(PROBLEMS["sparse-100000"]) == "keeps d x d numbers, 80 GB"


def test_a_name_that_is_not_known_is_refused():
    with pytest.raises(SystemExit, match="parts of names such as"):
        peers.peers(Options(only=("somebody",)))
    with pytest.raises(SystemExit, match="takes any of a, b; got c"):
        Options(only=("c",)).wanted("ab")


def test_work_that_is_timed_takes_turns():
    done = []
    found = timed({"a": lambda: done.append("a"), "b": lambda: done.append("b")}, 3)
    assert "".join(done) == "ababab"
    assert all(times.least > 0.0 and times.spread >= 0.0 for times in found.values())


def test_comparisons_are_paired_by_seed():
    base = np.array([1.0, 5.0, 9.0])
    assert difference(base + 2.0, base) == Mean(2.0, 0.0)
    value, half = ratio(1.5 * base, base)
    assert value == pytest.approx(1.5)
    assert half == pytest.approx(0.0, abs=1e-12)


def test_numbers_have_as_many_figures_as_mean_something():
    assert [cell(value) for value in (None, "x", 12_345, 0.12345, 123.4)] == ["", "x", "12,345", "0.123", "123"]
    assert cell(Mean(1234.5, 67.0)) == "1,234 ± 67"
    assert cell(Mean(-0.0612, 0.204)) == "-0.06 ± 0.20"
    assert cell(Mean(3.0, float("inf"))) == "3.00"  # one seed has no interval


def test_a_table_is_printed_and_written_alike():
    table = Table([["one", 1.5, None], ["two", None, None]], "A note.")
    assert text(["", "s", "x"], table) == "       s\none  1.5\ntwo     \nA note."
    assert markdown(["", "s", "x"], table).splitlines()[1:3] == ["| --- | --- | --- |", "| one | 1.5 |  |"]
