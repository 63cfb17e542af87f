"""Rows of archived checkpoints, read from Kafka again and compared with what was merged (SPEC K3, T2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.archived_ranges import check_same, check_uncut
from crkafka_core.kafka.range_reader import RangeReader
from crkafka_core.lake import files
from crkafka_core.lake.port import NewFile
from crkafka_core.model.errors import DataLoss
from crkafka_core.model.plural import plural
from crkafka_core.plane.reading import KafkaRange, ReadPlan
from crkafka_core.segments.batch import numbered
from crkafka_core.segments.scan import selected
from crkafka_core.segments.storage import Storage

Fetch = Callable[[ReadPlan], Iterator[tuple[KafkaRange, pa.RecordBatch]]]
"""The records of a plan's ranges, one range after the other."""


@dataclass(frozen=True)
class FromKafka:
    """With a region's own properties, and no group."""

    config: RegionConfig

    def __call__(self, plan: ReadPlan) -> Iterator[tuple[KafkaRange, pa.RecordBatch]]:
        check_held(self.config, plan)
        with RangeReader(self.config.resolved_kafka()) as reader:
            for r in plan.ranges:
                for batch in reader.read(r.tp, r.start, r.stop):
                    for piece in batch.pieces():
                        yield r, piece


@dataclass(frozen=True)
class Again:
    """The archived records of a plan, as a source of records for the pool."""

    fetch: Fetch
    plan: ReadPlan

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        for r, batch in self.fetch(self.plan):
            yield r.checkpoint, selected(batch, self.plan.selection.within(r.checkpoint))


def fetched(fetch: Fetch, plan: ReadPlan, table: Storage, folder: str) -> list[NewFile]:
    """A file of the table for each archived checkpoint of the plan; refused if one has other rows than were merged."""
    wanted, add = plan.rows_for_tables, list[NewFile]()
    for checkpoint in sorted({r.checkpoint for r in plan.ranges}):
        only = replace(plan, segments=(), ranges=tuple(r for r in plan.ranges if r.checkpoint == checkpoint))
        batches = (numbered(selected(b, plan.selection.within(checkpoint)), checkpoint) for _, b in fetch(only))
        made = files.written(table, f"{folder}/again-{checkpoint:012d}.parquet", batches)
        rows = sum(file.rows for file in made)
        if rows != wanted[checkpoint]:
            raise DataLoss(
                f"Kafka gave {plural(rows, 'row')} of checkpoint {checkpoint}; {wanted[checkpoint]} were merged, and not erased.",
                hint="Nothing was committed.",
            )
        add += made
    return add


def check_held(config: RegionConfig, plan: ReadPlan) -> None:
    """Refuse ranges of another topic or cluster, and ranges that Kafka has deleted; the error names the first readable checkpoint."""
    admin = KafkaAdmin(config.resolved_kafka(), client_id=f"crkafka-{config.region}-reads")
    try:
        check_same(admin, plan.ranges)
        ends = admin.watermarks({r.tp for r in plan.ranges})
        gone = [r for r in plan.ranges if r.start < ends[r.tp][0]]
        if not gone:
            check_uncut(admin, plan.ranges)
    finally:
        admin.close()
    if not gone:
        return
    first = gone[0]
    last = max(r.checkpoint for r in gone)
    left = [c for c in plan.checkpoints if c > last]
    rest = (
        f"checkpoints {left[0]} … {left[-1]} are still there" if left else "none of these checkpoints is there any more"
    )
    raise DataLoss(
        f"Region {plan.region}: checkpoint {first.checkpoint} is archived, and Kafka no longer holds its records: {first.tp} "
        f"[{first.start}, {first.stop}), while Kafka begins at {ends[first.tp][0]}.",
        hint=f"Of what was asked for, {rest}. A table that has nothing yet begins where the archive does: `history` with fewer "
        "checkpoints, `crkafka init` and `crkafka retire` let it begin later.",
    )
