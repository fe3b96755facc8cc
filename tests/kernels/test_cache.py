"""The machinery below the maths: compilation, its cache, frames, the choice by type, prefetching."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError

import driftls.kernels
from checks import CASES, HISTORIES, SEED, make, rows
from driftls.history import Growing, History, Reservoir, Window
from driftls.kernels import compile as compilation
from driftls.kernels import frames, track
from driftls.kernels.compile import by_type, kernel
from driftls.kernels.frames import Coordinates, Indices, Integers, Matrix, ValueRows, Values, Vector
from driftls.trackers import CD, GD, SAG, SAGA, SVRG, base

TESTS = Path(__file__).parent


def run(code: str, *, timeout: float = 120.0, **environment: str) -> str:
    """What a fresh Python process prints."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=variables,
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -- the cache on disk ---------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(tmp_path):
    """A package with the real compile.py, a leaf and a caller in different files, and a caller outside the folder."""
    kernels = tmp_path / "tiny" / "kernels"
    others = tmp_path / "tiny" / "others"
    for folder in (kernels, others):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    (kernels.parent / "__init__.py").write_text("")
    shutil.copy(compilation.__file__, kernels / "compile.py")
    line = "from tiny.kernels.compile import kernel\n"
    (kernels / "leaf.py").write_text(f"{line}@kernel\ndef leaf(x):\n    return x + 1.0\n")
    caller = "@kernel\ndef caller(x):\n    return 10.0 * leaf(x)\n"
    (kernels / "caller.py").write_text(f"{line}from tiny.kernels.leaf import leaf\n{caller}")
    (others / "leaf.py").write_text(f"{line}@kernel\ndef leaf(x):\n    return x + 2.0\n")
    (others / "caller.py").write_text(f"{line}from tiny.others.leaf import leaf\n{caller}")
    return tmp_path


def answers(folder: Path, cache: Path) -> list[str]:
    """What both callers give for 1.0, each with the number of its answers that came from the disk."""
    return run(
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from tiny.kernels.caller import caller as a\n"
        "from tiny.others.caller import caller as b\n"
        "print(a(1.0), b(1.0), sum(a.stats.cache_hits.values()), sum(b.stats.cache_hits.values()))",
        DRIFTLS_CACHE_DIR=str(cache),
    ).split()


def test_a_changed_leaf_in_another_file_is_never_served_stale(tiny):
    cache = tiny / "cache"
    assert answers(tiny, cache) == ["20.0", "30.0", "0", "0"]
    assert answers(tiny, cache) == ["20.0", "30.0", "1", "1"]
    outside = tiny / "tiny" / "others" / "leaf.py"
    outside.write_text(outside.read_text().replace("2.0", "7.0"))
    assert answers(tiny, cache) == ["20.0", "80.0", "1", "0"]
    inside = tiny / "tiny" / "kernels" / "leaf.py"
    inside.write_text(inside.read_text().replace("1.0", "5.0"))
    assert answers(tiny, cache) == ["60.0", "80.0", "0", "0"]


def test_a_cache_folder_that_cannot_be_written_costs_a_compilation_and_nothing_else(tiny):
    blocked = tiny / "a-file"
    blocked.write_text("")
    assert answers(tiny, blocked / "below") == ["20.0", "30.0", "0", "0"]


def test_a_damaged_cache_is_compiled_over(tiny):
    cache = tiny / "cache"
    answers(tiny, cache)
    for file in cache.rglob("*.nb*"):
        file.write_bytes(file.read_bytes()[:40])
    assert answers(tiny, cache)[:2] == ["20.0", "30.0"]


def test_caches_of_other_versions_are_removed_and_ours_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTLS_CACHE_DIR", str(tmp_path))
    for name in ("old", "older", compilation.DIGEST):
        (tmp_path / "kernels" / name).mkdir(parents=True)
    assert compilation.remove_stale_kernels() == 2
    assert [path.name for path in (tmp_path / "kernels").iterdir()] == [compilation.DIGEST]


