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
        self._bounds = [_bounds(values) for values in self._values]

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
        return all(
            bounds is None or _overlap(bounds, file.lowest.get(name), file.highest.get(name))
            for bounds, name in zip(self._bounds, names, strict=True)
        )


def _equal(column: pa.Array) -> pa.Array:
    """With 0.0 for -0.0, which SQL calls equal."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _bounds(values: pa.Array) -> tuple[Any, Any] | None:
    """The least and greatest of texts and whole numbers; None where a log may have bounds in other words."""
    comparable = pa.types.is_integer(values.type) or pa.types.is_string(values.type)
    if values.null_count or not len(values) or not comparable:
        return None
    bounds = pc.min_max(values).as_py()
    return bounds["min"], bounds["max"]


def _overlap(bounds: tuple[Any, Any], low: Any, high: Any) -> bool:
    """Whether a file's bounds and these overlap; true where the log has none, or some of another kind."""
    least, greatest = bounds
    return type(low) is not type(least) or type(high) is not type(least) or bool(low <= greatest and high >= least)
