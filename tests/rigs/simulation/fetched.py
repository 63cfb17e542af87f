"""What a simulated poll brings: a batch of Python's objects, as Arrow's arrays of a few records cost more than all else of a poll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from crkafka_core.segments.batch import SCHEMA, Batch, Run
from tests.rigs.simulation.broker import Record

ROW_BYTES = 2**16
"""Of each row: the least that a segment, or a queue, may be told to hold."""
_NOTHING = pa.RecordBatch.from_pylist([], SCHEMA)


@dataclass(frozen=True)
class Fetched(Batch):
    """Its size is counted by rows."""

    held: Sequence[Record] = ()
    """In place of `records`."""

    @cached_property
    def nbytes(self) -> int:
        return ROW_BYTES * self.rows

    @cached_property
    def _offset_column(self) -> np.ndarray:
        return np.array([offset for offset, _ in self.held], np.int64)

    def of(self, run: Run) -> list[Record]:
        return list(self.held[run.start : run.stop])


def fetched(records: Sequence[Record], runs: Sequence[Run]) -> Fetched:
    return Fetched(_NOTHING, tuple(runs), held=records)
