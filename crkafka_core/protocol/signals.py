"""What the member's state machine hears (events) and what it wants done (effects): plain values (SPEC M9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, dataclass_transform

from crkafka_core.model.desired import Desired, OpenCut
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import ResetCause


class Stamp(NamedTuple):
    """Decides what is stale: everything queued and every answer about a start carries one (SPEC M4)."""

    epoch: int
    base: int
    serial: int
    """Rises in every rebalance callback, reset and requeue. Alone it decides about the queue, which a merge leaves valid (SPEC D1)."""


class Outcome(StrEnum):
    """How a commit to Kafka ended, by reaction (SPEC D2)."""

    DONE = "done"
    ABORT = "abort"
    """Whatever else Kafka answers: the cut is aborted, which counts for nothing; the member goes on (SPEC X11)."""
    REBALANCED = "rebalanced"
    """Rebalance class: the cut goes on, and the handover that follows commits the head's offsets (SPEC X10)."""
    RESTART = "restart"
    """The client is broken: the member fails and is started again."""


class ExitKind(StrEnum):
    """Why a member ends; the host restarts FAILED and LOST, nothing else (SPEC G3)."""

    CLEAN = "clean"
    SUPERSEDED = "superseded"
    LOST = "lost"
    FAILED = "failed"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class _Value:
    """Each class below is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Stamped(_Value):
    """Counts only under this stamp."""

    stamp: Stamp


class _Explained(_Value):
    """With the reason, in words."""

    why: str


class _OfCut(_Value):
    """Of the open cut with this number."""

    cut: int


class Event(_Value):
    """What a member hears."""


class Observed(Event):
    """A snapshot of the desired state."""

    desired: Desired


class Assigned(Event):
    """Kafka assigned these partitions; all are paused (SPEC R4)."""

    held: frozenset[TP]
    generation: int


class Revoked(Event):
    """Kafka took all partitions away (eager), by a revocation or as lost (SPEC R2)."""

    why: str = "partitions revoked"


class Fetched(Event):
    """The first records since the last start, reset or rebalance were queued."""


class GateClosed(Event):
    """No permit is held any more and none is given (SPEC M4, D1)."""


class Started(Stamped, Event):
    """Where the held partitions start is written in SQL (SPEC S1)."""

    offsets: Mapping[TP, int]
    topic_ids: Mapping[str, str]
    leader_epochs: Mapping[TP, int] = field(default_factory=dict)
    """Of the record before each offset, where it is known (SPEC S4)."""
    leaderless: frozenset[TP] = frozenset()
    """Held partitions that are new to the region and have no leader, so that their start is unknown."""
    landed: Mapping[TP, int] | None = None
    """As in `OpenCut`, of the head."""


class Led(Event):
    """Partitions that had no leader have one."""

    partitions: frozenset[TP]


class Sought(Stamped, Event):
    """Every partition that is held stands where `Seek` or `Requeue` of this stamp wanted it; until then nothing flows (SPEC M5)."""


class NotSought(Stamped, Event):
    """Where the partitions stand is not known: it is tried again."""


class NotStarted(Stamped, Event):
    """The starts could not be resolved now; it is asked again at the next observation."""


class Committed(_OfCut, Event):
    """The commit of a cut's offsets ended; behind a mark, and after the merge, nothing follows from it (SPEC D2, D5)."""

    outcome: Outcome
    why: str = ""


class Saved(_OfCut, Event):
    """What the cut has taken is on disk: its offsets and segments (SPEC C7)."""

    payload: Any


class Contributed(_OfCut, Event):
    """SQL has the contribution."""


class NotContributed(Event):
    """SQL refused the contribution; the next observation decides what follows."""


class Reported(Event):
    """SQL has the report."""

    report: Report


class NotReported(Event):
    """The report was refused: the member's standing is read again."""

    report: Report


class Lease(Event):
    """Whether the member may submit, by its lease (SPEC G4)."""

    held: bool


class Triggered(Event):
    """The trigger count is reached under this stamp's epoch and base (SPEC V2)."""

    epoch: int
    base: int


class Disturbed(_Explained, Event):
    """What is queued can no longer be trusted to be gapless, or a pause mark changed: fetch again from the offset manager (SPEC M5, P1)."""


class Trouble(Event):
    """A failure under this epoch that needs a reset: an offset vanished, a segment could not be written (SPEC S4, X3)."""

    epoch: int
    why: str
    cause: ResetCause


