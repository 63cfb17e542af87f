"""Apache Iceberg, written row by row, on a branch at the snapshot that was looked at: `main` goes there only if it has not moved since.

A commit replaces whole files, known by the bounds that Iceberg keeps of their checkpoints; what stays of a file that also holds
other checkpoints, as `rewrite_data_files` makes them, is written anew by the same commit. So there are no partitions by checkpoint.
Where nothing leaves it is an append, behind which a stream reads on (SPEC K6). Raw tables adopt segments instead (`iceberg_log`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StructType

from crkafka_core.lake.folder import folder_of
from crkafka_core.lake.port import Moved
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.spark import iceberg_catalog
from crkafka_core.spark.iceberg_branch import Branch, staged
from crkafka_core.spark.iceberg_catalog import STAMP, TIDY
from crkafka_core.spark.location import identifier
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.table_format import ANY, Range, TableFormat, Where, joined
from crkafka_core.tables.stamp import History, LogEntry, Stamp, dropped

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
    def name(self) -> str:
        """In SQL."""
        return iceberg_catalog.named(self.spark, self.table.path)

    def _exists(self) -> bool:
        try:
            iceberg_catalog.look_anew(self.spark, self.name)
            self.spark.table(self.name).schema  # noqa: B018
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
        found = self.spark.table(f"{self.name}.snapshots").select(
            "snapshot_id", "parent_id", "operation", "summary", "committed_at"
        )
        rows = {row["snapshot_id"]: row for row in found.collect()}
        refs = self.spark.table(f"{self.name}.refs").where("name = 'main'").select("snapshot_id").collect()
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
        lost = self.spark.table(f"{self.name}.history").where("NOT is_current_ancestor").select("snapshot_id")
        behind = {row[0] for row in lost.collect()}  # what is on a branch, or never came from there, is not among them
        since = next((row["committed_at"] for id, row in rows.items() if str(id) == after), None)
        left = [
            (row["committed_at"], LogEntry(str(id), None, True, left_behind=True))
            for id, row in rows.items()
            if id in behind and _entry(row).stamp is not None and (since is None or row["committed_at"] >= since)
        ]
        found = [*((row["committed_at"], _entry(row)) for row in line), *left]
        return [entry for _, entry in sorted(found, key=lambda each: each[0])]

    def untouched_since(self, version: str) -> bool:
        if not self._exists():
            return not version
        _, line, end = self._line(version)
        return end == (int(version) if version else None) and not any(_entry(row).changes_rows for row in line)

    def knows(self, version: str) -> bool:
        """Whether this snapshot can still be read."""
        return bool(self.spark.table(f"{self.name}.snapshots").where(f"snapshot_id = {version}").limit(1).collect())

    def property(self, name: str) -> str:
        return self._properties.get(name, "") if self._exists() else ""

    @cached_property
    def _properties(self) -> dict[str, str]:
        return {row["key"]: row["value"] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}

    def touched(self, version: str) -> range | None:
        first, last = (F.col(f"readable_metrics.{CHECKPOINT}.{end}_bound") for end in ("lower", "upper"))
        entries = self.spark.table(f"{self.name}.all_entries").where(f"snapshot_id = {version} AND status > 0")
        unknown = F.count_if(first.isNull() | last.isNull())
        found = entries.agg(F.min(first), F.max(last), unknown, F.count("*")).collect()[0]
        if found[2]:
            return None
        return range(found[0], found[1] + 1) if found[3] else range(0)

    def lost(self) -> dict[str, Range | None]:
        if self.storage_options is None or not self._exists():
            return {}
        files = {row["file_path"]: (row[1], row[2]) for row in self._files(-ANY, ANY)}
        there: set[str] = set()
        for folder in {path.rpartition("/")[0] for path in files}:
            there |= {f"{folder}/{file.path}" for file in folder_of(folder, self.storage_options).list("")}
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
        return self._counted(least, greatest, lambda asked: asked().collect())

    def _files(self, least: int, greatest: int, at: str = "") -> list[Row]:
        """Files that may have rows of these checkpoints: kind, lowest and highest checkpoint, rows, path. `at`: in that snapshot."""
        first, last = (F.col(f"readable_metrics.{CHECKPOINT}.{end}_bound") for end in ("lower", "upper"))
        there = self.spark.read.option("versionAsOf", at) if at else self.spark.read
        files = there.table(f"{self.name}.files").select("content", first, last, "record_count", "file_path")
        return files.where(first.isNull() | last.isNull() | ((first <= greatest) & (last >= least))).collect()

    def replace(self, frame: DataFrame | None, where: Where, stamp: Stamp, based_on: str) -> None:
        based_on = based_on or self._first(frame, stamp)
        if frame is None:
            frame = self.spark.table(self.name).where(F.lit(False))
        elif self.table.shape:
            self._accept_any()
        elif self.spark.table(self.name).columns == [CHECKPOINT]:  # a fence has made it
            self._add_columns(frame.schema)
        self.needs_column(frame.columns)
        there = self.spark.table(self.name).schema
        self.needs_column(there.fieldNames())
        self.must_fit(there, frame.schema)
        try:
            with staged(self.spark, self.name, stamp, based_on) as branch:
                self._write(frame, where, stamp, branch)
                branch.publish()
        except Moved as moved:
            raise self.late(stamp, based_on, moved) from moved

    def _write(self, frame: DataFrame, where: Where, stamp: Stamp, branch: Branch) -> None:
        ranges = self._of_whole_files(where.ranges(), branch.start)
        if ranges and ranges != where.ranges():
            staying = self.spark.table(branch.name).where(f"({_within(ranges)}) AND NOT ({where.sql()})")
            frame = frame.unionByName(staying, allowMissingColumns=True)
        writer = frame.sortWithinPartitions(CHECKPOINT).writeTo(branch.name).options(**self.options)
        if self.table.shape:  # columns may become more, and come in another order
            writer = writer.option("mergeSchema", "true").option("check-ordering", "false")
        writer = writer.option(f"snapshot-property.{STAMP}", stamp.to_json())
        if ranges:
            writer.overwrite(F.expr(_within(ranges)))
        else:
            writer.append()

    def _of_whole_files(self, ranges: list[Range], at: str) -> list[Range]:
        """The ranges, grown until no file of that snapshot has checkpoints both inside and outside of them; none if no file has any."""
        while ranges:
            files = [f for f in self._files(ranges[0][0], ranges[-1][1], at) if f[0] == _DATA]
            bounds = [None if f[1] is None or f[2] is None else (f[1], f[2]) for f in files]
            near = [f for f in bounds if f is None or any(f[0] <= b and f[1] >= a for a, b in ranges)]
            grown = joined([*ranges, *filter(None, near)]) if near else []
            if grown == ranges:
                break
            ranges = grown
        return ranges

    def _first(self, frame: DataFrame | None, stamp: Stamp) -> str:
        """The snapshot to begin with, ours alone: when we looked there was nothing. Who has been here since refuses it."""
        if self._exists():
            if self.history("").version:
                raise self.late(stamp, "", _made(stamp))
            empty = self.spark.table(self.name).where(F.lit(False))
            empty.writeTo(self.name).option(f"snapshot-property.{STAMP}", stamp.to_json()).append()
        else:
            assert frame is not None, "rows are only taken from a table that is there"
            try:
                self._create(frame, stamp)
            except Moved as moved:
                raise self.late(stamp, "", moved) from moved
        seen = self.history("").seen
        if [entry.stamp for entry in seen] != [stamp]:
            raise self.late(stamp, "", _made(stamp))
        return seen[0].version

    def late(self, stamp: Stamp, based_on: str, moved: Moved) -> CrkafkaError:
        """What to raise where somebody else was quicker: for ever, if it was a later writer of ours."""
        seen = (s.stamp for s in self.history(based_on).seen if s.stamp and s.is_of(stamp.uid, stamp.table))
        return dropped(stamp) if any(s.number > stamp.number for s in seen) else moved

    def make_fenced(self, stamp: Stamp) -> None:
        self._create(self._no_rows(), stamp)

    def _no_rows(self) -> DataFrame:
        return self.spark.createDataFrame([], f"{CHECKPOINT} BIGINT")

    def widen(self, rows: DataFrame, stamp: Stamp) -> None:
        self.must_fit(self.spark.table(self.name).schema, rows.schema)
        self._add_columns(rows.schema)

    def _add_columns(self, new: StructType) -> None:
        missing = _missing(self.spark.table(self.name).schema, new, "")
        if added := ", ".join(f"{path} {_ddl(kind)}" for path, kind in missing):
            self.spark.sql(f"ALTER TABLE {self.name} ADD COLUMNS ({added})").collect()

    def _accept_any(self) -> None:
        """Spark leaves it to Iceberg then how the columns of the rows fit to those of the table."""
        if self._properties.get(_ANY) != "true":
            self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{_ANY}' = 'true')")

    def make(self, stamp: Stamp, properties: Mapping[str, str]) -> None:
        """Without rows, and with no column but the checkpoint's. Raises `Moved` if somebody else has made it."""
        self._create(self._no_rows(), stamp, properties)

    def _create(self, frame: DataFrame, stamp: Stamp, properties: Mapping[str, str] | None = None) -> None:
        """With a snapshot of ours: whatever else is there, somebody else has done."""
        empty = frame.where(F.lit(False))
        self.needs_column(empty.columns)
        made = empty.withColumn(CHECKPOINT, F.col(CHECKPOINT).cast(LongType())).writeTo(self.name).using("iceberg")
        made = made.tableProperty("format-version", "2")
        made = made.tableProperty(
            f"write.metadata.metrics.column.{CHECKPOINT}", "full"
        )  # also behind a hundred columns
        if properties is None:
            properties = {_ANY: "true"} if self.table.shape else {}
        for key, value in {TIDY: "true", **properties}.items():
            made = made.tableProperty(key, value)
        made = made.tableProperty("write.distribution-mode", "none")
        try:
            made.option(f"snapshot-property.{STAMP}", stamp.to_json()).create()
        except AnalysisException as error:
            if (error.getCondition() or "") != "TABLE_OR_VIEW_ALREADY_EXISTS":
                raise
            raise _made(stamp) from error

    def compact(self) -> tuple[int, int]:
        done = iceberg_catalog.call(self.spark, self.name, "rewrite_data_files")
        counts = done.select("rewritten_data_files_count", "added_data_files_count").collect()[0]
        return counts[0], counts[1]

    def clean(self) -> None:
        iceberg_catalog.call(self.spark, self.name, "expire_snapshots").collect()

    def read(self) -> DataFrame:
        return self.spark.table(self.name)

    def read_at(self, version: str) -> DataFrame:
        return self.spark.read.option("versionAsOf", version).table(self.name)


