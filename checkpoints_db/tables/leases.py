"""Leases on rights of a region, and ends of bounded runs."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from checkpoints_db.tables.base import Base
from crkafka_core.model import rows as nouns


class Lease(Base):
    """A lease on a right of the region; `number` fences a late holder (SPEC A6, K6, T1)."""

    ROW = nouns.Lease
    __tablename__ = "lease"
    __table_args__ = ({"sqlite_with_rowid": False},)

    region: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    slot: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    token: Mapped[str]
    number: Mapped[int]
    until: Mapped[float]
    data_json: Mapped[str]


class Goal(Base):
    """Ends of a bounded run, stored once (SPEC V3)."""

    ROW = nouns.Goal
    __tablename__ = "goal"

    region: Mapped[str] = mapped_column(primary_key=True)
    token: Mapped[str] = mapped_column(primary_key=True)
    ends_json: Mapped[str]
    reached_json: Mapped[str]
    at: Mapped[float]
