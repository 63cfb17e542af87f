"""Row 16: records that are read again where members or partitions change, and after a kill; the gap at a planned change."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.figure import Figure, percentile
from bench.load import TOPIC, Load, loaded
from crkafka_core.control import Reader
from crkafka_core.hosts.processes import ProcessHost
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region as Row
from crkafka_core.model.rows import Segment
from crkafka_core.model.segment import SegmentName
from crkafka_core.region import Region, waiting

RATE = 10_000.0
PARTITIONS = 12
JOINS = int(os.environ.get("CRKAFKA_BENCH_JOINS", "15"))
FLOWS = 2.0
"""Seconds in which records are submitted before a change."""


def figures(rows: list[int]) -> Iterable[Figure]:
    """On SQLite, with static and with dynamic members."""
    for static in (True, False):
        yield from _planned(static)
    yield _kill()
    yield _gap()


@contextmanager
def _region(members: int, *, static: bool) -> Iterator[tuple[Load, Region, ProcessHost]]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        loaded(Path(folder), partitions=PARTITIONS) as load,
        load.running("handover", members=members, static_membership=static, retain=1_000) as (region, host),
    ):
        load.flow(RATE)
        region.cut()
        yield load, region, host


def _planned(static: bool) -> Iterable[Figure]:
    """Scale 2 → 4 → 2, a restart of each member, a new partition."""
    kind = "static" if static else "dynamic"
    with _region(2, static=static) as (load, region, host):
        changes: list[tuple[str, Callable[[], object]]] = [
            ("scale to 4", partial(region.scale, 4)),
            ("scale to 2", partial(region.scale, 2)),
            ("restart of one member", partial(_end, host, 0, signal.SIGTERM)),
            ("restart of the other", partial(_end, host, 1, signal.SIGTERM)),
            ("a new partition", partial(load.kafka.topics.add_partitions, TOPIC, PARTITIONS + 1)),
        ]
        for what, change in changes:
            time.sleep(FLOWS)
            epoch = _epoch(region)
            change()
            _await_later(region, epoch)
            yield Figure(16, f"segments read again, {kind} members, {what}", _dropped(region).total(), "segments", 0)


def _kill() -> Figure:
    with _region(4, static=True) as (_, region, host):
        time.sleep(FLOWS)
        epoch = _epoch(region)
        victim = next(m.incarnation for m in region.status().members if m.name == sorted(host.pids())[2])
        _end(host, 2, signal.SIGKILL)
        _await_later(region, epoch)
        dropped = _dropped(region)
    of_victim = dropped.pop(victim, 0)
    what = "segments read again of members but the victim, kill -9 of one of four"
    return Figure(16, what, dropped.total(), "segments", 0, note=f"(and {of_victim} of the victim)")


def _gap() -> Figure:
    """From the first revocation to the first tuple, where a third dynamic member joins."""
    took = []
    with _region(2, static=False) as (_, region, _host):
        for _ in range(JOINS):
            time.sleep(FLOWS)
            epoch = _epoch(region)
            region.scale(3)
            waiting.until(region.plane, lambda _, row: bool(row.handover_json) or "a handover", timeout=60)
            began = time.monotonic()
            _await_later(region, epoch)
            took.append(time.monotonic() - began)
            time.sleep(FLOWS)
            epoch = _epoch(region)
            region.scale(2)
            _await_later(region, epoch)
    what = "first revocation → first tuple, one dynamic member joining, p50"
    return Figure(16, what, percentile(took, 50) * 1000, "ms", 400, note=f"(p90 {percentile(took, 90) * 1000:.0f} ms)")


def _epoch(region: Region) -> int:
    return region.status().region.epoch


def _await_later(region: Region, epoch: int) -> None:
    """Wait until tuples are accepted in a later epoch."""

    def resumed(_: Reader, row: Row) -> bool | str:
        return (row.epoch > epoch and row.phase in (Phase.RUNNING, Phase.CUTTING)) or "a later epoch"

    waiting.until(region.plane, resumed, timeout=90)


def _end(host: ProcessHost, number: int, how: signal.Signals) -> None:
    pids = host.pids()
    os.kill(pids[sorted(pids)[number]], how)


def _dropped(region: Region) -> Counter[str]:
    """Segments of earlier epochs that no checkpoint names, by the incarnation that wrote them: their records were read again."""
    row = region.status().region
    named = {r.path for r in region.plane.read(lambda reader, _: reader.select(Segment))}
    names = [SegmentName.parse(file.path) for file in region.storage().list(row.uid) if file.path not in named]
    return Counter(name.incarnation for name in names if name is not None and name.epoch < row.epoch)