def test_the_cache_lies_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.delenv("DRIFTLS_CACHE_DIR", raising=False)
    assert compilation.cache_root() == Path("/somewhere/driftls")
    monkeypatch.setenv("DRIFTLS_CACHE_DIR", "/elsewhere")
    assert compilation.cache_root() == Path("/elsewhere")


# -- with and without compilation ----------------------------------------------------------------------------------

FEW = 60  # rows: the windows and reservoirs of 25 overflow, and the sums of a window are made afresh


def thetas() -> dict[str, Any]:
    """theta of every case with every history, dense and sparse, in float64 and float32."""
    X, y = rows(density=0.6)
    found = {}
    for case in CASES:
        for history in (*case.histories, *(() if case.draws else (None,))):
            for layout, matrix in (("dense", X), ("sparse", sp.csr_array(X))):
                found[f"{case.name} {history} {layout}"] = make(case, history).partial_fit(matrix[:FEW], y[:FEW]).theta
    for make_tracker in (SAGA, SVRG, GD):
        for layout, matrix in (("dense", X), ("sparse", sp.csr_array(X))):
            tracker = make_tracker(X.shape[1], steps=2, seed=SEED, history=Growing(dtype=np.float32))
            found[f"{make_tracker.__name__} float32 {layout}"] = tracker.partial_fit(matrix[:FEW], y[:FEW]).theta
    return found


def test_without_compilation_every_tracker_gives_the_same(tmp_path):
    run(
        "import numpy, test_kernels; from numba import config; assert config.DISABLE_JIT\n"
        f"numpy.savez({str(tmp_path / 'thetas.npz')!r}, **test_kernels.thetas())",
        NUMBA_DISABLE_JIT="1",
    )
    plain = np.load(tmp_path / "thetas.npz")
    compiled = thetas()
    assert set(plain) == set(compiled)
    loose = {case.name: case.exact_to for case in CASES}
    for name, theta in compiled.items():
        tolerance = next((t for case, t in loose.items() if name.startswith(f"{case} ")), 1e-10)
        np.testing.assert_allclose(plain[name], theta, rtol=0, atol=tolerance, err_msg=name)


def dispatchers() -> list[Dispatcher]:
    """Every compiled function of driftls.kernels, and the entry points that are made for each class of state."""
    found: dict[int, Dispatcher] = {}
    for module in pkgutil.iter_modules(driftls.kernels.__path__, "driftls.kernels."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Dispatcher):
                found[id(value)] = value
    for case in CASES:
        for value in track.entries(make(case)._state_class):
            found[id(value)] = value  # type: ignore[assignment]
    return list(found.values())


def arrays_of(signature: Any) -> list[types.Array]:
    """The array types of a signature, those inside named tuples included."""
    found: list[types.Array] = []
    for kind in signature:
        if isinstance(kind, types.Array):
            found.append(kind)
        elif isinstance(kind, types.BaseTuple):
            found += arrays_of(kind.types)
    return found


