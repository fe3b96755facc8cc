"""Reader of the Open Bandit Dataset: a folder such as ``random/all`` with ``all.csv`` and ``item_context.csv``.

All items are candidates of every line, and all positions make one stream, with the position as a feature of the
visitor. The visitor's indices are: 0 the constant; then one for each value of ``position`` and ``user_feature_*``, in
the order in which the values first appear (`OpenBanditLog.names`). The items' own features and the affinities, one
number a line and item, are not read: with the latter no two lines would have the same pool.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftls.errors import LogFormatError
from driftls.logs.columns import Check, Ints
from driftls.logs.events import Block
from driftls.logs.parquet import ArrowLog, arrow

__all__ = ["OpenBanditLog", "is_open_bandit"]

ITEMS = "item_context.csv"
CHUNK = 1 << 22  # bytes read at a time
CATEGORIES = ("position", *(f"user_feature_{k}" for k in range(4)))
TYPES = {"timestamp": "timestamp[us, UTC]", "item_id": "int64", "click": "int64", "propensity_score": "double"}
TYPES |= dict.fromkeys(CATEGORIES, "string")


def is_open_bandit(path: str) -> bool:
    """Whether a folder is one of the Open Bandit Dataset."""
    return os.path.isfile(os.path.join(path, ITEMS))


class OpenBanditLog(ArrowLog):
    """Folders of the Open Bandit Dataset; see `driftls.logs.read`. A line that is no CSV of our types always raises.

    `names` are values that are known before the first line, such as another log's: equal names give equal indices.
    """

    format = "Open Bandit"

    def __init__(
        self, paths: list[str], *, on_error: str = "raise", block: int = 32_768, names: Iterable[str] = ()
    ) -> None:
        super().__init__(on_error=on_error, block=block)
        self.paths = paths
        self._folders = [(_lines_file(path), _items(os.path.join(path, ITEMS))) for path in paths]
        self._index = {name: index for index, name in enumerate(names)}
        self._index.setdefault("constant", 0)

    @property
    def names(self) -> list[str]:
        """What the visitor's indices stand for, as far as the log has been read."""
        return list(self._index)

    def _blocks(self, size: int) -> Iterator[Block]:
        sizes = np.array([os.path.getsize(path) for path, _ in self._folders])
        for number, (path, ids) in enumerate(self._folders):
            line = 2  # the first is the header
            with open(path, "rb") as file:
                for batch in _batches(path, file, TYPES):
                    self.share = (sizes[:number].sum() + file.tell()) / sizes.sum()
                    for first in range(0, len(batch), size):
                        piece = batch.slice(first, size)
                        block = self._block(path, line, piece, ids)
                        line += len(piece)
                        if len(block):
                            yield block

    def _block(self, path: str, line: int, batch: Any, ids: Ints) -> Block:
        self.counts.lines += len(batch)
        lines = np.arange(line, line + len(batch))
        batch, _ = self._good(batch, lambda number: f"{path}:{number}", lines, _checks(batch, ids))
        self.counts.events += len(batch)
        index = self._indices(batch)
        time = _numbers(batch["timestamp"].cast("int64")) // 1_000_000
        shown = np.searchsorted(ids, _numbers(batch["item_id"])).astype(np.int32)
        told = time, np.zeros(len(batch), np.int32), shown, _numbers(batch["click"]).astype(np.float64)
        users = index.shape[1] * np.arange(len(batch) + 1), index.ravel(), np.ones(index.size)
        return Block(*told, np.array([0, len(ids)]), ids, *users, np.array(batch["propensity_score"]))

    def _indices(self, batch: Any) -> NDArray[np.int32]:
        """Indices of the constant and of each category's value; new values get the next ones, line by line."""
        encoded = [batch[column].dictionary_encode() for column in CATEGORIES]
        names = [[f"{c}={value}" for value in e.dictionary.to_pylist()] for c, e in zip(CATEGORIES, encoded)]
        codes = [_numbers(e.indices) for e in encoded]
        firsts = [np.unique(code, return_index=True)[1].tolist() for code in codes]
        for _, _, name in sorted((line, k, name) for k in range(len(names)) for line, name in zip(firsts[k], names[k])):
            self._index.setdefault(name, len(self._index))
        index = np.zeros((len(batch), 1 + len(CATEGORIES)), np.int32)
        for k, code in enumerate(codes):
            index[:, 1 + k] = np.array([self._index[name] for name in names[k]], np.int32)[code]
        return np.sort(index, axis=1)


def _numbers(column: Any) -> Any:
    return column.to_numpy(zero_copy_only=False)  # NaN where it is empty


def _checks(batch: Any, ids: Ints) -> list[Check]:
    item, click, chance = (_numbers(batch[name]) for name in ("item_id", "click", "propensity_score"))
    return [
        (np.array(batch["timestamp"].is_null()), "a time", "timestamp"),
        (~np.isin(item, ids), f"an item of {ITEMS}", "item_id"),
        (~np.isin(click, (0, 1)), "a click of 0 or 1", "click"),
        (~((chance > 0) & (chance <= 1)), "a probability above 0", "propensity_score"),
    ]


def _lines_file(folder: str) -> str:
    files = sorted(str(path) for path in Path(folder).glob("*.csv") if path.name != ITEMS)
    if len(files) != 1 or not is_open_bandit(folder):
        names = ", ".join(os.path.basename(file) for file in files) or "none"
        raise LogFormatError(f"{folder}: expected {ITEMS} and one other .csv file, got {names}.")
    return files[0]


def _items(path: str) -> Ints:
    with open(path, "rb") as file:
        ids = [item for batch in _batches(path, file, {"item_id": "int64"}) for item in batch["item_id"].to_pylist()]
    known = {None}
    for line, item in enumerate(ids, 2):
        if item in known:
            raise LogFormatError(f"{path}:{line}: expected as item_id a number that no other item has, got {item}.")
        known.add(item)
    if not ids:
        raise LogFormatError(f"{path}: expected at least one item, got none.")
    return np.array(sorted(ids), np.int64)


def _batches(path: str, file: Any, types: dict[str, str]) -> Iterator[Any]:
    """The columns of a CSV file, batch by batch; what is not CSV of these types is named by its line."""
    pa = arrow()
    from pyarrow import csv

    known = {name: pa.timestamp("us", tz="UTC") if "time" in kind else kind for name, kind in types.items()}
    try:
        yield from csv.open_csv(
            file,
            read_options=csv.ReadOptions(use_threads=False, block_size=CHUNK),  # one thread: errors name the row
            convert_options=csv.ConvertOptions(column_types=known, include_columns=list(types)),
        )
    except (pa.ArrowException, ValueError, KeyError) as error:
        row = re.search(r"Row #(\d+)", str(error))
        place = f"{path}:{row[1]}" if row else path
        raise LogFormatError(f"{place}: expected CSV with the columns {', '.join(types)}, got: {error}") from None
