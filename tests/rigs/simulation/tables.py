"""Who writes simulated tables: the real feeder of hosts, and writers in Spark; each may die or sleep between any two steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from crkafka_core.control import Reader
from crkafka_core.lake import road, writing
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.port import mark_of
from crkafka_core.lake.writing import Written
from crkafka_core.model.errors import CrkafkaError, LeaseLost, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Region, TableCommit
from crkafka_core.model.rows import Table as TableRow
from crkafka_core.plane import tables
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.reading import KafkaRange, ReadPlan
from crkafka_core.region.feeder import Feeder
from tests.rigs.simulation.actors import Restarted, SimulatedRegion
from tests.rigs.simulation.broker import between
from tests.rigs.simulation.history import Violation
from tests.rigs.simulation.lake import Lake, batch_of, means, reach
from tests.rigs.simulation.storage import Tuple

if TYPE_CHECKING:
    from tests.rigs.simulation.world import World


LOOKS_EVERY = 0.8
"""Longest pause of a writer that finds nothing to do."""
REWRITES = 0.1
"""Chance that a writer writes a checkpoint anew that its table has."""


class TableActor(Restarted):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.region, self.means = SimulatedRegion(self), replace(means(world, self), fetch=self.fetch)

    def fetch(self, plan: ReadPlan) -> Iterator[tuple[KafkaRange, pa.RecordBatch]]:
        for r in plan.ranges:
            self.world.scheduler.give_way()
            yield r, batch_of(self.archived(r))

    def archived(self, r: KafkaRange) -> tuple[Tuple, ...]:
        """Kafka tells a simulation also what retention took, or an election."""
        tp, landed = TP(r.topic, r.partition), set(self.world.oracle.landed[r.checkpoint])
        for log in self.world.broker.logs_of(tp):
            records = between(log, r.start, r.stop)
            if len(records) == r.rows and landed.issuperset(records):
                return tuple((tp, record) for record in records)
        raise ServiceUnavailable(f"{tp} does not hold [{r.start}, {r.stop}) any more.")

    def another(self) -> None:
        self.world.writers[self.world.writers.index(self)] = self.again()

    def again(self) -> TableActor:
        raise NotImplementedError


class FeederProcess(TableActor):
    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"feeder-{number}")
        self.number = number
        self.runtime.start(Feeder(self.region, tell=partial(world.note, self.name, "tells"), means=self.means))

    def again(self) -> FeederProcess:
        return FeederProcess(self.world, self.number)


class Writer(TableActor):
    """A program that brings a table forward by Spark, and now and then writes anew what it has."""

    def __init__(self, world: World, lake: Lake, number: int) -> None:
        super().__init__(world, f"{lake.name}-writer-{number}")
        self.lake, self.number = lake, number
        world.scheduler.spawn(self, "writer", self._live)

    def again(self) -> Writer:
        return type(self)(self.world, self.lake, self.number)

    def _live(self) -> None:
        while True:
            self.world.scheduler.sleep(LOOKS_EVERY * self.world.rng.random())
            try:
                self.move()
            except ServiceUnavailable:
                continue
            except Violation as violation:
                self.world.fail(violation)
            except CrkafkaError as refused:
                self.world.note(self.name, "is refused", refused)

    def move(self) -> None:
        rng = self.world.rng
        owes, behind, has = self.plane.read(self._look)
        if owes:
            self.fence()
        elif has and rng.random() < REWRITES:
            self.rewrite(rng.choice(has))
        elif behind:
            self.advance(rng.choice((None, 1, 2)))

    def _look(self, reader: Reader, region: Region) -> tuple[bool, list[int], list[int]]:
        """Whether the table owes a fence; what is merged that it lacks, and what it has."""
        row = tables.of(reader, self.lake.name)
        has = [i for i in reader.line(region.head) if i <= row.acknowledged]
        return row.owes_fence, tables.behind(reader, region, row), has

    def read(self, plan: ReadPlan) -> dict[int, tuple[Tuple, ...]]:
        """The rows of a plan: those of segments from the disk, archived ones from Kafka again."""
        rows: dict[int, tuple[Tuple, ...]] = {}
        for segment in plan.segments:
            self.world.scheduler.give_way()
            held = self.world.disk.get(segment.path)
            if held is None:
                raise self._gone(segment.checkpoint, segment.path)
            rows[segment.checkpoint] = rows.get(segment.checkpoint, ()) + held
        for r in plan.ranges:
            rows[r.checkpoint] = rows.get(r.checkpoint, ()) + self.archived(r)
        return rows

    def _gone(self, checkpoint: int, path: str) -> Exception:
        """Only what a rewind left behind, or what the table has by now, may be gone under a writer (T1)."""
        with self.world.store.read(self.world.region) as reader:
            has = tables.of(reader, self.lake.name).acknowledged
        if checkpoint > has and checkpoint in self.world.oracle.line():
            return Violation("T1", f"{self.name} lacks {path} of checkpoint {checkpoint}, which its table needs")
        return ServiceUnavailable(f"{path} is gone.")

    def advance(self, limit: int | None) -> None:
        raise NotImplementedError

    def rewrite(self, checkpoint: int) -> None:
        raise NotImplementedError

    def fence(self) -> None:
        raise NotImplementedError


class Adopter(Writer):
    """Of a table that takes segments as its files: beside the feeders, and it can read from Kafka again."""

    def advance(self, limit: int | None) -> None:
        road.advance(self.region, self.lake.name, limit=limit, means=self.means)

    def rewrite(self, checkpoint: int) -> None:
        road.rewrite(self.region, self.lake.name, (checkpoint,), means=self.means)

    def fence(self) -> None:
        road.fence(self.region, self.lake.name, means=self.means)


class SparkWriter(Writer):
    """Of a table whose rows Spark writes, in a format that refuses late commits by number."""

    def advance(self, limit: int | None) -> None:
        self._commit(writing.asking([self.lake.name], limit=limit))

    def rewrite(self, checkpoint: int) -> None:
        self._commit(writing.asking([self.lake.name], ids=(checkpoint,)))

    def _commit(self, ask: writing.Ask) -> None:
        writing.commit(self.region, ask, lambda given, hold: [(self.lake.name, self._write(given[0], hold))]).required()

    def _write(self, permit: Permit, hold: Hold) -> Written:
        rows = self.read(permit.plan)
        hold.check()
        self._take(permit, rows)
        return Written(str(permit.commit.number), sum(map(len, rows.values())))

    def fence(self) -> None:
        writing.fence(self.region, self.lake.name, self._fence)

    def _fence(self, permit: Permit, hold: Hold) -> tuple[str, None]:
        line = set(self.plane.read(lambda r, region: r.line(region.head)))
        self._take(permit, {}, only=line)
        return str(permit.commit.number), None

    def _take(self, permit: Permit, rows: dict[int, tuple[Tuple, ...]], *, only: set[int] | None = None) -> None:
        """Of what is there, `only` these checkpoints stay: a format looks at that as it commits."""
        reach(self.world, self, self.lake.name)
        gone = set() if only is None else set(self.lake.written) - only
        if not self.lake.write(permit.commit.number, rows, gone):
            raise LeaseLost(f"Table {self.lake.name} did not take commit {permit.commit.number}: a later one is there.")
        reach(self.world, self, self.lake.name)


def writers(world: World) -> list[TableActor]:
    """Who writes the tables of a plan: two hosts, perhaps with a program, or two programs in Spark for each."""
    if not world.plan.adopts:
        return [SparkWriter(world, lake, n) for lake in world.lakes for n in (1, 2)]
    feeders = [FeederProcess(world, n) for n in (1, 2)] if world.lakes else []
    return [*feeders, *(Adopter(world, lake, 1) for lake in world.lakes if world.plan.aided)]


def judge(world: World) -> None:
    """What is acknowledged is in each table, as merged; what a rewind left behind is not, once the fence is there (I2, X4)."""
    oracle, line = world.oracle, world.oracle.line()
    with world.store.read(world.region) as reader:
        declared = {table.name: table for table in reader.select(TableRow)}
        permitted = {(commit.table, commit.number, mark_of(commit.token)) for commit in reader.select(TableCommit)}
    for lake in world.lakes:
        table = declared.get(lake.name)
        if table is None or table.owes_fence:
            continue
        last = next(iter(lake.versions[-1].stamps.values()), None) if lake.versions else None
        if oracle.lost and last is not None and (last.table, last.permit, last.token) not in permitted:
            continue  # a newer state of SQL made it: who looks next at the table stops the region (SPEC G10)
        rows = lake.rows()
        strange = sorted(rows.keys() - set(line))
        if strange:
            raise Violation("X4", f"table {table.name} holds checkpoints {strange}, not on the line, and owes no fence")
        if table.acknowledged and table.acknowledged not in line:
            raise Violation("X4", f"table {table.name} has acknowledged {table.acknowledged}, not on the line {line}")
        for checkpoint in line:
            records = sorted(record for _, record in rows.get(checkpoint, ()))
            if checkpoint <= table.acknowledged and records != oracle.landed[checkpoint]:
                merged = oracle.landed[checkpoint]
                raise Violation(
                    "I2", f"table {table.name} has {records} of checkpoint {checkpoint}; merged were {merged}"
                )
