"""Apache Iceberg, written row by row: overwrite by checkpoint, refused by the table when somebody wrote the same checkpoints since.

A commit replaces whole files, known by the bounds that Iceberg keeps of their checkpoints; what stays of a file that also holds
other checkpoints, as `rewrite_data_files` makes them, is written anew by the same commit. So there are no partitions by checkpoint.
What Iceberg cannot refuse, a late write to checkpoints that nobody else has written, is found by every later writer, by the
stamps in the snapshots' summaries, and undone (SPEC K6, docs/clients.md P5). Raw tables adopt segments instead (`iceberg_log`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from crkafka_core.spark import iceberg_catalog
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.table_format import ANY, Range, TableFormat, Where, joined
from crkafka_core.tables.log import storage_of
from crkafka_core.tables.stamp import Dropped, History, LogEntry, Stamp

_STAMP = "crkafka"
_ANY = "write.spark.accept-any-schema"
_DATA = 0
"""Kind of a file that has rows; others mark rows as deleted."""


class IcebergTable(TableFormat):
    """One that Spark writes: shaped, or through Connect, or declared before raw tables adopted segments."""

    def __init__(self, *given: Any, storage_options: Mapping[str, str] | None = None) -> None:
        """`storage_options`: how we get to its files; None: only Spark does."""
        super().__init__(*given)
        self.storage_options = storage_options

    @property
    def _name(self) -> str:
        return iceberg_catalog.named(self.spark, self.table.path)

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
        rows, line, end = self._line(after)
        unknown = bool(after) and after not in map(str, (*rows, end))
        current = str(line[-1]["snapshot_id"]) if line else "" if end is None else str(end)
        return History(current, tuple(map(_entry, line)), unknown)

    def _line(self, after: str) -> tuple[dict[int, Row], list[Row], int | None]:
        """All snapshots; those that lead from `after` to the current one, oldest first; and behind which one they end."""
        found = self.spark.table(f"{self._name}.snapshots").select(
            "snapshot_id", "parent_id", "operation", "summary", "committed_at"
        )
        rows = {row["snapshot_id"]: row for row in found.collect()}
        refs = self.spark.table(f"{self._name}.refs").where("name = 'main'").select("snapshot_id").collect()
        at = refs[0][0] if refs else None
        line = []
        while at is not None and at in rows and str(at) != after:
            line.append(rows[at])
            at = rows[at]["parent_id"]
        return rows, line[::-1], at

    def changes(self, after: str, ours: Collection[str]) -> Sequence[LogEntry]:
        """With snapshots of ours to before which somebody else has taken the table back."""
        if not self._exists():
            return []
        rows, line, _ = self._line(after)
        led = {row["snapshot_id"] for row in self._line("")[1]}
        since = next((row["committed_at"] for id, row in rows.items() if str(id) == after), None)
        left = [
            (row["committed_at"], LogEntry(str(id), None, True, left_behind=True))
            for id, row in rows.items()
            if id not in led and _entry(row).stamp is not None and (since is None or row["committed_at"] >= since)
        ]
        found = [*((row["committed_at"], _entry(row)) for row in line), *left]
        return [entry for _, entry in sorted(found, key=lambda each: each[0])]

    def touched(self, version: str) -> Range | None:
        first, last = (F.col(f"readable_metrics.{CHECKPOINT}.{end}_bound") for end in ("lower", "upper"))
        entries = self.spark.table(f"{self._name}.all_entries").where(f"snapshot_id = {version} AND status > 0")
        unknown = F.count_if(first.isNull() | last.isNull())
        found = entries.agg(F.min(first), F.max(last), unknown, F.count("*")).collect()[0]
        if found[2]:
            return None
        return (found[0], found[1]) if found[3] else (0, -1)

    def lost(self) -> dict[str, Range | None]:
        if self.storage_options is None or not self._exists():
            return {}
        files = {row["file_path"]: (row[1], row[2]) for row in self._files(-ANY, ANY)}
        there: set[str] = set()
        for folder in {path.rpartition("/")[0] for path in files}:
            there |= {f"{folder}/{file.path}" for file in storage_of(folder, self.storage_options).list("")}
        return {p: None if None in near else near for p, near in files.items() if p not in there}

    def _counts(self, least: int, greatest: int) -> dict[int, int]:
        """By the metadata alone, as long as each file has rows of one checkpoint, and none of them is marked as deleted."""
        if not self._exists():
            return {}
        files = self._files(least, greatest)
        if all(kind == _DATA and first is not None and first == last for kind, first, last, *_ in files):
            found: Counter[int] = Counter()
            for _, checkpoint, _, rows, _ in files:
                found[checkpoint] += rows
            return dict(found)
        near = self.spark.table(self._name).where(F.col(CHECKPOINT).between(least, greatest))
        return {row[0]: row[1] for row in near.groupBy(CHECKPOINT).count().collect()}

    def _files(self, least: int, greatest: int) -> list[Row]:
        """Files that may have rows of these checkpoints: kind, lowest and highest checkpoint, rows, path."""
        first, last = (F.col(f"readable_metrics.{CHECKPOINT}.{end}_bound") for end in ("lower", "upper"))
        files = self.spark.table(f"{self._name}.files").select("content", first, last, "record_count", "file_path")
        return files.where(first.isNull() | last.isNull() | ((first <= greatest) & (last >= least))).collect()

    def replace(self, frame: DataFrame | None, where: Where, stamp: Stamp, based_on: str) -> None:
        if frame is None:
            frame = self.spark.table(self._name).where(F.lit(False))
        elif not based_on:
            self._make(frame, stamp)
        elif self.table.shape:
            self._accept_any()
        else:
            self._add_columns(frame)
        self.needs_column(frame.columns)
        there = self.spark.table(self._name).schema
        self.needs_column(there.fieldNames())
        self.must_fit(there, frame.schema)
        based_on = based_on or self._first(stamp)
        ranges = self._of_whole_files(where.ranges())
        if ranges != where.ranges():
            staying = self.spark.table(self._name).where(f"({_within(ranges)}) AND NOT ({where.sql()})")
            frame = frame.unionByName(staying, allowMissingColumns=True)
        writer = frame.sortWithinPartitions(CHECKPOINT).writeTo(self._name).options(**self.options)
        if self.table.shape:  # columns may become more, and come in another order
            writer = writer.option("mergeSchema", "true").option("check-ordering", "false")
        writer = writer.option("isolation-level", "serializable").option("validate-from-snapshot-id", based_on)
        try:
            writer.option(f"snapshot-property.{_STAMP}", stamp.to_json()).overwrite(F.expr(_within(ranges)))
        except Exception as error:  # classic and Connect wrap Iceberg's in classes of their own
            if "org.apache.iceberg.exceptions.ValidationException" in str(error) or "Found conflicting" in str(error):
                raise Dropped(
                    f"Table {stamp.table} refused commit {stamp.number}: somebody else has written the same checkpoints since.",
                    hint="Stop; the later writer goes on.",
                ) from error
            raise

    def _of_whole_files(self, ranges: list[Range]) -> list[Range]:
        """The ranges, grown until no file has checkpoints both inside and outside of them."""
        while ranges:
            near = self._files(ranges[0][0], ranges[-1][1])
            files = {(first, last) for kind, first, last, *_ in near if kind == _DATA and first is not None}
            grown = joined([*ranges, *(f for f in files if any(f[0] <= b and f[1] >= a for a, b in ranges))])
            if grown == ranges:
                break
            ranges = grown
        return ranges

    def _make(self, frame: DataFrame, stamp: Stamp) -> None:
        """For a first write: when we looked there was nothing. Who has made the table since, a fence above all, refuses it."""
        if not self._exists():
            try:
                self._create(frame, stamp)
                return
            except AnalysisException as error:
                if (error.getCondition() or "") != "TABLE_OR_VIEW_ALREADY_EXISTS":
                    raise
        if self.history("").version:
            raise Dropped(
                f"Table {stamp.table} refused commit {stamp.number}: somebody else has made the table since we looked.",
                hint="Stop; the next writer looks anew.",
            )

    def make_fenced(self, stamp: Stamp) -> None:
        self._create(self.spark.createDataFrame([], f"{CHECKPOINT} BIGINT"), stamp)

    def _add_columns(self, frame: DataFrame) -> None:
        """A table that a fence has made knows one column only."""
        if self.spark.table(self._name).columns == [CHECKPOINT]:
            added = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in frame.schema if f.name != CHECKPOINT)
            self.spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({added})")

    def _accept_any(self) -> None:
        """Spark leaves it to Iceberg then how the columns of the rows fit to those of the table."""
        known = self.spark.sql(f"SHOW TBLPROPERTIES {self._name}").where(F.col("key") == _ANY).collect()
        if not known or known[0]["value"] != "true":
            self.spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ('{_ANY}' = 'true')")

    def _create(self, frame: DataFrame, stamp: Stamp) -> None:
        """With a snapshot of ours: whatever else is there, somebody else has done."""
        empty = frame.where(F.lit(False))
        self.needs_column(empty.columns)
        made = empty.withColumn(CHECKPOINT, F.col(CHECKPOINT).cast(LongType())).writeTo(self._name).using("iceberg")
        made = made.tableProperty("format-version", "2")
        made = made.tableProperty(
            f"write.metadata.metrics.column.{CHECKPOINT}", "full"
        )  # also behind a hundred columns
        if self.table.shape:
            made = made.tableProperty(_ANY, "true")
        made.tableProperty("write.distribution-mode", "none").option(
            f"snapshot-property.{_STAMP}", stamp.to_json()
        ).create()

    def _first(self, stamp: Stamp) -> str:
        """A first snapshot, so that there is one to validate from."""
        version = self.history("").version
        if version:
            return version
        empty = self.spark.table(self._name).where(F.lit(False))
        empty.writeTo(self._name).option(f"snapshot-property.{_STAMP}", stamp.to_json()).append()
        return self.history("").version

    def fence(self, stamp: Stamp, where: Where, in_flight: Collection[int], based_on: str) -> None:
        # A removal without hits fences nothing: a row of ours in each checkpoint that a late write may be for makes the
        # table refuse it, and is removed at once (docs/clients.md P5).
        marked = [i for i in in_flight if i in where.ids]
        if marked:
            columns = self.spark.table(self._name).schema
            marks = self.spark.createDataFrame([{CHECKPOINT: i} for i in marked], columns)
            self.replace(marks, Where(ids=tuple(marked)), stamp, based_on)
            based_on = self.our_version(self.history(based_on), stamp)
        self.replace(None, where, stamp, based_on)

    def compact(self) -> tuple[int, int]:
        done = self._call("rewrite_data_files").select("rewritten_data_files_count", "added_data_files_count").collect()
        return done[0][0], done[0][1]

    def clean(self) -> None:
        self._call("expire_snapshots").collect()

    def _call(self, procedure: str) -> DataFrame:
        catalog, _, table = self._name.partition(".")
        return self.spark.sql(f"CALL {catalog}.system.{procedure}(table => '{table}')")

    def read(self) -> DataFrame:
        return self.spark.table(self._name)


def _entry(row: Row) -> LogEntry:
    return LogEntry.told(
        str(row["snapshot_id"]), row["summary"].get(_STAMP), changes_rows=row["operation"] != "replace"
    )


def _within(ranges: list[Range]) -> str:
    """As a condition that Iceberg can compare with the bounds of a file."""
    return " OR ".join(f"({CHECKPOINT} >= {a} AND {CHECKPOINT} <= {b})" for a, b in ranges) or "false"
