"""The event log."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from checkpoints_db.tables.base import Base
from crkafka_core.model import rows as nouns


class Event(Base):
    """The event log: who, what, why (SPEC X8, R6)."""

    ROW = nouns.Event
    __tablename__ = "event"
    __table_args__ = (Index(None, "region", "kind", "seq"), Index(None, "region", "at"))

    region: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float]
    kind: Mapped[str]
    epoch: Mapped[int]
    checkpoint: Mapped[int]
    member: Mapped[str]
    by: Mapped[str]
    text: Mapped[str]
    data_json: Mapped[str]
