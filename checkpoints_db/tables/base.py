"""Base of all tables: column types that sort and compare alike in SQLite and PostgreSQL."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import BigInteger, Boolean, Double, MetaData, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import CheckpointStatus, MemberStatus, Row, StartReason

PlainText = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that sorts by code point everywhere, as Python and SQLite do, whatever locale a PostgreSQL database has."""


class EnumText(TypeDecorator[StrEnum]):
    """A StrEnum, stored as its text, so that a person can read and compare it."""

    impl = PlainText
    cache_ok = True

    def __init__(self, enum: type[StrEnum]) -> None:
        super().__init__()
        self.enum = enum

    def process_bind_param(self, value: StrEnum | str | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> StrEnum | None:
        return None if value is None else self.enum(value)


class Base(DeclarativeBase):
    """One subclass per row type of `crkafka_core.model.rows`, with the same columns in the same order.

    There are no foreign keys: the rules of `crkafka_core.plane`, under the lock of the region's row (SPEC G7), keep
    rows together, and bulk writes of 10,000 offsets pay for none.
    """

    ROW: ClassVar[type[Row]]

    metadata = MetaData(
        naming_convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s", "pk": "pk_%(table_name)s"},
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: PlainText,
        int: BigInteger(),
        float: Double(),
        bool: Boolean(),
        Phase: EnumText(Phase),
        Wanted: EnumText(Wanted),
        MemberStatus: EnumText(MemberStatus),
        CheckpointStatus: EnumText(CheckpointStatus),
        StartReason: EnumText(StartReason),
    }
