"""What every map from users and items to arms has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from driftls.inputs import Rows

VERSION = 2


class FeatureMap(ABC):
    """A map from users and items to arms; saved with the policy that learned with it."""

    grows = False  # whether `dim` grows as names come: policies that are given such features grow with them

    @property
    @abstractmethod
    def dim(self) -> int:
        """The length of an arm."""

    @abstractmethod
    def arms(self, source: Any) -> Any:
        """The arms of one event of a log, (K, dim)."""

    @abstractmethod
    def rows(self, block: Any) -> Any:
        """The arms of all lines of a block; those of line i from ``block.truth_start[i]`` on."""

    # A call that makes rows, ``with features:``. Most keep nothing.

    def __enter__(self) -> None:  # noqa: B027
        """A call begins: one thread at a time. What it has met is kept if it succeeds, and dropped if it is refused."""

    def __exit__(self, kind: Any, *_: Any) -> None:  # noqa: B027
        """The call is over."""

    def keep(self) -> None:  # noqa: B027
        """Keep what the present call has met, even if it is refused later."""

    def drop(self) -> None:  # noqa: B027
        """Keep nothing of what the present call has met so far."""

    def follow(self, header: dict[str, Any]) -> None:
        """Take over the names of a copy, by its header: each has the index that it has there."""
        return  # most have none

    @abstractmethod
    def _settings(self) -> dict[str, Any]: ...

    def to_header(self) -> dict[str, Any]:
        """What a file keeps, as plain numbers, texts and lists."""
        return {"features": type(self).__name__, "version": VERSION, **self._settings()}


def resized(rows: Rows, dim: int) -> Rows:
    """Rows of so many features: others are 0, and those from `dim` on left out."""
    if dim >= rows.dim:
        return rows if dim == rows.dim else rows._replace(dim=dim)
    known = rows.indices < dim
    return Rows(rows.indices[known], rows.values[known], np.append(0, np.cumsum(known))[rows.start], dim)


def joined(pieces: list[Rows]) -> Rows:
    """The rows of all pieces, one after the other."""
    shift = np.cumsum([0] + [piece.start[-1] for piece in pieces])
    start = [piece.start[1:] + before for piece, before in zip(pieces, shift)]
    indices, values = (np.concatenate([piece[field] for piece in pieces]) for field in (0, 1))
    return Rows(indices, values, np.concatenate([[0], *start]), pieces[-1].dim)
