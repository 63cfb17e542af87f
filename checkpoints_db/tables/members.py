"""Members: the registered incarnation of each name, and the last launch number drawn for it."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from checkpoints_db.tables.base import Base
from crkafka_core.model import rows as nouns
from crkafka_core.model.rows import MemberStatus


class Member(Base):
    """The registered incarnation of one operator name, and what it last reported."""

    ROW = nouns.Member
    __tablename__ = "member"

    region: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    incarnation: Mapped[str]
    launch: Mapped[int]
    status: Mapped[MemberStatus]
    host: Mapped[str]
    instance_id: Mapped[str]
    first_registered_at: Mapped[float]
    registered_at: Mapped[float]
    renewals: Mapped[int]
    epoch: Mapped[int]
    base: Mapped[int]
    generation: Mapped[int]
    assignment_json: Mapped[str]
    stale_since: Mapped[float]
    rebalances: Mapped[int]
    metrics_json: Mapped[str]


class Launch(Base):
    """The last launch number that was drawn for a name (SPEC G3)."""

    ROW = nouns.Launch
    __tablename__ = "launch"
    __table_args__ = ({"sqlite_with_rowid": False},)

    region: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int]
