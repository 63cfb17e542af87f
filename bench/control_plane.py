"""The control plane alone: big merges, long histories, idle regions (docs/speed.md, rows 3, 8 and 9)."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.figure import Figure
from checkpoints_db import SqlStore, initialise, open_store
from crkafka_core.control import Tx
from crkafka_core.dev.leash import Leash
from crkafka_core.dev.postgres import Postgres
from crkafka_core.model import limits
from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Event, MergedOffset, Region
from crkafka_core.model.segment import ClosedSegment, Span, segment_path
from crkafka_core.plane import advance, contributions, cuts, life, member_plane, members, roster, starts
from crkafka_core.plane.contributions import Part
from crkafka_core.plane.transact import ControlPlane
from tests.rigs.merging import merge_cut


class Crowd:
    """Members that do nothing but what a cut needs of SQL."""

    def __init__(self, store: SqlStore, name: str, size: int, partitions: int) -> None:
        self.plane = ControlPlane(store, name)
        self.names = [f"{name}/{number}" for number in range(size)]
        self.held = {n: [TP("topic", p) for p in range(partitions) if p % size == i] for i, n in enumerate(self.names)}
        self.at = dict.fromkeys((tp for tps in self.held.values() for tp in tps), 0)
        stored = limits.dump(Limits(start_grace=0.0))
        life.declare(
            store, Region(name=name, uid=f"uid-{name}", region_index=1, members_wanted=size, limits_json=stored)
        )
        self.plane.do(lambda tx: life.start(tx, by="bench"))

    def begin(self) -> None:
        """Register, resolve, report; until the region runs."""
        everything = {tp: starts.Proposal("id", 0, "beginning") for tp in self.at}
        for name in self.names:
            who = members.Registration(name, name.replace("/", "-"), 1, 1, "cluster", self.plane.region)
            self.plane.do(lambda tx, who=who: members.register(tx, who))  # type: ignore[misc]
        row = self.region()
        for number, name in enumerate(self.names):
            ids = dict.fromkeys(self.held[name], "id")
            self.plane.do(
                lambda tx, name=name, ids=ids, number=number: starts.resolve(  # type: ignore[misc]
                    tx,
                    member=name,
                    incarnation=name.replace("/", "-"),
                    epoch=row.epoch,
                    base=row.head,
                    topic_ids=ids,
                    proposals=everything if number == 0 else {},
                )
            )
            self.plane.do(
                lambda tx, name=name: members.report(  # type: ignore[misc]
                    tx, name, name.replace("/", "-"), epoch=row.epoch, base=row.head, generation=1, held=self.held[name]
                )
            )
        assert self.plane.do(advance.advance).value == "RUNNING"

    def region(self) -> Region:
        return self.plane.read(lambda reader, row: row)

    def cut(self) -> tuple[float, float]:
        """Seconds of the whole cut, and of its contributions and merge."""
        started = time.perf_counter()
        opened = self.plane.do(lambda tx: cuts.open_cut(tx, token=str(started), cause="bench"))
        fixed = time.perf_counter()
        for name in self.names:
            part = self._part(opened, name)
            self.plane.do(lambda tx, part=part: contributions.contribute(tx, part))  # type: ignore[misc]
        self.plane.do(lambda tx: merge_cut(tx, opened.id))
        done = time.perf_counter()
        self.at = {tp: offset + 10 for tp, offset in self.at.items()}
        return done - started, done - fixed

    def _part(self, opened: Checkpoint, name: str) -> Part:
        offsets = {tp: (self.at[tp], self.at[tp] + 10, 10) for tp in self.held[name]}
        spans = tuple(Span(tp, *o) for tp, o in offsets.items())
        path = segment_path(f"uid-{self.plane.region}", opened.epoch, name.replace("/", "-"), opened.id, 0)
        return Part(
            checkpoint=opened.id,
            member=name,
            incarnation=name.replace("/", "-"),
            epoch=opened.epoch,
            base=opened.parent,
            generation=1,
            members=tuple(self.names),
            offsets=offsets,
            topic_ids={"topic": "id"},
            segments=[ClosedSegment(path, 10 * len(offsets), 1_000, path, spans)],
        )


def big_merge(store: SqlStore, database: str) -> Figure:
    """Row 3: 100 members, 10,000 partitions."""
    crowd = Crowd(store, f"big-{time.time()}", 100, 10_000)
    crowd.begin()
    took = [crowd.cut()[1] for _ in range(3)]
    return Figure(
        3, f"contributions and merge, 100 members, 10,000 partitions, {database}", statistics.median(took), "s", 1.0
    )


def long_history(stores: Sequence[SqlStore], database: str) -> list[Figure]:
    """Row 8: a cut, a list and a publisher's question with 10 and with 10,000 checkpoints behind them, each in a database of its own."""
    crowds = [Crowd(store, "history", 2, 8) for store in stores]
    for crowd in crowds:
        crowd.begin()
        for _ in range(10):
            crowd.cut()
    _lengthen(crowds[1], 10_000)
    for store, crowd in zip(stores, crowds, strict=True):
        _analyse(store)
        crowd.cut()
    short, long = _history_costs(crowds)
    results = []
    for what in short:
        note = f"({short[what] * 1e3:.2f} → {long[what] * 1e3:.2f} ms)"
        results.append(
            Figure(
                8, f"{what}, 10,000 checkpoints against 10, {database}", long[what] / short[what], "×", 1.2, note=note
            )
        )
    return results


