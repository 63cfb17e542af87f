"""All that a member knows of itself, as one value, and what follows from it: whether it flows, polls, submits, fetches (SPEC M9, P3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from crkafka_core.model.desired import Desired, OpenCut
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import FLOWING, ClientState, Phase
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.signals import ExitKind, Stamp


class Gate(StrEnum):
    """Permits: given, no longer given but perhaps still held, neither."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class Step(StrEnum):
    """How far the member is in the open cut."""

    NONE = "none"
    DRAINING = "draining"
    SAVING = "saving"
    CONTRIBUTING = "contributing"
    CONTRIBUTED = "contributed"


@dataclass(frozen=True)
class State:
    """All that a member knows of itself."""

    commit_at_drain: bool = True
    """SPEC D2: `commit: drain`, else after the merge."""
    desired: Desired | None = None
    client: ClientState = ClientState.INITIALIZED
    epoch: int = 0
    """The epoch it works for; 0 before the first."""
    base: int = -1
    serial: int = 0
    generation: int = -1
    held: frozenset[TP] | None = None
    """None between a revocation and the next assignment."""
    leaderless: frozenset[TP] = frozenset()
    """Assigned partitions that are new to the region and have no leader: this member takes part without them until they have one."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    resolving: Stamp | None = None
    """The stamp under which starts are being resolved."""
    seeking: Stamp | None = None
    """The stamp under which starts are resolved, and the client seeks them."""
    started: Stamp | None = None
    """The stamp under which the client has been brought there."""
    gate: Gate = Gate.CLOSED
    cut: OpenCut | None = None
    step: Step = Step.NONE
    marked: int = 0
    """The number with which it goes on while the cut is open; 0 where it stops until the merge (SPEC D5)."""
    starts: Mapping[TP, int] | None = None
    """Where it was placed in this epoch: of these partitions it has offsets and segments until the next one, whatever Kafka assigns
    meanwhile (SPEC X10)."""
    leader_epochs: Mapping[TP, int] = field(default_factory=dict)
    """Of the records before `starts`, where they are known."""
    taken_in: int = -1
    """The generation in which the cut has taken its offsets."""
    gone: sg.AskReset | None = None
    """Of records that Kafka lost behind a mark: what the cut has taken cannot be read again, so it is over first (SPEC S4, D5)."""
    committed: bool = False
    """The cut's offsets are committed to Kafka; behind a mark, or they are about to be, or never."""
    payload: Any = None
    """What `Saved` brought; opaque here."""
    report: sg.Report | None = None
    """The last report written or being written; None when withdrawn."""
    reported: bool = False
    """SQL has answered that it has this report."""
    lease: bool = False
    triggered: bool = False
    disturbed: bool = False
    fenced: bool = False
    uncommitted: bool = False
    """The head's offsets are to be committed to Kafka once it submits: after a rewind, and a handover commits nothing (SPEC D2, X10)."""
    stopping: bool = False
    asked: bool = False
    """It has asked in this epoch to leave (SPEC R5)."""
    ended: ExitKind | None = None

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.epoch, self.base, self.serial)

    @property
    def stops(self) -> bool:
        """It takes part in a cut and does not go on behind it."""
        return self.step is not Step.NONE and not self.marked

    @property
    def rests(self) -> bool:
        """It stops for a cut, and lets no rebalance come before merge or abort (SPEC D1): in a handover one is under way."""
        if not self.stops or self.client is ClientState.CR_RESET_PENDING:
            return False
        return self.cut is None or not self.cut.handover

    @property
    def flows(self) -> bool:
        """It fills the number of now: what it submits counts until the next epoch, whatever Kafka assigns (SPEC X10)."""
        d = self.desired
        return d is not None and d.epoch == self.epoch and d.phase in FLOWING and d.fills is not None

    @property
    def polls(self) -> bool:
        """No poll while it rests, so that no rebalance comes in between (SPEC D1)."""
        return not self.rests and self.ended is None

    @property
    def ready(self) -> bool:
        """The starts of all that it holds are resolved and sought, for the epoch and the head that are desired."""
        d = self.desired
        return (
            d is not None
            and self.held is not None
            and self.started == self.stamp
            and (self.epoch, self.base) == (d.epoch, d.head)
            and self.client is not ClientState.CR_RESET_PENDING
        )

    @property
    def submits(self) -> bool:
        """Whether permits are to be given: every reason against it is here (SPEC P3)."""
        d = self.desired
        return (
            d is not None
            and d.registered
            and (d.phase is Phase.RUNNING or (d.phase is Phase.CUTTING and self.marked > 0))
            and self.ready
            and d.fills == self.held
            and not self.stops
            and self.lease
            and not (self.triggered or self.disturbed or self.fenced or self.leaves or self.ended)
        )

    @property
    def leaves(self) -> bool:
        """A clean end is wanted, by the host or by SQL (SPEC R5, G5, G9)."""
        return self.stopping or (self.desired is not None and not self.desired.wanted)

    @property
    def scaled_in(self) -> bool:
        """The region goes on without a member of this name (SPEC G5)."""
        d = self.desired
        return d is not None and not d.wanted and d.phase is not Phase.IDLE

    @property
    def fetches(self) -> bool:
        """Whether partitions may flow; which of them, pause marks say (SPEC P3). Paused again by cut, reset and queue."""
        d = self.desired
        handover = d is not None and d.cut is not None and d.cut.handover
        return d is not None and d.phase in FLOWING and self.ready and not (self.leaves or handover)


NOWHERE: dict[str, Any] = {"resolving": None, "seeking": None, "started": None}
"""Fields of a member that has to resolve again where its partitions start."""
IN_NO_CUT: dict[str, Any] = {
    "cut": None,
    "step": Step.NONE,
    "marked": 0,
    "gone": None,
    "committed": False,
    "payload": None,
    "triggered": False,
}
"""Fields of a member that has no part in a cut, and counts again for the next one (SPEC V2)."""
