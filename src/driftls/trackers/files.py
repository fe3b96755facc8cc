"""Trackers in files: what a snapshot holds, and a tracker that stands where it was taken."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from driftls import schedules
from driftls.errors import CorruptFileError, SettingsError
from driftls.history import History
from driftls.kernels.learn import NOTHING
from driftls.persistence import checked, expect

if TYPE_CHECKING:
    from driftls.trackers.base import Tracker

Kind = TypeVar("Kind", bound="Tracker")
SCHEDULES = ("step_size", "regularisation")
# of the record, for every tracker
NUMBERS = (*("max_norm2", "error2", "max_y2", "a", "b", "p", "q"), *("watched", "progressive", "baseline", "mean_y"))


def snapshot(tracker: Tracker) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays."""
    settings = tracker.settings()
    header: dict[str, Any] = {
        "class": type(tracker).__name__,
        "settings": settings | {name: schedules.to_header(settings[name]) for name in SCHEDULES if name in settings},
        "draws": tracker._draws.header(),
        "history": tracker.history.header(),
        "sparse": tracker.sparse,
        "ridge_given": tracker.ridge_given,
        "health": tracker._watch.header(),
        "numbers": {name: tracker.frame[name] for name in (*NUMBERS, *tracker.numbers)},
    }
    arrays: dict[str, Any] = {"unread": tracker._draws.unread()}
    if tracker.sparse is not None:
        arrays |= {f"state.{name}": np.array(array) for name, array in kept_state(tracker).items()}
        arrays |= {f"history.{name}": np.array(array) for name, array in tracker.history.saved_arrays().items()}
        if tracker.units is not None and tracker._owns_units:
            header["units"], kept = tracker.units.snapshot()
            arrays |= {f"units.{name}": array for name, array in kept.items()}
    return header, arrays


def kept_state(tracker: Tracker) -> dict[str, NDArray[Any]]:
    """The state as a file keeps it: of a table with an entry a row, those of the rows held."""
    held = len(tracker.history)
    return {name: array[:held] if name == "residual" else array for name, array in tracker._state.items()}


def settings_of(header: dict[str, Any], functions: dict[str, Any]) -> dict[str, Any]:
    """What a constructor is given; schedules that were functions of n come from the caller."""
    settings, functions = dict(header["settings"]), dict(functions)
    for name in SCHEDULES:
        if name in settings:
            kept = settings[name]
            if kept is None and name not in functions:
                raise SettingsError(f"{name} was a function of n, which no file can hold: pass {name}= to load().")
            settings[name] = functions.pop(name) if kept is None else schedules.from_header(kept)
    if functions:
        raise SettingsError(f"load() takes no {', '.join(functions)}: it is kept in the file.")
    return settings


def make(cls: type[Kind], settings: dict[str, Any], history: History) -> Kind:
    """A new tracker of these settings."""
    settings = settings | {"history": None if history.kind == NOTHING else history}
    kind: Any = cls
    while not (kind.__module__.startswith("driftls.") or takes(kind, settings)):
        kind = kind.__mro__[1]  # a constructor of a user's own: what it would have passed on is in the settings
    tracker = cls.__new__(cls)
    kind.__init__(tracker, **settings)
    return tracker


def takes(kind: Any, settings: dict[str, Any]) -> bool:
    """Whether a constructor has all these settings."""
    try:
        inspect.signature(kind).bind(**settings)
    except TypeError:
        return False
    return True


def restore(tracker: Tracker, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Let a new tracker stand where the snapshot was taken; a file may say anything, so all of it is looked at."""
    tracker.ridge_given = bool(header["ridge_given"])
    tracker._watch.restore(header["health"])
    tracker._draws.restore(header["draws"], expect(arrays, "unread", (None,), np.float64))
    if tracker._draws.tape.size < tracker._draws_per_row:
        raise CorruptFileError("fewer draws fit its tape than one row needs. Restore the file from a copy.")
    sparse: Any = checked(header["sparse"], bool | None)  # type: ignore[arg-type]
    if sparse is None:
        return
    expect(
        arrays, "state.coords", (tracker.quantities, tracker.inner), np.float64
    )  # before anything of that size is made
    tracker.history.restore(tracker.inner, sparse, header["history"], group(arrays, "history."))
    tracker._wire(sparse)
    if tracker.units is not None and "units" in header:
        tracker.units.restore(header["units"], group(arrays, "units."))
    numbers = {name: checked(header["numbers"][name], float) for name in (*NUMBERS, *tracker.numbers)}
    for name, value in numbers.items():
        if not np.isfinite(value):
            raise CorruptFileError(f"{name} must be a finite number, got {value}. Restore the file from a copy.")
    if tracker.quantities == 1 and numbers["b"] != 0.0:  # there is no g that it could multiply
        raise CorruptFileError("b must be 0 for this tracker. Restore the file from a copy.")
    tracker._restore_numbers(numbers)
    tracker._follow_history()
    for name, array in kept_state(tracker).items():
        kept = expect(arrays, f"state.{name}", array.shape, array.dtype)
        if not np.isfinite(kept).all():
            raise CorruptFileError(f"`{name}` is not finite. Restore the file from a copy.")
        array[...] = kept
    tracker._restored()


def group(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def revive(kind: type[Tracker], header: dict[str, Any], arrays: dict[str, Any], functions: dict[str, Any]) -> Tracker:
    """What a pickle calls."""
    return kind.from_snapshot(header, arrays, **functions)
