"""What trackers and policies must do alike: follow their seed, go on from a copy, refuse without a trace."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from driftls.errors import DriftlsError

Make = Callable[[], Any]  # what it makes twice must be alike: give it a seed
Check = Callable[[Make], None]
Layout = Callable[[Any], Any]
LAYOUTS: tuple[Layout, ...] = (np.array, sp.csr_array)


class Life(NamedTuple):
    """How the checks treat a tracker, or a policy."""

    teach: Callable[[Any, int, int, Layout], list[Any]]  # rows or rounds from the first to before the last: the answers
    questions: Callable[[Any, Layout], Iterator[Callable[[], Any]]]
    bad_calls: Callable[[Any, Layout], Iterator[tuple[str, Callable[[], Any]]]]


def good_rows(dim: int, count: int = 60, *, seed: int = 5) -> tuple[Any, Any]:
    """Rows of norm 1 at most, some entries of which are 0, and rewards of a noisy linear model."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(count, dim)) * (generator.random((count, dim)) < 0.6)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    X += 0.0  # no zero has a sign
    return X, X @ generator.normal(size=dim) + 0.1 * generator.normal(size=count)


def bad_matrices(dim: int, count: int) -> dict[str, Any]:
    """So many rows that must be refused, by what is wrong with them."""
    X, far = good_rows(dim, count)[0], sp.csr_array(np.ones((count, dim)) / dim)
    X[-1, -1], far.indices[-1] = np.nan, dim
    matrices = {"not finite": X, "not finite, sparse": sp.csr_array(X), "an index far out": far}
    wider = np.ones((count, dim + 1))
    matrices |= {"other features": wider, "other features, sparse": sp.csr_array(wider), "a cube": X[None]}
    return matrices | {"complex": X + 1j, "text": "text", "None": None}


def same_snapshot(before: Any, after: Any, what: str) -> None:
    """Fail unless two snapshots are equal to the bit."""
    assert before[0] == after[0], f"{what}: the header changed from {before[0]} to {after[0]}"
    assert before[1].keys() == after[1].keys(), f"{what}: other arrays than before"
    for name, array in before[1].items():
        assert array.tobytes() == after[1][name].tobytes(), f"{what}: `{name}` changed"


def same(one: Any, two: Any, what: str) -> None:
    """Fail unless both stand at the same bits; how many draws were made ahead does not matter."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items() if name != "draws"}
        return [plain(item) for item in value] if isinstance(value, list) else value

    def without_draws(header: Any, arrays: dict[str, Any]) -> Any:
        return plain(header), {name: array for name, array in arrays.items() if not name.endswith("unread")}

    same_snapshot(without_draws(*one.snapshot()), without_draws(*two.snapshot()), what)


def copy_of(thing: Any) -> Any:
    """A copy by way of what a file would hold."""
    return type(thing).from_snapshot(*thing.snapshot(), **thing.functions())


def refused(what: str, call: Callable[[], Any], kind: type[DriftlsError] = DriftlsError) -> str:
    """What the call says; fail unless it ends in one of our errors, in the form of a sentence."""
    try:
        call()
    except kind as error:
        text = str(error)
        assert len(text) > 20, f"{what}: says too little: {text!r}"
        assert text.endswith("."), f"{what}: no sentence: {text!r}"
    except Exception as error:
        raise AssertionError(f"{what}: a raw {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"{what}: was accepted")
    return text


def stages(life: Life, make: Make) -> Iterator[tuple[str, Any, Layout]]:
    """One that has seen nothing, one that has seen dense rows, one that has seen sparse ones."""
    yield "new", make(), np.array
    for name, layout in zip(("dense", "sparse"), LAYOUTS):
        thing = make()
        life.teach(thing, 0, 15, layout)
        yield name, thing, layout


# -- checks ----------------------------------------------------------------------------------------------------------


def the_seed_decides(life: Life, make: Make) -> None:
    """Two of one seed answer alike, dense and sparse."""
    for layout in LAYOUTS:
        one, two = make(), make()
        assert life.teach(one, 0, 40, layout) == life.teach(two, 0, 40, layout), "two of one seed differ"
        same(one, two, "two of one seed")


def resuming_equals_never_having_stopped(life: Life, make: Make) -> None:
    """By save and load and as a copy, at the beginning and in the midst; copies share nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"

        def saved(thing: Any) -> Any:
            thing.save(path)
            return type(thing).load(path, **thing.functions())

        for layout in LAYOUTS:
            straight = make()
            answers = life.teach(straight, 0, 17, layout), life.teach(straight, 17, 40, layout)
            for stop, way in ((17, saved), (17, copy.deepcopy), (0, saved)):
                stopped = make()
                life.teach(stopped, 0, stop, layout)
                kept, again = stopped.snapshot(), way(stopped)
                same_snapshot(kept, again.snapshot(), f"a copy after {stop}")
                assert repr(again) == repr(stopped) or stopped.functions()
                if stop == 0:
                    assert life.teach(again, 0, 17, layout) == answers[0], "resumed at once, it answered differently"
                assert life.teach(again, 17, 40, layout) == answers[1], f"resumed after {stop}, it answered differently"
                same(again, straight, f"resumed after {stop}")
                same_snapshot(kept, stopped.snapshot(), "what its copy did")


def a_question_changes_nothing(life: Life, make: Make) -> None:
    """Whatever can be asked, also before anything was learned, also in a way that is refused."""
    for stage, thing, layout in stages(life, make):
        before = thing.snapshot()
        for question in life.questions(thing, layout):
            with suppress(DriftlsError):  # no answer is an answer: scores that are sampled, ids without a model
                question()
            same_snapshot(before, thing.snapshot(), f"a question, {stage}")
        _goes_on(life, make, stage, thing, layout)


def a_refused_call_changes_nothing(life: Life, make: Make) -> None:
    """Whatever cannot be used gets one of our errors, and not a bit changes."""
    for stage, thing, layout in stages(life, make):
        before = thing.snapshot()
        for name, call in life.bad_calls(thing, layout):
            refused(f"{stage}, {name}", call)
            same_snapshot(before, thing.snapshot(), f"{stage}, {name}")
        _goes_on(life, make, stage, thing, layout)


def _goes_on(life: Life, make: Make, stage: str, thing: Any, layout: Layout) -> None:
    clean = {name: one for name, one, _ in stages(life, make)}[stage]
    assert life.teach(thing, 15, 30, layout) == life.teach(clean, 15, 30, layout), f"something changed, {stage}"


def checks(life: Life) -> list[Check]:
    """All of these, for things that are treated so."""
    found = (
        *(the_seed_decides, resuming_equals_never_having_stopped),
        *(a_question_changes_nothing, a_refused_call_changes_nothing),
    )
    return [update_wrapper(partial(check, life), check) for check in found]
