"""Simulated declared tables with a format that refuses late commits by number, and writers that may die or sleep between any two steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crkafka_core.control import Reader
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Region
from crkafka_core.model.rows import Table as TableRow
from crkafka_core.plane import permits, tables
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.tables import FENCE
from crkafka_core.testing.simulation.actors import Actor
from crkafka_core.testing.simulation.history import Violation
from crkafka_core.testing.simulation.storage import Tuple

if TYPE_CHECKING:
    from crkafka_core.testing.simulation.world import World


LOOKS_EVERY = 0.8
"""Longest pause of a writer that finds nothing to do."""


@dataclass
class Lake:
    """The table itself: rows by checkpoint, and the highest number that was ever committed to it (docs/clients.md P5)."""

    name: str
    number: int = 0
    rows: dict[int, tuple[Tuple, ...]] = field(default_factory=dict)

    def commit(self, number: int, rows: dict[int, tuple[Tuple, ...]], remove: set[int]) -> bool:
        """Overwrite whole checkpoints, atomically; a number that is not new is refused."""
        if number <= self.number:
            return False
        self.number = number
        self.rows = {c: r for c, r in self.rows.items() if c not in remove} | rows
        return True


class Writer(Actor):
    """One writer of a table: permit, write, finish; each a step."""

    def __init__(self, world: World, lake: Lake, number: int) -> None:
        super().__init__(world, f"{lake.name}-writer-{number}")
        self.lake = lake
        self.count = 0
        self.token = ""
        self.permit: Permit | None = None
        self.written = False
        world.scheduler.spawn(self, "writer", self._live)

    def _live(self) -> None:
        while True:
            self.world.scheduler.sleep((0.3 if self.token else LOOKS_EVERY) * self.world.rng.random())
            try:
                self.move()
            except Violation as violation:
                self.world.fail(violation)

    def forget(self) -> None:
        """The process dies, or is done; the next one knows nothing of what it was at."""
        self.token, self.permit, self.written = "", None, False

    def move(self) -> None:
        try:
            if self.permit is None:
                self.ask()
            elif not self.written:
                self.write(self.permit)
            else:
                self.finish(self.permit)
        except ServiceUnavailable:
            return
        except CrkafkaError:
            self.forget()

    def ask(self) -> None:
        if not self.token:
            self.count += 1
            self.token = f"{self.name} {self.count}"
        row, behind = self.plane.read(self._look)
        if row.rewind_epoch > row.fenced_epoch:
            what = permits.permit_fence
            self.permit = self.plane.do(lambda tx: what(tx, self.lake.name, holder=self.name, token=self.token))
        else:
            if not behind:
                self.token = ""
                return
            limit = self.world.rng.choice((None, 1, 2))
            self.permit = self.plane.do(
                lambda tx: permits.permit_commit(tx, self.lake.name, holder=self.name, token=self.token, limit=limit)
            )

    def _look(self, reader: Reader, region: Region) -> tuple[TableRow, bool]:
        """The table, and whether it lacks what is merged."""
        row = tables.of(reader, self.lake.name)
        return row, bool(tables.behind(reader, region, row))

    def write(self, permit: Permit) -> None:
        rows: dict[int, tuple[Tuple, ...]] = {}
        remove: set[int] = set()
        if permit.commit.kind == FENCE:
            line = set(self.plane.read(lambda r, region: r.line(region.head)))
            remove = set(self.lake.rows) - line
        else:
            for segment in permit.plan.segments:
                held = self.world.disk.get(segment.path)
                if held is None:
                    self.world.note(self.name, "a named segment is gone", segment.path)
                    self.gone(permit, segment.checkpoint)
                    return
                rows[segment.checkpoint] = rows.get(segment.checkpoint, ()) + held
        for r in permit.plan.ranges:  # archived: from Kafka again, which tells a simulation also what retention took
            tp = TP(r.topic, r.partition)
            again = tuple((tp, record) for record in self.world.broker.records(tp, r.start, r.stop))
            rows[r.checkpoint] = rows.get(r.checkpoint, ()) + again
        self.written = self.lake.commit(permit.commit.number, rows, remove)
        how = "written" if self.written else "refused by the table"
        self.world.note(self.name, f"{permit.commit.kind} {permit.commit.number} {how}", sorted(rows))
        if not self.written:
            self.forget()

    def gone(self, permit: Permit, checkpoint: int) -> None:
        """Only what a rewind left behind may be gone under a writer (T1)."""
        if checkpoint in self.world.oracle.line():
            raise Violation(
                "T1", f"{self.name} lacks a segment of checkpoint {checkpoint}, which its table has not acknowledged"
            )
        self.plane.do(lambda tx: permits.fail_commit(tx, permit, "a segment is gone"))
        self.forget()

    def finish(self, permit: Permit) -> None:
        if permit.commit.kind == FENCE:
            self.plane.do(lambda tx: permits.finish_fence(tx, permit, version=str(permit.commit.number)))
        else:
            count = sum(len(self.lake.rows.get(c, ())) for c in permit.plan.checkpoints)
            self.plane.do(lambda tx: permits.finish_commit(tx, permit, version=str(permit.commit.number), rows=count))
        self.forget()
        self.judge()

    def judge(self) -> None:
        """What is acknowledged is in the table, as merged; what a rewind left behind is not, once the fence is there (I2, X4)."""
        with self.world.store.read(self.world.region) as reader:
            row = tables.of(reader, self.lake.name)
        oracle, line = self.world.oracle, self.world.oracle.line()
        if row.rewind_epoch > row.fenced_epoch:
            return
        strange = set(self.lake.rows) - set(line)
        if strange:
            raise Violation(
                "X4",
                f"table {row.name} holds checkpoints {sorted(strange)} that are not on the line, and owes no fence",
            )
        if row.acknowledged and row.acknowledged not in line:
            raise Violation(
                "X4", f"table {row.name} has acknowledged {row.acknowledged}, which is not on the line {line}"
            )
        for checkpoint in line:
            if checkpoint > row.acknowledged:
                break
            found = sorted(record for _, record in self.lake.rows.get(checkpoint, ()))
            if found != oracle.landed[checkpoint]:
                raise Violation(
                    "I2",
                    f"table {row.name} has {found} of checkpoint {checkpoint}; merged were {oracle.landed[checkpoint]}",
                )
