"""How a member's process reaches the control plane: one gate that every mutation passes (SPEC G11), and one snapshot that it reads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import wraps
from typing import NamedTuple, TypeVar

from crkafka_core.control import Reader, Tx
from crkafka_core.model.desired import Aim, Desired, OpenCut
from crkafka_core.model.errors import CrkafkaError, Lost, Stale, WentBack
from crkafka_core.model.offsets import TP, partitions_in, unpack_offsets
from crkafka_core.model.phase import FLOWING, Phase
from crkafka_core.model.rows import Checkpoint, Filler, Member, MemberStatus, Region
from crkafka_core.plane import contents, goals, handover, members, pauses, restored, roster
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol.settle import live

_log = logging.getLogger(__name__)
T = TypeVar("T")


class _Seen(NamedTuple):
    """The highest that a process has seen, or made itself: within an epoch a head never goes back (SPEC I6)."""

    epoch: int = 0
    version: int = 0
    head: int = 0
    """In that epoch; after it SQL knows that the head was merged."""
    opened: int = 0
    """The last checkpoint that SQL had opened in that epoch."""


class MemberPlane:
    """The control plane for one incarnation of one member: `member/` reaches SQL by it alone (tests/layers). A process that was
    superseded, lost, never registered, or that belongs to a deleted region of the same name changes nothing."""

    def __init__(self, plane: ControlPlane, name: str, incarnation: str) -> None:
        self._plane = plane
        self.read, self.wait, self.place = plane.read, plane.wait, plane.place
        self.name = name
        self.incarnation = incarnation
        self.region = plane.region
        self.uid = plane.read(lambda _, region: region.uid)
        self.launched = 0
        """The number that this process drew; 0 before."""
        self._seen = _Seen()

    def do(self, work: Callable[[Tx], T | CrkafkaError], *, epoch: int | None = None) -> T:
        """Run a mutation of the registered incarnation; with `epoch`, only while that is the region's."""

        @wraps(work)
        def gated(tx: Tx) -> T | CrkafkaError:
            self._same_region(tx)
            if went_back := self._went_back(tx):
                return went_back
            self._registered(tx)
            current = tx.region().epoch
            if epoch is not None and current != epoch:
                raise Stale(f"{self.name} acted for epoch {epoch}; region {self.region} is at {current}.")
            done = work(tx)
            made.append(tx.region())
            return done

        made: list[Region] = []
        result = self._plane.do(gated)
        self._saw(made[-1])
        return result

    def _same_region(self, tx: Tx) -> None:
        if tx.region().uid != self.uid:
            why = f"Region {self.region} was deleted and made anew; {self.name} was started for the old one."
            raise Lost(why, hint="The host restarts it.")

    def _registered(self, reader: Reader) -> None:
        """An older process of this name is not a successor: SQL went back to it, and it may be long gone (SPEC G3, G10)."""
        row = reader.get(Member, self.name)
        if row is not None and row.incarnation != self.incarnation and row.launch <= self.launched:
            why = (
                f"was launched as {self.launched}, and launch {row.launch} is registered: the control plane went back."
            )
            raise Lost(f"{self.name} of region {self.region} {why}", hint="The host restarts it.")
        roster.of(reader, self.name, self.incarnation)

    def check_registered(self) -> None:
        """Raise the error for a process that is not the registered one any more."""
        self.read(lambda reader, _: self._registered(reader))

    # Before it is registered, and after

    def launch(self) -> int:

        def draw(tx: Tx) -> int:
            return members.launch(tx, self.name)

        self.launched = self._unregistered(draw)
        return self.launched

    def register(self, who: members.Registration) -> None:

        def enrol(tx: Tx) -> Member:
            return members.register(tx, who)

        self._unregistered(enrol)

    def _unregistered(self, work: Callable[[Tx], T]) -> T:
        @wraps(work)
        def same_region(tx: Tx) -> T:
            self._same_region(tx)
            return work(tx)

        return self._plane.do(same_region)

    def leave(self) -> None:
        self.do(lambda tx: members.leave(tx, self.name, self.incarnation))

    def fail(self, why: str) -> None:
        """Report that this process has failed: its lease need not be waited for."""
        self.do(lambda tx: members.lose(tx, self.name, self.incarnation, by=self.name, why=why))

    def observed(self, now: Region | Desired) -> None:
        """Note what SQL shows. If it is less than this process has seen, the region stops, even if SQL does not know the process."""

        def testify(tx: Tx) -> None:
            self._went_back(tx)

        later = now.epoch > self._seen.epoch > 0
        if self._is_older(now) or (later and self._plane.read(self._lacks)):
            self._unregistered(testify)
        self._saw(now)

    def _went_back(self, tx: Tx) -> WentBack | None:
        """Before anything is written: a process that sees less than it has seen stops the region (SPEC G10)."""
        now, (epoch, version, head, opened) = tx.region(), self._seen
        if not (self._is_older(now) or self._lacks(tx, now)) or restored.went_on(tx, after=epoch):
            return None
        saw, shows = f"epoch {epoch} and version {version}", f"epoch {now.epoch} and version {now.version}"
        if now.epoch >= epoch and now.version >= version:  # it went back, and on to the same numbers
            saw, shows = f"checkpoint {head} as the head of epoch {epoch}", f"checkpoint {now.head}"
            if now.epoch > epoch:
                shows += f", and never merged {head}, or never opened {opened}"
            elif now.opened < opened:
                saw, shows = f"checkpoint {opened} open", f"{now.opened} as the last that it opened"
        reason = (
            f"The control plane of region {self.region} went back in time: {self.name} saw {saw}, "
            f"now it shows {shows}. Was a backup restored?"
        )
        _log.critical("%s", reason)
        restored.notice(tx, reason, by=self.name)
        return WentBack(reason, hint=restored.HINT)

    def _is_older(self, now: Region | Desired) -> bool:
        epoch, version, head, opened = self._seen
        within = now.epoch == epoch and (now.head < head or now.opened < opened)
        return now.epoch < epoch or now.version < version or within

    def _lacks(self, reader: Reader, now: Region) -> bool:
        """Whether SQL, past the last epoch that it has seen, lacks what was merged or opened in it: it went back, and on."""
        epoch, _, head, opened = self._seen
        return now.epoch > epoch > 0 and restored.lacks(reader, now, epoch=epoch, opened=opened, head=head)

    def _saw(self, now: Region | Desired) -> None:
        last = self._seen
        if now.epoch > last.epoch:
            last = _Seen(now.epoch, last.version)
        if now.epoch == last.epoch:
            last = last._replace(head=max(last.head, now.head), opened=max(last.opened, now.opened))
        self._seen = last._replace(version=max(last.version, now.version))


