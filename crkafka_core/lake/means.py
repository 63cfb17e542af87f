"""What tables are written with: their logs, records from Kafka, a pool of processes, and a Spark session for shapes on DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.config.sections import TableConfig
from crkafka_core.lake import again, formats
from crkafka_core.lake.again import Fetch
from crkafka_core.lake.formats import Logs
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.new_files import Output
from crkafka_core.lake.pool import Pool, segments_in_shares
from crkafka_core.lake.transform import Transform
from crkafka_core.lake.worker import Made, Source
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table
from crkafka_core.plane.reading import ReadPlan


class Maker(Protocol):
    """Makes the rows of all tables of one shape, of the records of one pass."""

    @property
    def alarm(self) -> str:
        """Why rows are not by the newest version of their schema."""

    def schemas(self) -> Mapping[str, pa.Schema]:
        """Columns of each output."""

    def make(self, outputs: Mapping[str, Output], check: Callable[[], object]) -> Made:
        """Files that nothing commits yet. `check` is called while they are made, and ends it by an error."""


Frames = Callable[[RegionConfig, TableConfig, ReadPlan | None, Mapping[str, Table]], Maker]
"""The maker of a shape on DataFrames. It gets what is configured of the tables, the records (None: none), and each output's table."""


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
        return self.fetch or again.FromKafka(region.config)

    def sources(self, region: Handle, plan: ReadPlan, shares: int = 1) -> list[Source]:
        """The records of a plan, its segments in `shares` at least."""
        archived = [again.Again(self.fetch_of(region), plan)] if plan.ranges else []
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
            return pool.files(sources, transform, outputs, lambda _: check(), batch_timeout=limit)


MEANS = Means()
