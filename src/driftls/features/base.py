"""What every map from users and items to arms has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
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

    @contextmanager
    def asking(self, dim: int) -> Iterator[None]:
        """For a question about `dim` features: names that are new count for nothing, and are not kept."""
        yield  # most keep none

    @contextmanager
    def changing(self) -> Iterator[None]:
        """For a call: if it is refused, nothing is kept of names that were new."""
        yield  # most keep none

    def take_back(self, rows: Rows) -> None:
        """These rows, the last that were made of one decision, are refused: nothing is kept of them."""
        return  # most keep nothing

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
