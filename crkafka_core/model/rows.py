"""The rows of the control plane: one frozen dataclass per noun; with its primary key. JSON columns end in `_json`. Rows of a region, its
members, leases, resets and events are in `region_rows.py`, and imported from here."""

from __future__ import annotations

import json
from enum import StrEnum

from crkafka_core.model.offsets import TP, unpack_offsets
from crkafka_core.model.region_rows import ROWS as ROWS
from crkafka_core.model.region_rows import Alarm as Alarm
from crkafka_core.model.region_rows import Event as Event
from crkafka_core.model.region_rows import Goal as Goal
from crkafka_core.model.region_rows import Group as Group
from crkafka_core.model.region_rows import Launch as Launch
from crkafka_core.model.region_rows import Lease as Lease
from crkafka_core.model.region_rows import Member as Member
from crkafka_core.model.region_rows import MemberStatus as MemberStatus
from crkafka_core.model.region_rows import Region as Region
from crkafka_core.model.region_rows import RegionRow, stored
from crkafka_core.model.region_rows import Reset as Reset
from crkafka_core.model.region_rows import ResetCause as ResetCause
from crkafka_core.model.region_rows import Row as Row
from crkafka_core.model.segment import Span


class CheckpointStatus(StrEnum):
    """Life of a checkpoint. SUPERSEDED: left behind by a reset to an older one; RETIRED: only the archive is left. EMPTY: a cut with
    `if_new` and no new records; its parent stays the head (SPEC V1, C6)."""

    OPEN = "OPEN"
    MERGED = "MERGED"
    ABORTED = "ABORTED"
    SUPERSEDED = "SUPERSEDED"
    RETIRED = "RETIRED"
    EMPTY = "EMPTY"


ANY_GENERATION = -2
"""Generation of a cut that compares none: its members may be in the middle of a rebalance (SPEC X10)."""


@stored("region", "id")
class Checkpoint(RegionRow):
    """The numbered result of a cut; its parent is the head it started from (SPEC C5)."""

    id: int
    parent: int
    epoch: int
    status: CheckpointStatus
    cause: str = ""
    token: str = ""
    """Token of the call that opened it, so that a repeated call finds its own cut."""
    generation: int = -1
    opened_at: float = 0.0
    deadline: float = 0.0
    """Deadline of drain and checkpoint, in database time (SPEC D4)."""
    merged_at: float = 0.0
    rows: int = 0
    bytes: int = 0
    segments: int = 0
    members: int = 0
    drain_ms: int = 0
    """The longest drain of a member."""
    hash: str = ""
    """Hash of the merged map (invariant I5)."""
    note: str = ""
    """Why it was aborted or superseded."""
    archive_json: str = "{}"
    """Written when retired: {topic: {partition: [from, to, rows]}} of what changed (SPEC T2)."""
    cluster_id: str = ""
    """Id of the Kafka cluster that it was read from; empty if unknown."""
    archive_topics_json: str = "{}"
    """Written when retired: {topic: its id}. An archive from before ids were kept lacks those of recreated topics (SPEC T2)."""
    if_new: bool = False
    """Whether the cut becomes a checkpoint only with new records, as a cut that is due by itself (SPEC V1)."""
    without_json: str = "[]"
    """Names of members without whose part it was merged: lost, or silent at the deadline of a handover (SPEC X10)."""
    erased_json: str = "{}"
    """Those of its records that are erased, which no table gets or counts: {topic: {partition: [offset]}} (SPEC K6)."""

    @property
    def without(self) -> tuple[str, ...]:
        return tuple(json.loads(self.without_json))

    @property
    def erased(self) -> dict[str, dict[int, list[int]]]:
        """Topic → partition → offsets of erased records, in order."""
        if self.erased_json == "{}":  # the usual case
            return {}
        read = json.loads(self.erased_json)
        return {topic: {int(p): offsets for p, offsets in partitions.items()} for topic, partitions in read.items()}

    @property
    def rows_for_tables(self) -> int:
        """Number of merged rows without those erased since."""
        return self.rows - sum(len(offsets) for partitions in self.erased.values() for offsets in partitions.values())


@stored("region", "checkpoint", "member")
class Filler(RegionRow):
    """A member that fills a number, fixed when it is handed out: only fillers submit to it or contribute to its cut (SPEC C8)."""

    checkpoint: int
    member: str
    incarnation: str
    offsets_json: str
    """{topic: {partition: offset}}: the partitions that it fills, and from where: −1 until the cut before it is merged (SPEC D5)."""
    topic_ids_json: str = "{}"
    """{topic: its id}, as they were known when the members were placed: a topic may be recreated before the merge (SPEC X10)."""

    @property
    def offsets(self) -> dict[TP, int]:
        return unpack_offsets(self.offsets_json)

    @property
    def topic_ids(self) -> dict[str, str]:
        read: dict[str, str] = json.loads(self.topic_ids_json)
        return read


