"""Delta Lake: `replaceWhere` with a transaction number, by which the table itself drops a late write (SPEC K6, FACTS P5)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from crkafka_core.spark import location
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.table_format import History, Seen, Stamp, TableFormat, Where

_HARMLESS = (
    "OPTIMIZE",
    "VACUUM",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "ADD CONSTRAINT",
    "COMPUTE STATS",
    "REORG",
)

_FEW = 8
"""Commits that are asked for first: each question costs Spark a plan, and rarely is more new."""


class DeltaTable(TableFormat):
    """At a path; readable by anybody."""

    @property
    def _path(self) -> str:
        return location.uri(self.table.path)

    @property
    def _name(self) -> str:
        return f"delta.`{self._path}`"

    def history(self, after: str) -> History:
        known = int(after) if after else -1
        found = self._described(_FEW)
        if len(found) == _FEW and int(found[0].version) > known + 1:
            found = self._described(int(found[-1].version) - known)
        if not found:
            return History("")
        return History(found[-1].version, tuple(s for s in found if int(s.version) > known))

    def _described(self, limit: int) -> list[Seen]:
        """The last commits, oldest first."""
        rows = self._collected(lambda: self.spark.sql(f"DESCRIBE HISTORY {self._name} LIMIT {limit}"))
        found = [
            Seen(str(r["version"]), Stamp.from_json(r["userMetadata"]), not r["operation"].startswith(_HARMLESS))
            for r in rows
        ]
        return sorted(found, key=lambda s: int(s.version))

    def _collected(self, asked: Callable[[], DataFrame]) -> list[Row]:
        """What a question answers; nothing where there is no table."""
        try:
            return asked().collect()
        except AnalysisException as error:
            if _no_table(error):
                return []
            raise

    def present(self) -> set[int]:
        return {r[0] for r in self._collected(lambda: self.read().select(CHECKPOINT).distinct())}

    def counts(self, ids: Collection[int]) -> dict[int, int]:
        if not ids:
            return {}
        near = F.col(CHECKPOINT).between(min(ids), max(ids))
        found = self._collected(lambda: self.read().where(near).groupBy(CHECKPOINT).count())
        return {r[0]: r[1] for r in found if r[0] in set(ids)}

    def replace(self, frame: DataFrame | None, where: Where, stamp: Stamp, based_on: str) -> None:
        if frame is None:
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

    def fence(self, stamp: Stamp, where: Where, in_flight: Collection[int], based_on: str) -> None:
        self.replace(None, where, stamp, based_on)

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
