"""The rows of one type in memory, with the indexes that the questions of the control plane need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter, eq, ge, gt, itemgetter, le, lt, ne
from typing import Any

from crkafka_core.control import Cond
from crkafka_core.model.rows import Row, Segment

Shape = tuple[tuple[str, str], ...]
"""Columns and operators of conditions."""
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
    def __init__(self, columns: tuple[str, ...]) -> None:
        self.order = columns
        self.columns = frozenset(columns)
        self.of: Callable[[Any], Any] = attrgetter(*columns)
        self.buckets: dict[Any, Bucket] = {}


@dataclass(frozen=True, slots=True)
class Way:
    """How rows are selected by conditions of one shape."""

    index: Index | None
    at: Callable[[Sequence[Cond]], Any]
    """The key of the bucket."""
    rest: tuple[int, ...]
    """Places of the conditions that the bucket does not meet by itself."""
    sorts_by: Callable[[Any], Any] | None
    """None: the bucket has the order."""


class MemoryRows:
    """All rows of a type: by key, and in buckets by the first one and two columns of the key."""

    def __init__(self, row: type[Row]) -> None:
        self.row = row
        self.key: tuple[str, ...] = row.KEY
        self.names = frozenset(field.name for field in dataclasses.fields(row))
        get = attrgetter(*row.KEY)
        self.key_of: Callable[[Any], tuple[Any, ...]] = get if len(row.KEY) > 1 else lambda each: (get(each),)
        prefixes: list[tuple[str, ...]] = [row.KEY[:width] for width in (2, 1) if width < len(row.KEY)]
        if row is Segment:
            prefixes.insert(0, ("region", "checkpoint"))
        self.indexes = [Index(prefix) for prefix in prefixes]
        self._ways: dict[tuple[Shape, tuple[str, ...]], Way] = {}
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
        shape = tuple([(name, op) for name, op, _ in where])
        order = tuple(order)
        way = self._ways.get((shape, order))
        if way is None:
            way = self._ways[shape, order] = self._way(shape, order)
        bucket = self.all if way.index is None else way.index.buckets.get(way.at(where))
        if bucket is None:
            return []
        rows: Iterable[Any]
        if way.sorts_by is not None:
            rows = sorted(bucket.rows.values(), key=way.sorts_by, reverse=desc)
        else:
            rows = reversed(bucket.ordered().values()) if desc else bucket.ordered().values()
        for place in way.rest:
            name, op, value = where[place]
            of = attrgetter(name)
            if op == "in":
                rows = [row for row in rows if of(row) in value]
            else:
                meets = _COMPARE[op]
                rows = [row for row in rows if meets(of(row), value)]
        return list(rows) if limit is None else list(islice(rows, limit))

    def _way(self, shape: Shape, order: tuple[str, ...]) -> Way:
        """By the smallest bucket that holds what is asked for."""
        equal: dict[str, int] = {}
        for place, (name, op) in enumerate(shape):
            if name not in self.names:
                raise AttributeError(f"{self.row.__name__} has no column {name}")
            if op == "=":
                equal[name] = place
        index = next((index for index in self.indexes if index.columns.issubset(equal)), None)
        fixed = frozenset[str]() if index is None else index.columns
        own = not order or order == self.key or (order == self.key[-1:] and fixed.issuperset(self.key[:-1]))
        places = [] if index is None else [equal[name] for name in index.order]
        return Way(
            index,
            _values_at(places),
            tuple(place for place in range(len(shape)) if place not in places),
            None if own else attrgetter(*order, *self.key),
        )


def _values_at(places: list[int]) -> Callable[[Sequence[Cond]], Any]:
    """The values of conditions, as the keys of an index."""
    if len(places) == 1:
        (only,) = places
        return lambda where: where[only][2]
    return lambda where: tuple([where[place][2] for place in places])
