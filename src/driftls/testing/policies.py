"""What every policy must do, with one model for all arms or with one an arm."""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from driftls.errors import DriftlsError
from driftls.testing.calls import Round, bad_arms, bad_calls, rounds
from driftls.testing.trackers import LAYOUTS, hasty_threads, same_snapshot

Make = Callable[[], Any]  # of a policy: a fixed seed, so that two of them are alike
ROUNDS = 40


def played(policy: Any, count: int, kind: Callable[[Any], Any] = np.array, first: int = 0) -> list[int]:
    """Choose and learn, round by round; returns the choices."""
    chosen = []
    for arms, ids, rewards in rounds(policy, count, kind, first):
        k = policy.choose(arms, ids=ids)
        policy.learn(arms, float(rewards[k]), arm=k, ids=ids)
        chosen.append(k)
    return chosen


def stages(make: Make) -> Iterator[tuple[str, Any, Callable[[Any], Any]]]:
    """A policy that has seen nothing, dense rounds, sparse rounds."""
    yield "new", make(), np.array
    for name, kind in zip(("dense", "sparse"), LAYOUTS):
        policy = make()
        played(policy, 15, kind)
        yield name, policy, kind


def copy_of(policy: Any) -> Any:
    """A copy by way of what a file would hold."""
    return type(policy).from_snapshot(*policy.snapshot(), **policy.functions())


def same_policy(one: Any, two: Any, what: str) -> None:
    """Fail unless both stand at the same bits; how many draws were made ahead does not matter."""
    headers, arrays = zip(one.snapshot(), two.snapshot())
    for header, found in zip(headers, arrays):
        header.pop("draws")
        found.pop("unread")
        for tracker in [header["tracker"], *(model["tracker"] for model in header.get("models", ()))]:
            tracker.pop("draws", None)
        for name in [name for name in found if name.endswith("tracker.unread")]:
            found.pop(name)
    same_snapshot((headers[0], arrays[0]), (headers[1], arrays[1]), what)


# -- the same again ----------------------------------------------------------------------------------------------------


def the_seed_decides(make: Make) -> None:
    """Two of one seed decide alike, dense and sparse."""
    for kind in LAYOUTS:
        one, two = make(), make()
        assert played(one, ROUNDS, kind) == played(two, ROUNDS, kind), "two of one seed decided differently"
        same_policy(one, two, "two of one seed")


