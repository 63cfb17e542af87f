"""Checkpoints: what a cut expected, what members contributed, what was merged, and its segments."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from checkpoints_db.tables.base import Base
from crkafka_core.model import rows as nouns
from crkafka_core.model.rows import CheckpointStatus


class Checkpoint(Base):
    """The numbered result of a cut; its parent is the head it started from (SPEC C5)."""

    ROW = nouns.Checkpoint
    __tablename__ = "checkpoint"
    __table_args__ = (
        Index(None, "region", "status", "id"),
        Index(None, "region", "merged_at"),
        Index(None, "region", "token", "id"),
    )

    region: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True)
    parent: Mapped[int]
    epoch: Mapped[int]
    status: Mapped[CheckpointStatus]
    cause: Mapped[str]
    token: Mapped[str]
    generation: Mapped[int]
    opened_at: Mapped[float]
    deadline: Mapped[float]
    merged_at: Mapped[float]
    rows: Mapped[int]
    bytes: Mapped[int]
    segments: Mapped[int]
    members: Mapped[int]
    drain_ms: Mapped[int]
    hash: Mapped[str]
    note: Mapped[str]
    archive_json: Mapped[str]


class Expected(Base):
    """What the opening of a cut fixed about one member (SPEC C2)."""

    ROW = nouns.Expected
    __tablename__ = "expected_member"
    __table_args__ = ({"sqlite_with_rowid": False},)

    region: Mapped[str] = mapped_column(primary_key=True)
    checkpoint: Mapped[int] = mapped_column(primary_key=True)
    member: Mapped[str] = mapped_column(primary_key=True)
    incarnation: Mapped[str]
    assignment_json: Mapped[str]


class Contribution(Base):
    """One member's part of a checkpoint (SPEC C1)."""

    ROW = nouns.Contribution
    __tablename__ = "contribution"

    region: Mapped[str] = mapped_column(primary_key=True)
    checkpoint: Mapped[int] = mapped_column(primary_key=True)
    member: Mapped[str] = mapped_column(primary_key=True)
    incarnation: Mapped[str]
    epoch: Mapped[int]
    base: Mapped[int]
    generation: Mapped[int]
    members_json: Mapped[str]
    topic_ids_json: Mapped[str]
    rows: Mapped[int]
    bytes: Mapped[int]
    drain_ms: Mapped[int]
    hash: Mapped[str]
    at: Mapped[float]


class ContributedOffset(Base):
    """One partition of a contribution."""

    ROW = nouns.ContributedOffset
    __tablename__ = "contributed_offset"
    __table_args__ = ({"sqlite_with_rowid": False},)

    region: Mapped[str] = mapped_column(primary_key=True)
    checkpoint: Mapped[int] = mapped_column(primary_key=True)
    member: Mapped[str] = mapped_column(primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    partition: Mapped[int] = mapped_column(primary_key=True)
    from_offset: Mapped[int]
    to_offset: Mapped[int]
    rows: Mapped[int]


class MergedOffset(Base):
    """One partition of a merged checkpoint: where the next record is fetched."""

    ROW = nouns.MergedOffset
    __tablename__ = "merged_offset"
    __table_args__ = ({"sqlite_with_rowid": False},)

    region: Mapped[str] = mapped_column(primary_key=True)
    checkpoint: Mapped[int] = mapped_column(primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    partition: Mapped[int] = mapped_column(primary_key=True)
    topic_id: Mapped[str]
    from_offset: Mapped[int]
    to_offset: Mapped[int]
    rows: Mapped[int]
    member: Mapped[str]


class Segment(Base):
    """A Parquet file named by a contribution; the row is its only publication (SPEC C7)."""

    ROW = nouns.Segment
    __tablename__ = "segment"
    __table_args__ = (Index(None, "region", "checkpoint", "path"),)

    region: Mapped[str] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(primary_key=True)
    checkpoint: Mapped[int]
    member: Mapped[str]
    incarnation: Mapped[str]
    epoch: Mapped[int]
    rows: Mapped[int]
    bytes: Mapped[int]
    hash: Mapped[str]
    spans_json: Mapped[str]
