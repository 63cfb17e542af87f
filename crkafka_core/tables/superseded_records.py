"""Records of superseded checkpoints, found among others at the same offsets: those of a topic that was made anew (SPEC X4, S4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Self

import numpy as np
import pyarrow as pa

from crkafka_core.plane.contents import Piece
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import places
from crkafka_core.tables.log import DataFile

RECORD = ("topic", "partition", "offset", "timestamp", "key", "value")


class SupersededRecords:
    """Which rows of some files are these records, by all that a segment has of them."""

    def __init__(self, records: Counter[int], where: Callable[[pa.RecordBatch], np.ndarray]) -> None:
        """`where`: which rows of a batch may be."""
        self._records, self._where = records, where
        self._rows: dict[str, int] = {}

    @classmethod
    def found(
        cls,
        table: str,
        storage: Storage,
        files: Iterable[DataFile],
        where: Callable[[pa.RecordBatch], np.ndarray],
        pieces: Collection[Piece],
        source: Storage,
    ) -> Self | None:
        """None: not each of them is in the table's files, as often as in its segments in `source`, so that nothing is said of any."""
        paths = [p.segment.path for p in pieces if p.segment is not None and source.exists(p.segment.path)]
        if len(paths) < len(pieces):
            return None
        batches = (batch for path in paths for batch in parquet.batches(source, path, RECORD, only=True))
        told, found = cls(Counter(mark for batch in batches for mark in _marks(batch)), where), Counter[int]()
        for file in files:
            here = Counter(m for b in places.batches(table, storage, file, RECORD) for m in told._among(b).values())
            found += here
            told._rows[file.path] = here.total()
        return told if found.total() == sum(p.rows for p in pieces) and found <= told._records else None

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
