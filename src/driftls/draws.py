"""The tape of uniforms from which i_n is drawn.

A kernel never sees a random generator: it reads numbers that were drawn ahead, in order, each of them once. So the
size of a block never changes a result, and what was drawn but not yet read is saved with the rest.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import CorruptFileError, SettingsError

Seed = int | None | np.random.SeedSequence | np.random.Generator
TAPE = 8192
MOST = 1 << 24
# by name, with the places in their own buffers that they keep
GENERATORS = {"PCG64": {}, "PCG64DXSM": {}, "SFC64": {}, "MT19937": {"pos": 624}, "Philox": {"buffer_pos": 4}}


def generator_of(seed: Seed) -> np.random.Generator:
    """A random generator from whatever may be a seed."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"seed must be a whole number of at least 0 or a Generator, got {seed!r}.") from error


class Draws:
    """A reproducible, saveable stream of uniforms on [0, 1): kernels read `tape` from `cursor` on, and move it.

    >>> draws = Draws(7, size=4)
    >>> draws.ready(2), draws.tape[draws.cursor[0]] == np.random.default_rng(7).random()
    (4, np.True_)
    """

    def __init__(self, seed: Seed = None, size: int = TAPE) -> None:
        self.generator = generator_of(seed)
        self.tape: NDArray[np.float64] = np.empty(size)
        self.cursor = np.array([size], dtype=np.int64)  # everything read: the first use fills the tape

    def fields(self) -> dict[str, Any]:
        """Of a record whose kernels read the tape."""
        return {"tape": self.tape, "tape_size": self.tape.size, "cursor": self.cursor}

    def ready(self, count: int) -> int:
        """Have at least `count` (at most the tape's size) uniforms ahead of the cursor; returns how many there are."""
        at, size = int(self.cursor[0]), self.tape.size
        left = size - at
        if left < count:
            self.tape[:left] = self.tape[at:].copy()
            self.generator.random(out=self.tape[left:])
            self.cursor[0] = 0
            left = size
        return left

    def enlarge(self, size: int) -> None:
        """Have room for more draws at a time; none is lost."""
        self._stand(size, self.unread())

    def _stand(self, size: int, unread: NDArray[np.float64]) -> None:
        """Have `unread` ahead of the cursor, on the same tape where it has the right size."""
        tape = self.tape if size == self.tape.size else np.empty(size)
        tape[size - unread.size :] = unread
        self.tape, self.cursor[0] = tape, size - unread.size

    def take(self, count: int) -> NDArray[np.float64]:
        """The next `count` uniforms."""
        pieces = []
        while count > 0:
            piece = min(count, self.tape.size)
            self.ready(piece)
            at = int(self.cursor[0])
            pieces.append(self.tape[at : at + piece].copy())
            self.cursor[0] += piece
            count -= piece
        return np.concatenate(pieces) if pieces else np.empty(0)

    def unread(self) -> NDArray[np.float64]:
        """What was drawn and not yet read: part of the state."""
        return self.tape[int(self.cursor[0]) :].copy()

    def header(self) -> dict[str, Any]:
        """The generator's state, for a file (with `unread`)."""
        state = json.dumps(self.generator.bit_generator.state, default=np.ndarray.tolist)
        return {**json.loads(state), "tape": self.tape.size}

    def restore(self, header: dict[str, Any], unread: NDArray[np.float64]) -> None:
        """Go on where the saved stream stood."""
        name, size = str(header.get("bit_generator")), int(header.get("tape", self.tape.size))
        if name not in GENERATORS:
            raise CorruptFileError(f"the random state names an unknown generator: {name!r}.")
        if not unread.size <= size <= MOST:
            raise CorruptFileError(f"{unread.size} draws were kept, more than the {size} that there can be.")
        if not ((unread >= 0.0) & (unread < 1.0)).all():  # a kernel takes them for places of rows
            raise CorruptFileError("the draws that were kept must lie in [0, 1), and some do not.")
        for place, most in GENERATORS[name].items():  # which NumPy does not look at
            found = {**header, **header["state"]}.get(place)
            if not (isinstance(found, int) and 0 <= found <= most):
                raise CorruptFileError(f"{place} of the random state must lie in 0 ... {most}, got {found!r}.")
        bits = getattr(np.random, name)()
        bits.state = {name: value for name, value in header.items() if name != "tape"}
        self.generator = np.random.Generator(bits)
        self._stand(size, unread)
