"""A region with one raw Iceberg table, whose log is written in the Java process of the tests' session."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from crkafka_core.lake.handle import Handle
from crkafka_core.model.rows import Table
from crkafka_core.spark import adopted, iceberg_catalog
from crkafka_core.spark.iceberg_log import IcebergLog, IcebergSnapshot
from crkafka_core.tables.log import TableLog
from tests.spark.place import Place
from tests.tables.conftest import Lake


class IcebergLake(Lake):
    """As a user of Spark who knows nothing of us sees and treats it."""

    format = "iceberg"
    log = IcebergLog
    snapshot = IcebergSnapshot
    errors = (PySparkException, Py4JJavaError)

    def __init__(self, folder: Path, spark: SparkSession, at: Place | None = None, **keys: object) -> None:
        """`at`: where the table and its segments lie; else in the folder."""
        self.spark, self._at = spark, at or Place(folder, str(folder), {})
        storage = {"storage": self._at.path("segments"), "storage_options": dict(self._at.options)}
        super().__init__(folder, **storage, **keys)
        self.name = iceberg_catalog.named(spark, self.place)

    @property
    def place(self) -> str:
        return self._at.path("tables/bronze")

    def logs(self, region: Handle, table: Table) -> TableLog:
        return adopted.logs_of(self.spark)(region, table)

    def frame(self) -> DataFrame:
        return self.spark.table(self.name)

    def rows(self) -> list[tuple[int, int]]:
        return sorted((row[0], row[1]) for row in self.frame().select("partition", "offset").collect())

    def values(self) -> list[str]:
        return sorted(bytes(row[0]).decode() for row in self.frame().select("value").collect())

    def snapshots(self) -> list[Row]:
        """Oldest first."""
        return self.spark.table(f"{self.name}.snapshots").orderBy("committed_at").collect()

    def call(self, procedure: str, *arguments: str) -> None:
        catalog, _, name = self.name.partition(".")
        given = ", ".join([f"table => '{name.strip('`')}'", *arguments])
        self.spark.sql(f"CALL {catalog}.system.{procedure}({given})").collect()

    def exists(self) -> bool:
        return self.spark.catalog.tableExists(self.name)

    def version(self) -> int:
        return max(0, len(self.snapshots()) - 1)

    def restore(self, version: int) -> None:
        found = self.snapshots()
        if 0 <= version < len(found):
            self.call("set_current_snapshot", f"snapshot_id => {found[version].snapshot_id}")

    def compact(self) -> None:
        self.call("rewrite_data_files", "options => map('min-input-files', '2', 'rewrite-all', 'true')")

    def maintain(self, target: int) -> None:
        """Iceberg's own does it, or says that it cannot."""
        with suppress(*self.errors):
            if self.exists():
                self.compact()

    def vacuum(self) -> None:
        """Older snapshots go, and with them files that only they had."""
        self.call("expire_snapshots", "older_than => current_timestamp()", "retain_last => 1")

    def clean_log(self) -> None:
        self.vacuum()

    def write_again(self, start: int) -> None:
        rows = self.frame().orderBy("value").collect()[start : start + 4]
        self.spark.createDataFrame(rows, self.frame().schema).writeTo(self.name).append()
