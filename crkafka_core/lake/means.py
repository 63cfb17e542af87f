"""What tables are written with: their logs, records from Kafka, a pool of processes, and a Spark session for shapes on DataFrames.

Rows of archived checkpoints are read from Kafka again, and compared with what was merged (SPEC K3, T2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.config.sections import TableConfig
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.range_reader import RangeReader, check_same, check_uncut
from crkafka_core.lake import files, formats
from crkafka_core.lake.formats import Logs
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.new_files import Output
from crkafka_core.lake.pool import Pool, segments_in_shares
from crkafka_core.lake.port import NewFile
from crkafka_core.lake.transform import Transform
from crkafka_core.lake.worker import Made, Source
from crkafka_core.model.errors import ConfigError, DataLoss
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Table
from crkafka_core.plane.reading import KafkaRange, ReadPlan
from crkafka_core.segments.batch import numbered
from crkafka_core.segments.scan import selected
from crkafka_core.segments.storage import Storage

Fetch = Callable[[ReadPlan], Iterator[tuple[KafkaRange, pa.RecordBatch]]]
"""The records of a plan's ranges, one range after the other."""


class Maker(Protocol):
    """Makes the rows of all tables of a shape on DataFrames, of the records of one pass."""

    def schemas(self) -> Mapping[str, pa.Schema]:
        """Columns of each output."""

    def make(self, outputs: Mapping[str, Output], check: Callable[[], object]) -> Made:
        """Files that nothing commits yet. `check` is called while they are made, and ends it by an error."""


Frames = Callable[[RegionConfig, TableConfig, ReadPlan | None, Mapping[str, Table]], Maker]
"""Gets what is configured of the tables, the records (None: none), and each output's table."""


@dataclass(frozen=True)
class Means:
    """What a table is written with: tests have their own."""

    logs: Logs = formats.open_log
    fetch: Fetch | None = None
    """None: Kafka."""
    pool: Pool | None = None
    """Of a program that writes for long; None: each pass opens one for its time, if it needs one."""
    frames: Frames | None = None
    """Makes rows of shapes on DataFrames, by a Spark session; None: there is none."""

    def fetch_of(self, region: Handle) -> Fetch:
        return self.fetch or FromKafka(region.config)

    def sources(self, region: Handle, plan: ReadPlan, shares: int = 1) -> list[Source]:
        """The records of a plan, its segments in `shares` at least."""
        archived = [Archived(self.fetch_of(region), plan)] if plan.ranges else []
        return [*segments_in_shares(region.storage(), plan.segments, plan.selection, shares), *archived]

    def frames_of(self, declared: TableConfig) -> Frames:
        if self.frames is None:
            raise ConfigError(
                f"Table {declared.name} has the shape {declared.shape}, a function of DataFrames: Spark makes its rows, and none is here.",
                hint="Write it with a Spark session; a function of Arrow's batches (`arrow:` before its name) needs none.",
            )
        return self.frames

    def files(
        self,
        region: Handle,
        plan: ReadPlan,
        transform: Transform,
        outputs: Mapping[str, Output],
        check: Callable[[], object],
    ) -> Made:
        """Files of a plan's records, made by the pool. `check` is called meanwhile, and ends it by an error."""
        with nullcontext(self.pool) if self.pool is not None else Pool() as pool:
            sources, limit = self.sources(region, plan, pool.workers), region.config.batch_timeout
            return pool.files(sources, transform, outputs, check, batch_timeout=limit)


MEANS = Means()


@dataclass(frozen=True)
class FromKafka:
    """A `Fetch` with a region's own properties, and no group."""

    config: RegionConfig

    def __call__(self, plan: ReadPlan) -> Iterator[tuple[KafkaRange, pa.RecordBatch]]:
        check_held(self.config, plan)
        with RangeReader(self.config.resolved_kafka()) as reader:
            for r in plan.ranges:
                for batch in reader.read(r.tp, r.start, r.stop):
                    for piece in batch.pieces():
                        yield r, piece


@dataclass(frozen=True)
class Archived:
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
        batches = (numbered(batch, checkpoint) for _, batch in Archived(fetch, only).batches())
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
            return
    finally:
        admin.close()
    first, last = gone[0], max(r.checkpoint for r in gone)
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
