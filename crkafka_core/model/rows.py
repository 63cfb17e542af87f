"""The rows of the control plane: one frozen dataclass per noun; `KEY` names its primary key. JSON columns end in `_json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from crkafka_core.model.offsets import TP, unpack_offsets
from crkafka_core.model.phase import Phase, Wanted


@dataclass(frozen=True, slots=True)
class Row:
    """Base of all rows."""

    KEY: ClassVar[tuple[str, ...]] = ()
    REGION: ClassVar[str] = "region"
    """The column that names the region. A reader or transaction of one region sees and changes only the rows that have it there."""
    SHARED: ClassVar[bool] = False
    """Rows of all regions are seen from each."""


@dataclass(frozen=True, slots=True)
class Region(Row):
    """The one row under whose lock everything of a region happens (SPEC G7)."""

    KEY: ClassVar[tuple[str, ...]] = ("name",)
    REGION: ClassVar[str] = "name"
    name: str
    uid: str
    """Random, made when the region is made (SPEC G6)."""
    region_index: int
    version: int = 0
    """Raised by every mutation that changes what members or drivers should see; watched cheaply."""
    epoch: int = 1
    """Raised by every reset and every abort; never goes back."""
    phase: Phase = Phase.IDLE
    phase_since: float = 0.0
    wanted: Wanted = Wanted.STOP
    members_wanted: int = 1
    wait_for_wanted: bool = True
    """At the first start and after `scale`, settled also needs the wanted number or the end of `start_grace` (SPEC G8)."""
    head: int = 0
    """The latest merged checkpoint that is not superseded; 0 is birth."""
    open_cut: int = 0
    """The open checkpoint, or 0."""
    filling: int = 0
    """The last number that was handed out: what is written while records flow bears it (SPEC C8)."""
    opened: int = 0
    """The last number whose cut was opened; it never goes back (SPEC C8, G10)."""
    next_event: int = 1
    born: bool = False
    """Initial offsets of all partitions then known are recorded (SPEC S3)."""
    cluster_id: str = ""
    group_id: str = ""
    reset_cause: str = ""
    reset_at: float = 0.0
    """When the current attempt began."""
    not_before: float = 0.0
    """The attempt does not resume before this time: the back-off (SPEC X6)."""
    settled_at: float = 0.0
    """Since when the group is settled in this attempt, or 0 (SPEC X7)."""
    consecutive: int = 0
    """Resets in a row without a completed cut (SPEC X6)."""
    failing: int = 0
    """Attempts in a row that Kafka, SQL or the storage made fail: they back off, but do not count (SPEC X6)."""
    proven_epoch: int = 0
    """Of the last completed cut, or begun by the last start: what is counted *without a cut in between* came later (SPEC X6)."""
    started_epoch: int = 0
    """The epoch that a person began by starting the region: budgets count what came after it (SPEC X6)."""
    last_cut_at: float = 0.0
    """When the last cut was completed, or the region first resumed (SPEC V1)."""
    period: float = 0.0
    """Of the trigger, in seconds; 0 when no cut comes by time alone (SPEC V1, X6)."""
    resumed_at: float = 0.0
    asked_epoch: int = 0
    """An operator-driven ask for a cut names epoch and head (SPEC V2)."""
    asked_head: int = -1
    asked_by: str = ""
    stop_reason: str = ""
    stop_member: str = ""
    stopping: bool = False
    """A stop was asked for and a last cut is still to come (SPEC G9)."""
    stopping_since: float = 0.0
    """When that stop was asked for: a last cut is waited for as long as a cut may take."""
    limits_json: str = "{}"
    config_json: str = "{}"
    """The configuration with references, never with secrets (SPEC U2)."""
    subscription_json: str = "{}"
    """What the configuration reads, `{"topics": […]}` or `{"pattern": …}`; `{}` is *not known*."""
    dropped_json: str = "[]"
    """Topics that the configuration no longer reads, and a live member still does: carried forward once none does (SPEC S4)."""
    created_at: float = 0.0
    went_back: bool = False
    """Numbers were seen that this control plane never issued: nothing is deleted until a person says how to go on (SPEC G10, T3)."""
    protocol: int = 1
    """What whoever changes this region has to speak: a program that knows only an older protocol is refused."""


@dataclass(frozen=True, slots=True)
class Group(Row):
    """A Kafka consumer group belongs to exactly one region (SPEC G1)."""

    KEY: ClassVar[tuple[str, ...]] = ("cluster_id", "group_id")
    SHARED: ClassVar[bool] = True
    cluster_id: str
    group_id: str
    region: str
    region_index: int


class MemberStatus(StrEnum):
    """What SQL says about the registered incarnation of a name."""

    LIVE = "LIVE"
    LOST = "LOST"
    LEFT = "LEFT"


@dataclass(frozen=True, slots=True)
class Member(Row):
    """The registered incarnation of one operator name, and what it last reported."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "name")
    region: str
    name: str
    incarnation: str
    launch: int
    status: MemberStatus = MemberStatus.LIVE
    host: str = ""
    instance_id: str = ""
    first_registered_at: float = 0.0
    """Of the name, not of the incarnation (SPEC G8); anew when it had left cleanly."""
    registered_at: float = 0.0
    renewals: int = 0
    """Counts the renewals of the lease (SPEC G4)."""
    epoch: int = 0
    """The epoch for which it has completed its reset; 0 is none."""
    base: int = -1
    """The head from which it resolved its starts."""
    generation: int = -1
    """Kafka's generation; only compared between members (SPEC M4)."""
    assignment_json: str = ""
    """Packed partitions; empty text is *no report* (withdrawn), `{}` is *holds nothing*."""
    stale_since: float = 0.0
    """Since when another live member shows a newer generation (SPEC G4)."""
    rebalances: int = 0
    moved_epoch: int = 0
    """The epoch in which it joined or left while records flowed: a rebalance of that epoch is its doing (SPEC X6)."""
    subscription_json: str = "{}"
    """What its own configuration reads, as `Region.subscription_json`."""
    metrics_json: str = "{}"


