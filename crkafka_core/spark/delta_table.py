"""Delta Lake: `replaceWhere` with a transaction number, by which the table itself drops a late write (SPEC K6, docs/clients.md C-P5)."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from crkafka_core.config.location import in_catalog
from crkafka_core.model.errors import ConfigError, CrkafkaError, Refused
from crkafka_core.spark import location
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.table_format import Range, TableFormat, Where, kinds
from crkafka_core.tables import file_statistics
from crkafka_core.tables.delta_log import DeltaLog, Snapshot, bounds, changes_rows
from crkafka_core.tables.file_statistics import NewFile
from crkafka_core.tables.log import lost
from crkafka_core.tables.stamp import MAINTAIN, History, LogEntry, Stamp

_log = logging.getLogger(__name__)
T = TypeVar("T")
_LOOKS = 10
_FEW = 8
"""Commits that are asked for first: each question costs Spark a plan, and rarely is more new."""
_CATALOGS = "DELTA_UNSUPPORTED_CATALOG_MANAGED_TABLE_OPERATION"
_TIMES_AS = "spark.sql.parquet.outputTimestampType"


class DeltaTable(TableFormat):
    """At a path, readable by anybody; or by its name in a catalog of the session. Rows know their checkpoint by a column.

    A table that an older crkafka has made is partitioned by that column, and goes on so: Delta keeps to how a table is partitioned.
    """

    def __init__(self, *given: Any, log: DeltaLog | None = None) -> None:
        """`log`: answers what it can without Spark; none of a table in a catalog, or where only Spark gets."""
        super().__init__(*given)
        self.log = log

    @property
    def path(self) -> str:
        """Empty for a table by its name in a catalog."""
        return "" if in_catalog(self.table.path) else location.uri(self.table.path)

    @property
    def name(self) -> str:
        return f"delta.`{self.path}`" if self.path else location.quoted(self.table.path)

    def _told(self, ask: Callable[[Snapshot], T | None], nothing: T) -> T | None:
        """What the log itself answers, or `nothing` where there is no table: Spark takes a plan for each question, and a job for most.

        None where it does not tell.
        """
        if self.log is None:
            return None
        try:
            snapshot = self.log.snapshot()
            return nothing if snapshot is None else ask(snapshot)
        except CrkafkaError as error:
            _log.info("Spark is asked instead: %s", error)
            return None

    def number(self, app: str) -> int | None:
        """Of our last commit, by the table's own transactions; None where the log does not tell."""
        return self._told(lambda there: there.facts(app).number, 0)

    def history(self, after: str) -> History:
        told = self._told(lambda there: History(there.at, tuple(there.since(after))), History(""))
        return told or self._history(after)

    def changes(self, after: str, ours: Collection[str]) -> Sequence[LogEntry]:
        nothing: Sequence[LogEntry] = ()
        told = self._told(lambda there: there.since(after, ours), nothing)
        return self._history(after).seen if told is None else told

    def touched(self, version: str) -> range | None:
        return self._told(lambda there: there.touched(version, CHECKPOINT), None)

    def lost(self) -> dict[str, Range | None]:
        def found(there: Snapshot) -> dict[str, Range | None]:
            files = there.files()
            gone = lost(there.storage, files)
            return {file.path: bounds(file, CHECKPOINT) for file in files if file.path in gone}

        return self._told(found, {}) or {}

    def _history(self, after: str) -> History:
        known = int(after) if after else -1
        found = self._described(_FEW)
        if len(found) == _FEW and int(found[0].version) > known + 1:
            found = self._described(int(found[-1].version) - known)
        if not found:
            return History("")
        return History(found[-1].version, tuple(s for s in found if int(s.version) > known))

    def _described(self, limit: int) -> list[LogEntry]:
        """The last commits, oldest first."""
        rows = self._collected(lambda: self.spark.sql(f"DESCRIBE HISTORY {self.name} LIMIT {limit}"))
        found = [
            LogEntry.told(str(r["version"]), r["userMetadata"], changes_rows=changes_rows(r["operation"])) for r in rows
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

    def _counts(self, least: int, greatest: int) -> dict[int, int]:
        none: dict[int, int] = {}
        told = self._told(lambda there: there.counts(CHECKPOINT, least, greatest), none)
        if told is not None:
            return told
        return self._counted(least, greatest, self._collected)

    def replace(self, frame: DataFrame | None, where: Where, stamp: Stamp, based_on: str) -> None:
        rows = frame is not None
        if frame is None:
            frame = self.read().where(F.lit(False))
        self.needs_column(frame.columns)
        there = self.read().schema if based_on else frame.schema
        self.needs_column(there.fieldNames())
        self.must_fit(there, frame.schema)
        bare = there.fieldNames() == [CHECKPOINT]
        first = not based_on or bare
        if first:  # in front, so that the log has its bounds for each file: it has those of the first 32 columns
            frame = _checkpoint_first(frame)
        if rows:  # a fence brings none, and the region waits for it
            self._check_partitions(frame, first)
        self._check_times(frame)
        self._let_take(there, frame.schema)
        if based_on and self._in_place_of_lost(frame, where, stamp):
            return
        ours = {"txnAppId": stamp.app, "txnVersion": str(stamp.number), "userMetadata": stamp.to_json()}
        by = self.partition_by if first and len(frame.columns) > 1 else ()
        condition = where.sql()
        if bare and by:
            # A fence has made it, without these columns and without a row.
            ours["overwriteSchema"], condition = "true", ""
        # A fence may have made the table, without the columns of its rows; those of a shape may become more.
        elif self.table.shape or not self.table.acknowledged or bare:
            ours["mergeSchema"] = "true"
        self._overwrite(frame, condition, self._with_own(ours), by, named=bool(based_on) and not self.path and not by)

    def _overwrite(
        self, frame: DataFrame, condition: str, options: dict[str, str], by: Sequence[str], *, named: bool
    ) -> None:
        if named:
            # `saveAsTable` would be a REPLACE TABLE, which Unity Catalog refuses of a table at a place of its own.
            beside_compaction(lambda: frame.writeTo(self.name).options(**options).overwrite(F.expr(condition)))
            return
        writer = frame.write.format("delta").mode("overwrite").options(**options)
        if by:
            writer = writer.partitionBy(*by)
        if condition:
            # Also for a table that is not there yet: somebody else may make it meanwhile.
            writer = writer.option("replaceWhere", condition)
        beside_compaction(lambda: writer.save(self.path) if self.path else writer.saveAsTable(self.name))

    def _with_own(self, ours: dict[str, str]) -> dict[str, str]:
        """The table's own options too, but in no spelling one of those that a write says: `writeTo` takes both."""
        said = {name.lower() for name in (*ours, "replaceWhere")}
        return {name: value for name, value in self.options.items() if name.lower() not in said} | ours

    def widen(self, rows: DataFrame, stamp: Stamp) -> None:
        there = self.read().schema
        self.must_fit(there, rows.schema)
        if {path.lower() for path, _ in kinds(rows.schema)} <= {path.lower() for path, _ in kinds(there)}:
            return
        self._let_take(there, rows.schema)
        writer = rows.where(F.lit(False)).write.format("delta").mode("append").option("mergeSchema", "true")
        writer.option("userMetadata", stamp.to_json(kind=MAINTAIN)).save(self.path)

    def _let_take(self, there: StructType, new: StructType) -> None:
        """Turn on what Delta asks a table for that is there and gets its first times without a zone; it does so itself with a new one."""
        before, after = ({kind for _, kind in kinds(each)} for each in (there, new))
        if "timestamp_ntz" in after - before:
            feature = "'delta.feature.timestampNtz' = 'supported'"
            self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ({feature})").collect()

    def add(
        self, rows: DataFrame | None, where: Where, stamp: Stamp, based_on: str, expected: int | None
    ) -> int | None:
        """By the log, and Spark only writes files: before a commit of its own it looks at the whole table, in jobs that take a second."""
        columns = None if rows is None else rows.schema
        if rows is not None and self.spark.conf.get(_TIMES_AS, "INT96") == "INT96":
            return None  # of such times a footer tells no bounds

        def commit(there: Snapshot) -> int | None:
            if there.at != based_on or not self._fits(there, columns) or _has_any(there, where):
                return None
            if there.facts(stamp.app).number >= stamp.number:  # too late: Spark's commit is dropped, and that is told
                return None
            files = [] if rows is None else self._files(rows, stamp)
            count = sum(file.rows for file in files)
            if expected is not None and count != expected:
                return None
            there.take(files, stamp, {"rows": count})
            return count

        return self._told(commit, None)

    def _fits(self, there: Snapshot, columns: StructType | None) -> bool:
        """As `_plain`; a table that has to be partitioned, and is not, is Spark's to refuse."""
        return _plain(there, columns) and (columns is None or not self.partition_by)

    def _in_place_of_lost(self, frame: DataFrame, where: Where, stamp: Stamp) -> bool:
        """Commit the rows by the log, where a file that has to leave is not there: Spark would read it. Only as a whole does one leave."""
        if self.spark.conf.get(_TIMES_AS, "INT96") == "INT96":
            return False
        ranges = where.ranges()

        def commit(there: Snapshot) -> bool:
            near = [(file, bounds(file, CHECKPOINT)) for file in there.files() if there.plain]
            leaving = [f for f, b in near if b is None or any(b[0] <= last and b[1] >= first for first, last in ranges)]
            inside = [f for f, b in near if b is not None and any(a <= b[0] and b[1] <= z for a, z in ranges)]
            late = there.facts(stamp.app).number >= stamp.number
            if late or leaving != inside or not _plain(there, frame.schema):
                return False
            if all(there.storage.exists(file.path) for file in leaving):
                return False
            there.exchange(self._files(frame, stamp), leaving, stamp, stamp.number, {})
            return True

        return bool(self._told(commit, False))

    def _files(self, frame: DataFrame, stamp: Stamp) -> list[NewFile]:
        """Written into a folder of the table; what no commit names goes with the table's next VACUUM."""
        assert self.log is not None
        folder = f"{stamp.uid}/written/{stamp.number:012d}-{stamp.token[-8:]}-{uuid.uuid4().hex[:8]}"
        frame = _checkpoint_first(frame)
        writer = frame.write.options(**self.options).option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer.parquet(f"{self.path}/{folder}")
        return file_statistics.written_by_spark(self.log.storage(), folder)

    def property(self, name: str) -> str:
        told = self._told(lambda there: there.property(name), "")
        if told is not None:
            return told
        found = self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()
        return next((str(row["value"]) for row in found if row["key"] == name), "")

    def _check_partitions(self, frame: DataFrame, first: bool) -> None:
        """Refuse a table that is partitioned otherwise than its declaration says, and a column that is not there."""
        if not self.partition_by:
            return
        if not first:
            found = self.spark.sql(f"DESCRIBE DETAIL {self.name}").select("partitionColumns").collect()[0][0]
            if list(self.partition_by) != list(found):
                raise ConfigError(
                    f"Table {self.table.name} at {self.table.path} is partitioned by {', '.join(found) or 'nothing'}, and is declared "
                    f"with partition_by: [{', '.join(self.partition_by)}].",
                    hint="Declare it as it is, or as a table of another name. Nothing was written.",
                )
        elif len(frame.columns) > 1 and (missing := [c for c in self.partition_by if c not in frame.columns]):
            raise ConfigError(
                f"Table {self.table.name} is declared with partition_by: {missing[0]}, and its rows have no such column; "
                f"they have {', '.join(frame.columns)}.",
                hint="Name one of these. Nothing was written.",
            )

    def _check_times(self, frame: DataFrame) -> None:
        """Spark writes times of partitions as texts of the session's time zone, in which an hour of autumn is there twice."""
        zone = str(self.spark.conf.get("spark.sql.session.timeZone", "UTC"))
        times = [
            c for c in self.partition_by if c in frame.columns and isinstance(frame.schema[c].dataType, TimestampType)
        ]
        if times and zone not in ("UTC", "Etc/UTC"):
            raise ConfigError(
                f"Table {self.table.name} is partitioned by {times[0]}, a time, and this session has the time zone {zone}: an hour of each "
                "autumn would be taken for another.",
                hint="Nothing was written. Set spark.sql.session.timeZone to UTC, as crkafka does, or partition by a date.",
            )

    def make_fenced(self, stamp: Stamp) -> None:
        self.replace(self.spark.createDataFrame([], f"{CHECKPOINT} BIGINT"), Where(), stamp, "")

    def compact(self) -> tuple[int, int]:
        # Rows keep their checkpoint in a column, or in their partition: a rewind takes exactly its rows out, whatever files they are in.
        try:
            (done,) = (
                self.spark.sql(f"OPTIMIZE {self.name}")
                .select("metrics.numFilesRemoved", "metrics.numFilesAdded")
                .collect()
            )
        except UnsupportedOperationException as error:
            if _CATALOGS not in str(error):
                raise
            raise Refused(
                f"Table {self.table.name} is managed by its catalog ({self.table.path}), and Delta leaves its OPTIMIZE and VACUUM to that.",
                hint="Let the catalog do it, or declare a table that was made at a place of its own (CREATE TABLE … LOCATION).",
            ) from error
        return done[0], done[1]

    def clean(self) -> None:
        location.list_by_few(self.spark)
        self.spark.sql(f"VACUUM {self.name}").collect()

    def read_at(self, version: str) -> DataFrame:
        reader = self.spark.read.option("versionAsOf", version)
        return reader.format("delta").load(self.path) if self.path else reader.table(self.name)

    def read(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.path) if self.path else self.spark.read.table(self.name)


def beside_compaction(commit: Callable[[], object]) -> None:
    """Try again where an OPTIMIZE has come between: Delta refuses a commit whose files it may have moved, and has taken nothing of it."""
    for _ in range(_LOOKS):
        try:
            commit()
            return
        except PySparkException as error:
            if "io.delta.exceptions.Concurrent" not in str(error):
                raise
            _log.info("a commit to a Delta table is tried again: %s", str(error).partition("\n")[0])
        except Py4JJavaError as error:
            if not error.java_exception.getClass().getName().startswith("io.delta.exceptions.Concurrent"):
                raise
            _log.info("a commit to a Delta table is tried again: %s", error.java_exception.getMessage())
    commit()


def _checkpoint_first(frame: DataFrame) -> DataFrame:
    others = (c for c in frame.columns if c != CHECKPOINT)
    return frame.select(CHECKPOINT, *map(location.identifier, others))  # a bare dot would lead into a struct


def _plain(there: Snapshot, columns: StructType | None) -> bool:
    """Whether a commit is nothing but files, which have the very columns of the table."""
    if not there.plain or there.columns == {CHECKPOINT}:  # a fence has made it, and it has no columns yet
        return False
    return columns is None or (not there.partition_columns and _same_columns(json.loads(there.schema), columns))


def _has_any(there: Snapshot, where: Where) -> bool:
    """Whether the table has rows of these checkpoints, or may have."""
    ranges = where.ranges()
    found = there.counts(CHECKPOINT, ranges[0][0], ranges[-1][1]) if ranges else {}
    return found is None or any(first <= i <= last for i in found for first, last in ranges)


def _same_columns(there: dict[str, Any], new: StructType) -> bool:
    """Whether rows with the new columns are the table's as they are: nothing has to be checked, made, or renamed as they are written."""
    known = StructType.fromJson(there)
    return {f.name: f for f in known} == {f.name: f for f in new.toNullable()}


def _no_table(error: AnalysisException) -> bool:
    text = f"{error.getCondition() or ''} {error}"
    return any(
        word in text
        for word in (
            "DELTA_MISSING_DELTA_TABLE",
            "DELTA_TABLE_NOT_FOUND",
            "PATH_NOT_FOUND",
            "TABLE_OR_VIEW_NOT_FOUND",
            "DELTA_PATH_DOES_NOT_EXIST",
            "is not a Delta table",
        )
    )