def _history_costs(crowds: Sequence[Crowd]) -> list[dict[str, float]]:
    """The median of each, measured in turns: a machine is not as quick in one minute as in the next."""
    took: list[dict[str, list[float]]] = [defaultdict(list) for _ in crowds]
    for _ in range(60):
        for crowd, found in zip(crowds, took, strict=True):
            found["cut"].append(crowd.cut()[0])
            head = crowd.region().head
            started = time.perf_counter()
            with crowd.plane.store.read(crowd.plane.region) as reader:
                reader.select(Checkpoint, order=("id",), desc=True, limit=20)
            listed = time.perf_counter()
            found["list"].append(listed - started)
            with crowd.plane.store.read(crowd.plane.region) as reader:
                line = reader.line(head, after=head - 5)
                reader.select(Checkpoint, ("id", "in", line))
                reader.select(Event, order=("seq",), desc=True, limit=10)
            found["publish"].append(time.perf_counter() - listed)
    return [{what: statistics.median(times) for what, times in found.items()} for found in took]


def _lengthen(crowd: Crowd, count: int) -> None:
    """Archived checkpoints before the head's child, as a long life with retirement leaves them."""
    name = crowd.plane.region
    head = crowd.region().head

    def work(tx: Tx) -> None:
        row, first = tx.region(), tx.get(Checkpoint, head)
        assert first is not None

        new = [
            replace(first, id=head + n, parent=head + n - 1, token=f"old {n}", status=CheckpointStatus.RETIRED)
            for n in range(1, count)
        ]
        last = head + count
        new.append(replace(first, id=last, parent=last - 1, token="old last"))
        offsets = tx.select(MergedOffset, ("checkpoint", "=", head))
        tx.add(*new)
        tx.add(*(replace(o, checkpoint=last) for o in offsets))
        events = [Event(name, row.next_event + n, tx.now(), "merged", row.epoch, head + n) for n in range(2 * count)]
        tx.add(*events)
        there = roster.all_of(tx)
        tx.put(*(replace(m, base=last) for m in there))
        tx.set_region(head=last, filling=last, opened=last, next_event=row.next_event + 2 * count)
        cuts.begin_fill(tx)

    crowd.plane.store.run(name, work)


def _analyse(store: SqlStore) -> None:
    """As the server has done with a history that took days."""
    if store.engine.dialect.name == "postgresql":
        with store.engine.begin() as connection:
            connection.exec_driver_sql("ANALYZE")


def idle_regions(store: SqlStore, server: Postgres, seconds: float) -> Figure:
    """Row 9: 50 regions of 2 members each, all waiting and renewing; the processor time of all of PostgreSQL meanwhile."""
    stop = threading.Event()
    names = [f"idle-{number}-{time.time()}" for number in range(50)]
    for name in names:
        Crowd(store, name, 2, 4).begin()

    def member(name: str, number: int) -> None:
        plane, me = ControlPlane(store, name), f"{name}/{number}"
        version, renewed = 0, time.monotonic()
        while not stop.is_set():
            version = store.wait(name, version, 5.0)
            plane.read(lambda reader, row: member_plane.desired(reader, row, roster.all_of(reader), me, f"{me}@1"))
            if time.monotonic() - renewed > Limits().renew_every:
                plane.do(lambda tx: members.renew(tx, me, f"{me}@1"))
                renewed = time.monotonic()

    threads = [threading.Thread(target=member, args=(name, number)) for name in names for number in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    before, started = _cpu(server), time.monotonic()
    time.sleep(seconds)
    used = (_cpu(server) - before) / (time.monotonic() - started)
    assert all(thread.is_alive() for thread in threads), "a member has ended: what was measured is nothing"
    stop.set()
    for thread in threads:
        thread.join(20)
    return Figure(9, "50 idle regions, 100 members: processor of PostgreSQL", used * 100, "% of a core", 5.0)


def _cpu(server: Postgres) -> float:
    """Processor seconds of the server and its children, dead ones included."""
    ticks = os.sysconf("SC_CLK_TCK")
    main = server.process.pid
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == main:
            total += sum(map(int, fields[11:15])) / ticks
        elif int(fields[1]) == main:
            total += sum(map(int, fields[11:13])) / ticks
    return total


@contextmanager
def databases() -> Iterator[tuple[dict[str, list[SqlStore]], Postgres]]:
    """SQLite files and databases of a durable PostgreSQL, three of each, in a folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="crk-bench-"))
    folder.chmod(0o755)
    leash = Leash(folder / "postgres", remove=True)
    server = Postgres(folder / "postgres", leash=leash, durable=True)
    stores: dict[str, list[SqlStore]] = {"sqlite": [], "postgresql": []}
    try:
        server.start()
        for database in ("bench", "short", "long"):
            for name, url in (("sqlite", f"sqlite:///{folder}/{database}.db"), ("postgresql", server.url(database))):
                initialise(url)
                stores[name].append(open_store(url))
        yield stores, server
    finally:
        for store in (each for found in stores.values() for each in found):
            store.close()
        leash.release()
        shutil.rmtree(folder, ignore_errors=True)


def figures(rows: Collection[int] = (3, 8, 9), *, seconds: float = 15.0) -> list[Figure]:
    """The rows that are wanted, on both databases."""
    found: list[Figure] = []
    with databases() as (stores, server):
        for name, (first, *others) in stores.items():
            if 3 in rows:
                found.append(big_merge(first, name))
            if 8 in rows:
                found += long_history(others, name)
        if 9 in rows:
            found.append(idle_regions(stores["postgresql"][0], server, seconds))
    return found