@dataclass(frozen=True, slots=True)
class Launch(Row):
    """The last launch number that was drawn for a name (SPEC G3)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "name")
    region: str
    name: str
    number: int


class CheckpointStatus(StrEnum):
    """Life of a checkpoint. SUPERSEDED: left behind by a reset to an older one; RETIRED: only the archive is left.

    EMPTY: a cut that was wanted only if there was something new, and there was nothing: its parent is the head still (SPEC V1, C6).
    """

    OPEN = "OPEN"
    MERGED = "MERGED"
    ABORTED = "ABORTED"
    SUPERSEDED = "SUPERSEDED"
    RETIRED = "RETIRED"
    EMPTY = "EMPTY"


@dataclass(frozen=True, slots=True)
class Checkpoint(Row):
    """The numbered result of a cut; its parent is the head it started from (SPEC C5)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "id")
    region: str
    id: int
    parent: int
    epoch: int
    status: CheckpointStatus
    cause: str = ""
    token: str = ""
    """Of the caller who opened it, so that a repeated call finds its own cut."""
    generation: int = -1
    opened_at: float = 0.0
    deadline: float = 0.0
    """Database time; drain and checkpoint must be done by then (SPEC D4)."""
    merged_at: float = 0.0
    rows: int = 0
    bytes: int = 0
    segments: int = 0
    members: int = 0
    drain_ms: int = 0
    """The longest drain of a member."""
    hash: str = ""
    """Of the merged map (invariant I5)."""
    note: str = ""
    """Why it was aborted or superseded."""
    archive_json: str = "{}"
    """Written when retired: {topic: {partition: [from, to, rows]}} of what changed (SPEC T2)."""
    cluster_id: str = ""
    """Of the Kafka cluster that it was read from; empty where it is not known."""
    archive_topics_json: str = "{}"
    """Written when retired: {topic: its id}. An archive of before ids were kept has none for a topic that was made anew (SPEC T2)."""
    if_new: bool = False
    """The cut becomes a checkpoint only if anything is new since its parent, as one that falls due by itself (SPEC V1)."""
    erased_json: str = "{}"
    """Records that were erased for good: {topic: {partition: [offset]}}. Tables are without them (SPEC K6)."""

    @property
    def erased(self) -> dict[str, dict[int, list[int]]]:
        """Topic → partition → offsets that were erased for good, in order."""
        if self.erased_json == "{}":  # of a thousand checkpoints few have any
            return {}
        read = json.loads(self.erased_json)
        return {topic: {int(p): offsets for p, offsets in partitions.items()} for topic, partitions in read.items()}

    @property
    def rows_for_tables(self) -> int:
        """How many were merged, without those that were erased since."""
        return self.rows - sum(len(offsets) for of in self.erased.values() for offsets in of.values())


