"""Rows 19 to 21: a table for each of many topics; small files of a table with very many cuts; changes in a table with one row for each
key, against Spark's MERGE."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from bench.figure import Figure
from bench.member import resident_bytes
from bench.spark_source import open_session
from checkpoints_db import initialise, open_store
from crkafka_core.control import Reader
from crkafka_core.lake import compact, road
from crkafka_core.lake.pool import Pool
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Initial, Region, Table
from crkafka_core.region.feeder import Feeder
from crkafka_core.segments.batch import Batch
from tests.rigs.landing import Landing, records

CUTS, ROWS = int(os.environ.get("CRKAFKA_BENCH_CUTS", "20000")), 500
KEYS = int(os.environ.get("CRKAFKA_BENCH_KEYS", "10000000"))
CHANGES, TURNS, LOADED = 20_000, 5, min(KEYS, 1_000_000)
READS = 5
TOPICS, RATE, PERIOD = int(os.environ.get("CRKAFKA_BENCH_TOPICS", "300")), 5_000, 5.0
CHECKPOINTS = 8


def figures(rows: list[int]) -> Iterable[Figure]:
    """On SQLite, in a local folder."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        if 19 in rows:
            for kind, table in _KINDS.items():
                yield from _topics(folder, kind, table)
        if 20 in rows:
            yield from _crowds(folder)
        if 21 in rows:
            yield from _changes(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _landing(folder: Path, name: str, table: dict[str, Any], **keys: Any) -> Landing:
    url = f"sqlite:///{folder}/{name}.db"
    initialise(url)
    made = {"name": name, "format": "delta", "path": str(folder / name), **table}
    return Landing(
        open_store(url),
        folder,
        name=name,
        control_plane=url,
        storage=str(folder / f"{name}-segments"),
        tables=[made],
        **keys,
    )


_KINDS: dict[str, dict[str, Any]] = {
    "raw Iceberg": {"format": "iceberg"},
    "raw Delta": {"format": "delta"},
    "typed Iceberg": {"format": "iceberg", "typed": {"json": "any.json"}},
}


def _json_of(tp: TP, start: int, stop: int) -> Batch:
    batch = records(tp, start, stop)
    values = pa.array([b'{"id": %d, "note": "n%d"}' % (offset, offset) for offset in range(start, stop)], pa.binary())
    return replace(batch, records=batch.records.set_column(1, "value", values))


def _topics(folder: Path, kind: str, table: dict[str, Any]) -> Iterable[Figure]:
    """One checkpoint into the tables of all topics at a time, and at last into one more."""
    (folder / "any.json").write_text(
        '{"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}'
    )
    name = kind.replace(" ", "-").lower()
    template = {"each": "topic", "name": "{topic}", "path": f"{folder}/{name}/{{topic}}", **table}
    topics = [f"t{number:04d}" for number in range(TOPICS)]
    landing = _landing(folder, name, template, topics=topics, pattern="^t", partitions=1, members=1, batch_of=_json_of)
    keeper, took, memory = Feeder(landing.region, tell=print), list[float](), 0
    keeper.begin()
    try:
        for number in range(CHECKPOINTS + 1):
            if number == CHECKPOINTS:
                landing.new_topic("t-new")
            began = time.monotonic()
            landing.land(int(RATE * PERIOD / TOPICS))
            landed = time.monotonic()
            while landing.read(_behind):
                time.sleep(0.05)
                memory = max(memory, _memory())
            took.append(time.monotonic() - landed)
            time.sleep(max(0.0, began + PERIOD - time.monotonic()))
    finally:
        keeper.end()
    fresh = took[1:CHECKPOINTS]  # the first makes the tables
    note = f"(p50 {median(fresh):.1f} s; with the making of the tables {took[0]:.1f} s)"
    yield Figure(
        19, f"{TOPICS} {kind} tables, a checkpoint each {PERIOD:.0f} s: all fresh, most", max(fresh), "s", 10, note=note
    )
    if "typed" not in table:
        yield Figure(19, "the same, p50", median(fresh), "s", 2.5)
    yield Figure(19, "the same with the table of a new topic", took[-1], "s", 10)
    yield Figure(19, "memory of host and pool", memory / 2**20, "MiB", 1024)


def _behind(reader: Reader, region: Region) -> bool:
    """Whether a topic's table is missing or lacks the head."""
    tables = [table for table in reader.select(Table) if table.output in ("", "good")]
    topics = reader.column(Initial, "topic", ("forgotten", "=", False))
    return len(tables) < len(set(topics)) or any(table.acknowledged < region.head for table in tables)


def _memory() -> int:
    """Bytes of this process and its children; pages that they share count for each."""
    pids = {str(os.getpid())}
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            pids.update((thread / "children").read_text().split())
    return sum(resident_bytes(int(pid)) for pid in pids)


def _crowds(folder: Path) -> Iterable[Figure]:
    """A cut, and its commit, as quickly as they go; the keeper joins beside them, with as much time for it as cuts each second leave."""
    landing = _landing(folder, "crowds", {}, partitions=2, members=1)
    path = landing.config.tables[0].path
    keeper, most, joining = Feeder(landing.region, tell=print), 0, 0.0
    join = compact.join_crowds

    def timed(*args: Any, **keys: Any) -> compact.Maintained:
        nonlocal joining
        began = time.thread_time()
        try:
            return join(*args, **keys)
        finally:
            joining += time.thread_time() - began

    compact.join_crowds = timed
    try:
        for number in range(1, CUTS + 1):
            landing.land(ROWS)
            if number > 20:
                landing.retire(number - 20)
            keeper.turn(0.0)
            if number % 25 == 0:
                most = max(most, len(DeltaTable(path).file_uris()))
    finally:
        compact.join_crowds = join
        keeper.end()
    now = _read_s(path)
    compact.maintain(landing.region, "crowds")
    joined = _read_s(path)
    yield Figure(20, f"most files of a table in {CUTS:,} cuts", most, "files", 300)
    note = f"({now:.2f} and {joined:.2f} s)"
    yield Figure(20, "reading it, against reading it joined", now / joined, "×", 1.2, note=note)
    share = joining / CUTS * 100
    yield Figure(20, "joining, with a cut each second", share, "% of a core", 15)


def _read_s(path: str) -> float:
    took = []
    for _ in range(READS):
        began = time.perf_counter()
        assert DeltaTable(path).to_pyarrow_table().num_rows
        took.append(time.perf_counter() - began)
    return median(took)


def _batch_of(tp: TP, start: int, stop: int) -> Batch:
    """A new key for each of the first records, then keys from everywhere."""
    batch, offsets = records(tp, start, stop), np.arange(start, stop)
    ids = np.where(offsets < KEYS, offsets, offsets * 7919 % KEYS)
    keys = pa.array(np.char.zfill(ids.astype("S12"), 12).tolist(), pa.binary())
    return replace(batch, records=batch.records.set_column(0, "key", keys))


def by_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The table's columns."""
    ids = pc.cast(pc.cast(batch["key"], pa.string()), pa.int64())
    return pa.RecordBatch.from_arrays(
        [ids, batch["partition"], batch["offset"], batch["timestamp"], batch["value"]],
        names=["id", "partition", "offset", "timestamp", "value"],
    )


def _changes(folder: Path) -> Iterable[Figure]:
    """Of a checkpoint in a table of many keys; beside it the same changes by Spark's MERGE INTO in a Delta table of its own, in turns."""
    keyed = {"mode": "upsert", "keys": ["id"], "shape": "arrow:bench.lake:by_key"}
    landing = _landing(folder, "changes", keyed, partitions=1, members=1, batch_of=_batch_of)
    ours: list[float] = []
    theirs: list[float] = []
    with closing(Pool()) as pool, _Merge(folder) as merge:
        means = road.Means(pool=pool)
        for _ in range(0, KEYS, LOADED):
            landing.land(LOADED)
            road.advance(landing.region, "changes", means=means)
        path = landing.config.tables[0].path
        merge.load(path)
        for turn in range(TURNS + 1):
            landing.land(CHANGES)
            began = time.perf_counter()
            road.advance(landing.region, "changes", means=means)
            ours.append(time.perf_counter() - began)
            first = KEYS + turn * CHANGES
            theirs.append(merge.changes(path, first))
    mine, sparks = median(ours[1:]), median(theirs[1:])
    yield Figure(21, f"upsert of {CHANGES:,} changes into {KEYS:,} rows", mine, "s", 3)
    yield Figure(
        21, "the same by Spark's MERGE, against ours", sparks / mine, "×", 3, at_least=True, note=f"({sparks:.1f} s)"
    )


class _Merge:
    """The same table and the same changes by Spark."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> _Merge:
        self._spark = open_session(self._folder / "spark", "delta")
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.stop()

    def load(self, path: str) -> None:
        """Take over the rows of a table."""
        self._path = str(self._folder / "merged")
        self._spark.read.format("delta").load(path).write.format("delta").save(self._path)

    def changes(self, path: str, first: int) -> float:
        """Seconds for the rows from this offset on."""
        changed = str(self._folder / "changed")
        rows = self._spark.read.format("delta").load(path).where(f"offset >= {first}")
        rows.write.mode("overwrite").parquet(changed)
        began = time.perf_counter()
        self._spark.sql(
            f"MERGE INTO delta.`{self._path}` t USING parquet.`{changed}` s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        return time.perf_counter() - began
