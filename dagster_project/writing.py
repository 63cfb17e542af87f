"""How runs write declared tables: they wait for another writer, log what they do, and start Spark only where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import checkpoints
from crkafka_core.plane import tables as plane
from crkafka_core.still import telling
from dagster_project.metadata import count, how_far, rows_metadata
from dagster_project.names import RESERVED, key_of
from dagster_project.resources import RegionResource, SparkSessionResource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from crkafka_core.lake.writing import Committed

PAUSE_S = 2.0
"""Seconds between two looks at who writes a table."""
Context = dg.OpExecutionContext | dg.AssetExecutionContext
Write = Callable[["SparkSession | None"], "Committed | None"]


def session_for(table: Table, spark: SparkSessionResource) -> SparkSession | None:
    """Spark, where the table cannot be written without it."""
    return spark.session() if plane.needs_spark(table) else None


@dataclass(frozen=True)
class TableRun:
    """A run that writes one declared table."""

    context: Context
    region: RegionResource
    spark: SparkSessionResource
    name: str

    def rewrite(self, ids: Sequence[int]) -> None:
        """Write the rows of these live checkpoints again."""
        from crkafka_core.spark import tables

        if not ids:
            return
        log, name = self.context.log, self.name
        rows = sum(self.region.read(lambda reader, row: checkpoints.rows_of(reader, ids)).values())
        log.info(f"writing {plural(rows, 'record')} of {plural(len(ids), 'checkpoint')} again into {name}")
        done = self._written(lambda s: tables.rewrite(s, self.region.handle, name, ids))
        log.info(
            f"{plural(done.rows if done else 0, 'row')} of {plural(len(ids), 'checkpoint')} written into {name}"
            + (done.did_not_fit if done else "")
        )

    def advance(self, upto: int) -> None:
        """Advance the table to this checkpoint; a commit of another writer to that point counts too."""
        from crkafka_core.spark import tables

        log, name = self.context.log, self.name
        done, before = None, self._free()
        if before.acknowledged < upto:
            log.info(f"writing what follows checkpoint {before.acknowledged} up to {upto} into {name}")
            done = self._written(lambda s: tables.advance(s, self.region.handle, name, upto=upto))
        if done is None:
            log.info(f"table {name} has got all up to checkpoint {upto} meanwhile: the host writes it")
            return
        rows = plural(done.rows, "row")
        log.info(f"{rows} written into {name}: advanced from checkpoint {before.acknowledged} to {done.acknowledged}")

    def about(self, ids: Sequence[int]) -> dict[int, dict[str, int | str]]:
        """Metadata of each written checkpoint: its rows, and how far the table is."""
        keyed = any(t.name == self.name and t.keys for t in self.region.settings.tables)

        def numbers(reader: Reader, row: Region) -> dict[int, dict[str, int | str]]:
            table = plane.of(reader, self.name)
            whole = how_far(reader, table, count(reader, table, None), keyed=keyed)
            rows = plane.rows_in(reader, table, ids)
            return {i: {**rows_metadata(rows.get(i)), **whole} for i in ids}

        return self.region.read(numbers) if ids else {}

    def materialize(self, ids: Sequence[int], **more: bool) -> None:
        """Materialize these checkpoints of the table, beside the partitions that the run is for."""
        if self.name in RESERVED:
            self.context.log.info(f"table {self.name} has no asset: the region has another of that name")
            return
        for checkpoint, numbers in self.about(ids).items():
            self.context.log_event(
                dg.AssetMaterialization(
                    self.region.names.table(self.name), partition=key_of(checkpoint), metadata={**numbers, **more}
                )
            )

    def _written(self, write: Write) -> Committed | None:
        session = session_for(self._free(), self.spark)
        while True:
            try:
                with telling(
                    self.context.log.info, lambda s: f"table {self.name} is still being written, for {s:.0f} s now"
                ):
                    return write(session)
            except LeaseHeld:  # taken meanwhile
                self.region.plane.wait(self.region.read(lambda _, row: row.version), PAUSE_S)
                self._free()

    def _free(self) -> Table:
        """The table, once neither it nor a table of its shape has a writer: this run waits for as long as one goes on."""

        def look(reader: Reader, row: Region) -> tuple[int, Table, str]:
            table = plane.of(reader, self.name)
            writers = (plane.writer(reader, t.name) for t in plane.siblings(reader, table))
            return row.version, table, next(filter(None, writers), "")

        writer = ""
        while True:
            version, table, by = self.region.read(look)
            if not by:
                return table
            if by != writer:
                self.context.log.info(f"table {self.name} is written by {by}: this run waits for it")
            writer = by
            self.region.plane.wait(version, PAUSE_S)