def _made(stamp: Stamp) -> Moved:
    return Moved(f"Table {stamp.table} was made by somebody else since it was looked at.")


def _entry(row: Row) -> LogEntry:
    summary = row["summary"]
    changes = row["operation"] != "replace" and summary.get("changed-partition-count") != "0"
    return LogEntry.told(str(row["snapshot_id"]), summary.get(STAMP), changes_rows=changes)


def _missing(there: DataType, new: DataType, path: str) -> Iterator[tuple[str, DataType]]:
    """Columns that are not there, by their paths in SQL, and their kinds."""
    if isinstance(there, StructType) and isinstance(new, StructType):
        known = {f.name.lower(): f for f in there}
        for field in new:
            old = known.get(field.name.lower())
            at = f"{path}." * bool(path) + identifier((old or field).name)
            yield from [(at, field.dataType)] if old is None else _missing(old.dataType, field.dataType, at)
    elif isinstance(there, ArrayType) and isinstance(new, ArrayType):
        yield from _missing(there.elementType, new.elementType, f"{path}.element")
    elif isinstance(there, MapType) and isinstance(new, MapType):
        yield from _missing(there.valueType, new.valueType, f"{path}.value")


def _ddl(kind: DataType) -> str:
    """A type in SQL, whatever its fields are called."""
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{identifier(f.name)}: {_ddl(f.dataType)}' for f in kind)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
    return kind.simpleString()


def _within(ranges: list[Range]) -> str:
    """As a condition that Iceberg can compare with the bounds of a file."""
    return " OR ".join(f"({CHECKPOINT} >= {a} AND {CHECKPOINT} <= {b})" for a, b in ranges) or "false"
