"""Converts rows to tuples of plain values and back: enums are text in SQL, booleans numbers in SQLite."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import starmap
from operator import attrgetter
from typing import Any, Generic, TypeVar

from crkafka_core.model.errors import TooOld
from crkafka_core.model.rows import Row

R = TypeVar("R", bound=Row)
FEW = 8
"""Most rows of an answer that are looked up in the cache."""
KEPT = 64
"""Most rows of one type in the cache."""


class Codec(Generic[R]):
    """Converts rows of one type to SQL values, and back to equal rows."""

    def __init__(self, row: type[R]) -> None:
        self.row = row
        hints = typing.get_type_hints(row)
        self.fields = tuple(field.name for field in dataclasses.fields(row))
        self._values: Callable[[R], tuple[Any, ...]] = attrgetter(*self.fields)
        self._enums: list[tuple[int, dict[Any, Any]]] = []
        self._bools: list[int] = []
        self._kept: dict[tuple[Any, ...], R] = {}
        for index, name in enumerate(self.fields):
            if issubclass(hints[name], StrEnum):
                self._enums.append((index, {member.value: member for member in hints[name]}))
            elif hints[name] is bool:
                self._bools.append(index)

    def encode(self, rows: Iterable[R]) -> list[tuple[Any, ...]]:
        tuples = list(map(self._values, rows))
        if not self._enums:
            return tuples
        lists = [list(values) for values in tuples]
        for index, _ in self._enums:
            for values in lists:
                values[index] = str(values[index])
        return [tuple(values) for values in lists]

    def decode(self, tuples: Sequence[tuple[Any, ...]]) -> list[R]:
        """Rows from tuples. Up to `FEW` are cached, since they are mostly those of the last read; rows are immutable."""
        if len(tuples) > FEW:
            return self._rows(tuples)
        kept, rows = self._kept, []
        for values in tuples:
            row = kept.get(values)
            if row is None:
                if len(kept) >= KEPT:
                    kept.clear()
                row = kept[values] = self._rows((values,))[0]
            rows.append(row)
        return rows

    def _rows(self, tuples: Sequence[tuple[Any, ...]]) -> list[R]:
        if not self._enums and not self._bools:
            return list(starmap(self.row, tuples))
        lists = [list(values) for values in tuples]
        for index, members in self._enums:
            try:
                for values in lists:
                    values[index] = members[values[index]]
            except KeyError as unknown:
                raise TooOld(
                    f"A {self.row.__name__.lower()} in the control plane has the {self.fields[index]} {unknown.args[0]!r}, which this "
                    "program does not know.",
                    hint="A newer crkafka has written it: install that one, and restart this process.",
                ) from None
        for index in self._bools:
            for values in lists:
                values[index] = bool(values[index])
        return list(starmap(self.row, lists))

    def with_changes(self, row: R, changes: dict[str, Any]) -> R:
        """As `dataclasses.replace`, but several times as fast for a row of 35 columns."""
        values = dict(zip(self.fields, self._values(row), strict=True))
        unknown = changes.keys() - values.keys()
        if unknown:
            raise TypeError(f"{self.row.__name__} has no column {', '.join(sorted(unknown))}")
        values.update(changes)
        return self.row(*values.values())


_codecs: dict[type[Row], Codec[Any]] = {}


def codec(row: type[R]) -> Codec[R]:
    """The codec of a row type, made once."""
    return _codecs.get(row) or _codecs.setdefault(row, Codec(row))


def plain(value: Any) -> Any:
    """A value of a condition, with types that the drivers accept."""
    if type(value) is str or type(value) is int:
        return value
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value
