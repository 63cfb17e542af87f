"""Rows of a region, its members, leases, resets and events; rows of checkpoints and tables are in `rows.py`, which has all rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, TypeVar, dataclass_transform

from crkafka_core.model.phase import Phase, Wanted

R = TypeVar("R", bound="Row")


@dataclass(frozen=True, slots=True)
class Row:
    """Base of all rows."""

    KEY: ClassVar[tuple[str, ...]] = ()
    REGION: ClassVar[str] = "region"
    """Column with the region's name. A reader or transaction of one region sees and changes only rows with that name."""
    SHARED: ClassVar[bool] = False
    """Whether a reader of one region sees the rows of all."""


@dataclass(frozen=True, slots=True)
class RegionRow(Row):
    """Base of the rows that belong to a region."""

    region: str


ROWS: list[type[Row]] = []
"""All types of stored rows."""


@dataclass_transform(frozen_default=True)
def stored(*key: str) -> Callable[[type[R]], type[R]]:
    """Makes a type of stored rows, with this primary key: a frozen dataclass."""

    def made(row: type[R]) -> type[R]:
        frozen = dataclass(frozen=True, slots=True)(row)
        frozen.KEY = key
        ROWS.append(frozen)
        return frozen

    return made


@stored("name")
class Region(Row):
    """The row of a region, whose lock every mutation of the region takes (SPEC G7)."""

    REGION: ClassVar[str] = "name"
    name: str
    uid: str
    """Random, made when the region is made (SPEC G6)."""
    region_index: int
    version: int = 0
    """Raised by every mutation that members or drivers should see; they wait for changes of it."""
    epoch: int = 1
    """Raised by every reset and every abort; never goes back."""
    phase: Phase = Phase.IDLE
    phase_since: float = 0.0
    wanted: Wanted = Wanted.STOP
    members_wanted: int = 1
    wait_for_wanted: bool = True
    """Whether settled also needs the wanted number or the end of `start_grace`: at the first start and after `scale` (SPEC G8)."""
    head: int = 0
    """The latest merged checkpoint that is not superseded; 0 is birth."""
    open_cut: int = 0
    """The open checkpoint, or 0."""
    filling: int = 0
    """The last number handed out, which rows are written with while records flow (SPEC C8)."""
    opened: int = 0
    """The last number whose cut was opened; it never goes back (SPEC C8, G10)."""
    handover_json: str = ""
    """The handover that is under way: its cut, and the reset that follows its merge; empty without one (SPEC X10)."""
    next_event: int = 1
    born: bool = False
    """Whether the initial offsets of all partitions at birth are recorded (SPEC S3)."""
    cluster_id: str = ""
    group_id: str = ""
    reset_cause: str = ""
    reset_at: float = 0.0
    """Begin of the current attempt."""
    not_before: float = 0.0
    """The back-off: the attempt does not resume earlier (SPEC X6)."""
    settled_at: float = 0.0
    """Time at which the group settled in this attempt, or 0 (SPEC X7)."""
    consecutive: int = 0
    """Resets in a row without a completed cut (SPEC X6)."""
    failing: int = 0
    """Attempts in a row that failed by Kafka, SQL or the storage: they back off, but do not count (SPEC X6)."""
    proven_epoch: int = 0
    """Epoch of the last completed cut, or of the last start: resets *without a cut in between* are counted from here (SPEC X6)."""
    started_epoch: int = 0
    """Epoch of the last start by a person, from which budgets count (SPEC X6)."""
    last_cut_at: float = 0.0
    """Time of the last completed cut, or of the first resume (SPEC V1)."""
    period: float = 0.0
    """Period of the trigger in seconds; 0 without one (SPEC V1, X6)."""
    resumed_at: float = 0.0
    asked_epoch: int = 0
    """Epoch of an operator-driven request for a cut, with its head (SPEC V2)."""
    asked_head: int = -1
    asked_by: str = ""
    stop_reason: str = ""
    stop_member: str = ""
    stopping: bool = False
    """Whether a stop waits for its last cut (SPEC G9)."""
    stopping_since: float = 0.0
    """Time of that stop, which waits for a last cut as long as a cut may take."""
    limits_json: str = "{}"
    config_json: str = "{}"
    """The configuration with references, never with secrets (SPEC U2)."""
    subscription_json: str = "{}"
    """Topics of the configuration, `{"topics": […]}` or `{"pattern": …}`; `{}` is unknown."""
    dropped_json: str = "[]"
    """Topics that only live members with an older configuration still read: carried forward once none does (SPEC S4)."""
    created_at: float = 0.0
    went_back: bool = False
    """Whether numbers were seen that this control plane never issued: nothing is deleted until a person decides (SPEC G10, T3)."""
    protocol: int = 1
    """Protocol of the region: a program that knows only an older one is refused."""


@stored("cluster_id", "group_id")
class Group(Row):
    """The Kafka consumer group of exactly one region (SPEC G1)."""

    SHARED: ClassVar[bool] = True
    cluster_id: str
    group_id: str
    region: str
    region_index: int


class MemberStatus(StrEnum):
    """State of the registered incarnation of a name."""

    LIVE = "LIVE"
    LOST = "LOST"
    LEFT = "LEFT"


