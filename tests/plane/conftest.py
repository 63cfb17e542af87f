"""A region on a control plane in memory, with members that do what they are told: what the tests of the rules share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from crkafka_core.control import Reader, Tx
from crkafka_core.model import limits
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Event, Filler, Member, MemberStatus, Region, Reset, ResetCause, Table
from crkafka_core.model.segment import ClosedSegment, Span, segment_path
from crkafka_core.plane import (
    advance,
    contributions,
    cuts,
    events,
    handover,
    life,
    members,
    resets,
    starts,
    tables,
)
from crkafka_core.plane.transact import ControlPlane
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore
from tests.rigs.merging import merge_cut

T = TypeVar("T")
P0, P1 = TP("t", 0), TP("t", 1)
LIMITS = Limits(session_timeout=10.0, settle_timeout=30.0, start_grace=10.0, drain_timeout=20.0, reset_timeout=40.0)


def _index(name: str) -> int:
    return int(name.rpartition("/")[2])


class Kit:
    """One region of two partitions; `now` is the database's time."""

    def __init__(
        self,
        wanted: int = 2,
        tables: tuple[str, ...] = (),
        period: float = 60.0,
        member_epochs: bool = False,
        **changed: float,
    ) -> None:
        self.now = 1_000.0
        self.member_epochs = member_epochs
        self.wanted = wanted
        self.generation = 1
        self.launches = 0
        self.live: dict[str, str] = {}
        self.at: dict[TP, int] = {P0: 0, P1: 0}
        self.plane = ControlPlane(MemoryStore(lambda: self.now), "orders")
        stored = limits.dump(dataclasses.replace(LIMITS, **changed))  # type: ignore[arg-type]
        row = Region(name="orders", uid="uid", region_index=0, members_wanted=wanted, limits_json=stored, period=period)
        life.declare(self.plane.store, row, tuple(Table("orders", name, "delta", name) for name in tables))

    def do(self, work: Callable[[Tx], T | CrkafkaError]) -> T:
        return self.plane.do(work)

    def read(self, question: Callable[[Reader, Region], T]) -> T:
        return self.plane.read(question)

    @property
    def row(self) -> Region:
        return self.read(lambda _, region: region)

    def member(self, number: int) -> Member:
        found = self.read(lambda reader, _: reader.get(Member, f"orders/{number}"))
        assert found is not None
        return found

    def checkpoint(self, number: int) -> Checkpoint:
        found = self.read(lambda reader, _: reader.get(Checkpoint, number))
        assert found is not None
        return found

    def events(self, *kinds: str) -> list[Event]:
        return [e for e in self.read(lambda reader, row: events.since(reader, 0)) if e.kind in kinds]

    # What members do

    def register(self, number: int) -> str:
        name = f"orders/{number}"
        self.launches += 1
        incarnation = f"i{self.launches}"
        launch = self.do(lambda tx: members.launch(tx, name))
        who = members.Registration(name, incarnation, launch, 0, "cluster", "group", member_epochs=self.member_epochs)
        self.do(lambda tx: members.register(tx, who))
        self.live[name] = incarnation
        return incarnation

    def resolve(
        self,
        number: int,
        held: set[TP],
        gaps: Mapping[TP, starts.Gap] | None = None,
        ids: Mapping[TP, str] | None = None,
    ) -> starts.Resolved:
        name, row = f"orders/{number}", self.row
        given = ids or dict.fromkeys(held, "id-t")
        return self.do(
            lambda tx: starts.resolve(
                tx,
                member=name,
                incarnation=self.live[name],
                epoch=row.epoch,
                base=row.head,
                topic_ids=given,
                proposals={tp: starts.Proposal(given.get(tp, "id-t"), 0, "beginning") for tp in {P0, P1, *held}},
                gaps=gaps,
                accept_gaps=bool(gaps),
            )
        )

    def report(self, number: int, held: set[TP], **other: int) -> None:
        name, row = f"orders/{number}", self.row
        said = {"epoch": row.epoch, "base": row.head, "generation": self.generation} | other
        self.do(lambda tx: members.report(tx, name, self.live[name], held=held, **said))

    def settle(self, held: Mapping[int, set[TP]] | None = None) -> None:
        """All members resolve and report; the region resumes if nothing else is in the way."""
        for number, tps in (held or {0: {P0}, 1: {P1}}).items():
            self.at |= dict(self.resolve(number, tps).offsets)
            self.report(number, tps)
        self.advance()

    def settle_all(self) -> None:
        """As `settle`, however many members there are."""
        self.settle({n: {P0} if n == 0 else {P1} if n == 1 else set() for n in range(max(2, self.wanted))})

    def advance(self, after: float = 0.0) -> Phase:
        self.now += after
        return self.do(advance.advance)

    def withdraw(self, number: int) -> None:
        """A revocation; where records flow, a handover is open from now on."""
        name = f"orders/{number}"
        self.do(lambda tx: members.withdraw(tx, name, self.live[name], why="partitions revoked"))

    def rebalance(self, number: int) -> None:
        """A revocation, and the handover that it begins: there is nothing new."""
        self.withdraw(number)
        self.hand_over()

    def unsettle(self, number: int) -> None:
        """Its report is not there: the group is not settled."""
        self.do(lambda tx: tx.put(dataclasses.replace(self.member(number), assignment_json="")))

    def dies(self, number: int) -> None:
        """A loss, and its handover; the member is started again."""
        name = f"orders/{number}"
        self.do(lambda tx: members.lose(tx, name, self.live[name], by=name, why="boom"))
        self.hand_over()
        if self.row.phase is not Phase.IDLE and not self.row.stopping:
            self.register(number)

    def hand_over(self, rows: int = 0) -> None:
        """Each live member that has not failed contributes so much to the open cut; it merges, and the handover behind it."""
        ids = self.read(lambda reader, _: {i.topic: i.topic_id for i in starts.known(reader).values()})
        while number := self.row.open_cut:
            for filler in self._fillers(number):
                self.at |= filler.offsets
                why = handover.current(self.row)
                failed = why is not None and filler.member in why.failed
                live = self.live.get(filler.member) == filler.incarnation and not failed
                if live and self.member(_index(filler.member)).status is MemberStatus.LIVE:
                    held = set(filler.offsets)
                    topics = {tp.topic: ids[tp.topic] for tp in held}
                    self.contribute(number, _index(filler.member), rows, held=held, topic_ids=topics)
            self.advance()
            assert self.row.open_cut != number

    def _fillers(self, number: int) -> list[Filler]:
        return self.read(lambda reader, _: reader.select(Filler, ("checkpoint", "=", number)))

    def fail(self, number: int, text: str = "x", cause: ResetCause = ResetCause.FAILURE, epoch: int = 0) -> int:
        """A member's failure in the current epoch asks for a reset."""
        at = epoch or self.row.epoch
        return self.do(lambda tx: resets.failed(tx, cause, text, member=f"orders/{number}", epoch=at))

    def resets(self) -> list[Reset]:
        """All epochs that were begun, oldest first."""
        return self.read(lambda reader, row: reader.select(Reset, order=("epoch",)))

    # A cut

    def open(self, token: str = "") -> int:
        return self.do(lambda tx: cuts.open_cut(tx, token=token or f"cut {self.row.filling}", cause="test")).id

    def contribute(
        self,
        checkpoint: int,
        number: int,
        rows: int = 0,
        *,
        held: set[TP] | None = None,
        topic_ids: Mapping[str, str] | None = None,
        epochs: Mapping[TP, int] | None = None,
    ) -> None:
        name, row = f"orders/{number}", self.row
        held = held if held is not None else {P0 if number == 0 else P1}
        offsets = {tp: (self.at[tp], self.at[tp] + rows, rows) for tp in held}
        segments = [
            ClosedSegment(
                segment_path("uid", row.epoch, self.live[name], checkpoint, 0),
                rows * len(held),
                1,
                "h",
                tuple(Span(tp, *o) for tp, o in offsets.items()),
            )
        ]
        fillers = self.read(
            lambda reader, _: reader.column(Filler, "member", ("checkpoint", "=", checkpoint), order=("member",))
        )
        return self.do(
            lambda tx: contributions.contribute(
                tx,
                contributions.Part(
                    checkpoint,
                    name,
                    self.live[name],
                    row.epoch,
                    row.head,
                    self.generation,
                    tuple(fillers),
                    offsets,
                    topic_ids if topic_ids is not None else dict.fromkeys({tp.topic for tp in held}, "id-t"),
                    segments if rows else [],
                    leader_epochs={tp: e for tp, e in (epochs or {}).items() if tp in held},
                ),
            )
        )

    def cut(self, rows: int = 10, *, epochs: Mapping[TP, int] | None = None) -> int:
        """A whole cut of two members."""
        checkpoint = self.open()
        for number in (0, 1):
            self.contribute(checkpoint, number, rows, epochs=epochs)
        self.do(lambda tx: merge_cut(tx, checkpoint))
        for tp in self.at:
            self.at[tp] += rows
        return checkpoint

    def running(self) -> Kit:
        """Started, two members or more, RUNNING: the third and later ones hold nothing."""
        self.do(lambda tx: life.start(tx, by="test"))
        for number in range(max(2, self.wanted)):
            self.register(number)
        self.settle_all()
        assert self.row.phase is Phase.RUNNING
        return self


@pytest.fixture
def kit() -> Kit:
    return Kit()


@pytest.fixture
def make_kit() -> type[Kit]:
    """For other limits, tables, numbers of members."""
    return Kit


class Clock:
    """The database's time, moved by hand."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def landing(tmp_path: Path, clock: Clock) -> Landing:
    """A region of two partitions with one table, into which a test lands checkpoints."""
    made = Landing(MemoryStore(clock), tmp_path, partitions=2)
    made.region.plane.do(lambda tx: tables.declare(tx, "bronze", "delta", "lake.shop.bronze"))
    return made
