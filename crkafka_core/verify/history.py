"""A region's past in the control plane, read in one snapshot."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

from crkafka_core.control import Cond, Reader
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    ContributedOffset,
    Contribution,
    Filler,
    Initial,
    MergedOffset,
    Region,
    Reset,
    Segment,
    Start,
)

KEPT = (CheckpointStatus.MERGED, CheckpointStatus.SUPERSEDED)


class History:
    """Rows by checkpoint, those of the open cut included."""

    def __init__(self, reader: Reader, region: Region, ids: Sequence[int] = ()) -> None:
        """Read one snapshot, of these checkpoints alone if any are named."""
        named: list[Cond] = [("checkpoint", "in", tuple(ids))] if ids else []
        own: list[Cond] = [("id", "in", tuple(ids))] if ids else []
        self.region = region
        self.checkpoints = {c.id: c for c in reader.select(Checkpoint, *own, order=("id",))}
        self.line = tuple(reader.line(region.head)) if region.head else ()
        """Ids from birth to the head, as far as the archive goes."""
        self.merged: defaultdict[int, dict[TP, MergedOffset]] = defaultdict(dict)
        for m in reader.select(MergedOffset, *named):
            self.merged[m.checkpoint][TP(m.topic, m.partition)] = m
        self.segments: dict[int, list[Segment]] = _by_checkpoint(reader.select(Segment, *named))
        self.fillers: dict[int, list[Filler]] = _by_checkpoint(reader.select(Filler, *named))
        self.contributions: dict[int, list[Contribution]] = _by_checkpoint(reader.select(Contribution, *named))
        self.contributed: dict[int, list[ContributedOffset]] = _by_checkpoint(reader.select(ContributedOffset, *named))
        self.initials, self.starts = reader.select(Initial), reader.select(Start)
        self.resets = reader.select(Reset, order=("epoch",))
        """Oldest first; the oldest are forgotten."""

    def only(self, ids: Collection[int]) -> History:
        """The same history with these checkpoints alone."""
        part = copy(self)
        part.checkpoints = {i: c for i, c in self.checkpoints.items() if i in ids}
        return part

    @cached_property
    def firsts(self) -> dict[tuple[str, TP], int]:
        """(id of a topic, partition) → the initial offset."""
        return {(i.topic_id, TP(i.topic, i.partition)): i.offset for i in self.initials}

    @property
    def kept(self) -> list[Checkpoint]:
        """Merged checkpoints whose rows are kept, superseded or not; oldest first."""
        return [c for c in self.checkpoints.values() if c.status in KEPT and self.merged.get(c.id)]

    @property
    def heads(self) -> list[Checkpoint]:
        """Checkpoints that were the head once, in the order of their merges."""
        return [c for _, c in sorted(self.checkpoints.items()) if c.status in (*KEPT, CheckpointStatus.RETIRED)]

    def head_in(self, epoch: int, merged: Checkpoint | None) -> int | None:
        """The head of an epoch after this merge, by the resets; None if the reset is forgotten."""
        if merged is not None and merged.epoch >= epoch:
            return merged.id
        return next((r.target for r in self.resets if r.epoch == epoch), None)

    def left_of(self, checkpoint: int) -> list[str]:
        """Kinds of rows that a checkpoint has beside its own row."""
        rows: dict[str, Mapping[int, object]] = {"fillers": self.fillers, "contributions": self.contributions}
        rows |= {"contributed offsets": self.contributed, "merged offsets": self.merged, "segments": self.segments}
        return [kind for kind, by_checkpoint in rows.items() if by_checkpoint.get(checkpoint)]

    @property
    def on_line(self) -> list[Checkpoint]:
        """Checkpoints of the line, oldest first, without those missing from SQL (I1 reports them)."""
        return [self.checkpoints[i] for i in self.line if i in self.checkpoints]

    def gap(self, bases: Collection[int], tp: TP, available: int) -> bool:
        """Whether a jump of this partition to `available` from one of these heads was recorded; retirement keeps such records (SPEC S4)."""
        return any(
            s.reason == "gap" and s.base in bases and (s.topic, s.partition) == tp and s.offset == available
            for s in self.starts
        )


def archived(c: Checkpoint) -> Iterator[tuple[TP, str, int, int, int]]:
    """Each partition of a retired checkpoint: the id of its topic, the begin and end of its range, and rows."""
    ids = json.loads(c.archive_topics_json)
    for topic, partitions in json.loads(c.archive_json).items():
        for partition, (start, stop, rows, *_) in partitions.items():
            yield TP(topic, int(partition)), ids.get(topic, ""), start, stop, rows


def _by_checkpoint(rows: list[Any]) -> dict[int, list[Any]]:
    sorted_in: defaultdict[int, list[Any]] = defaultdict(list)
    for row in rows:
        sorted_in[row.checkpoint].append(row)
    return sorted_in