def test_every_kernel_is_compiled_once_per_signature():
    X, y = rows(density=0.5)
    frozen_X, frozen_y = X.copy(), y.copy()
    frozen_X.flags.writeable = frozen_y.flags.writeable = False
    odd = np.zeros(1 + X.nbytes, dtype=np.uint8)[1:].view(np.float64)[: X.size].reshape(X.shape)
    odd[...] = X
    assert not odd.flags.aligned
    frozen_sparse = sp.csr_array(X)
    for array in (frozen_sparse.data, frozen_sparse.indices, frozen_sparse.indptr):
        array.flags.writeable = False
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    for case in CASES:
        for matrices in (
            (X, np.asfortranarray(X), X[::2], X[:, ::-1], frozen_X, odd, X.astype(np.float32), np.rint(X).astype(int)),
            (sp.csr_array(X), sp.csc_array(X), sp.coo_array(X), frozen_sparse, wide, sp.csr_array(X)[::2]),
        ):
            tracker = make(case)
            for matrix in matrices:
                targets = frozen_y[: matrix.shape[0]]
                tracker.partial_fit(matrix, targets)
                tracker.predict(matrix)
                if sp.issparse(matrix):
                    tracker.update(matrix.tocsr()[[0]], targets[0])
                else:
                    tracker.update(matrix[0], targets[0])
            assert np.isfinite(tracker.theta).all()
    for dispatcher in dispatchers():
        signatures = dispatcher.signatures
        for signature in signatures:
            for array in arrays_of(signature):
                assert array.layout in "CF", (dispatcher, signature)
                assert array.mutable, (dispatcher, signature)
                assert array.aligned, (dispatcher, signature)
        # A table of coordinates is laid out by rows or by columns, as rows are dense or sparse; nothing else differs.
        written = [" ".join(map(str, signature)) for signature in signatures]
        assert len(set(written)) == len(written), dispatcher
        if dispatcher.py_func.__name__ in ("advance_dense", "advance_sparse"):
            precisions = {str(array.dtype) for signature in signatures for array in arrays_of(signature)}
            assert len(signatures) <= len(precisions & {"float64", "float32"}), dispatcher


# -- the choice by type --------------------------------------------------------------------------------------------


class Cat(NamedTuple):
    lives: float


class Dog(NamedTuple):
    bones: float


class Fish(NamedTuple):
    bubbles: float


@kernel
def of_cat(animal: Any, times: float) -> float:
    return animal.lives * times


@kernel
def of_dog(animal: Any, times: float) -> float:
    return animal.bones + times


sound = by_type({Cat: of_cat, Dog: of_dog})


@kernel
def called_from_a_kernel(animal: Any, times: float) -> float:
    return sound(animal, times)


@pytest.mark.parametrize("call", [sound, called_from_a_kernel])
def test_a_function_by_type_picks_its_leaf(call):
    assert call(Cat(9.0), 2.0) == 18.0
    assert call(Dog(9.0), 2.0) == 11.0


def test_a_function_by_type_refuses_what_it_does_not_know():
    with pytest.raises(KeyError):
        sound(Fish(1.0), 2.0)
    with pytest.raises(TypingError):
        called_from_a_kernel(Fish(1.0), 2.0)


# -- frames --------------------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    vector: Vector
    matrix: Matrix
    coordinates: Coordinates
    integers: Integers
    indices: Indices
    values: Values
    rows: ValueRows


@kernel
def touch(words: Any, values: Any) -> float:
    """Read one entry of each array of the second sample with its position as a weight, and write one."""
    first, second = frames.unpack(words, values, Sample, Sample)
    total = second.vector[1] + 10.0 * second.matrix[1, 2] + 100.0 * second.coordinates[1, 2]
    total += 1e3 * second.integers[0] + 1e4 * second.indices[1] + 1e5 * second.values[2] + 1e6 * second.rows[1, 0]
    second.coordinates[0, 3] = -7.0
    return float(total + 1e8 * first.vector[1])


def sample(precision: type, dense: bool) -> Sample:
    coordinates = np.arange(8.0).reshape(2, 4) if dense else np.asfortranarray(np.arange(8.0).reshape(2, 4))
    return Sample(
        np.array([1.0, 2.0]),
        np.arange(6.0).reshape(2, 3),
        coordinates,
        np.array([3]),
        np.array([1, 4], dtype=np.int32),
        np.array([0, 0, 2], dtype=precision),
        np.array([[0, 0], [8, 0]], dtype=precision),
    )


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("dense", [True, False])
def test_packed_arrays_come_back_in_python_and_in_a_kernel(precision, dense):
    first, second = sample(precision, dense), sample(precision, dense)
    second.vector[1] = 3.0
    words = frames.pack([first, second])
    like = np.empty((0, 2) if dense else 0, dtype=precision)
    for part, back in zip((first, second), frames.unpack(words, like, Sample, Sample), strict=True):
        for mine, theirs in zip(part, back, strict=True):
            np.testing.assert_array_equal(mine, theirs)
            assert mine.dtype == theirs.dtype
            assert np.shares_memory(mine, theirs)
    expected = 3.0 + 10 * 5.0 + 100 * 6.0 + 1e3 * 3 + 1e4 * 4 + 1e5 * 2 + 1e6 * 8 + 1e8 * 2.0
    assert touch(words, like) == expected
    assert second.coordinates[0, 3] == -7.0
    assert first.coordinates[0, 3] == 3.0


