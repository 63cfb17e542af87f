"""Rows 12 and 13: how fresh Delta and Iceberg tables are, and what a commit costs in a table that has taken many checkpoints."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from bench.figure import Figure, percentile
from bench.plain_reader import READERS, TIME, File
from bench.spark_source import ROWS
from checkpoints_db import initialise, open_store
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.lake import compact, road
from crkafka_core.region import Region
from crkafka_core.region.driver import driving
from crkafka_core.region.host import hosting
from crkafka_core.testing.generator import Generator
from dagster_project.testing.live import LiveDagster
from tests.rigs.landing import Landing

Files = Callable[[], list[File]]
MANY = int(os.environ.get("CRKAFKA_BENCH_CHECKPOINTS", "10000"))
BEFORE = min(ROWS, 1_000_000)
COMMITS = 30
RATE = 20_000
SECONDS = 30


@dataclass(frozen=True)
class Case:
    """A table whose freshness is measured."""

    name: str
    what: str
    table: dict[str, Any]
    half: float
    """Bounds of p50 and p99, in seconds."""
    most: float
    period: str = "1s"
    dagster: bool = False
    time: str = TIME
    before: int = 0
    """Records that are in the table when it begins."""


_TYPED = {"format": "delta", "typed": {"json": "load.schema.json"}}
_AMONG = f"typed Delta table of {BEFORE:,} rows"
CASES = (
    Case("delta", "raw Delta table, host alone, a cut every second", {"format": "delta"}, 1.5, 4),
    Case("iceberg", "raw Iceberg table, host alone, a cut every second", {"format": "iceberg"}, 2.5, 6),
    Case("typed", f"{_AMONG}, host alone, a cut every second", _TYPED, 3.5, 8, time="kafka_timestamp", before=BEFORE),
    Case(
        "dagster", "raw Delta table, Dagster driving, a cut every 5 s", {"format": "delta"}, 3.5, 8, "5s", dagster=True
    ),
    Case(
        "dagster-typed",
        f"{_AMONG}, Dagster driving, a cut every 5 s",
        _TYPED,
        5.5,
        12,
        "5s",
        dagster=True,
        time="kafka_timestamp",
        before=BEFORE,
    ),
)
ONLY = set(filter(None, os.environ.get("CRKAFKA_BENCH_FRESH", "").split(",")))
"""Cases of row 12 to measure; all of them if it is empty."""


class JsonGenerator(Generator):
    """Records that a schema reads."""

    def value(self, seq: int, topic: str, padding: bytes = b"") -> bytes:
        body = b'{"seq": "%012d", "amount": 17.25, "at": "2026-01-31T08:00:00Z", "note": "%s"}'
        return body % (seq, padding)


SCHEMA = {
    "type": "object",
    "required": ["seq"],
    "properties": {
        "seq": {"type": "string"},
        "amount": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "note": {"type": "string"},
    },
}


def figures(rows: list[int]) -> Iterable[Figure]:
    """Each row, on SQLite."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        for case in CASES if 12 in rows else ():
            if not ONLY or case.name in ONLY:
                yield from freshness(folder / case.name, case)
        if 13 in rows:
            yield from _commits(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def freshness(folder: Path, case: Case, *, row: int = 12) -> Iterable[Figure]:
    """From the time that a record has in Kafka until a plain reader finds it in the table."""
    folder.mkdir()
    leash = Leash(folder / "kafka")
    kafka = KafkaCluster(folder / "kafka", nodes=1, leash=leash)
    kafka.start()
    try:
        kafka.topics.create("load", partitions=8)
        generator = (JsonGenerator if "typed" in case.table else Generator)(kafka.bootstrap)
        if case.before:
            generator.bulk("load", case.before, partitions=8)
        ages: list[float] = []
        with _region(folder, case, kafka.bootstrap) as region, _driven(folder, case, region):
            region.await_running(timeout=240)
            over = threading.Event()
            files = partial(READERS[case.table["format"]], folder / "bronze", case.time)
            _warm(generator, files, case.before)
            looking = threading.Thread(target=_look, args=(files, over, ages))
            looking.start()
            _produce(generator)
            time.sleep(3 * case.half)
            over.set()
            looking.join()
            region.stop()
    finally:
        leash.release()
    yield Figure(row, f"record produced → in the {case.what}, p50", percentile(ages, 50), "s", case.half)
    yield Figure(row, "the same, p99", percentile(ages, 99), "s", case.most)


@contextmanager
def _region(folder: Path, case: Case, bootstrap: str) -> Iterator[Region]:
    url = f"sqlite:///{folder}/fresh.db"
    initialise(url)
    (folder / "load.schema.json").write_text(json.dumps(SCHEMA))
    config = {
        "region": "fresh",
        "control_plane": url,
        "storage": str(folder / "segments"),
        "topics": ["load"],
        "members": 2,
        "trigger": {"period": case.period},
        "kafka": {"bootstrap.servers": bootstrap, "group.id": "fresh"},
        "host": "processes",
        "tables": [{"name": "bronze", "path": str(folder / "bronze"), **case.table}],
    }
    (folder / "fresh.yaml").write_text(json.dumps(config))
    with Region.open(folder / "fresh.yaml") as region:
        region.init()
        region.start()
        yield region


@contextmanager
def _driven(folder: Path, case: Case, region: Region) -> Iterator[None]:
    """Hosted, and cut when it is due: by a host alone, or all of it by Dagster."""
    if case.dagster:
        made = f"from dagster_project import consistent_region\n\ndefs = consistent_region({str(folder / 'fresh.yaml')!r})\n"
        (folder / "fresh_definitions.py").write_text(made)
        with LiveDagster(folder, "fresh_definitions"):
            yield
        return
    with hosting(region, folder / "logs"), driving(region, drive=True):
        yield


def _warm(generator: Generator, files: Files, before: int) -> None:
    """Until all that was produced is in the table: what writes other tables than Delta's raw ones has to start a Java process.

    Three times: the first write makes the table, and Java translates each way that is new to it.
    """
    until = time.monotonic() + 300
    for _ in range(3):
        generator.send("load", 8, partitions=8)
        before += 8
        while sum(file.rows for file in files()) < before:
            if time.monotonic() > until:
                raise AssertionError("the first records are not in the table")
            time.sleep(0.1)


def _produce(generator: Generator) -> None:
    """20,000 records a second, in small steps."""
    step = RATE // 20
    began = time.monotonic()
    for number in range(SECONDS * 20):
        generator.send("load", step, partitions=8)
        time.sleep(max(0.0, began + (number + 1) / 20 - time.monotonic()))


def _look(files: Files, over: threading.Event, ages: list[float]) -> None:
    """The age of each file's records at the moment at which the version that has it is seen: the oldest's and the youngest's."""
    known = {file.name for file in files()}
    while not over.is_set():
        found, now = files(), time.time()
        for file in found:
            if file.name not in known:
                known.add(file.name)
                ages += [now - file.first - (file.last - file.first) * part / 10 for part in range(11)]
        over.wait(0.05)


def _commits(folder: Path) -> Iterable[Figure]:
    """One checkpoint at a time, in a table of 10 and in one of 10,000 checkpoints; and what `maintain` makes of the latter."""
    few, many = _with_checkpoints(folder / "few", 10), _with_checkpoints(folder / "many", MANY)
    few_s, many_s = _commit_s(few), _commit_s(many)
    yield Figure(
        13,
        f"commit of one checkpoint to a table of {MANY:,}, against one of 10",
        many_s / few_s,
        "×",
        1.3,
        note=f"({few_s * 1000:.0f} and {many_s * 1000:.0f} ms)",
    )
    yield _maintained(many)


def _with_checkpoints(folder: Path, count: int) -> Landing:
    """A region with so many checkpoints in its raw Delta table."""
    folder.mkdir()
    url = f"sqlite:///{folder}/crkafka.db"
    initialise(url)
    table = {"name": "bronze", "format": "delta", "path": str(folder / "bronze")}
    landing = Landing(open_store(url), folder, partitions=2, control_plane=url, tables=[table])
    for _ in range(count):
        landing.land(1)
    while road.advance(landing.region, "bronze", limit=200):
        pass
    return landing


def _commit_s(landing: Landing) -> float:
    took = []
    for _ in range(COMMITS):
        landing.land(1)
        began = time.perf_counter()
        road.advance(landing.region, "bronze")
        took.append(time.perf_counter() - began)
    return median(took)


def _maintained(landing: Landing) -> Figure:
    """Its files once all checkpoints but the last are retired, against as many as their bytes fill, and that one's."""
    landing.retire(*range(1, MANY + COMMITS))
    table = DeltaTable(landing.config.tables[0].path)
    before, partitions = len(table.file_uris()), len(table.partitions()) if table.metadata().partition_columns else 0
    began = time.perf_counter()
    compact.maintain(landing.region, "bronze")
    took = time.perf_counter() - began
    table.update_incremental()
    files = pa.table(table.get_add_actions(flatten=True))
    due = math.ceil(sum(files["size_bytes"].to_pylist()) / compact.TARGET) + landing.members
    return Figure(
        13,
        f"files of a table of {MANY:,} checkpoints after `crkafka tables maintain`, against those that its bytes fill",
        files.num_rows / due,
        "×",
        1.0,
        note=f"({before:,} before, {files.num_rows} after, {took:.1f} s; {partitions} partitions)",
    )