def desired(
    reader: Reader, region: Region, rows: Collection[Member], name: str, incarnation: str, launch: int = 0
) -> Desired:
    """For this incarnation of this name, of this launch; `rows` are all members of the region."""
    row = next((row for row in rows if row.name == name), None)
    mine = row is not None and row.incarnation == incarnation
    at = (region.epoch, region.head)
    return Desired(
        uid=region.uid,
        version=region.version,
        epoch=region.epoch,
        phase=region.phase,
        head=region.head,
        registered=row is not None and mine and row.status is MemberStatus.LIVE,
        superseded=row is not None and not mine and row.launch > launch,
        wanted=region.phase is not Phase.IDLE and roster.index(name) < region.members_wanted,
        reported=row is not None and mine and bool(row.assignment_json) and (row.epoch, row.base) == at,
        asked=(region.asked_epoch, region.asked_head) == at,
        filling=region.filling,
        fills=_fills(reader, region.filling, name, incarnation) if region.phase in FLOWING else None,
        opened=region.opened,
        assembled=len(live(rows)) >= region.members_wanted,
        cut=_cut(reader, region, name, incarnation) if region.open_cut else None,
        marks=pauses.marks(reader),
        aims=tuple(
            Aim(
                goal.token,
                goal.at,
                tuple(sorted(unpack_offsets(goal.ends_json).items())),
                goals.reached_by(goal, name, incarnation, region.epoch),
            )
            for goal in goals.current(reader)
        ),
    )


def _cut(reader: Reader, region: Region, name: str, incarnation: str) -> OpenCut | None:
    row, why = reader.get(Checkpoint, region.open_cut), handover.current(region)
    if row is None:
        return None
    mine = _fills(reader, row.id, name, incarnation)
    members = reader.column(Filler, "member", ("checkpoint", "=", row.id))
    landed = contents.landed(reader, region, mine or frozenset())
    in_tables = None if landed is None else tuple(sorted(landed.items()))
    its_own = why is not None and why.cut == row.id
    return OpenCut(row.id, row.parent, row.generation, tuple(sorted(members)), mine, in_tables, its_own)


def _fills(reader: Reader, number: int, name: str, incarnation: str) -> frozenset[TP] | None:
    row = reader.get(Filler, number, name)
    return partitions_in(row.offsets_json) if row is not None and row.incarnation == incarnation else None
