"""The benchmark: problems, players, the loop in a process of its own, and the page. No network."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest
from scipy.sparse import issparse

from driftls import report
from driftls.bench import Options, chosen, page, run
from driftls.bench.environments import MARKER, PEERS, Peer
from driftls.bench.page import PARTS
from driftls.bench.play import later
from driftls.bench.players import PLAYERS, Player, exact, peers
from driftls.bench.problems import PROBLEMS, rounds
from driftls.bench.run import TUNED, TUNED_ON, write_day
from driftls.errors import SettingsError
from test_cli import driftls

NOBODY = Peer("a-package-that-nobody-made", "1.0")


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    path = tmp_path_factory.mktemp("day") / "day.npz"
    write_day(path, seed=3, lines=300)
    return str(path)


@pytest.fixture(scope="module")
def little():
    """Three sizes and a fixed pool, with ours and the baseline."""
    options = Options(repetitions=2, rounds=40, players=("ours:saga", "f64", "ours:pool-gram"), peers=False)
    return run(chosen(["dense-16", "dense-64", "dense-136", "fixed"], quick=False), options), options


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
        ("dense-16", ["Symmetric", "Inversion", "Cholesky", "Batched"]),
        ("sparse-136", ["Symmetric", "SparseScored", "Batched"]),
        ("fixed", ["Symmetric", "Inversion", "Kept", "Gram"]),
        ("regression", ["Symmetric", "Inversion", "Cholesky", "Batched"]),
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
            assert player.name in {"exact": exact, "peers": peers}[player.file].PLAYERS
        for name in TUNED_ON:
            problem = PROBLEMS[name]
            if player.grid and problem.kind in player.kinds and not player.unfit(problem):
                assert found[player.like or player.key][name] in player.settings(problem), (player.key, name)


def test_players_learn_in_processes_of_their_own(little):
    result, _ = little
    assert [row["label"] for row in result.rows if row["problem"] == "fixed"] == [
        "driftls SAGA, diagonal widths",
        "driftls FixedPool, Gram",
        "Sherman-Morrison, BLAS f64",
    ]
    for row in result.rows:
        assert row["rounds"] == 30  # the last point before 40
        assert 0.0 < row["share"] < 1.1
        assert row["choose"] > 0.0
        assert row["learn"] > 0.0
        assert row["spread"] >= 0.0
        assert [one["rounds"] for one in row["runs"]] == [40, 40]
        assert row["peak"] > row["own"] >= 0
    base = [row for row in result.rows if row["player"] == "exact:ShermanMorrison" and row["problem"] != "fixed"]
    assert [row["ratio"] for row in base] == [1.0, 1.0, 1.0]


def test_the_page_holds_tables_and_figures(little, tmp_path):
    result, options = little
    result.skipped.append({"player": "somebody", "problem": "all", "reason": "no wheel <for> this machine"})
    made = page(result, options)
    text = report.html(made)
    for name in ("dense-16", "dense-64", "dense-136", "fixed", "skipped"):
        assert f'id="table-{name}"' in text
    for name in ("time-dense-ours", "reward-dense-16", "reward-fixed"):
        assert f'id="figure-{name}"' in text
    assert "time-dense-peers" not in text  # nobody of them played
    assert "no wheel &lt;for&gt; this machine" in text
    assert "ratio to Sherman-Morrison, BLAS f64" in text
    assert len(made.sections) == 4 < len(PARTS)


def test_a_peer_that_does_not_install_is_skipped_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("DRIFTLS_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setitem(PEERS, NOBODY.package, NOBODY)
    monkeypatch.setitem(PLAYERS, "nobody", Player("nobody", NOBODY.package, "peers", "Coba", ("dense",)))
    NOBODY.folder.mkdir(parents=True)
    (NOBODY.folder / "left").write_text("by an installation that was interrupted")
    options = Options(repetitions=1, rounds=5, players=("nobody", "inversion"), pip=("--no-index",))
    result = run(chosen(["dense-16"], quick=False), options)
    assert [row["label"] for row in result.rows] == ["inversion each round"]
    (one,) = result.skipped
    assert one["player"] == "nobody"
    assert one["reason"].startswith("a-package-that-nobody-made 1.0: No matching distribution found")
    assert not (NOBODY.folder / "left").exists()
    assert not (NOBODY.folder / MARKER).exists()  # so it is tried again, not taken for whole


def test_a_player_that_fails_is_skipped_with_what_it_said(monkeypatch):
    broken = Player("broken", "exact", "exact", "SparseScored", ("dense",))
    monkeypatch.setitem(PLAYERS, "broken", broken)
    result = run(chosen(["dense-16"], quick=False), Options(repetitions=1, rounds=5, players=("broken",)))
    assert not result.rows
    assert result.skipped[0]["reason"].startswith("AttributeError: 'numpy.ndarray' object has no attribute 'indptr'")


def test_what_is_too_large_is_said():
    result = run(chosen(["sparse-100000"], quick=False), Options(players=("inversion",), peers=False))
    assert result.skipped[0]["reason"] == "keeps d x d numbers, 80 GB"


@pytest.mark.parametrize(
    ("names", "players", "complaint"),
    [(["dense-17"], (), "problems must be among dense-16"), (None, ("nobody",), "players must be parts of names")],
)
def test_a_name_that_is_not_known_is_refused(names, players, complaint):
    with pytest.raises(SettingsError, match=complaint):
        run(chosen(names, quick=True), Options(players=players))


def test_the_command_prints_a_table_and_writes_the_page(tmp_path):
    arguments = ["--problems", "dense-16", "--players", "f64", "--no-peers", "--repetitions", 1, "--seconds", 0.02]
    done = driftls("bench", *arguments, "--out", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Sherman-Morrison, BLAS f64" in done.stdout
    assert done.stdout.endswith(f"The report is {tmp_path / 'report.html'}\n")
    assert 'id="table-dense-16"' in (tmp_path / "report.html").read_text()
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["rows"][0]["player"] == "exact:ShermanMorrison"
    assert kept["settings"]["repetitions"] == 1