def test_empty_arrays_pack_too():
    empty = Sample(*(array[:0] for array in sample(np.float64, True)))
    (back,) = frames.unpack(frames.pack([empty]), np.empty((0, 2)), Sample)
    assert [array.shape for array in back] == [array.shape for array in empty]


# -- prefetching ---------------------------------------------------------------------------------------------------


def learned(make_tracker: Any, history: str, matrix: Any, y: Any) -> Any:
    kept = {"growing": Growing, "window": lambda: Window(300), "reservoir": lambda: Reservoir(300)}[history]()
    return make_tracker(matrix.shape[1], steps=3, seed=1, history=kept).partial_fit(matrix, y).theta


@pytest.mark.parametrize("history", list(HISTORIES))
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("make_tracker", [GD, SAG, SAGA, SVRG])
def test_prefetching_changes_no_result(make_tracker, history, layout, monkeypatch):
    generator = np.random.default_rng(3)
    X = generator.normal(size=(1500, 6)) * (generator.random((1500, 6)) < 0.5)
    y = X @ np.arange(6.0) + generator.normal(size=1500)
    matrix = sp.csr_array(X) if layout == "sparse" else X
    monkeypatch.setattr(base, "PREFETCH_FROM_BYTES", 1 << 40)
    without = learned(make_tracker, history, matrix, y)
    for lookahead in (0, 1, 2, 7):
        monkeypatch.setattr(base, "PREFETCH_FROM_BYTES", 0)
        monkeypatch.setattr(base, "LOOKAHEAD", lookahead)
        np.testing.assert_array_equal(learned(make_tracker, history, matrix, y), without)


def test_prefetching_starts_by_itself_once_a_history_outgrows_the_cache():
    generator = np.random.default_rng(3)
    X = generator.normal(size=(9000, 16))
    y = X @ np.arange(16.0)
    tracker = SAGA(16, seed=0).partial_fit(X, y)
    assert len(tracker) * 16 * 8 > 2 * base.PREFETCH_FROM_BYTES
    assert len(tracker) > tracker._plan.knobs[track.PREFETCH_FROM]
    quiet = SAGA(16, seed=0)
    quiet.partial_fit(X[:1], y[:1])
    quiet._plan.knobs[track.PREFETCH_FROM] = np.inf
    np.testing.assert_array_equal(quiet.partial_fit(X[1:], y[1:]).theta, tracker.theta)


def garbage(self: History, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """Memory as it may come: full of what somebody else left in it."""
    return np.full(shape, 0 if name == "start" else 2**62 if name == "stop" else 1, dtype=dtype)


def test_prefetching_never_follows_rows_that_are_still_to_come():
    run(
        "import numpy as np, scipy.sparse as sp, test_kernels\n"
        "from driftls.history import Growing\n"
        "from driftls.trackers import SAGA, base\n"
        "Growing._new = test_kernels.garbage\n"
        "base.PREFETCH_FROM_BYTES = 0\n"
        "SAGA(3, seed=0, steps=1).partial_fit(sp.csr_array(np.ones((3000, 3))), np.ones(3000))\n",
        timeout=60.0,
    )


def test_no_draws_means_no_prefetch():
    X, y = rows()
    assert not CD(X.shape[1]).partial_fit(X, y)._plan.knobs[track.DRAWS]
