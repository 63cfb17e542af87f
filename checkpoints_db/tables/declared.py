"""Declared tables, and the commits permitted to them."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from checkpoints_db.tables.base import Base
from crkafka_core.model import rows as nouns


class Table(Base):
    """A declared table: holds back retirement and follows resets (SPEC T1, X4)."""

    ROW = nouns.Table
    __tablename__ = "declared_table"

    region: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    format: Mapped[str]
    path: Mapped[str]
    acknowledged: Mapped[int]
    fenced_epoch: Mapped[int]
    rewind_epoch: Mapped[int]
    commits: Mapped[int]
    version: Mapped[str]


class TableCommit(Base):
    """One permitted commit to a table: which checkpoints, by which attempt, and what became of it (SPEC K6)."""

    ROW = nouns.TableCommit
    __tablename__ = "table_commit"
    __table_args__ = (Index(None, "region", "table", "status", "number"),)

    region: Mapped[str] = mapped_column(primary_key=True)
    table: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    after: Mapped[int]
    upto: Mapped[int]
    checkpoints_json: Mapped[str]
    token: Mapped[str]
    status: Mapped[str]
    folder: Mapped[str]
    version: Mapped[str]
    rows: Mapped[int]
    at: Mapped[float]
