"""Regions and the Kafka groups that belong to them."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from checkpoints_db.tables.base import Base
from crkafka_core.model import rows as nouns
from crkafka_core.model.phase import Phase, Wanted


class Region(Base):
    """The one row under whose lock everything of a region happens (SPEC G7)."""

    ROW = nouns.Region
    __tablename__ = "region"

    name: Mapped[str] = mapped_column(primary_key=True)
    uid: Mapped[str]
    region_index: Mapped[int]
    version: Mapped[int]
    epoch: Mapped[int]
    phase: Mapped[Phase]
    phase_since: Mapped[float]
    wanted: Mapped[Wanted]
    members_wanted: Mapped[int]
    wait_for_wanted: Mapped[bool]
    head: Mapped[int]
    open_cut: Mapped[int]
    next_checkpoint: Mapped[int]
    next_event: Mapped[int]
    born: Mapped[bool]
    cluster_id: Mapped[str]
    group_id: Mapped[str]
    reset_cause: Mapped[str]
    reset_at: Mapped[float]
    not_before: Mapped[float]
    settled_at: Mapped[float]
    consecutive: Mapped[int]
    failing: Mapped[int]
    last_cut_at: Mapped[float]
    resumed_at: Mapped[float]
    asked_epoch: Mapped[int]
    asked_head: Mapped[int]
    asked_by: Mapped[str]
    stop_reason: Mapped[str]
    stop_member: Mapped[str]
    stopping: Mapped[bool]
    limits_json: Mapped[str]
    config_json: Mapped[str]
    created_at: Mapped[float]


class Group(Base):
    """A Kafka consumer group belongs to exactly one region (SPEC G1)."""

    ROW = nouns.Group
    __tablename__ = "consumer_group"
    __table_args__ = (Index(None, "region"), {"sqlite_with_rowid": False})

    cluster_id: Mapped[str] = mapped_column(primary_key=True)
    group_id: Mapped[str] = mapped_column(primary_key=True)
    region: Mapped[str]
    region_index: Mapped[int]
