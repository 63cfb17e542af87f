"""Records of superseded checkpoints, found among others at the same offsets: those of a topic that was made anew (SPEC X4, S4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from crkafka_core.plane.contents import Piece
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import places
from crkafka_core.tables.log import DataFile

RECORD = ("topic", "partition", "offset", "timestamp", "key", "value")

Where = Callable[[pa.RecordBatch], np.ndarray]
"""Which rows of a batch are looked at."""


class SupersededRecords:
    """Which rows of some files are these records, by all that a segment has of them; of two that are equal one is as good as the other."""

    def __init__(self, table: str, storage: Storage, files: Sequence[DataFile], where: Where) -> None:
        self._table, self._storage, self._files, self._where = table, storage, files, where
        self._in: dict[str, Counter[int]] = {}

    def find(self, source: Storage, pieces: Iterable[Piece]) -> bool:
        """Whether each of them is there, by their segments in `source`; else nothing is said of any."""
        left, wanted = Counter[int](), 0
        for piece in pieces:
            if piece.segment is None or not source.exists(piece.segment.path):
                return False
            wanted += piece.rows
            for batch in parquet.batches(source, piece.segment.path, RECORD, only=True):
                left.update(_marks(batch))
        for file in self._files:
            here = self._in[file.path] = Counter[int]()
            for batch in places.batches(self._table, self._storage, file, only_key=False):
                here.update(_take(left, batch, self._where(batch)).values())
        return sum(here.total() for here in self._in.values()) == wanted

    def number_in(self, file: DataFile) -> int:
        return self._in[file.path].total()

    def mask_of(self, file: DataFile) -> Where:
        """Which rows of the file they are; for its batches one after the other."""
        left = Counter(self._in[file.path])

        def mask(batch: pa.RecordBatch) -> np.ndarray:
            taken = np.zeros(batch.num_rows, bool)
            taken[list(_take(left, batch, self._where(batch)))] = True
            return taken

        return mask


def _take(left: Counter[int], batch: pa.RecordBatch, where: np.ndarray) -> dict[int, int]:
    """Row → mark of those that are among the ones left, and are not any more."""
    at = np.flatnonzero(where)
    taken: dict[int, int] = {}
    for i, mark in zip(at.tolist(), _marks(batch.take(pa.array(at))), strict=True):
        if left[mark] > 0:
            left[mark] -= 1
            taken[i] = mark
    return taken


def _marks(batch: pa.RecordBatch) -> list[int]:
    """A number for each record, the same for the same one in this process."""
    at = batch.schema.get_field_index("timestamp")
    times = batch.column(at).cast(pa.timestamp("ms", batch.schema.field(at).type.tz), safe=False).cast(pa.int64())
    columns = (times if name == "timestamp" else batch.column(name) for name in RECORD)
    return [hash(record) for record in zip(*(column.to_pylist() for column in columns), strict=True)]