class Fenced(Event):
    """Kafka fenced this static member: SQL decides who is rightful (SPEC R7)."""


class Broken(_Explained, Event):
    """Something that only a new process can mend."""


class WronglyShared(_Explained, Event):
    """Only a rebalance mends what the group's members hold, and it is this member's turn to make one (SPEC G8)."""


class Stop(Event):
    """The host asks for a clean end (SPEC R5)."""


class Effect(_Value):
    """What a member wants done."""


class CloseGate(Effect):
    """Give no more permits, wait for the holder, answer `GateClosed`."""


class OpenGate(Stamped, Effect):
    """Give permits for what carries this stamp; what is written bears this number (SPEC C8)."""

    number: int


class Clear(Stamped, Effect):
    """Empty the queue; what comes with an older stamp is dropped."""

    drop: bool
    """Also drop the open segments: nothing of them will be named (SPEC X2)."""


class Requeue(Stamped, Effect):
    """Empty the queue and seek what is held to the offset manager's offsets, under this stamp; answer `Sought` or `NotSought` (SPEC M5)."""


class Resolve(Stamped, Effect):
    """Resolve the starts of these partitions and write them (SPEC S1); answer `Started` or `NotStarted`."""

    held: frozenset[TP]


class Seek(Stamped, Effect):
    """Seek and register these partitions in the offset manager, under this stamp; answer `Sought` or `NotSought`."""

    offsets: Mapping[TP, int]
    leader_epochs: Mapping[TP, int] = field(default_factory=dict)
    """As in `Started`: with them the client notices a log that was cut below its position (SPEC S4)."""
    landed: Mapping[TP, int] | None = None
    """As in `Started`: part of the metadata of commits, for another region (SPEC S2)."""


class Report(Effect):
    """Write what was reached."""

    epoch: int
    base: int
    generation: int
    held: frozenset[TP]


class Withdraw(_Explained, Effect):
    """Withdraw the report (SPEC R3)."""


class Commit(_OfCut, Effect):
    """Commit the offsets that the cut has taken in one synchronous request; answer `Committed` (SPEC D2)."""

    merged: bool = False
    """The metadata names the cut as the head; with `commit: consistent` alone (SPEC D2, S2)."""


class CommitStarts(Effect):
    """Commit the head's offsets after a reset; a failure is a warning (SPEC D2, X10)."""

    offsets: Mapping[TP, int]
    base: int
    leader_epochs: Mapping[TP, int] = field(default_factory=dict)


class Save(_OfCut, Effect):
    """Take the offsets and the open segments for this cut, between two batches; close them; answer `Saved` (SPEC D5)."""

    number: int
    """What is written after that bears it (SPEC C8)."""


class Contribute(Effect):
    """Write the contribution; answer `Contributed` or `NotContributed`; merge if it was the last."""

    cut: OpenCut
    epoch: int
    base: int
    generation: int
    topic_ids: Mapping[str, str]
    payload: Any


class GiveUp(_OfCut, Effect):
    """Abort the cut in SQL (SPEC D2)."""

    why: str
    cause: ResetCause


class Merged(_OfCut, Effect):
    """The cut is merged: the count restarts from it (SPEC V2)."""


class AskReset(Effect):
    """Ask for a reset of the region."""

    epoch: int
    why: str
    cause: ResetCause


class AskToLeave(Effect):
    """Ask for a handover of what is submitted, before leaving (SPEC R5, X10)."""

    epoch: int


class AskCut(Effect):
    """Ask for a cut: the trigger count is reached (SPEC V2)."""

    epoch: int
    head: int


class Reach(Effect):
    """Say what is reached of a bounded run's ends (SPEC V3)."""

    token: str
    begun: float
    epoch: int
    reached: frozenset[TP]


class Tell(Effect):
    """Write an event for people; nothing depends on it."""

    kind: str
    text: str


class Halt(Effect):
    """Stop the region: what this member needs is refused, and only a person can give it (SPEC X11)."""

    epoch: int
    why: str


class ForceRebalance(_Explained, Effect):
    """Make the Kafka group assign its partitions again (SPEC G8)."""


class Refresh(Effect):
    """Read the desired state again, now."""


class Exit(Effect):
    """Leave the Kafka group and end; CLEAN also leaves in SQL."""

    kind: ExitKind
    why: str
