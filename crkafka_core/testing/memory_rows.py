"""The rows of one type in memory, with the indexes that the questions of the control plane need."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from operator import attrgetter, eq, ge, gt, le, lt, ne
from typing import Any

from crkafka_core.control import Cond
from crkafka_core.model.rows import Row, Segment

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_RANGES = frozenset({"<", "<=", ">", ">="})


class Bucket:
    """Rows that share the beginning of a key, in the order of their keys when it is asked for."""

    __slots__ = ("_keys", "rows")

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Any] = {}
        self._keys: list[tuple[Any, ...]] | None = []

    def set(self, key: tuple[Any, ...], row: Any) -> None:
        if key not in self.rows and self._keys is not None:
            if self._keys and key < self._keys[-1]:
                self._keys = None
            else:
                self._keys.append(key)
        self.rows[key] = row

    def drop(self, key: tuple[Any, ...]) -> None:
        del self.rows[key]
        if self._keys and self._keys[-1] == key:
            self._keys.pop()
        else:
            self._keys = None

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """All keys, sorted when somebody asks: most rows come in order, and most buckets are never asked."""
        if self._keys is None:
            self._keys = sorted(self.rows)
        return self._keys


class MemoryRows:
    """All rows of a type: by key, and in buckets by the first one and two columns of the key."""

    def __init__(self, row: type[Row]) -> None:
        self.row = row
        self.key: tuple[str, ...] = row.KEY
        self.names = tuple(field.name for field in fields(row))
        self.rows: dict[tuple[Any, ...], Any] = {}
        get = attrgetter(*row.KEY)
        self.key_of: Callable[[Any], tuple[Any, ...]] = get if len(row.KEY) > 1 else lambda each: (get(each),)
        self.prefixes: list[tuple[str, ...]] = [row.KEY[:width] for width in (2, 1) if width < len(row.KEY)]
        if row is Segment:
            self.prefixes.insert(0, ("region", "checkpoint"))
        self._prefix_of = [attrgetter(*prefix) for prefix in self.prefixes]
        self.buckets: list[dict[Any, Bucket]] = [{} for _ in self.prefixes]
        self.all = Bucket()

    def set(self, row: Any) -> Any:
        """Insert or replace; what was there."""
        key = self.key_of(row)
        before = self.rows.get(key)
        if before is not None and len(self.prefixes) > 0 and self._moved(before, row):
            self.drop(key)
        self.rows[key] = row
        self.all.set(key, row)
        for prefix_of, buckets in zip(self._prefix_of, self.buckets, strict=True):
            prefix = prefix_of(row)
            bucket = buckets.get(prefix)
            if bucket is None:
                bucket = buckets[prefix] = Bucket()
            bucket.set(key, row)
        return before

    def drop(self, key: tuple[Any, ...]) -> Any:
        """Remove; what was there."""
        row = self.rows.pop(key)
        self.all.drop(key)
        for prefix_of, buckets in zip(self._prefix_of, self.buckets, strict=True):
            prefix = prefix_of(row)
            bucket = buckets[prefix]
            bucket.drop(key)
            if not bucket.rows:
                del buckets[prefix]
        return row

    def _moved(self, before: Any, row: Any) -> bool:
        """Whether a replaced row belongs to another bucket: only where an index is no part of the key."""
        return self.row is Segment and before.checkpoint != row.checkpoint

    def select(self, where: Sequence[Cond], order: Sequence[str], desc: bool, limit: int | None) -> list[Any]:
        """Rows that meet all conditions, in order."""
        for name, _, _ in where:
            if name not in self.names:
                raise AttributeError(f"{self.row.__name__} has no column {name}")
        equal = {name: value for name, op, value in where if op == "="}
        bucket, fixed = self._bucket(equal)
        if bucket is None:
            return []
        rest = [(name, op, value) for name, op, value in where if not (op == "=" and name in fixed)]
        at_end = set(fixed) >= set(self.key[:-1]) and tuple(order) == self.key[-1:]
        if order and tuple(order) != self.key and not at_end:
            found = [row for row in bucket.rows.values() if _meets(row, rest)]
            found.sort(key=attrgetter(*order, *self.key), reverse=desc)
            return found if limit is None else found[:limit]
        keys: Sequence[tuple[Any, ...]] = bucket.keys
        if rest and set(fixed) >= set(self.key[: len(fixed)]):
            keys, rest = self._between(keys, rest, len(fixed), equal)
        return _take(bucket, reversed(keys) if desc else keys, rest, limit)

    def _bucket(self, equal: dict[str, Any]) -> tuple[Bucket | None, tuple[str, ...]]:
        if all(name in equal for name in self.key):
            key = tuple(equal[name] for name in self.key)
            bucket = Bucket()
            if key in self.rows:
                bucket.set(key, self.rows[key])
            return bucket, self.key
        for prefix, buckets in zip(self.prefixes, self.buckets, strict=True):
            if all(name in equal for name in prefix):
                found = buckets.get(tuple(equal[name] for name in prefix) if len(prefix) > 1 else equal[prefix[0]])
                return found, prefix
        return self.all, ()

    def _between(
        self, keys: Sequence[tuple[Any, ...]], rest: list[Cond], width: int, equal: dict[str, Any]
    ) -> tuple[Sequence[tuple[Any, ...]], list[Cond]]:
        """Narrow sorted keys by comparisons of the column that follows the shared beginning."""
        if width >= len(self.key):
            return keys, rest
        column = self.key[width]
        prefix = tuple(equal[name] for name in self.key[:width])
        low, high, left = 0, len(keys), []
        for name, op, value in rest:
            if name != column or op not in _RANGES:
                left.append((name, op, value))
            elif op == ">":
                low = max(low, _after(keys, prefix, value))
            elif op == ">=":
                low = max(low, bisect_left(keys, (*prefix, value)))
            elif op == "<":
                high = min(high, bisect_left(keys, (*prefix, value)))
            else:
                high = min(high, _after(keys, prefix, value))
        return keys[low:high], left


def _after(keys: Sequence[tuple[Any, ...]], prefix: tuple[Any, ...], value: Any) -> int:
    """Where the keys begin that are above `prefix, value`, whatever follows."""
    width = len(prefix) + 1
    return bisect_right(keys, (*prefix, value), key=lambda key: key[:width])


def _take(bucket: Bucket, keys: Iterable[tuple[Any, ...]], rest: Sequence[Cond], limit: int | None) -> list[Any]:
    rows = bucket.rows
    if limit is None:
        return [rows[key] for key in keys if _meets(rows[key], rest)] if rest else [rows[key] for key in keys]
    found: list[Any] = []
    for key in keys:
        if len(found) >= limit:
            break
        if _meets(rows[key], rest):
            found.append(rows[key])
    return found


def _meets(row: Any, where: Sequence[Cond]) -> bool:
    for name, op, value in where:
        actual = getattr(row, name)
        if not (actual in value if op == "in" else _COMPARE[op](actual, value)):
            return False
    return True