@stored("region", "name")
class Member(RegionRow):
    """The registered incarnation of one operator name, and its last report."""

    name: str
    incarnation: str
    launch: int
    status: MemberStatus = MemberStatus.LIVE
    host: str = ""
    instance_id: str = ""
    first_registered_at: float = 0.0
    """First registration of the name, not of the incarnation, since it last left cleanly (SPEC G8)."""
    registered_at: float = 0.0
    renewals: int = 0
    """Number of renewals of the lease (SPEC G4)."""
    epoch: int = 0
    """The epoch for which it has completed its reset; 0 is none."""
    base: int = -1
    """The head from which it resolved its starts."""
    generation: int = -1
    """Kafka's generation; only compared between members (SPEC M4)."""
    member_epochs: bool = False
    """Whether `generation` is the member's own epoch: of a group of KIP-848."""
    assignment_json: str = ""
    """Packed partitions; an empty text is no report (withdrawn), `{}` is no partitions."""
    stale_since: float = 0.0
    """Time since which another live member reports a newer generation (SPEC G4)."""
    rebalances: int = 0
    moved_epoch: int = 0
    """Epoch in which it joined or left while records flowed, and so caused a rebalance (SPEC X6)."""
    subscription_json: str = "{}"
    """Topics of its own configuration, as in `Region.subscription_json`."""
    metrics_json: str = "{}"

    @property
    def metrics(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.metrics_json or "{}")
        return read


@stored("region", "name")
class Launch(RegionRow):
    """The last launch number of a name (SPEC G3)."""

    name: str
    number: int


@stored("region", "kind", "slot")
class Lease(RegionRow):
    """A lease on a right of the region. kind: driver, retire, reader, writer:<table>; `number` fences (SPEC A6, K6, T1)."""

    kind: str
    slot: str
    """Empty for a kind with a single lease; the reader's own token for readers."""
    holder: str
    token: str
    number: int
    until: float
    """Database time."""
    length: float = 0.0
    """Seconds for which it was taken or last renewed; 0 is unknown (of an older version)."""
    data_json: str = "{}"


@stored("region", "token")
class Goal(RegionRow):
    """End offsets of a bounded run, stored once (SPEC V3)."""

    token: str
    ends_json: str
    reached_json: str = "{}"
    """Partitions that each member has reached, with its stamp."""
    at: float = 0.0


class ResetCause(StrEnum):
    """Why an epoch was raised (SPEC X3). The consequences are a table in `protocol/reset_policy.py`."""

    PERSON = "person"
    """A person asked for it."""
    START = "start"
    """A person started the region."""
    STOP = "stop"
    """The region came to a stop or became idle."""
    RESTORED = "restored"
    """A person started the region after the control plane went back in time (SPEC G10)."""
    JOIN = "join"
    """A member joined or left the group, and Kafka assigned the partitions again."""
    REBALANCE = "rebalance"
    """Kafka revoked partitions, and SQL knows of no member that joined, left or was lost."""
    LOST = "lost"
    """A member's process died, hung, or was restarted."""
    LEFT = "left"
    """A member leaves, for good or to be started again."""
    FAILURE = "failure"
    """A member failed at its own work."""
    MISMATCH = "mismatch"
    """A contribution or a merge did not match what the cut had fixed."""
    UNAVAILABLE = "unavailable"
    """Kafka, the database or the storage failed."""
    OFFSET_GONE = "offset gone"
    """Kafka no longer holds an offset: the next start decides the consequence (SPEC S4)."""
    LATE = "late"
    """A cut was not done by its deadline."""
    STUCK = "stuck"
    """A reset took too long in a settled group, with all services available (SPEC X7)."""


@stored("region", "epoch")
class Reset(RegionRow):
    """The begin of an epoch: its cause, and who caused it (SPEC X3, X6, X8). Budgets and tokens are read from here."""

    epoch: int
    at: float
    cause: ResetCause
    text: str = ""
    member: str = ""
    """The member that caused it; empty if none did, or it is unknown."""
    by: str = ""
    """Who asked for it or reported it."""
    token: str = ""
    """Token of the call, so that a repeated one finds its own reset (SPEC A1)."""
    target: int = 0
    """The head that members go back to."""
    aborted: int = 0
    """The cut that it aborted, or 0."""
    lacking: int = 0
    """The open cut that merged without a member in the handover before it, or 0 (SPEC X6, X10)."""
    filling: int = 0
    """The last number handed out before it: numbers up to here are of earlier epochs (SPEC C8, G10)."""
    opened: int = 0
    """The last number whose cut was opened before it."""
    ran: float = 0.0
    """Seconds for which the region had been running since it last resumed."""


@stored("region", "kind")
class Alarm(RegionRow):
    """An alarm for people, raised once in an epoch, or since the last completed cut; older ones are over (SPEC G8, X6, X8)."""

    kind: str
    epoch: int
    at: float
    text: str


@stored("region", "seq")
class Event(RegionRow):
    """An event of the log for people: who, what, why (SPEC X8, R6). No decision reads it; old events may be deleted."""

    seq: int
    at: float
    kind: str
    epoch: int
    checkpoint: int = 0
    member: str = ""
    by: str = ""
    text: str = ""
    data_json: str = "{}"