@dataclass(frozen=True, slots=True)
class Filler(Row):
    """Who fills a number, fixed when it is handed out: nobody else submits to it or contributes to its cut (SPEC C8)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "checkpoint", "member")
    region: str
    checkpoint: int
    member: str
    incarnation: str
    offsets_json: str
    """{topic: {partition: offset}}: the partitions that it fills, and from where."""

    @property
    def offsets(self) -> dict[TP, int]:
        """Where each of its partitions begins."""
        return unpack_offsets(self.offsets_json)


@dataclass(frozen=True, slots=True)
class Contribution(Row):
    """One member's part of a checkpoint (SPEC C1)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "checkpoint", "member")
    region: str
    checkpoint: int
    member: str
    incarnation: str
    epoch: int
    base: int
    generation: int
    members_json: str
    """Names of all members at the time."""
    topic_ids_json: str
    rows: int
    bytes: int
    drain_ms: int
    hash: str
    """Of everything in it; the same contribution sent again has the same."""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ContributedOffset(Row):
    """One partition of a contribution."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "checkpoint", "member", "topic", "partition")
    region: str
    checkpoint: int
    member: str
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    rows: int
    leader_epoch: int = -1
    """Of the last record, as Kafka counts elections; −1: no record, or unknown (SPEC S4)."""


@dataclass(frozen=True, slots=True)
class MergedOffset(Row):
    """One partition of a merged checkpoint: where the next record is fetched."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "checkpoint", "topic", "partition")
    region: str
    checkpoint: int
    topic: str
    partition: int
    topic_id: str
    from_offset: int
    to_offset: int
    rows: int
    member: str
    """Who contributed it; empty when it was carried forward (SPEC S4)."""
    leader_epoch: int = -1
    """Of the record before `to_offset`; −1 is unknown. A log that was cut below it and has grown again has another (SPEC S4)."""


@dataclass(frozen=True, slots=True)
class Segment(Row):
    """A Parquet file named by a contribution; the row is its only publication (SPEC C7)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "path")
    region: str
    path: str
    """Relative to the region's storage root."""
    checkpoint: int
    member: str
    incarnation: str
    epoch: int
    rows: int
    bytes: int
    hash: str
    spans_json: str
    """[[topic, partition, from, to, rows], …], half-open offsets, in file order."""


@dataclass(frozen=True, slots=True)
class DeadNumbers(Row):
    """Numbers that a rewind left behind, or a state of SQL that a backup replaced: their rows belong nowhere, for ever (SPEC C8)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "upto")
    region: str
    upto: int
    """The highest of them."""
    after: int
    """The checkpoint that the region went back to: its own number belongs."""


@dataclass(frozen=True, slots=True)
class Initial(Row):
    """The offset at which the group first saw a partition; written once (SPEC S1, X1)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "topic_id", "partition")
    region: str
    topic_id: str
    partition: int
    topic: str
    offset: int
    position: str
    at: float = 0.0
    forgotten: bool = False
    """The topic was forgotten or unsubscribed: its offset is carried forward (SPEC S4)."""


class StartReason(StrEnum):
    """Why a partition starts where it starts (SPEC S1)."""

    HEAD = "head"
    INITIAL = "initial"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class Start(Row):
    """Where a partition starts in an epoch, from a base; the first writer wins (SPEC S1)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "epoch", "base", "topic", "partition")
    region: str
    epoch: int
    base: int
    topic: str
    partition: int
    topic_id: str
    offset: int
    reason: StartReason
    by: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class PauseMark(Row):
    """A pause of the region, or of one member, read together with the starts (SPEC P1, P2). kind: partition, topic, pattern, member."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "kind", "what", "member")
    region: str
    kind: str
    what: str
    member: str = ""
    """Counts only where this member holds the partition (SPEC P1); empty: whoever holds it (SPEC P2)."""
    by: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Lease(Row):
    """A lease on a right of the region. kind: driver, retire, reader, writer:<table>; `number` fences (SPEC A6, K6, T1)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "kind", "slot")
    region: str
    kind: str
    slot: str
    """Empty where only one can be held; the reader's own token where many can."""
    holder: str
    token: str
    number: int
    until: float
    """Database time."""
    length: float = 0.0
    """Seconds for which it was taken or last renewed; 0 is *not known* (written by an older version)."""
    data_json: str = "{}"


@dataclass(frozen=True, slots=True)
class Table(Row):
    """A declared table: holds back retirement and follows resets (SPEC T1, X4)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "name")
    region: str
    name: str
    format: str
    path: str
    acknowledged: int = 0
    """The latest checkpoint whose rows, and those of all before it on its line, are in the table."""
    fenced_epoch: int = 0
    """The table has committed its fence for every rewind up to this epoch."""
    rewind_epoch: int = 0
    """The epoch of the latest rewind the table must follow; unfenced while above `fenced_epoch`."""
    commits: int = 0
    """Number of the last commit that was permitted; each commit has its own."""
    version: str = ""
    """The format's own version last acknowledged."""
    layout: str = ""
    """`files`: its log takes files by commits of ours. Empty: Spark writes it."""
    shape: str = ""
    """`package.module:function` that makes its rows; every writer uses it (SPEC K6). Empty: records as they are."""
    output: str = ""
    """Which of the shape's outputs."""

    @property
    def owes_fence(self) -> bool:
        """It has not followed the latest rewind yet (SPEC X4)."""
        return self.rewind_epoch > self.fenced_epoch


