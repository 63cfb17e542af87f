"""Keys of records as numbers: which rows have one key, and which rows of a table have a key of some records (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.lake.port import DataFile

Ids = npt.NDArray[np.int64]


class Keys:
    """The keys of records, of one column or several; null is a value like any other in a key of several."""

    def __init__(self, columns: Sequence[pa.ChunkedArray]) -> None:
        self._values: list[pa.Array] = []
        """Of each column, the values that there are."""
        self._pairs: list[Ids] = []
        """Of each column but the first, the pairs that there are: the number of the columns before it, and its own."""
        self.ids: Ids = np.zeros(0, np.int64)
        """Of each record, the number of its key."""
        for number, column in enumerate(columns):
            encoded = _equal(column.combine_chunks()).dictionary_encode(null_encoding="encode")
            self._values.append(encoded.dictionary)
            own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            if not number:
                self.ids = own
                continue
            pairs, self.ids = np.unique(self.ids * len(encoded.dictionary) + own, return_inverse=True)
            self._pairs.append(pairs)

    def find(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Which rows have one of the keys."""
        ids: Ids = np.zeros(0, np.int64)
        for number, (column, values) in enumerate(zip(columns, self._values, strict=True)):
            of = pc.index_in(_equal(column.cast(values.type)), value_set=values).fill_null(-1)
            own = of.to_numpy(zero_copy_only=False).astype(np.int64)
            if not number:
                ids = own
                continue
            pairs = self._pairs[number - 1]
            wanted = np.where((ids < 0) | (own < 0), -1, ids * len(values) + own)
            at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
            ids = np.where(pairs[at] == wanted, at, -1)
        return ids >= 0

    def may_be_in(self, file: DataFile, names: Sequence[str]) -> bool:
        """Whether the bounds that a table's log has of a file leave room for one of the keys."""
        return all(_overlap(values, file, name) for values, name in zip(self._values, names, strict=True))


def _equal(column: pa.Array) -> pa.Array:
    """With 0.0 for -0.0, which SQL calls equal."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _overlap(values: pa.Array, file: DataFile, name: str) -> bool:
    """Only of texts and whole numbers: of other types a log may have bounds in other words."""
    low, high = file.lowest.get(name), file.highest.get(name)
    if values.null_count or not len(values) or not (_comparable(values.type, low) and _comparable(values.type, high)):
        return True
    bounds = pc.min_max(values).as_py()
    return bool(low <= bounds["max"] and high >= bounds["min"])


def _comparable(kind: pa.DataType, bound: Any) -> bool:
    if pa.types.is_integer(kind):
        return type(bound) is int
    return pa.types.is_string(kind) and isinstance(bound, str)
