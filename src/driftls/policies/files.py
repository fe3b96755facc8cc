"""A policy and its parts to a file, and from one that may say anything."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

import driftls.trackers
from driftls.draws import GENERATORS
from driftls.errors import CorruptFileError
from driftls.features import from_header as features_of
from driftls.persistence import whole
from driftls.state import refuse
from driftls.trackers import Tracker
from driftls.widths import KINDS


def snapshot_of(policy: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a policy, and of all that it is made of."""
    index, seeds, width, sigmas, features = policy._index, policy._seeds, policy.width, policy.sigmas, policy.features
    (header, arrays), (tracker, rows), (keys, waiting) = (
        part.snapshot() for part in (policy._models, policy.tracker, policy.keys)
    )
    header |= {"class": type(policy).__name__, "dim": policy.dim, "tracker": tracker, "keys": keys}
    header |= {"reason": policy._reason, "auto": policy._auto}
    header |= {"ids": index.header(), "most": index.most, "forget_after": index.forget_after}
    header["width"] = {"kind": type(width).__name__, **width.settings()}
    header["weights"] = {"kappa": None if sigmas else policy.kappa, "sigmas": sigmas, "epsilon": policy.epsilon}
    header["features"] = None if features is None else features.to_header()
    header["seeds"] = None if seeds is None else seeds_header(seeds)
    return header, arrays | joined({"tracker": rows, "keys": waiting})


def restore(policy: Any, header: dict[str, Any], parts: dict[str, Any]) -> None:
    """What `snapshot_of` wrote down, but for the models; a file may say anything, so all of it is looked at."""
    policy._reason, policy._auto, policy.dim = str(header["reason"]), bool(header["auto"]), whole(header, "dim")
    policy._seeds = None if header["seeds"] is None else seeds_of(header["seeds"])
    policy.features = None if header["features"] is None else features_of(header["features"])
    policy.keys.restore(header["keys"], parts["keys"], policy.dim)
    index, disjoint, models = policy._index, policy.disjoint, header["models"]
    if disjoint:
        index.most = whole(header, "most")
        refuse(not all(choice.name for choice in policy.keys.waiting.values()), "waiting")
    refuse((disjoint or policy._auto) and policy._seeds is None, "seeds")
    index.restore(header["ids"], None if disjoint else whole(models[0], "slots") if models else 0)
    slots = sorted(index.slot_of.values()) if disjoint else [0] * len(models[:1])
    refuse(sorted(whole(model, "slot") for model in models) != slots, "models")


def tracker_of(header: dict[str, Any], arrays: dict[str, Any], functions: dict[str, Any]) -> Tracker:
    """The tracker that a policy's file names."""
    kind = getattr(driftls.trackers, str(header.get("class")), None)
    if not (isinstance(kind, type) and issubclass(kind, Tracker)):
        raise CorruptFileError(f"the file names an unknown tracker: {header.get('class')!r}.")
    return kind.from_snapshot(header, arrays, **functions)


def settings_of(header: dict[str, Any]) -> dict[str, Any]:
    """Width and settings that a policy's file names."""
    settings = dict(header["width"])
    kind = KINDS.get(str(settings.pop("kind")))
    if kind is None:
        raise CorruptFileError(f"the file names an unknown width: {header['width']!r}.")
    weights = {name: value for name, value in header["weights"].items() if value is not None}
    return {"width": kind(**settings), **weights, "forget_after": whole(header, "forget_after")}


def joined(groups: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Arrays by group as arrays by name, each with its group and a dot in front."""
    return {f"{group}.{name}": array for group, arrays in groups.items() for name, array in arrays.items()}


def grouped(arrays: dict[str, Any]) -> defaultdict[str, dict[str, Any]]:
    """What `joined` has put together, by what stands before the first dot."""
    groups: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, array in arrays.items():
        group, _, rest = name.partition(".")
        groups[group][rest] = array
    return groups


def seeds_header(generator: np.random.Generator) -> dict[str, Any]:
    """From which seeds are spawned, and how many were."""
    seeds: Any = generator.bit_generator.seed_seq
    return {
        "kind": type(generator.bit_generator).__name__,
        "entropy": np.array(seeds.entropy, dtype=object).tolist(),
        "spawn_key": [int(entry) for entry in seeds.spawn_key],
        "spawned": seeds.n_children_spawned,
    }


def seeds_of(header: dict[str, Any]) -> np.random.Generator:
    """What `seeds_header` wrote down."""
    key, spawned, kind = tuple(header["spawn_key"]), whole(header, "spawned"), header.get("kind", "PCG64")
    refuse(kind not in GENERATORS, "kind")
    seeds = np.random.SeedSequence(header["entropy"], spawn_key=key, n_children_spawned=spawned)
    return np.random.Generator(getattr(np.random, kind)(seeds))
