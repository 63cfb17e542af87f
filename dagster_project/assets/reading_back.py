"""Reads landed segments back, offsets only: what checks compare with the control plane (SPEC A4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.model.offsets import TP
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.segments.reader import read_with_topics
from dagster_project.resources import RegionResource

POSITION = ["topic", "partition", "offset"]


@dataclass
class Landed:
    """What the segments of some checkpoints hold."""

    rows: Counter[int] = field(default_factory=Counter)
    """Per checkpoint."""
    spans: dict[tuple[int, TP], tuple[int, int]] = field(default_factory=dict)
    """Per checkpoint and partition: lowest and highest offset."""
    doubled: list[str] = field(default_factory=list)
    """The first offset that is there twice, of each partition that has one."""


def counts(region: RegionResource, plan: ReadPlan) -> Counter[int]:
    """Rows of each checkpoint that still has segments, counted in the files."""
    per_checkpoint: Counter[int] = Counter()
    for checkpoint, table, _ in _segments(region, plan):
        per_checkpoint[checkpoint] += table.num_rows
    return per_checkpoint


def landed(region: RegionResource, plan: ReadPlan) -> Landed:
    """Rows, spans and duplicates over all the plan's segments."""
    out, offsets = Landed(), dict[tuple[TP, str], list[pa.Array]]()
    for checkpoint, table, topic_ids in _segments(region, plan):
        out.rows[checkpoint] += table.num_rows
        for tp, offsets_here in _by_partition(table):
            low, high = pc.min_max(offsets_here).as_py().values()
            before = out.spans.get((checkpoint, tp), (low, high))
            out.spans[(checkpoint, tp)] = (min(low, before[0]), max(high, before[1]))
            offsets.setdefault((tp, topic_ids.get(tp.topic, "")), []).append(
                offsets_here
            )  # a topic made anew counts anew
    for (tp, _), parts in sorted(offsets.items()):
        counted = pc.value_counts(pa.chunked_array(parts))
        twice = pc.filter(counted.field("values"), pc.greater(counted.field("counts"), 1))
        if len(twice):
            out.doubled.append(f"{tp} offset {pc.min(twice).as_py()}")
    return out


def _segments(region: RegionResource, plan: ReadPlan) -> Iterator[tuple[int, pa.Table, dict[str, str]]]:
    storage = region.open().storage()
    for segment in plan.segments:
        yield segment.checkpoint, *read_with_topics(storage, segment.path, POSITION)


def _by_partition(table: pa.Table) -> Iterator[tuple[TP, pa.Array]]:
    keys = table.group_by(["topic", "partition"]).aggregate([]).to_pylist()
    for key in keys:
        mask = pc.and_(pc.equal(table["topic"], key["topic"]), pc.equal(table["partition"], key["partition"]))
        yield TP(key["topic"], key["partition"]), pc.filter(table["offset"], mask).combine_chunks()
