"""Simulated shared storage: segments as lists of records, and what a contribution says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crkafka_core.model.offsets import TP
from crkafka_core.plane.cuts import NamedSegment
from crkafka_core.testing.simulation.broker import Record

Tuple = tuple[TP, Record]
Storage = dict[str, tuple[Tuple, ...]]


@dataclass(frozen=True)
class Saved:
    """The payload of a drain: offsets (from, to, rows) and the segments closed for it (SPEC C1)."""

    offsets: Mapping[TP, tuple[int, int, int]]
    segments: tuple[NamedSegment, ...]


def save(
    storage: Storage, path: str, tuples: Sequence[Tuple], start: Mapping[TP, int], stop: Mapping[TP, int]
) -> Saved:
    """Write the open segment, if it holds anything, under its final name (SPEC C7)."""
    rows = dict.fromkeys(start, 0)
    for tp, _ in tuples:
        rows[tp] += 1
    offsets = {tp: (start[tp], stop[tp], rows[tp]) for tp in start}
    spans = tuple((tp.topic, tp.partition, a, b, n) for tp, (a, b, n) in sorted(offsets.items()) if b > a)
    if not spans:
        return Saved(offsets, ())
    if path in storage:
        raise AssertionError(f"{path} is written twice")
    storage[path] = tuple(tuples)
    return Saved(offsets, (NamedSegment(path, len(tuples), 16 * len(tuples), f"h{len(tuples)}", spans),))
