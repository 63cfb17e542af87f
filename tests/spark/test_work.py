"""The share of one task: many small files become few tasks and few batches, and lose nothing (SPEC K7)."""

from __future__ import annotations

import importlib
import sys
import zipfile
import zipimport
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from crkafka_core.model.offsets import TP
from crkafka_core.plane import reading
from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch, Run
from crkafka_core.segments.scan import BATCH_BYTES
from crkafka_core.spark.work import ReadRequest, forget_archives, packed, rows_of
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore


def test_K7_many_small_segments_are_read_as_few_batches_each_row_once_and_numbered(tmp_path: Path) -> None:
    landing = Landing(MemoryStore(), tmp_path)
    for size in (3, 1, 40, 2):
        landing.land(size)
    plan = landing.region.plane.read(lambda reader, row: reading.plan(reader, row))
    works = packed(plan.segments, 3)
    assert sorted(f.path for w in works for f in w) == sorted(s.path for s in plan.segments)
    assert len(works) == 3 and all(works)
    read = [list(rows_of(landing.config.to_json(), w, ReadRequest())) for w in works]
    assert [len(batches) for batches in read] == [1, 1, 1]
    rows = [r for batches in read for b in batches for r in b.to_pylist()]
    assert sorted((r["crkafka_checkpoint"], r["partition"], r["offset"]) for r in rows) == [
        (c, tp.partition, o)
        for c in range(1, 5)
        for tp in landing.tps
        for o in range(landing.offsets[c - 1][tp], landing.offsets[c][tp])
    ]
    assert all(
        r["value"] == f"{TP(r['topic'], r['partition']).topic}:{r['partition']}:{r['offset']}".encode() for r in rows
    )


def test_K7_segments_of_a_topic_with_a_long_name_are_read_as_few_batches_too(tmp_path: Path) -> None:
    """What their footers say of it is one array for all of them, and was counted whole for each."""
    landing = Landing(MemoryStore(), tmp_path, topics=("o" * 230,), partitions=1, members=1)
    landing.land(10, times=60)
    (work,) = packed(landing.region.plane.read(lambda reader, row: reading.plan(reader, row)).segments, 1)
    sizes = [b.num_rows for b in rows_of(landing.config.to_json(), work, ReadRequest(tuple(SCHEMA.names)))]
    assert sizes == [600]


def test_K7_large_batches_stay_as_they_are(tmp_path: Path) -> None:
    landing = Landing(MemoryStore(), tmp_path, partitions=1, members=1)
    landing.land(25_000)
    (work,) = packed(landing.region.plane.read(lambda reader, row: reading.plan(reader, row)).segments, 8)
    sizes = [b.num_rows for b in rows_of(landing.config.to_json(), work, ReadRequest(tuple(SCHEMA.names)))]
    assert sizes == [10_000, 10_000, 5_000]


def wide(tp: TP, start: int, stop: int) -> Batch:
    """Records of 100 kB, and the last one of 20 MB."""
    rows = stop - start
    values = [b"x" * 100_000] * (rows - 1) + [b"y" * 20_000_000]
    columns = [
        pa.nulls(rows, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array([tp.topic] * rows),
        pa.array(np.full(rows, tp.partition, np.int32)),
        pa.array(np.arange(start, stop)),
        pa.array(np.arange(start, stop), pa.timestamp("us", tz="UTC")),
        pa.array(np.zeros(rows, np.int32)),
        pa.nulls(rows, HEADERS),
    ]
    return Batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), (Run(tp, 0, rows, start, stop),))


def test_K7_batches_are_bounded_by_bytes_as_by_rows(tmp_path: Path) -> None:
    landing = Landing(MemoryStore(), tmp_path, partitions=1, members=1, batch_of=wide)
    landing.land(300)
    (work,) = packed(landing.region.plane.read(lambda reader, row: reading.plan(reader, row)).segments, 8)
    batches = list(rows_of(landing.config.to_json(), work, ReadRequest()))
    assert [o for b in batches for o in b.column("offset").to_pylist()] == list(range(300))
    assert [b.num_rows for b in batches if b.nbytes > BATCH_BYTES] == [1]
    assert len(batches) < 10
    narrow = list(rows_of(landing.config.to_json(), work, ReadRequest(("offset",))))
    assert sum(b.num_rows for b in narrow) == 300 and {b.schema.names[0] for b in narrow} == {"offset"}


def test_archives_that_were_forgotten_are_found_again_when_something_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "shipped.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("crk_first.py", "")
        made.writestr("crk_second.py", "VALUE = 7")
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module("crk_first")
    assert isinstance(sys.path_importer_cache[str(archive)], zipimport.zipimporter)
    forget_archives()
    assert str(archive) not in sys.path_importer_cache
    assert importlib.import_module("crk_second").VALUE == 7