def resuming_equals_never_having_stopped(make: Make) -> None:
    """By save and load, copy, deepcopy and pickle, before the first round and in the midst; copies share nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy"

        def saved(policy: Any) -> Any:
            policy.save(path)
            return type(policy).load(path, **policy.functions())

        ways: list[Callable[[Any], Any]] = [saved, copy.copy, copy.deepcopy]
        if not make().functions():
            ways.append(lambda policy: pickle.loads(pickle.dumps(policy)))
        for kind in LAYOUTS:
            straight = make()
            decided = played(straight, ROUNDS, kind)
            for stop in (0, 17):
                for way in ways:
                    stopped = make()
                    before_stop = played(stopped, stop, kind)
                    kept = stopped.snapshot()
                    again = way(stopped)
                    same_snapshot(kept, again.snapshot(), f"a copy after {stop} rounds")
                    assert repr(again) == repr(stopped)
                    after = played(again, ROUNDS - stop, kind, stop)
                    assert before_stop + after == decided, f"resumed after {stop} rounds, it decided differently"
                    same_policy(again, straight, f"resumed after {stop} rounds")
                    same_snapshot(kept, stopped.snapshot(), "what its copy did")


def play_equals_choose_and_learn(make: Make) -> None:
    """Many rounds in one call decide as round by round: with all rewards, with those of a log, and with none."""
    for kind in LAYOUTS:
        for log in ("every reward", "a log", "no rewards"):
            one, many = make(), make()
            shown = np.random.default_rng(3).integers(-1, 5, ROUNDS)
            for first in range(0, ROUNDS, 10):
                block = list(rounds(one, 10, kind, first))
                slow = []
                for n, (arms, ids, rewards) in enumerate(block):
                    slow.append(one.choose(arms, ids=ids))
                    if log == "every reward" or (log == "a log" and shown[first + n] == slow[-1]):
                        one.learn(arms, float(rewards[slow[-1]]), arm=slow[-1], ids=ids)
                stack = sp.vstack if kind is sp.csr_array else np.vstack
                arms, table = stack([entry.arms for entry in block]), np.array([entry.rewards for entry in block])
                told: dict[str, Any] = {"ids": block[0].ids}
                if log == "a log":
                    told["shown"] = shown[first : first + 10]
                    table = table[np.arange(10), told["shown"]]
                fast = many.choose_many(arms, **told) if log == "no rewards" else many.play(arms, table, **told)
                assert fast.tolist() == slow, f"play decided differently, with {log}"
            same_policy(one, many, f"play and choose, with {log}")


# -- questions and refusals --------------------------------------------------------------------------------------------


def a_question_changes_nothing(make: Make) -> None:
    """scores, widths, probabilities, kappa, repr: also before the first choice, also refused."""
    for stage, policy, kind in stages(make):
        before = policy.snapshot()
        for entry in rounds(policy, 21, kind, 15):
            for question in questions(policy, entry):
                with suppress(DriftlsError):  # scores that are sampled; ids without a model
                    question()
                same_snapshot(before, policy.snapshot(), f"a question, {stage}")
        for name, call in bad_arms(policy, "scores"):
            refused(f"scores, {stage}, {name}", call)
            same_snapshot(before, policy.snapshot(), f"a refused question, {stage}, {name}")
        clean = {name: one for name, one, _ in stages(make)}[stage]
        assert played(policy, 20, kind, 15) == played(clean, 20, kind, 15), f"questions changed decisions, {stage}"


def questions(policy: Any, entry: Round) -> Iterator[Callable[[], Any]]:
    """Whatever can be asked."""
    for name in ("scores", "widths", "probabilities"):
        ask = getattr(policy, name)
        yield lambda ask=ask: ask(entry.arms, ids=entry.ids)  # type: ignore[misc]
        yield lambda ask=ask: ask(entry.arms, ids=["new", *entry.ids[1:]])  # type: ignore[misc]
        if not policy.disjoint:
            yield lambda ask=ask: ask(entry.arms)  # type: ignore[misc]
    yield lambda: (repr(policy), policy.kappa, policy.epsilon, policy.sigmas, policy.functions())
    yield lambda: policy.probability


def scores_decide(make: Make) -> None:
    """Without epsilon the arm of the highest score is chosen; told probabilities are those of the choice."""
    for _, policy, kind in stages(make):
        if policy.width.samples or (policy.disjoint and not len(policy)):
            continue
        for arms, ids, rewards in rounds(policy, 10, kind, 0):
            scores, share = policy.scores(arms, ids=ids), policy.probabilities(arms, ids=ids)
            assert scores.shape == share.shape == (len(ids),)
            assert abs(share.sum() - 1.0) < 1e-12
            assert share.min() >= policy.epsilon / len(ids) - 1e-15
            k = policy.choose(arms, ids=ids)
            if policy.epsilon == 0.0:
                assert k == int(np.argmax(scores)), "the arm of the highest score was not chosen"
            assert abs(policy.probability - share[k]) < 1e-12, "another probability than the one told"
            policy.learn(arms, float(rewards[k]), arm=k, ids=ids)


def only_allowed_arms_are_chosen(make: Make) -> None:
    """By a mask or by positions."""
    for _, policy, kind in stages(make):
        for n, (arms, ids, _) in enumerate(rounds(policy, 20, kind)):
            mask = np.random.default_rng(n).random(len(ids)) < 0.4
            mask[n % len(ids)] = True
            for allowed in (mask, mask.tolist(), np.flatnonzero(mask), np.flatnonzero(mask).tolist()):
                assert mask[policy.choose(arms, ids=ids, allowed=allowed)], "an arm that was not allowed"
            if not policy.width.samples:
                assert not policy.probabilities(arms, ids=ids, allowed=mask)[~mask].any()


def refused(what: str, call: Callable[[], Any]) -> None:
    """Fail unless the call ends in one of our errors, in the form of a sentence."""
    try:
        call()
    except DriftlsError as error:
        text = str(error)
        assert len(text) > 20, f"{what}: says too little: {text!r}"
        assert text.endswith("."), f"{what}: no sentence: {text!r}"
    except Exception as error:
        raise AssertionError(f"{what}: a raw {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"{what}: was accepted")


def a_refused_call_changes_nothing(make: Make) -> None:
    """Whatever cannot be used gets one of our errors, and not a bit of the policy changes."""
    for stage, policy, kind in stages(make):
        if stage != "new":
            _wait(policy, kind)
        before = policy.snapshot()
        for name, call in bad_calls(policy, kind):
            refused(f"{stage}, {name}", call)
            same_snapshot(before, policy.snapshot(), f"{stage}, {name}")
        clean = {name: one for name, one, _ in stages(make)}[stage]
        if stage != "new":
            _wait(clean, kind)
        assert played(policy, 20, kind, 15) == played(clean, 20, kind, 15), f"refusals changed decisions, {stage}"


def _wait(policy: Any, kind: Callable[[Any], Any], key: Any = "waiting") -> int:
    """A choice that waits for its reward."""
    arms, ids, _ = next(rounds(policy, 1, kind, 15))
    return int(policy.choose(arms, ids=ids, key=key))


# -- late rewards ------------------------------------------------------------------------------------------------------


def keys_keep_choices_until_their_rewards_come(make: Make) -> None:
    """In any order, across a file, each of them once; the same as passing the arms again."""
    for kind in LAYOUTS:
        _late_rewards(make, kind)


def _late_rewards(make: Make, kind: Callable[[Any], Any]) -> None:
    straight, keyed = make(), make()
    played(straight, 10, kind)
    played(keyed, 10, kind)
    waiting = list(rounds(keyed, 8, kind, 10))
    keys: list[Any] = ["text", 7, -1.5, ("a", 1), ("nested", ("b", 2.0)), np.int64(9), "", 0]
    for key, (arms, ids, _) in zip(keys, waiting):
        assert keyed.choose(arms, ids=ids, key=key) == straight.choose(arms, ids=ids), "a key changed the choice"
    chosen = [keyed.keys.choice(key).name[0] for key in keys]
    keyed = copy_of(keyed)
    for n in (5, 0, 7, 3, 1):
        arms, ids, rewards = waiting[n]
        k = ids.index(chosen[n])
        keyed.learn(reward=float(rewards[k]), key=keys[n])
        straight.learn(arms, float(rewards[k]), arm=k, ids=ids)
        refused("a reward that came twice", partial(keyed.learn, reward=1.0, key=keys[n]))
    refused("a key that was used", lambda: _wait(keyed, kind, "text"))
    assert len(keyed.keys.waiting) == 3
    assert played(keyed, 15, kind, 20) == played(straight, 15, kind, 20), "late rewards taught something else"


def rewards_may_come_in_any_form(make: Make) -> None:
    """Numbers of NumPy and booleans (a click) are rewards."""
    for value, forms in ((1.0, (1, True, np.True_, np.float32(1), np.int8(1), np.array(1.0))), (0.0, (0, False))):
        straight = make()
        arms, ids, _ = next(rounds(straight, 1))
        k = straight.choose(arms, ids=ids)
        straight.learn(arms, value, arm=k, ids=ids)
        for form in forms:
            policy = make()
            assert policy.choose(arms, ids=ids) == k
            policy.learn(arms, form, arm=np.int64(k), ids=tuple(ids))
            same_policy(straight, policy, f"reward {form!r}")


# -- threads -----------------------------------------------------------------------------------------------------------


def threads_take_turns(make: Make, workers: int = 4, calls: int = 20) -> None:
    """Any mix of calls from several threads equals some order of them."""
    for kind in LAYOUTS:
        _equals_an_order(make, kind, workers, calls)


def _equals_an_order(make: Make, kind: Callable[[Any], Any], workers: int, calls: int) -> None:
    policy, log = make(), []
    played(policy, 3, kind)
    known = list(rounds(policy, 10, kind))

    def work(worker: int) -> None:
        generator = np.random.default_rng(worker)
        for _ in range(calls):
            entry, action = known[generator.integers(10)], int(generator.integers(5))
            reward = float(generator.normal())
            with policy.lock:  # so that the order is known; what is called takes the same lock again
                log.append((action, entry, reward, _act(policy, action, entry, reward)))
            _act(policy, 3 + action % 2, entry, reward)

    _run(work, workers)
    serial = make()
    played(serial, 3, kind)
    for action, entry, reward, found in log:
        if action < 3:
            assert _act(serial, action, entry, reward) == found, "no order of calls decides so"
    same_policy(serial, policy, "threads and their order of calls")


def calls_without_order_lose_nothing(make: Make, workers: int = 4, calls: int = 25) -> None:
    """Rows that are all alike, from several threads that nobody holds back: every one is learned once."""
    policy = make()
    arms, ids, _ = next(rounds(policy, 1))
    if policy.disjoint:  # whose models are made by choosing; else the first calls come at once, too
        policy.choose(arms, ids=ids)

    def work(worker: int) -> None:
        for n in range(calls):
            policy.learn(arms, 0.5, arm=2, ids=ids)
            _act(policy, 3 + n % 2, Round(arms, ids, None), 0.0)

    _run(work, workers)
    serial = make()
    if serial.disjoint:
        serial.choose(arms, ids=ids)
    for _ in range(workers * calls):
        serial.learn(arms, 0.5, arm=2, ids=ids)
    same_policy(serial, policy, "threads that learn the same row")


def _run(work: Callable[[int], None], workers: int) -> None:
    with hasty_threads(), ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work, worker) for worker in range(workers)]:
            done.result()


def _act(policy: Any, action: int, entry: Round, reward: float) -> Any:
    """Choose, learn, choose and learn, ask, or copy."""
    arms, ids, _ = entry
    if action == 0:
        return policy.choose(arms, ids=ids)
    if action == 1:
        return policy.learn(arms, reward, arm=0, ids=ids)
    if action == 2:
        k = policy.choose(arms, ids=ids)
        policy.learn(arms, reward, arm=k, ids=ids)
        return k
    if action == 3 and not policy.width.samples:
        return policy.scores(arms, ids=ids).shape
    return copy_of(policy).dim


POLICY_CHECKS: list[Callable[[Make], None]] = [
    the_seed_decides,
    resuming_equals_never_having_stopped,
    play_equals_choose_and_learn,
    a_question_changes_nothing,
    scores_decide,
    only_allowed_arms_are_chosen,
    a_refused_call_changes_nothing,
    keys_keep_choices_until_their_rewards_come,
    rewards_may_come_in_any_form,
    threads_take_turns,
    calls_without_order_lose_nothing,
]
