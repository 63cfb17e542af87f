"""Rows of any Parquet file, batch by batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.segments import rows
from crkafka_core.segments.scan import BATCH_BYTES
from crkafka_core.segments.storage import Storage


def test_a_batch_of_large_rows_is_bounded_by_its_bytes(tmp_path: Path) -> None:
    """A small file of rows that shrink well came as one batch of gigabytes; of two such, `maintain` made none at all."""
    values = pa.array([b"a" * 500_000] * 60, pa.binary())
    pq.write_table(pa.table({"value": values}), tmp_path / "wide.parquet", use_dictionary=False)
    pieces = list(rows.batches(Storage.open(str(tmp_path)), "wide.parquet", ["value"], only=True))
    assert sum(batch.num_rows for batch in pieces) == 60
    assert max(batch.nbytes for batch in pieces) <= BATCH_BYTES