@stored("region", "checkpoint", "member")
class Contribution(RegionRow):
    """One member's part of a checkpoint (SPEC C1)."""

    checkpoint: int
    member: str
    incarnation: str
    epoch: int
    base: int
    generation: int
    members_json: str
    topic_ids_json: str
    rows: int
    bytes: int
    drain_ms: int
    hash: str
    """Hash of the whole contribution, by which a repeated one is recognised."""
    at: float = 0.0


@stored("region", "checkpoint", "member", "topic", "partition")
class ContributedOffset(RegionRow):
    """One partition of a contribution."""

    checkpoint: int
    member: str
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    rows: int
    leader_epoch: int = -1
    """Leader epoch of the last record; −1: no record, or unknown (SPEC S4)."""


@stored("region", "checkpoint", "topic", "partition")
class MergedOffset(RegionRow):
    """One partition of a merged checkpoint: where the next record is fetched."""

    checkpoint: int
    topic: str
    partition: int
    topic_id: str
    from_offset: int
    to_offset: int
    rows: int
    member: str
    """The member that contributed it; empty if it was carried forward (SPEC S4)."""
    leader_epoch: int = -1
    """Leader epoch of the record before `to_offset`; −1 is unknown. It differs in a log that was cut and has grown again (SPEC S4)."""


@stored("region", "path")
class Segment(RegionRow):
    """A Parquet file named by a contribution; the row is its only publication (SPEC C7)."""

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

    @property
    def spans(self) -> list[Span]:
        return [Span(TP(topic, partition), *rest) for topic, partition, *rest in json.loads(self.spans_json)]


PARTS: tuple[type[Row], ...] = (Filler, Contribution, ContributedOffset, Segment)
"""Rows of one cut; with them go the names of its segments."""


@stored("region", "upto")
class DeadNumbers(RegionRow):
    """Numbers that a rewind left behind, or a state of SQL that a backup replaced: their rows never belong to the region (SPEC C8)."""

    upto: int
    """The highest of them."""
    after: int
    """The checkpoint that the region went back to; its own number is not dead."""


@stored("region", "topic_id", "partition")
class Initial(RegionRow):
    """The offset at which the group first saw a partition; written once (SPEC S1, X1)."""

    topic_id: str
    partition: int
    topic: str
    offset: int
    position: str
    at: float = 0.0
    forgotten: bool = False
    """Whether the topic was forgotten or unsubscribed, and its offset is carried forward (SPEC S4)."""


@stored("region", "topic_id", "partition", "first")
class ErasedRecords(RegionRow):
    """Consecutive records that were erased for good; the row outlives the checkpoints that had them (SPEC K6)."""

    topic_id: str
    partition: int
    first: int
    next: int
    """The offset after the last of them."""
    topic: str
    checkpoint: int
    """The latest one that came past them and notes which it has; if a rewind leaves it behind, Kafka may give them again."""


class StartReason(StrEnum):
    """Reason of a partition's start (SPEC S1)."""

    HEAD = "head"
    INITIAL = "initial"
    GAP = "gap"


@stored("region", "epoch", "base", "topic", "partition")
class Start(RegionRow):
    """Start of a partition in an epoch, from a base; the first writer wins (SPEC S1)."""

    epoch: int
    base: int
    topic: str
    partition: int
    topic_id: str
    offset: int
    reason: StartReason
    by: str = ""
    note: str = ""


@stored("region", "kind", "what", "member")
class PauseMark(RegionRow):
    """A pause of the region, or of one member, read together with the starts (SPEC P1, P2). kind: partition, topic, pattern, member."""

    kind: str
    what: str
    member: str = ""
    """The member whose partitions it pauses (SPEC P1); empty: any holder's (SPEC P2)."""
    by: str = ""
    at: float = 0.0


@stored("region", "name")
class Table(RegionRow):
    """A declared table: holds back retirement and follows resets (SPEC T1, X4)."""

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
    """The last acknowledged version, in the format's terms."""
    layout: str = ""
    """`files`: its log takes files by commits of ours. Empty: its log cannot be reached."""
    shape: str = ""
    """`package.module:function` that makes its rows; every writer uses it (SPEC K6). Empty: records as they are."""
    output: str = ""

    @property
    def owes_fence(self) -> bool:
        """Whether it has not followed the latest rewind yet (SPEC X4)."""
        return self.rewind_epoch > self.fenced_epoch


@stored("region", "table", "number")
class TableCommit(RegionRow):
    """A permitted commit to a table: its checkpoints, attempt and result (SPEC K6)."""

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
    """Time of the permit; 0 for commits of an undeclared table, of which only the numbers are kept."""
    counts_json: str = ""
    """Checkpoint → its rows in a table that does not have each record, if its writer has counted them."""

    @property
    def checkpoints(self) -> list[int]:
        """The checkpoints whose rows it brings."""
        ids: list[int] = json.loads(self.checkpoints_json)
        return ids

    @property
    def counts(self) -> dict[int, int]:
        """The numbers in `counts_json`; empty where its writer has counted none."""
        return {int(checkpoint): rows for checkpoint, rows in json.loads(self.counts_json or "{}").items()}
