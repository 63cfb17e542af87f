"""Rows 12 and 13: how fresh Delta and Iceberg tables are, and what a commit costs in a table that has taken many checkpoints."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import fastavro
from deltalake import DeltaTable

from bench.figure import Figure, percentile
from checkpoints_db import initialise, open_store
from crkafka_core.config import RegionConfig
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.region import Region
from crkafka_core.region.driver import Driver
from crkafka_core.region.host import hosting
from crkafka_core.tables import adopt
from crkafka_core.testing.generator import Generator
from crkafka_core.testing.landing import Landing

File = tuple[str, float, float]
"""Name, and the times of its first and last record."""
Files = Callable[[Path], list[File]]
MANY = 10_000
COMMITS = 30
RATE = 20_000
SECONDS = 30


def figures(rows: list[int]) -> Iterable[Figure]:
    """Each row, on SQLite."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        if 12 in rows:
            yield from _freshness(folder / "delta", "delta", _of_delta, 1.5, 4)
            yield from _freshness(folder / "iceberg", "iceberg", _of_iceberg, 2.5, 6)
        if 13 in rows:
            yield from _commits(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _freshness(folder: Path, format: str, files: Files, half: float, most: float) -> Iterable[Figure]:
    """From the time that a record has in Kafka until a plain reader finds it in the table; the host alone, a cut every second."""
    folder.mkdir()
    leash = Leash(folder / "kafka")
    kafka = KafkaCluster(folder / "kafka", nodes=1, leash=leash)
    kafka.start()
    try:
        kafka.topics.create("load", partitions=8)
        url = f"sqlite:///{folder}/fresh.db"
        initialise(url)
        config = RegionConfig.parse(
            {
                "region": "fresh", "control_plane": url, "storage": str(folder / "segments"), "topics": ["load"], "members": 2,
                "trigger": {"period": "1s"}, "kafka": {"bootstrap.servers": kafka.bootstrap, "group.id": "fresh"},
                "tables": [{"name": "bronze", "format": format, "path": str(folder / "bronze")}], "host": "processes",
            }
        )  # fmt: skip
        with Region.open(config) as region:
            region.init()
            region.start()
            with hosting(region, folder / "logs"):
                region.await_running(timeout=60)
                driver = Driver(region)
                driver.start()
                over, ages = threading.Event(), []
                looking = threading.Thread(target=_look, args=(lambda: files(folder / "bronze"), over, ages))
                looking.start()
                _warm(kafka.bootstrap, ages)
                _produce(kafka.bootstrap)
                time.sleep(3)
                over.set()
                looking.join()
                driver.end()
                region.stop()
    finally:
        leash.release()
    what = f"record produced → in the {format.capitalize()} table, host alone, a cut every second, p50"
    yield Figure(12, what, percentile(ages, 50), "s", half)
    yield Figure(12, "the same, p99", percentile(ages, 99), "s", most)


def _warm(bootstrap: str, ages: list[float]) -> None:
    """Until the first record is in the table: what writes Iceberg's has to start a Java process."""
    Generator(bootstrap).send("load", 8, partitions=8)
    until = time.monotonic() + 120
    while not ages:
        if time.monotonic() > until:
            raise AssertionError("the first record is not in the table")
        time.sleep(0.1)
    ages.clear()


def _produce(bootstrap: str) -> None:
    """20,000 records a second, in small steps."""
    generator, step = Generator(bootstrap), RATE // 20
    began = time.monotonic()
    for number in range(SECONDS * 20):
        generator.send("load", step, partitions=8)
        time.sleep(max(0.0, began + (number + 1) / 20 - time.monotonic()))


def _look(files: Callable[[], list[File]], over: threading.Event, ages: list[float]) -> None:
    """The age of each file's records at the moment at which the version that has it is seen: the oldest's and the youngest's."""
    known: set[str] = set()
    while not over.is_set():
        found, now = files(), time.time()
        for name, first, last in found:
            if name not in known:
                known.add(name)
                ages += [now - first - (last - first) * part / 10 for part in range(11)]
        over.wait(0.05)


def _of_delta(path: Path) -> list[File]:
    if not (path / "_delta_log").exists():
        return []
    actions = DeltaTable(str(path)).get_add_actions(flatten=True)
    names, oldest, youngest = (actions.column(c).to_pylist() for c in ("path", "min.timestamp", "max.timestamp"))
    return [(n, a.timestamp(), b.timestamp()) for n, a, b in zip(names, oldest, youngest, strict=True)]


def _of_iceberg(path: Path) -> list[File]:
    """By the format's own files, as a program reads them that knows no Spark: metadata, manifests, their entries."""
    hint = path / "metadata" / "version-hint.text"
    if not hint.exists():
        return []
    about = json.loads((path / "metadata" / f"v{hint.read_text()}.metadata.json").read_text())
    at = next(f["id"] for f in about["schemas"][-1]["fields"] if f["name"] == "timestamp")
    current = [
        s["manifest-list"] for s in about.get("snapshots", ()) if s["snapshot-id"] == about["current-snapshot-id"]
    ]
    found = []
    for manifest in (m for each in current for m in _avro(each)):
        for entry in _avro(manifest["manifest_path"]):
            file = entry["data_file"]
            least, most = (
                next(int.from_bytes(b["value"], "little") / 1e6 for b in file[bounds] if b["key"] == at)
                for bounds in ("lower_bounds", "upper_bounds")
            )
            if entry["status"] != 2:  # deleted
                found.append((file["file_path"], least, most))
    return found


def _avro(path: str) -> list[Any]:
    with Path(path.removeprefix("file:")).open("rb") as source:
        return list(fastavro.reader(source))


def _commits(folder: Path) -> Iterable[Figure]:
    """One checkpoint at a time, in a table of 10 and in one of 10,000 checkpoints."""
    few, many = _advances(folder / "few", 10), _advances(folder / "many", MANY)
    yield Figure(
        13, f"commit of one checkpoint to a table of {MANY:,}, against one of 10", many / few, "×", 1.3,
        note=f"({few * 1000:.0f} and {many * 1000:.0f} ms)",
    )  # fmt: skip


def _advances(folder: Path, before: int) -> float:
    folder.mkdir()
    url = f"sqlite:///{folder}/crkafka.db"
    initialise(url)
    table = {"name": "bronze", "format": "delta", "path": str(folder / "bronze")}
    landing = Landing(open_store(url), folder, partitions=2, control_plane=url, tables=[table])
    for _ in range(before):
        landing.land(1)
    while adopt.advance(landing.region, "bronze", limit=200):
        pass
    took = []
    for _ in range(COMMITS):
        landing.land(1)
        began = time.perf_counter()
        adopt.advance(landing.region, "bronze")
        took.append(time.perf_counter() - began)
    return median(took)
