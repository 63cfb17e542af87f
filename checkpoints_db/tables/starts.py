"""Where partitions start: initial offsets, resolved starts, and the pauses read together with them."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from checkpoints_db.tables.base import Base
from crkafka_core.model import rows as nouns
from crkafka_core.model.rows import StartReason


class Initial(Base):
    """The offset at which the group first saw a partition; written once (SPEC S1, X1)."""

    ROW = nouns.Initial
    __tablename__ = "initial_offset"
    __table_args__ = (Index(None, "region", "topic", "partition"), {"sqlite_with_rowid": False})

    region: Mapped[str] = mapped_column(primary_key=True)
    topic_id: Mapped[str] = mapped_column(primary_key=True)
    partition: Mapped[int] = mapped_column(primary_key=True)
    topic: Mapped[str]
    offset: Mapped[int]
    position: Mapped[str]
    at: Mapped[float]
    forgotten: Mapped[bool]


class Start(Base):
    """Where a partition starts in an epoch, from a base; the first writer wins (SPEC S1)."""

    ROW = nouns.Start
    __tablename__ = "partition_start"
    __table_args__ = ({"sqlite_with_rowid": False},)

    region: Mapped[str] = mapped_column(primary_key=True)
    epoch: Mapped[int] = mapped_column(primary_key=True)
    base: Mapped[int] = mapped_column(primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    partition: Mapped[int] = mapped_column(primary_key=True)
    topic_id: Mapped[str]
    offset: Mapped[int]
    reason: Mapped[StartReason]
    by: Mapped[str]
    note: Mapped[str]


class PauseMark(Base):
    """A pause of the region or of one member, read together with the starts (SPEC P1, P2). kind: partition, topic, pattern, member."""

    ROW = nouns.PauseMark
    __tablename__ = "pause_mark"
    __table_args__ = ({"sqlite_with_rowid": False},)

    region: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    what: Mapped[str] = mapped_column(primary_key=True)
    member: Mapped[str] = mapped_column(primary_key=True)
    by: Mapped[str]
    at: Mapped[float]
