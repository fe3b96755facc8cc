"""The tape of uniforms from which rows are drawn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.random import MT19937, PCG64DXSM, SFC64, Generator, Philox, SeedSequence

from cases import rows
from driftls.draws import TAPE, Draws
from driftls.errors import CorruptFileError, SettingsError
from driftls.history import Reservoir
from driftls.testing.trackers import same_snapshot, same_tracker
from driftls.trackers import RAW, SAGA

GENERATORS = {
    "seed": lambda: 7,
    "sequence": lambda: SeedSequence(7),
    "PCG64": lambda: np.random.default_rng(7),
    "MT19937": lambda: Generator(MT19937(7)),
    "Philox": lambda: Generator(Philox(7)),
    "SFC64": lambda: Generator(SFC64(7)),
    "PCG64DXSM": lambda: Generator(PCG64DXSM(7)),
}
every_generator = pytest.mark.parametrize("seed", GENERATORS.values(), ids=GENERATORS)


# -- draws ---------------------------------------------------------------------------------------------------------


@every_generator
def test_the_tape_is_the_generators_own_stream_however_it_is_taken(seed):
    expected = np.random.default_rng(seed()).random(4 * TAPE)
    whole, pieces, small = Draws(seed()), Draws(seed()), Draws(seed(), size=5)
    np.testing.assert_array_equal(whole.take(4 * TAPE), expected)
    sizes = [1, 2, TAPE - 1, 0, TAPE, TAPE + 3, 17]
    taken = np.concatenate([pieces.take(size) for size in sizes])
    np.testing.assert_array_equal(taken, expected[: sum(sizes)])
    np.testing.assert_array_equal(small.take(100), expected[:100])


@every_generator
@pytest.mark.parametrize("taken", [0, 1, 100, TAPE - 1, TAPE, TAPE + 1])
def test_a_restored_tape_goes_on_where_it_stood(seed, taken):
    draws = Draws(seed())
    draws.take(taken)
    header, unread = json.loads(json.dumps(draws.header())), draws.unread()
    again = Draws(0)
    again.restore(header, unread)
    np.testing.assert_array_equal(again.take(2 * TAPE), draws.take(2 * TAPE))


def test_getting_ready_never_loses_or_repeats_a_draw():
    generator = np.random.default_rng(1)
    draws, expected = Draws(3), np.random.default_rng(3).random(40 * TAPE)
    read = 0
    while read < 20 * TAPE:
        wanted = int(generator.integers(0, TAPE + 1))
        ahead = draws.ready(wanted)
        assert ahead >= wanted
        use = int(generator.integers(0, wanted + 1))
        at = int(draws.cursor[0])
        np.testing.assert_array_equal(draws.tape[at : at + use], expected[read : read + use])
        draws.cursor[0] += use
        read += use


@pytest.mark.parametrize("name", ["seed", "Generator", "BitGenerator", "RandomState", "nothing", "__doc__", None])
def test_a_random_state_that_names_no_bit_generator_is_refused(name):
    with pytest.raises(CorruptFileError, match="unknown generator"):
        Draws(0).restore({"bit_generator": name}, np.empty(0))


def test_more_kept_draws_than_there_can_be_are_refused():
    draws = Draws(0)
    with pytest.raises(CorruptFileError, match="more than the 8192"):
        Draws(1).restore(draws.header(), np.zeros(TAPE + 1))


@pytest.mark.parametrize("unread", [[1.0], [-1e-300], [0.5, np.nan], [np.inf]])
def test_kept_draws_that_are_no_uniforms_are_refused(unread):
    with pytest.raises(CorruptFileError, match=r"must lie in \[0, 1\)"):
        Draws(0).restore(Draws(0).header(), np.array(unread))


@pytest.mark.parametrize("value", [-1, 5, 625, 2**31, 10**9, None, "0", 0.5])
@pytest.mark.parametrize(("kind", "place"), [(MT19937, "pos"), (Philox, "buffer_pos")])
def test_a_place_outside_of_a_generators_buffer_is_refused(kind, place, value):
    header = Draws(Generator(kind(7))).header()
    within = header["state"] if place == "pos" else header
    within[place] = value
    if place == "pos" and value == 5:
        Draws(0).restore(header, np.empty(0))
        return
    with pytest.raises(CorruptFileError, match=f"{place} of the random state must lie in 0"):
        Draws(0).restore(header, np.empty(0))


@pytest.mark.parametrize("size", [0, 3, -1, 2**60])
def test_a_tape_of_another_size_than_can_be_is_refused(size):
    with pytest.raises(CorruptFileError, match="more than the"):
        Draws(0).restore({**Draws(0).header(), "tape": size}, np.zeros(4))


@pytest.mark.parametrize("seed", ["text", -1, 1.5, object()])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(SettingsError, match="seed must be"):
        SAGA(2, seed=seed, **RAW)


@pytest.mark.parametrize("steps", [1, 3, 1000])
@pytest.mark.parametrize("reservoir", [False, True])
def test_block_size_never_changes_a_result_across_refills_of_the_tape(steps, reservoir):
    generator = np.random.default_rng(0)
    count = 3 * TAPE // steps + 50
    X = generator.normal(size=(count, 2))
    y = X @ [1.0, 2.0] + generator.normal(size=count)

    def learned(sizes):
        tracker = SAGA(2, steps=steps, seed=4, **({"history": Reservoir(30)} if reservoir else {}), **RAW)
        first = 0
        for size in sizes:
            tracker.partial_fit(X[first : first + size], y[first : first + size])
            first += size
        for n in range(first, count):
            tracker.update(X[n], y[n])
        return tracker

    one, whole = learned([]), learned([count])
    ragged = learned([3, 1, count // 3, 0, count // 2])
    for other in (whole, ragged):
        same_tracker(other, one, "another size of blocks")


def test_more_steps_a_row_than_the_tape_usually_holds():
    X, y = rows()
    tracker = SAGA(X.shape[1], steps=TAPE + 1000, seed=0, **RAW).partial_fit(X[:8], y[:8])
    assert tracker.tracking_error().relative < 1e-9  # that many steps solve 8 rows


@every_generator
def test_a_saved_tracker_goes_on_with_its_own_generator(seed, tmp_path):
    X, y = rows()
    straight = SAGA(X.shape[1], seed=seed(), **RAW).partial_fit(X, y)
    stopped = SAGA(X.shape[1], seed=seed(), **RAW).partial_fit(X[:30], y[:30])
    stopped.save(tmp_path / "t.safetensors")
    again = SAGA.load(tmp_path / "t.safetensors").partial_fit(X[30:], y[30:])
    for tracker in (again, straight):  # on, until the tape was filled anew twice
        tracker.partial_fit(np.tile(X, (30, 1)), np.tile(y, 30))
    assert 30 * len(y) * again.steps > 2 * TAPE
    same_snapshot(again.snapshot(), straight.snapshot(), "a saved generator")
