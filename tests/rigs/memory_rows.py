"""The rows of one type in memory, with the indexes that the questions of the control plane need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter, eq, ge, gt, itemgetter, le, lt, ne
from typing import Any

from crkafka_core.control import Cond
from crkafka_core.model.rows import Row, Segment

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


class Bucket:
    """Rows that share the beginning of a key, in the order of their keys when it is asked for."""

    __slots__ = ("_in_order", "rows")

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Any] = {}
        self._in_order = True

    def set(self, key: tuple[Any, ...], row: Any) -> None:
        rows = self.rows
        if key not in rows and rows and key < next(reversed(rows)):
            self._in_order = False
        rows[key] = row

    def drop(self, key: tuple[Any, ...]) -> None:
        del self.rows[key]

    def ordered(self) -> dict[tuple[Any, ...], Any]:
        """All rows by key, sorted when somebody asks: most come in order, and most buckets are never asked."""
        if not self._in_order:
            in_order = sorted(self.rows.items(), key=itemgetter(0))
            self.rows.clear()
            self.rows.update(in_order)
            self._in_order = True
        return self.rows


class Index:
    """Buckets by the values of some columns."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = frozenset(columns)
        self.of: Callable[[Any], Any] = attrgetter(*columns)
        self.at: Callable[[Mapping[str, Any]], Any] = itemgetter(*columns)
        self.buckets: dict[Any, Bucket] = {}


class MemoryRows:
    """All rows of a type: by key, and in buckets by the first one and two columns of the key."""

    def __init__(self, row: type[Row]) -> None:
        self.row = row
        self.key: tuple[str, ...] = row.KEY
        self.names: frozenset[str] = frozenset(row.__slots__)
        get = attrgetter(*row.KEY)
        self.key_of: Callable[[Any], tuple[Any, ...]] = get if len(row.KEY) > 1 else lambda each: (get(each),)
        prefixes: list[tuple[str, ...]] = [row.KEY[:width] for width in (2, 1) if width < len(row.KEY)]
        if row is Segment:
            prefixes.insert(0, ("region", "checkpoint"))
        self.indexes = [Index(prefix) for prefix in prefixes]
        self.all = Bucket()
        self.rows = self.all.rows

    def set(self, key: tuple[Any, ...], row: Any) -> Any:
        """Insert or replace; what was there."""
        before = self.rows.get(key)
        if before is not None and self._moved(before, row):
            self.drop(key)
        self.all.set(key, row)
        for index in self.indexes:
            value = index.of(row)
            bucket = index.buckets.get(value)
            if bucket is None:
                bucket = index.buckets[value] = Bucket()
            bucket.set(key, row)
        return before

    def drop(self, key: tuple[Any, ...]) -> Any:
        """Remove; what was there."""
        row = self.rows[key]
        self.all.drop(key)
        for index in self.indexes:
            value = index.of(row)
            bucket = index.buckets[value]
            bucket.drop(key)
            if not bucket.rows:
                del index.buckets[value]
        return row

    def _moved(self, before: Any, row: Any) -> bool:
        """Whether a replaced row belongs to another bucket: only where an index is no part of the key."""
        return self.row is Segment and before.checkpoint != row.checkpoint

    def select(self, where: Sequence[Cond], order: Sequence[str], desc: bool, limit: int | None) -> list[Any]:
        """Rows that meet all conditions, in order."""
        equal: dict[str, Any] = {}
        for name, op, value in where:
            if name not in self.names:
                raise AttributeError(f"{self.row.__name__} has no column {name}")
            if op == "=":
                equal[name] = value
        bucket, fixed = self._bucket(equal)
        if bucket is None:
            return []
        rest = [] if len(where) == len(fixed) else [c for c in where if not (c[1] == "=" and c[0] in fixed)]
        own = (
            not order or tuple(order) == self.key or (tuple(order) == self.key[-1:] and fixed.issuperset(self.key[:-1]))
        )
        rows: Iterable[Any]
        if own:
            rows = reversed(bucket.ordered().values()) if desc else bucket.ordered().values()
        else:
            rows = sorted(bucket.rows.values(), key=attrgetter(*order, *self.key), reverse=desc)
        if rest:
            rows = (row for row in rows if _meets(row, rest))
        return list(rows) if limit is None else list(islice(rows, limit))

    def _bucket(self, equal: dict[str, Any]) -> tuple[Bucket | None, frozenset[str]]:
        """The smallest bucket that holds what is asked for, and the columns that it fixes."""
        for index in self.indexes:
            if index.columns <= equal.keys():
                return index.buckets.get(index.at(equal)), index.columns
        return self.all, frozenset()


def _meets(row: Any, where: Sequence[Cond]) -> bool:
    for name, op, value in where:
        actual = getattr(row, name)
        if not (actual in value if op == "in" else _COMPARE[op](actual, value)):
            return False
    return True
