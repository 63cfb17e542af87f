"""Batches and storages to write them to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch, Run
from crkafka_core.segments.hdfs import HdfsStorage
from crkafka_core.segments.storage import Storage
from tests.rigs.object_stores import STORES, place_of

MakeBatch = Callable[..., Batch]


@pytest.fixture
def make_batch() -> MakeBatch:
    """`make_batch(TP, first, rows, value_bytes=…)`: dense offsets, values that do not compress, or all the same."""

    def make(tp: TP, first: int, rows: int, *, value_bytes: int = 100, value: bytes | None = None) -> Batch:
        columns = [
            pa.array([f"k{i}".encode() if i % 2 else None for i in range(rows)], pa.binary()),
            pa.array([value or os.urandom(value_bytes) for _ in range(rows)], pa.binary()),
            pa.array([tp.topic] * rows, pa.string()),
            pa.array([tp.partition] * rows, pa.int32()),
            pa.array(range(first, first + rows), pa.int64()),
            pa.array([1_700_000_000_000_000 + i for i in range(rows)], SCHEMA.field("timestamp").type),
            pa.array([i % 2 for i in range(rows)], pa.int32()),
            pa.array([[{"key": "h", "value": b"v"}] if i % 3 == 0 else None for i in range(rows)], HEADERS),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        return Batch(batch, (Run(tp, 0, rows, first, first + rows),))

    return make


@pytest.fixture(params=["local", "hdfs", *STORES])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Each test runs on each kind of storage: HDFS is Arrow's client on a folder, Azure is Azurite."""
    match request.param:
        case "local":
            return Storage.open(tmp_path / "segments")
        case "hdfs":
            return HdfsStorage(f"file://{tmp_path}/some/prefix", {})
    url, options = place_of(request.param, request)
    return Storage.open(f"{url}/some/prefix", options)
