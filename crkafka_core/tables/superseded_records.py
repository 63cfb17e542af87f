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


class SupersededRecords:
    """Which rows of some files are these records, by all that a segment has of them. `where`: which rows of a batch may be."""

    def __init__(
        self, table: str, storage: Storage, files: Sequence[DataFile], where: Callable[[pa.RecordBatch], np.ndarray]
    ) -> None:
        self._table, self._storage, self._files, self._where = table, storage, files, where
        self._records = Counter[int]()
        self._rows: dict[str, int] = {}

    def find(self, source: Storage, pieces: Iterable[Piece]) -> bool:
        """Whether each of them is there, and no more often than in its segments in `source`; else nothing is said of any."""
        wanted = 0
        for piece in pieces:
            if piece.segment is None or not source.exists(piece.segment.path):
                return False
            wanted += piece.rows
            for batch in parquet.batches(source, piece.segment.path, RECORD, only=True):
                self._records.update(_marks(batch))
        found = Counter[int]()
        for file in self._files:
            here = [
                mark
                for batch in places.batches(self._table, self._storage, file, only_key=False)
                for mark in self._among(batch).values()
            ]
            found.update(here)
            self._rows[file.path] = len(here)
        return found.total() == wanted and found <= self._records

    def number_in(self, file: DataFile) -> int:
        return self._rows[file.path]

    def mask(self, batch: pa.RecordBatch) -> np.ndarray:
        """Which rows they are."""
        taken = np.zeros(batch.num_rows, bool)
        taken[list(self._among(batch))] = True
        return taken

    def _among(self, batch: pa.RecordBatch) -> dict[int, int]:
        """Row → mark."""
        at = np.flatnonzero(self._where(batch))
        marks = _marks(batch.take(pa.array(at)))
        return {i: mark for i, mark in zip(at.tolist(), marks, strict=True) if mark in self._records}


def _marks(batch: pa.RecordBatch) -> list[int]:
    """A number for each record, the same for the same one in this process."""
    at = batch.schema.get_field_index("timestamp")
    times = batch.column(at).cast(pa.timestamp("ms", batch.schema.field(at).type.tz), safe=False).cast(pa.int64())
    columns = (times if name == "timestamp" else batch.column(name) for name in RECORD)
    return [hash(record) for record in zip(*(column.to_pylist() for column in columns), strict=True)]
