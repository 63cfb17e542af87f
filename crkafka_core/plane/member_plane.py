"""How a member's process reaches the control plane: one gate that every mutation of it passes (SPEC G11)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from crkafka_core.control import Place, Reader, Tx
from crkafka_core.model.errors import CrkafkaError, Lost, Stale, WentBack
from crkafka_core.model.rows import Member, Region
from crkafka_core.plane import members, restored, roster
from crkafka_core.plane.transact import ControlPlane

_log = logging.getLogger(__name__)
T = TypeVar("T")


class MemberPlane:
    """The control plane for one incarnation of one member: the rest of `member/` has no other (a layers test says so).

    A process that was superseded, lost, never registered, or that belongs to a deleted region of the same name changes nothing.
    """

    def __init__(self, plane: ControlPlane, name: str, incarnation: str) -> None:
        self._plane = plane
        self.name = name
        self.incarnation = incarnation
        self.region = plane.region
        self.uid = plane.read(lambda _, region: region.uid)
        self.launched = 0
        """The number that this process drew; 0 before."""
        self._seen = (0, 0)
        """The highest epoch and version that this process has seen, or made itself."""
        self._head = (0, 0)
        """The highest epoch that it has seen, and the highest head in it: within an epoch a head never goes back (SPEC I6), and after
        it SQL knows that the head was merged."""
        self._opened = (0, 0)
        """The highest epoch that it has seen, and the highest checkpoint that SQL had opened in it."""

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
        region = made[-1]
        self._saw(region.epoch, region.version, region.head, region.opened)
        return result

    def _same_region(self, tx: Tx) -> None:
        if tx.region().uid != self.uid:
            raise Lost(
                f"Region {self.region} was deleted and made anew; {self.name} was started for the old one.",
                hint="The host restarts it.",
            )

    def _registered(self, reader: Reader) -> None:
        """An older process of this name is not a successor: SQL went back to it, and it may be long gone (SPEC G3, G10)."""
        row = reader.get(Member, self.name)
        if row is not None and row.incarnation != self.incarnation and row.launch <= self.launched:
            raise Lost(
                f"{self.name} of region {self.region} was launched as {self.launched}, and launch {row.launch} is registered: the control "
                "plane went back.",
                hint="The host restarts it.",
            )
        roster.of(reader, self.name, self.incarnation)

    def check_registered(self) -> None:
        """Raise the error for a process that is not the registered one any more."""
        self.read(lambda reader, _: self._registered(reader))

    # Before it is registered, and after

    def launch(self) -> int:
        """Draw a launch number (SPEC G3)."""

        def draw(tx: Tx) -> int:
            self._same_region(tx)
            return members.launch(tx, self.name)

        self.launched = self._plane.do(draw)
        return self.launched

    def register(self, who: members.Registration) -> None:
        """Become the registered incarnation of the name (SPEC G1, G3)."""

        def enrol(tx: Tx) -> Any:
            self._same_region(tx)
            return members.register(tx, who)

        self._plane.do(enrol)

    def leave(self) -> None:
        """A clean end (SPEC R5)."""
        self.do(lambda tx: members.leave(tx, self.name, self.incarnation))

    def fail(self, why: str) -> None:
        """Report that this process has failed: its lease need not be waited for."""
        self.do(lambda tx: members.fail(tx, self.name, self.incarnation, why))

    def observed(self, epoch: int, version: int, head: int, opened: int) -> None:
        """Note what SQL shows. If it is less than this process has seen, the region stops, even if SQL does not know the process."""
        later = epoch > self._head[0] > 0
        if self._is_older(epoch, version, head, opened) or (later and self._plane.read(self._lacks)):

            def testify(tx: Tx) -> None:
                self._same_region(tx)
                self._went_back(tx)

            self._plane.do(testify)
        self._saw(epoch, version, head, opened)

    def _went_back(self, tx: Tx) -> WentBack | None:
        """Before anything is written: a process that sees less than it has seen stops the region (SPEC G10)."""
        now, (epoch, version) = tx.region(), self._seen
        older = self._is_older(now.epoch, now.version, now.head, now.opened) or self._lacks(tx, now)
        if not older or restored.went_on(tx, after=epoch):
            return None
        saw, shows = f"epoch {epoch} and version {version}", f"epoch {now.epoch} and version {now.version}"
        if now.epoch >= epoch and now.version >= version:  # it went back, and on to the same numbers
            saw, shows = f"checkpoint {self._head[1]} as the head of epoch {epoch}", f"checkpoint {now.head}"
            if self._never_opened(now.epoch, now.opened):
                saw, shows = f"checkpoint {self._opened[1]} open", f"{now.opened} as the last that it opened"
            elif now.epoch > epoch:
                shows += f", and never merged {self._head[1]}, or never opened {self._opened[1]}"
        reason = (
            f"The control plane of region {self.region} went back in time: {self.name} saw {saw}, "
            f"now it shows {shows}. Was a backup restored?"
        )
        _log.critical("%s", reason)
        restored.notice(tx, reason, by=self.name)
        return WentBack(reason, hint=restored.HINT)

    def _is_older(self, epoch: int, version: int, head: int, opened: int) -> bool:
        behind = epoch < self._seen[0] or version < self._seen[1] or (epoch == self._head[0] and head < self._head[1])
        return behind or self._never_opened(epoch, opened)

    def _never_opened(self, epoch: int, opened: int) -> bool:
        return epoch == self._opened[0] and opened < self._opened[1]

    def _lacks(self, reader: Reader, now: Region) -> bool:
        """Whether SQL, past the last epoch that it has seen, lacks what was merged or opened in it: it went back, and on."""
        epoch, head = self._head
        return now.epoch > epoch > 0 and restored.lacks(reader, now, epoch=epoch, opened=self._opened[1], head=head)

    def _saw(self, epoch: int, version: int, head: int, opened: int) -> None:
        self._seen = max(self._seen[0], epoch), max(self._seen[1], version)
        self._head = max(self._head, (epoch, head))
        self._opened = max(self._opened, (epoch, opened))

    # Reading

    def read(self, question: Callable[[Reader, Region], T]) -> T:
        return self._plane.read(question)

    def wait(self, version: int, timeout: float) -> int:
        return self._plane.wait(version, timeout)

    def place(self) -> Place:
        return self._plane.place()
