"""Rows 2, 4, 5, 7: the pause of a cut under load, recovery after kill -9, a reset without rebalance, memory of a member."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from bench.figure import Figure, percentile
from bench.load import TOPIC, Load
from crkafka_core.control import Reader
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.dev.postgres import Postgres
from crkafka_core.model.rows import Region as Row
from crkafka_core.region import Region, waiting

RECORDS = 4_000_000
CUTS = 40


def figures(rows: list[int]) -> Iterable[Figure]:
    """Each row, on SQLite; row 2 on PostgreSQL too."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user where this is root
    leash, postgres_leash = Leash(folder / "kafka"), Leash(folder / "postgres")
    kafka = KafkaCluster(folder / "kafka", nodes=1, leash=leash)
    kafka.start()
    try:
        kafka.topics.create(TOPIC, partitions=8)
        load = Load(folder, kafka, partitions=8)
        load.generator.bulk(TOPIC, RECORDS, partitions=8)
        if 2 in rows or 7 in rows:
            yield from _under_load(load, f"sqlite:///{folder}/load.db", "SQLite")
            postgres = Postgres(folder / "postgres", leash=postgres_leash)
            postgres.start()
            yield from _under_load(load, postgres.url("load"), "PostgreSQL")
        if 5 in rows:
            yield from _resets(load)
        if 4 in rows:
            yield from _kill(load, static=True)
            yield from _kill(load, static=False)
    finally:
        leash.release()
        postgres_leash.release()
        shutil.rmtree(folder, ignore_errors=True)


def _under_load(load: Load, url: str, where: str) -> Iterable[Figure]:
    """Cuts while members run at full speed through a backlog that does not end."""
    resident = 0
    with load.running(f"load-{where.lower()}", url, drain="stop") as (region, host):
        waiting.until(region.plane, lambda _, row: _submitted(region) > 100_000 or "tuples", timeout=60)
        for _ in range(CUTS):
            time.sleep(0.15)
            region.cut()
            resident = max([resident, *(resident_bytes(pid) for pid in host.pids().values())])
            if _submitted(region) >= RECORDS * 0.9:
                region.reset("initial", wait=True)
        time.sleep(2.5)  # members tell their metrics with each renewal
        pauses = _pauses(region)
    yield Figure(2, f"pause of a cut under load, {where}, p50", percentile(pauses, 50) * 1000, "ms", 50)
    yield Figure(2, f"pause of a cut under load, {where}, p99", percentile(pauses, 99) * 1000, "ms", 250)
    yield Figure(7, f"memory of a member at full speed, {where}", resident / 2**20, "MiB", 286, note="(300 MB)")


def _submitted(region: Region) -> int:
    return sum(int(m.metrics.get("submitted", 0)) for m in region.status().members)


def _pauses(region: Region) -> list[float]:
    """Seconds in which a member submitted nothing, for each of its last cuts."""
    return [ms / 1000 for m in region.status().members for ms in m.metrics.get("pausesMillis", [])]


def resident_bytes(pid: int) -> int:
    """Bytes of a process that are its own or shared, in memory."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _resets(load: Load) -> Iterable[Figure]:
    took: list[float] = []
    with load.running("resets") as (region, _):
        region.cut()
        for _ in range(10):
            time.sleep(0.5)
            took.append(_until_tuples(region, lambda: region.reset(cause="bench")))
    yield Figure(
        5, "reset without rebalance, request to first tuple again, p50", percentile(took, 50) * 1000, "ms", 500
    )


def _until_tuples(region: Region, act: object) -> float:
    began = time.monotonic()
    assert callable(act)
    epoch = act()
    waiting.until_running(region.plane, epoch, lambda _: None)
    cut = region.cut()
    assert cut.rows or cut.id
    return time.monotonic() - began


def _kill(load: Load, *, static: bool) -> Iterable[Figure]:
    name = "static" if static else "dynamic"
    with load.running(name, static_membership=static) as (region, host):
        time.sleep(1)
        epoch = region.status().region.epoch
        began = time.monotonic()
        os.kill(host.pids()[f"{name}/1"], signal.SIGKILL)

        def resumed(_: Reader, row: Row) -> bool | str:
            return (row.epoch > epoch and row.phase == "RUNNING") or "a later epoch"

        waiting.until(region.plane, resumed, timeout=60)
        took = time.monotonic() - began
    yield Figure(
        4,
        f"kill -9 of one of two members to first tuples, {name} membership",
        took,
        "s",
        5 if static else 8,
        note="(session 6 s)" if not static else "",
    )
