"""Apache Iceberg: overwrite by partition, refused by the table when somebody wrote the same partitions since (SPEC K6, FACTS P5).

What Iceberg cannot refuse, a late write to partitions that nobody else has written, is found by every later writer, by the
stamps in the snapshots' summaries, and undone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from crkafka_core.spark import location
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.table_format import Dropped, History, Seen, Stamp, TableFormat, Where

_STAMP = "crkafka"


class IcebergTable(TableFormat):
    """At a path (`…/warehouse/name`), or, when the path is no path but an identifier, in a catalog that the session has."""

    @property
    def _name(self) -> str:
        path = self.table.path
        if "/" not in path:
            return path
        parent, name = path.rstrip("/").rsplit("/", 1)
        catalog = f"crkafka_{hashlib.blake2b(parent.encode(), digest_size=6).hexdigest()}"
        key = f"spark.sql.catalog.{catalog}"
        if not self.spark.conf.get(key, ""):
            self.spark.conf.set(f"{key}.type", "hadoop")
            self.spark.conf.set(f"{key}.warehouse", _plain(location.uri(parent)))
            self.spark.conf.set(f"{key}.cache-enabled", "false")
            self.spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")
        return f"{catalog}.`{name}`"

    def _exists(self) -> bool:
        try:
            self.spark.table(self._name).schema  # noqa: B018
        except AnalysisException as error:
            if (error.getCondition() or "") == "TABLE_OR_VIEW_NOT_FOUND":
                return False
            raise
        return True

    def history(self, after: str) -> History:
        """Along parents, from the current snapshot to the one after `after`."""
        if not self._exists():
            return History("")
        rows = {
            r["snapshot_id"]: r
            for r in self.spark.table(f"{self._name}.snapshots")
            .select("snapshot_id", "parent_id", "operation", "summary")
            .collect()
        }
        refs = self.spark.table(f"{self._name}.refs").where("name = 'main'").select("snapshot_id").collect()
        current = at = refs[0][0] if refs else None
        found: list[Seen] = []
        while at is not None and at in rows and str(at) != after:
            row = rows[at]
            found.append(Seen(str(at), Stamp.from_json(row["summary"].get(_STAMP)), row["operation"] != "replace"))
            at = row["parent_id"]
        return History("" if current is None else str(current), tuple(reversed(found)))

    def present(self) -> set[int]:
        return {r[0] for r in self._partitions().select(CHECKPOINT).collect()} if self._exists() else set()

    def _partitions(self) -> DataFrame:
        table = self.spark.table(f"{self._name}.partitions")
        return table.select(F.col(f"partition.{CHECKPOINT}").alias(CHECKPOINT), F.col("record_count")).where(
            "record_count > 0"
        )

    def counts(self, ids: Collection[int]) -> dict[int, int]:
        if not ids or not self._exists():
            return {}
        wanted = set(ids)
        return {r[0]: r[1] for r in self._partitions().collect() if r[0] in wanted}

    def replace(self, frame: DataFrame | None, where: Where, stamp: Stamp, based_on: str) -> None:
        if frame is None:
            frame = self.spark.table(self._name).where(F.lit(False))
        elif not based_on and not self._exists():
            self._create(frame, stamp)
        self.needs_column(frame.columns)
        self.needs_column(self.spark.table(self._name).columns)
        based_on = based_on or self._first(stamp)
        writer = frame.sortWithinPartitions(CHECKPOINT).writeTo(self._name).options(**self.options)
        writer = writer.option("isolation-level", "serializable").option("validate-from-snapshot-id", based_on)
        try:
            writer.option(f"snapshot-property.{_STAMP}", stamp.to_json()).overwrite(F.expr(where.sql()))
        except Exception as error:  # classic and Connect wrap Iceberg's in classes of their own
            if "org.apache.iceberg.exceptions.ValidationException" in str(error) or "Found conflicting" in str(error):
                raise Dropped(
                    f"Table {stamp.table} refused commit {stamp.number}: somebody else has written the same checkpoints since.",
                    hint="Stop; the later writer goes on.",
                ) from error
            raise

    def _create(self, frame: DataFrame, stamp: Stamp) -> None:
        """With a snapshot of ours: whatever else is there, somebody else has done."""
        empty = frame.where(F.lit(False))
        self.needs_column(empty.columns)
        made = empty.withColumn(CHECKPOINT, F.col(CHECKPOINT).cast(LongType())).writeTo(self._name).using("iceberg")
        made = made.partitionedBy(F.col(CHECKPOINT)).tableProperty("format-version", "2")
        made = made.tableProperty("write.distribution-mode", "none").tableProperty("write.spark.fanout.enabled", "true")
        made.option(f"snapshot-property.{_STAMP}", stamp.to_json()).create()

    def _first(self, stamp: Stamp) -> str:
        """A first snapshot, so that there is one to validate from."""
        version = self.history("").version
        if version:
            return version
        empty = self.spark.table(self._name).where(F.lit(False))
        empty.writeTo(self._name).option(f"snapshot-property.{_STAMP}", stamp.to_json()).append()
        return self.history("").version

    def fence(self, stamp: Stamp, where: Where, in_flight: Collection[int], based_on: str) -> None:
        # A removal without hits fences nothing: a row of ours in each partition that a late write may be for makes the
        # table refuse it, and is removed at once (FACTS P5).
        marked = [i for i in in_flight if i in where.ids]
        if marked:
            columns = self.spark.table(self._name).schema
            marks = self.spark.createDataFrame([{CHECKPOINT: i} for i in marked], columns)
            self.replace(marks, Where(ids=tuple(marked)), stamp, based_on)
            based_on = self.own(self.history(based_on), stamp)
        self.replace(None, where, stamp, based_on)

    def read(self) -> DataFrame:
        return self.spark.table(self._name)


def _plain(uri: str) -> str:
    """Hadoop's own spelling of a local folder."""
    return uri.removeprefix("file://")


__all__ = ["IcebergTable"]
