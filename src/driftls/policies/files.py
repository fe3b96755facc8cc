"""A policy's file, which may say anything: what all policies keep alike, and the parts that they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

import driftls.trackers
from driftls.errors import CorruptFileError, DimensionError
from driftls.features import from_header as features_of
from driftls.persistence import checked, expect, group, whole
from driftls.policies.evidence import Strength
from driftls.policies.models import Models
from driftls.trackers import Tracker
from driftls.widths import KINDS, Width


def common(policy: Any, models: Models) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file keeps of every policy, its models aside: header and arrays."""
    keys, rows = policy.keys.snapshot()
    sigmas = policy.sigmas
    header = {
        "class": type(policy).__name__,
        "dim": policy.dim,
        "width": {"kind": type(policy.width).__name__, **policy.width.settings()},
        "weights": {"kappa": None if sigmas else policy.kappa, "sigmas": sigmas, "epsilon": policy.epsilon},
        "draws": models.draws.header(),
        "rounds": models.rounds,
        "numbers": models.numbers,
        "strength": None if models.strength is None else [*models.strength, *(models.first or models.strength)],
        "keys": keys,
        "features": None if policy.features is None else policy.features.to_header(),
        "frozen": policy.frozen,
    }
    return header, {"unread": models.draws.unread(), **{f"keys.{name}": array for name, array in rows.items()}}


def restore_common(policy: Any, models: Models, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """What `common` wrote down."""
    models.set_numbers(header["numbers"])
    models.rounds = whole(header, "rounds")
    policy.features = None if header["features"] is None else features_of(header["features"])
    policy.frozen = bool(header.get("frozen", False))
    models.strength = models.first = None
    if header["strength"] is not None:
        numbers = checked(header["strength"], tuple[float, float, float, float])
        if not min(numbers) > 0.0:
            raise CorruptFileError(f"strengths of a prior must be positive, got {numbers}.")
        models.strength, models.first = Strength(*numbers[:2]), Strength(*numbers[2:])
    policy.keys.restore(header["keys"], group(arrays, "keys."))
    for choice in policy.keys.waiting.values():
        if choice.indices is None and len(choice.values) != policy.dim:
            raise DimensionError(f"a waiting choice has {len(choice.values)} features, expected {policy.dim}.")
    models.draws.restore(header["draws"], expect(arrays, "unread", (None,), np.float64))
    models.read_tape()


def tracker_of(header: dict[str, Any], arrays: dict[str, Any], functions: dict[str, Any]) -> Tracker:
    """The tracker that a policy's file names."""
    kind = getattr(driftls.trackers, str(header.get("class")), None)
    if not (isinstance(kind, type) and issubclass(kind, Tracker)):
        raise CorruptFileError(f"the file names an unknown tracker: {header.get('class')!r}.")
    return kind.from_snapshot(header, arrays, **functions)


def width_of(header: dict[str, Any]) -> Width:
    """The width that a policy's file names."""
    settings = dict(header["width"])
    kind = KINDS.get(str(settings.pop("kind")))
    if kind is None:
        raise CorruptFileError(f"the file names an unknown width: {header['width']!r}.")
    return kind(**settings)


def by_number(arrays: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The arrays whose names begin with a number and a dot, by the number and the rest of their names."""
    groups: dict[int, dict[str, Any]] = {}
    for name, array in arrays.items():
        number, _, rest = name.partition(".")
        if number.isdecimal():
            groups.setdefault(int(number), {})[rest] = array
    return groups


def seeds_header(generator: np.random.Generator) -> dict[str, Any]:
    """From which seeds are spawned, and how many were."""
    seeds: Any = generator.bit_generator.seed_seq
    return {
        "entropy": np.array(seeds.entropy, dtype=object).tolist(),
        "spawn_key": [int(entry) for entry in seeds.spawn_key],
        "spawned": seeds.n_children_spawned,
    }


def seeds_of(header: dict[str, Any]) -> np.random.Generator:
    """What `seeds_header` wrote down."""
    key, spawned = tuple(header["spawn_key"]), whole(header, "spawned")
    return np.random.default_rng(np.random.SeedSequence(header["entropy"], spawn_key=key, n_children_spawned=spawned))
