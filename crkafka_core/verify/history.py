"""A region's past in the control plane, read in one snapshot."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

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
    Row,
    Segment,
    Start,
)

R = TypeVar("R", bound=Row)
_NO_IDS: Mapping[TP, str | None] = {}
KEPT = (CheckpointStatus.MERGED, CheckpointStatus.SUPERSEDED)


@dataclass(frozen=True)
class History:
    """Rows by checkpoint, those of the open cut included."""

    region: Region
    checkpoints: dict[int, Checkpoint]
    line: tuple[int, ...]
    """Ids from birth to the head, as far as the archive goes."""
    merged: dict[int, dict[TP, MergedOffset]]
    segments: dict[int, list[Segment]]
    fillers: dict[int, list[Filler]]
    contributions: dict[int, list[Contribution]]
    contributed: dict[int, list[ContributedOffset]]
    initials: tuple[Initial, ...]
    starts: tuple[Start, ...]
    resets: tuple[Reset, ...]
    """Oldest first; the oldest are forgotten."""

    @classmethod
    def read(cls, reader: Reader, region: Region, ids: Sequence[int] = ()) -> History:
        """Read one snapshot, of these checkpoints alone if any are named."""
        named: tuple[Cond, ...] = (("checkpoint", "in", tuple(ids)),) if ids else ()
        merged: defaultdict[int, dict[TP, MergedOffset]] = defaultdict(dict)
        for m in reader.select(MergedOffset, *named):
            merged[m.checkpoint][TP(m.topic, m.partition)] = m
        own: tuple[Cond, ...] = (("id", "in", tuple(ids)),) if ids else ()
        return cls(
            region=region,
            checkpoints={c.id: c for c in reader.select(Checkpoint, *own, order=("id",))},
            line=tuple(reader.line(region.head)) if region.head else (),
            merged=merged,
            segments=_by_checkpoint(reader.select(Segment, *named)),
            fillers=_by_checkpoint(reader.select(Filler, *named)),
            contributions=_by_checkpoint(reader.select(Contribution, *named)),
            contributed=_by_checkpoint(reader.select(ContributedOffset, *named)),
            initials=tuple(reader.select(Initial)),
            starts=tuple(reader.select(Start)),
            resets=tuple(reader.select(Reset, order=("epoch",))),
        )

    def only(self, ids: Collection[int]) -> History:
        """The same history with these checkpoints alone."""
        return replace(self, checkpoints={i: c for i, c in self.checkpoints.items() if i in ids})

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
        parts: dict[str, Mapping[int, object]] = {
            "fillers": self.fillers,
            "contributions": self.contributions,
            "contributed offsets": self.contributed,
            "merged offsets": self.merged,
            "segments": self.segments,
        }
        return [what for what, rows in parts.items() if rows.get(checkpoint)]

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


def archived(c: Checkpoint, known: Mapping[TP, str | None] = _NO_IDS) -> Iterator[tuple[TP, str | None, int, int, int]]:
    """Each partition of a retired checkpoint: the id of its topic, the begin and end of its range, and rows.

    `known`: ids of topics for which the archive has none.
    """
    ids = json.loads(c.archive_topics_json or "{}")
    for topic, partitions in json.loads(c.archive_json or "{}").items():
        for partition, (start, stop, rows, *_) in partitions.items():
            tp = TP(topic, int(partition))
            yield tp, ids.get(topic, known.get(tp, "")), start, stop, rows


def _by_checkpoint(rows: list[R]) -> dict[int, list[R]]:
    sorted_in: defaultdict[int, list[R]] = defaultdict(list)
    for row in rows:
        which: Any = row
        sorted_in[which.checkpoint].append(row)
    return sorted_in
