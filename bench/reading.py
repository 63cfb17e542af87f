"""Row 10: reading 1,000 checkpoints of two members, against the same records in 10 checkpoints (SPEC K7).

Both histories lie in one folder as segments of real size: 2 million records of 140 bytes, so 1,000 or 100,000 rows in a segment.
The time is that of `checkpoints(…)` from the call to the last row of every column, planning included; both are read in
turns, and the best of nine is taken after three to warm up. `CRKAFKA_BENCH_ROWS` sets the number of records.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from bench.figure import Figure
from bench.spark_source import open_session
from checkpoints_db import initialise, open_store
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch, Run
from crkafka_core.spark import frames
from tests.rigs.landing import Landing

ROWS = int(os.environ.get("CRKAFKA_BENCH_ROWS", "2000000"))
MANY, FEW = 1000, 10
TURNS = 12
WARM = 3
_VALUE = 140


def figures(rows: Sequence[int]) -> list[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="crk-bench-"))
    spark = open_session(folder)
    try:
        return compare(spark, folder, ROWS, MANY)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def compare(spark: SparkSession, folder: Path, rows: int, many: int, *, few: int = FEW) -> list[Figure]:
    """The figure for each way of reading: rows alone, and each with the number of its checkpoint."""
    histories = {count: history(folder / str(count), rows, count) for count in (few, many)}
    for landing in histories.values():
        if (there := frames.checkpoints(spark, landing.region).count()) != rows:
            raise AssertionError(f"{there} of {rows} rows are there")
    found = []
    turns = [{n: read(spark, landing) for n, landing in histories.items()} for _ in range(TURNS)]
    best = {n: min(turn[n] for turn in turns[WARM:]) for n in histories}
    what = f"reading {many:,} checkpoints, against the same in {few}"
    found.append(Figure(10, what, best[many] / best[few], "×", 1.5, note=f"{best[many]:.2f} s, {best[few]:.2f} s"))
    return found


def history(folder: Path, rows: int, checkpoints: int) -> Landing:
    """A region of eight partitions with so many rows in so many checkpoints."""
    folder.mkdir()
    url = f"sqlite:///{folder}/crkafka.db"
    initialise(url)
    landing = Landing(open_store(url), folder, partitions=8, control_plane=url, batch_of=plain)
    for _ in range(checkpoints):
        landing.land(rows // checkpoints // 8)
    return landing


def plain(tp: TP, start: int, stop: int) -> Batch:
    """Records of 140 random bytes, without key and headers."""
    count = stop - start
    values = np.random.default_rng(start).integers(0, 256, count * _VALUE, np.uint8)
    offsets = pa.py_buffer(np.arange(0, (count + 1) * _VALUE, _VALUE, dtype=np.int32))
    columns = [
        pa.nulls(count, pa.binary()),
        pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(values)]),
        pa.array([tp.topic]).take(pa.array(np.zeros(count, np.int32))),
        pa.array(np.full(count, tp.partition, np.int32)),
        pa.array(np.arange(start, stop, dtype=np.int64)),
        pa.array(np.arange(start, stop, dtype=np.int64) * 1000, pa.timestamp("us", tz="UTC")),
        pa.array(np.zeros(count, np.int32)),
        pa.nulls(count, HEADERS),
    ]
    return Batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), (Run(tp, 0, count, start, stop),))


def read(spark: SparkSession, landing: Landing) -> float:
    """Seconds; each row and column is made, and goes nowhere."""
    began = time.monotonic()
    found = frames.checkpoints(spark, landing.region)
    found.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began
