"""Delta Lake: `replaceWhere` with a transaction number, by which the table itself drops a late write (SPEC K6, FACTS P5)."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crkafka_core.spark import location
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.table_format import Dropped, Seen, Stamp, TableFormat, Where

_HARMLESS = (
    "OPTIMIZE",
    "VACUUM",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "ADD CONSTRAINT",
    "COMPUTE STATS",
    "REORG",
)


class DeltaTable(TableFormat):
    """At a path; readable by anybody."""

    @property
    def _path(self) -> str:
        return location.uri(self.table.path)

    @property
    def _name(self) -> str:
        return f"delta.`{self._path}`"

    def version(self) -> str:
        seen = self._history(1)
        return seen[-1].version if seen else ""

    def since(self, version: str) -> list[Seen]:
        last = self._history(1)
        if not last:
            return []
        missing = int(last[0].version) - (int(version) if version else -1)
        return self._history(missing) if missing > 0 else []

    def _history(self, limit: int) -> list[Seen]:
        try:
            rows = (
                self.spark.sql(f"DESCRIBE HISTORY {self._name} LIMIT {limit}")
                .select("version", "operation", "userMetadata")
                .collect()
            )
        except AnalysisException as error:
            if _no_table(error):
                return []
            raise
        found = [
            Seen(str(r["version"]), Stamp.from_json(r["userMetadata"]), not r["operation"].startswith(_HARMLESS))
            for r in rows
        ]
        return sorted(found, key=lambda s: int(s.version))

    def present(self) -> set[int]:
        if not self.version():
            return set()
        return {r[0] for r in self.read().select(CHECKPOINT).distinct().collect()}

    def counts(self, ids: Collection[int]) -> dict[int, int]:
        if not ids or not self.version():
            return {}
        low, high = min(ids), max(ids)
        near = self.read().where((F.col(CHECKPOINT) >= low) & (F.col(CHECKPOINT) <= high))
        return {r[0]: r[1] for r in near.groupBy(CHECKPOINT).count().collect() if r[0] in set(ids)}

    def replace(self, frame: DataFrame | None, where: Where, stamp: Stamp, based_on: str) -> str:
        if frame is None:
            if not based_on:
                return ""
            frame = self.read().where(F.lit(False))
        self.needs_column(frame.columns)
        if based_on:
            self.needs_column(self.read().columns)
        # Ordered by checkpoint inside a task, so that a partition becomes few files (SPEC K7).
        writer = frame.write.format("delta").mode("overwrite").partitionBy(CHECKPOINT).options(**self.options)
        writer = writer.option("txnAppId", f"crkafka/{stamp.uid}/{stamp.table}").option("txnVersion", stamp.number)
        writer = writer.option("userMetadata", stamp.to_json())
        # Also for a table that is not there yet: somebody else may make it meanwhile.
        writer.option("replaceWhere", where.sql()).save(self._path)
        return self._found(stamp, based_on)

    def _found(self, stamp: Stamp, based_on: str) -> str:
        """The version of our commit; the table drops a late one in silence (FACTS P5)."""
        for seen in self.since(based_on):
            if seen.stamp == stamp:
                return seen.version
        raise Dropped(
            f"Table {stamp.table} did not take commit {stamp.number}: a later one is there.",
            hint="Stop; the later writer goes on.",
        )

    def fence(self, stamp: Stamp, where: Where, in_flight: Collection[int], based_on: str) -> str:
        return self.replace(None, where, stamp, based_on)

    def read(self) -> DataFrame:
        return self.spark.read.format("delta").load(self._path)


def _no_table(error: AnalysisException) -> bool:
    text = f"{error.getCondition() or ''} {error}"
    return any(
        word in text
        for word in (
            "DELTA_MISSING_DELTA_TABLE",
            "DELTA_TABLE_NOT_FOUND",
            "PATH_NOT_FOUND",
            "DELTA_PATH_DOES_NOT_EXIST",
            "is not a Delta table",
        )
    )