@dataclass(frozen=True, slots=True)
class TableCommit(Row):
    """One permitted commit to a table: which checkpoints, by which attempt, and what became of it (SPEC K6)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "table", "number")
    region: str
    table: str
    number: int
    kind: str
    """advance, rewrite or fence."""
    after: int
    upto: int
    checkpoints_json: str
    token: str
    status: str
    """OPEN, DONE, FAILED."""
    version: str = ""
    rows: int = 0
    at: float = 0.0
    """When it was permitted; 0 for those of a table that was undeclared, and of which only the numbers count."""
    counts_json: str = ""
    """Checkpoint → its rows, of a table that has not got each record, where its writer has counted them."""


@dataclass(frozen=True, slots=True)
class Goal(Row):
    """Ends of a bounded run, stored once (SPEC V3)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "token")
    region: str
    token: str
    ends_json: str
    reached_json: str = "{}"
    """Per member, what it has reached under its current stamp."""
    at: float = 0.0


class ResetCause(StrEnum):
    """Why an epoch was raised (SPEC X3). What follows from each is a table: `protocol/reset_policy.py`."""

    PERSON = "person"
    """Somebody asked for it."""
    START = "start"
    """Somebody started the region."""
    STOP = "stop"
    """The region came to a stop or became idle."""
    RESTORED = "restored"
    """Somebody went on after the control plane went back in time (SPEC G10)."""
    JOIN = "join"
    """A member joined or left the group, and Kafka shared its partitions anew."""
    REBALANCE = "rebalance"
    """Kafka took partitions away, and SQL knows of no member that joined, left or was lost."""
    THROWN_OUT = "thrown out"
    """Kafka took a member's partitions as lost: it had not polled, or not been heard, for too long."""
    THROWN_OUT_TOGETHER = "thrown out together"
    """Kafka took the partitions of several members as lost at once: it was away for them, and it was none of them."""
    LOST = "lost"
    """A member's process died, hung, or was started again."""
    LEFT = "left"
    """A member left while a cut waited for it."""
    FAILURE = "failure"
    """A member failed at its own work."""
    MISMATCH = "mismatch"
    """A contribution or a merge did not match what the cut had fixed."""
    UNAVAILABLE = "unavailable"
    """Kafka, the database or the storage failed."""
    OFFSET_GONE = "offset gone"
    """Kafka no longer holds an offset: the next start decides what that means (SPEC S4)."""
    LATE = "late"
    """A cut was not done by its deadline."""
    STUCK = "stuck"
    """A reset took too long although the group was settled and nothing was away (SPEC X7)."""


@dataclass(frozen=True, slots=True)
class Reset(Row):
    """One epoch: why it began, and by whose doing (SPEC X3, X6, X8). Budgets and tokens are read from here."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "epoch")
    region: str
    epoch: int
    """The epoch that it began."""
    at: float
    cause: ResetCause
    text: str = ""
    """The cause in words."""
    member: str = ""
    """Who caused it, if it was a member; empty when nobody is known."""
    by: str = ""
    """Who asked for it or reported it."""
    token: str = ""
    """Of the caller who asked, so that a repeated call finds its own reset (SPEC A1)."""
    target: int = 0
    """The head that members go back to."""
    aborted: int = 0
    """The cut that it aborted, or 0."""
    filling: int = 0
    """The last number that was handed out before it: those up to here are of earlier epochs (SPEC C8, G10)."""
    opened: int = 0
    """The last number whose cut was opened before it."""
    ran: float = 0.0
    """Seconds for which the region had been running since it last resumed."""


@dataclass(frozen=True, slots=True)
class Alarm(Row):
    """What somebody should look at, raised once: in an epoch, or since the last completed cut; older ones are over (SPEC G8, X6, X8)."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "kind")
    region: str
    kind: str
    epoch: int
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Event(Row):
    """The event log: who, what, why, for people (SPEC X8, R6). Nothing is decided from it; old events may be deleted."""

    KEY: ClassVar[tuple[str, ...]] = ("region", "seq")
    region: str
    seq: int
    at: float
    kind: str
    epoch: int
    checkpoint: int = 0
    member: str = ""
    by: str = ""
    text: str = ""
    data_json: str = "{}"


ROWS: tuple[type[Row], ...] = (
    Region,
    Group,
    Member,
    Launch,
    Checkpoint,
    Filler,
    Contribution,
    ContributedOffset,
    MergedOffset,
    Segment,
    DeadNumbers,
    Initial,
    Start,
    PauseMark,
    Lease,
    Table,
    TableCommit,
    Goal,
    Reset,
    Alarm,
    Event,
)
