"""What a fixed policy is worth: every line, its probabilities, a cross-fitted model, and known truths."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
from driftls.errors import InputError, LogFormatError, SettingsError
from driftls.estimates import Estimates
from driftls.features import Features, OuterProduct, UserOnly
from driftls.log_replay import replay
from driftls.logs import Block, Event, read, synthetic_day
from driftls.logs.log import EventLog, Log
from driftls.offpolicy import FOLDS, Fixed, estimate
from driftls.policies import DisjointLinUCB, LinTS, LinUCB, Random
from driftls.policies.registry import as_disjoint, make
from test_cli import driftls

ARMS = np.array([3, 5, 8])


class Kept(Log):
    """Blocks that are in memory already."""

    format = "kept"

    def __init__(self, *blocks: Block) -> None:
        super().__init__()
        self.kept = blocks

    def _blocks(self, size: int) -> Any:
        yield from self.kept


class Always:
    """A fixed policy with the same probabilities on every line."""

    dim, disjoint = 2, True

    def __init__(self, *probabilities: float) -> None:
        self.pi = np.array(probabilities)

    def block_probabilities(self, features: Any, block: Block) -> Any:
        return np.tile(self.pi, len(block))


def a_log(seed: int, lines: int = 400, *, propensities: bool = True, rates: Any = (0.1, 0.3, 0.6)) -> Block:
    """Three arms, shown with probabilities 0.1, 0.3 and 0.6; users have a constant and one more feature."""
    rng = np.random.default_rng(seed)
    p = np.array([0.1, 0.3, 0.6])
    shown = rng.choice(3, lines, p=p)
    x = rng.standard_normal(lines)
    return Block(
        time=np.arange(lines),
        pool=np.zeros(lines, np.int32),
        shown=shown.astype(np.int32),
        reward=(rng.random(lines) < np.array(rates)[shown]).astype(float),
        pool_start=np.array([0, 3]),
        pool_ids=ARMS,
        user_start=2 * np.arange(lines + 1),
        user_index=np.tile(np.array([0, 1], np.int32), lines),
        user_value=np.stack([np.ones(lines), x], axis=1).ravel(),
        propensity=p[shown] if propensities else None,
    )


def test_every_estimate_is_that_of_a_plain_loop_over_lines_and_folds() -> None:
    """The model by hand: ridge regression an arm and fold, on the other folds, of reward minus its mean"""
    block, policy, folds, ridge = a_log(1), Always(0.5, 0.3, 0.2), FOLDS, 20.0
    found = estimate(policy, Kept(block), features=UserOnly(2), ridge=ridge)
    line = np.arange(len(block), dtype=np.uint64)
    fold = ((line * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) % np.uint64(folds)
    X, y, mean = block.user_value.reshape(-1, 2), block.reward, block.reward.mean()
    q = np.empty((len(block), 3))
    for k in range(folds):
        for arm in range(3):
            own = (fold != k) & (block.shown == arm)
            theta = np.linalg.solve(X[own].T @ X[own] + ridge * np.eye(2), X[own].T @ (y[own] - mean))
            q[fold == k, arm] = np.clip(mean + X[fold == k] @ theta, 0.0, 1.0)
    rows = np.arange(len(block))
    weight = policy.pi[block.shown] / block.propensity
    clip = np.sqrt(len(block))
    expected = naive.off_policy(y, weight, q[rows, block.shown], q @ policy.pi, clip, np.inf)
    for name in ("ips", "snips", "clipped_ips", "dm", "dr", "shrunk_dr"):
        assert found.estimates[name].value == pytest.approx(expected[name], rel=1e-10), name
    assert found.lines == 400
    assert found.effective == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert found.largest_weight == pytest.approx(5.0)
    assert found.without_support == 0.0


def test_how_lines_are_cut_into_blocks_changes_nothing() -> None:
    block, policy = a_log(2), Always(0.0, 1.0, 0.0)
    whole = estimate(policy, Kept(block), features=UserOnly(2))
    cut = estimate(policy, Kept(block.part(0, 400), *[]), features=UserOnly(2))
    assert whole == cut
    parts = [block.part(0, 130), block.part(130, 131), block.part(131, 400)]
    again = estimate(policy, Kept(*parts), features=UserOnly(2))
    assert again.estimates["ips"].value == pytest.approx(whole.estimates["ips"].value, rel=1e-12)
    assert again.without_support == whole.without_support == pytest.approx(np.mean(block.shown != 1))


def test_recommended_and_others_meet_the_truth_over_many_logs() -> None:
    """300 logs, a policy that prefers what the log rarely shows: within four standard errors, with true intervals"""
    policy, truth = Always(0.8, 0.2, 0.0), 0.8 * 0.1 + 0.2 * 0.3
    found = [estimate(policy, Kept(a_log(seed, 300)), features=UserOnly(2)) for seed in range(100, 400)]
    for name in ("ips", "dr"):
        errors = np.array([one.estimates[name].value for one in found]) - truth
        assert abs(errors.mean()) < 4.0 * errors.std() / np.sqrt(300), name
    for name in ("ips", "snips", "dr", "shrunk_dr"):
        held = np.mean([one.estimates[name].low <= truth <= one.estimates[name].high for one in found])
        assert held > 0.95 - 3.0 * np.sqrt(0.05 * 0.95 / 300), name


def test_which_estimate_leads_depends_on_how_the_log_was_made() -> None:
    policy = Always(0.2, 0.3, 0.5)
    known = estimate(policy, Kept(a_log(3)), features=UserOnly(2))
    assert (known.leading, known.warnings) == ("shrunk_dr", ())
    assert "not uniform" in known.why
    unknown = estimate(policy, Kept(a_log(3, propensities=False)), features=UserOnly(2))
    assert (unknown.leading, list(unknown.estimates)) == ("dm", ["dm"])
    assert np.isnan(unknown.valid.low)
    assert any("no estimate is valid" in text for text in unknown.warnings)
    block = a_log(3)
    assert block.propensity is not None
    wrong = replace(block, propensity=np.where(block.shown == 2, 0.1, 0.6))
    assert any("do not fit" in text for text in estimate(policy, Kept(wrong), features=UserOnly(2)).warnings)


def test_arms_that_the_log_never_shows_are_told() -> None:
    block = a_log(4)
    never = replace(block, shown=np.where(block.shown == 0, 1, block.shown).astype(np.int32))
    found = estimate(Always(0.5, 0.25, 0.25), Kept(never), features=UserOnly(2))
    assert found.unseen == pytest.approx(0.5)
    assert any("never shows" in text for text in found.warnings)


def test_a_policy_is_asked_and_not_changed() -> None:
    day = synthetic_day(lines=300, seed=1)
    policy = DisjointLinUCB(136, seed=0)
    for event in list(day)[:60]:
        user = UserOnly(136).user(event)
        policy.learn(user, event.reward, arm=policy.choose(user, ids=event.arms), ids=event.arms)
    before = json.dumps(policy.snapshot()[0], default=str)
    found = estimate(policy, day)
    assert json.dumps(policy.snapshot()[0], default=str) == before
    assert 0.9 < found.without_support < 1.0  # it is deterministic: about one line in 36
    assert found.estimated.startswith("the policy as it is now")
    assert found.value is not None


def test_a_uniform_policy_uses_every_line_and_is_worth_the_logs_own_rate() -> None:
    day = synthetic_day(lines=400, seed=2, ctr=0.2)
    found = estimate(as_disjoint(make("random", 136, seed=0), 0), day)
    rate = float(np.mean([event.reward for event in day]))
    assert found.estimates["ips"].value == pytest.approx(rate)
    assert (found.without_support, found.largest_weight) == (0.0, pytest.approx(1.0))


def outer_events(lines: int, seed: int) -> list[Event]:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((6, 3))
    events = []
    for t in range(lines):
        arms = np.sort(rng.choice(6, 4, replace=False))
        user = rng.standard_normal(2)
        events.append(
            Event(t, arms, int(rng.integers(4)), float(rng.random() < 0.3), np.array([0, 1], np.int32), user,
                  propensity=0.25, arm_features=features[arms])
        )  # fmt: skip
    return events


@pytest.mark.parametrize(
    ("policy", "features"),
    [
        (LinUCB(6, seed=1), OuterProduct(2, 3)),
        (LinTS(6, seed=1), OuterProduct(2, 3)),
        (Random(6, seed=1), OuterProduct(2, 3)),
        (LinUCB(16, seed=1, epsilon=0.2), Features(16, cross=[("*", "id")])),
    ],
    ids=["LinUCB", "LinTS", "Random", "epsilon"],
)
def test_policies_over_arms_of_all_kinds_have_estimates(policy: Any, features: Any) -> None:
    found = estimate(policy, EventLog(outer_events(200, 1)), features=features)
    assert found.leading == "shrunk_dr"
    assert found.valid.low <= found.valid.value <= found.valid.high
    assert np.isfinite([one.value for one in found.estimates.values()]).all()


def test_probabilities_of_a_block_are_those_of_its_events() -> None:
    events = outer_events(30, 2)
    block, features = Block.from_events(events), OuterProduct(2, 3)
    for policy in (LinUCB(6, seed=1), LinUCB(6, seed=1, epsilon=0.3)):
        for event in events[:20]:
            policy.learn(features.arms(event), event.reward, arm=event.shown)
        fixed = Fixed(policy)
        expected = np.concatenate([policy.probabilities(features.arms(event)) for event in events])
        assert fixed.block_probabilities(features, block) == pytest.approx(expected, abs=1e-12)


def test_it_is_told_in_a_few_lines() -> None:
    text = str(estimate(Always(0.2, 0.3, 0.5), Kept(a_log(3)), features=UserOnly(2)))
    assert text.startswith("shrunk_dr leads, since the log is not uniform")
    assert "Estimated: a fixed policy." in text
    assert "effective" in text.splitlines()[-1]


def test_a_limit_of_no_lines_is_refused() -> None:
    with pytest.raises(SettingsError, match="limit must be a whole number of at least 1"):
        estimate(Always(1.0, 0.0, 0.0), Kept(a_log(3)), features=UserOnly(2), limit=0)


def test_an_empty_log_is_told() -> None:
    with pytest.raises(InputError, match="no line"):
        estimate(Always(1.0, 0.0, 0.0), Kept(), features=UserOnly(2))
    found = estimate(Always(1.0, 0.0, 0.0), Kept(a_log(3)), features=UserOnly(2), limit=50)
    assert isinstance(found, Estimates)
    assert found.lines == 50


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_estimates_frozen_policies_and_leads_with_the_valid_estimate(tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    synthetic_day(lines=1500, seed=1, ctr=0.1).write(path)
    done = driftls("replay", path, "--policy", "random", "--frozen", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["policies"]["random"]
    expected = estimate(as_disjoint(make("random", 136, seed=0), 0), read(path))
    assert told["estimates"]["shrunk_dr"]["value"] == pytest.approx(expected.valid.value, rel=1e-9)
    assert (told["leading"], told["lines"]) == ("shrunk_dr", 1500)
    text = driftls("replay", path, "--policy", "random", "--frozen", "--limit", 500).stdout
    assert "shrunk_dr leads, since " in text
    assert driftls("replay", path, "--policy", "random", "--frozen", "--out", tmp_path / "runs").returncode == 2


def test_the_command_warns_of_a_biased_replay(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    block = a_log(5, 1500)
    assert block.propensity is not None
    columns = {
        "time": block.time,
        "arms": [ARMS] * 1500,
        "shown": block.shown,
        "reward": block.reward,
        "user_index": [[0, 1]] * 1500,
        "user_value": list(block.user_value.reshape(-1, 2)),
    }
    pq.write_table(pa.table(columns), tmp_path / "blind.parquet")
    pq.write_table(pa.table(columns | {"propensity": block.propensity}), tmp_path / "known.parquet")
    ask = ("--policy", "random", "--dim", 2)
    known = driftls("replay", tmp_path / "known.parquet", *ask)
    assert known.returncode == 0, known.stderr
    assert "Estimate: snips" in known.stdout
    assert "Warning: replay is biased here" in known.stdout
    blind = driftls("replay", tmp_path / "blind.parquet", *ask)
    assert "no estimate is valid" in blind.stdout
    told = driftls("inspect", tmp_path / "known.parquet").stdout
    assert "that they fit how often arms were shown" in told


def test_a_folder_of_another_replay_is_refused_and_the_same_one_is_not(tmp_path: Path) -> None:
    path, runs = tmp_path / "day.gz", tmp_path / "runs"
    synthetic_day(lines=300, seed=1).write(path)
    ask = ("replay", path, "--policy", "random", "--out", runs)
    assert driftls(*ask).returncode == 0
    before = (runs / "random.policy").read_bytes()
    other = driftls(*ask, "--seed", 5)
    assert other.returncode == 2
    assert "holds results of other settings (seed was 0, is 5)" in other.stderr
    assert (runs / "random.policy").read_bytes() == before
    assert driftls(*ask).returncode == 0
    assert not list(runs.glob("*.checkpoint"))


def test_a_log_whose_names_a_policy_has_never_met_is_refused() -> None:
    policy = LinUCB(features=Features(cross="all"), seed=0)
    items = [{"id": 1}, {"id": 2}]
    policy.learn({"city": "Rome"}, 1.0, items=items, arm=policy.choose({"city": "Rome"}, items))
    log = synthetic_day(lines=200, seed=1)
    with pytest.raises(SettingsError, match=r"none of the log's features \(0.*which have met city=Rome"):
        estimate(policy.freeze(), log)
    with pytest.raises(SettingsError, match="none of the log's features"):
        replay(policy, log)
    fresh = LinUCB(features=Features(cross="all"), seed=0)
    replay(fresh, log)  # which meets them now
    assert estimate(fresh.freeze(), log).lines == 200


def test_a_table_is_no_log_until_its_columns_are_named(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"time": [1], "click": [0]})
    with pytest.raises(InputError, match=r"got a DataFrame\. Of tables and dicts: read_table\(table, shown"):
        read(table)
    table.to_csv(tmp_path / "events.csv")
    with pytest.raises(InputError, match=r"read_table\(path, shown=..., reward=...\), or --shown and --reward"):
        read(tmp_path / "events.csv")
    table.to_csv(tmp_path / "events.txt")
    with pytest.raises(LogFormatError, match=r"docs/logs\.md"):
        next(iter(read(tmp_path / "events.txt")))
