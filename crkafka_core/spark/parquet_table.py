"""Plain Parquet: each attempt has a folder of its own, and SQL says which attempt counts for a checkpoint (SPEC K6).

Read through `read_table`, it changes from one commit to the next at once, and a late write is never visible. A program that
lists the folder by itself also sees attempts that do not count, until `sweep` has removed them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from crkafka_core.control import Reader
from crkafka_core.lake import writing
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.writing import Written
from crkafka_core.model.errors import ConfigError, DataLoss
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents
from crkafka_core.plane import tables as plane
from crkafka_core.plane.permits import Permit
from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.segments.storage import Storage
from crkafka_core.spark import location
from crkafka_core.spark.formats import options_of, reached
from crkafka_core.spark.schema import CHECKPOINT, no_records
from crkafka_core.spark.table_format import does_not_fit, kinds
from crkafka_core.tables.stamp import Stamp, check_there, other_owner

COMMIT = "crkafka_commit"
_OWNER = "_crkafka_owner.json"
"""Whose attempts a folder has; Spark passes over such a name."""
_COLUMNS = "_crkafka_columns.json"
"""Which columns a table of a shape has had, and of which kind: files with others could not be read together."""


def folder(table: Table, number: int) -> str:
    """Where a commit writes; relative to the table's path."""
    return f"{COMMIT}={number}"


def write(region: Handle, permit: Permit, frame: DataFrame, expected: Mapping[int, int] | None) -> Written:
    """Write the rows as the commit's attempt. `expected`: how many of each checkpoint there have to be; None: nobody knows."""
    number = permit.commit.number
    if not permit.plan.rows:
        return Written(str(number), 0)
    _claim(region, permit.table, permit.plan.uid)
    columns = _columns_with(region, permit.table, frame)
    rows = _attempt(frame, permit.table, number, options_of(region, permit.table))
    if expected is not None and rows != sum(expected.values()):
        raise DataLoss(
            f"Commit {number} to table {permit.table.name} has {plural(rows, 'row')}; there have to be {sum(expected.values())}.",
            hint="It does not count.",
        )
    if columns:
        _storage(region, permit.table).put(_COLUMNS, json.dumps(columns).encode())
    return Written(str(number), rows, folder(permit.table, number))


def _claim(region: Handle, table: Table, uid: str) -> None:
    """Refuse a folder of another region's attempts, or another table's: they have the same names as ours (SPEC G6).

    What Spark alone gets to is not looked at: `storage_options` are those of the segments.
    """
    if not reached(region, table):
        return
    storage, mine = _storage(region, table), Stamp(uid, table.name, 0, "")
    try:
        with storage.open_read(_OWNER) as source:
            found = Stamp.from_json(source.read().decode())
    except SegmentMissing:
        storage.put(_OWNER, mine.to_json().encode())
        return
    if found != mine:
        raise other_owner(table, found, uid)


def _columns_with(region: Handle, table: Table, frame: DataFrame) -> dict[str, str]:
    """Column → kind, of the table with these rows; refused where a column would become of another kind. Nothing if all are known."""
    if not table.shape or not reached(region, table):
        return {}
    try:
        with _storage(region, table).open_read(_COLUMNS) as source:
            known = json.loads(source.read())
    except SegmentMissing:
        filled = region.plane.read(lambda reader, row: _attempts(reader, row, table)).numbers
        known = dict(kinds(_body(read(frame.sparkSession, region, table).schema))) if filled else {}
    new = dict(kinds(_body(frame.schema)))
    for name, kind in new.items():
        if known.get(name, kind) != kind:
            raise does_not_fit(table, name, known[name], kind)
    return {} if new.keys() <= known.keys() else known | new


def _storage(region: Handle, table: Table) -> Storage:
    return Storage.open(table.path, region.config.resolve().storage_options)


def _attempt(frame: DataFrame, table: Table, number: int, options: Mapping[str, str]) -> int:
    """How many rows there are in the files."""
    if CHECKPOINT not in frame.columns:
        raise ConfigError(f"What is written to table {table.name} has no column {CHECKPOINT}.", hint="Keep it.")
    target = location.uri(table.path, folder(table, number))
    frame.write.mode("overwrite").partitionBy(CHECKPOINT).options(**options).parquet(target)
    return frame.sparkSession.read.schema(_body(frame.schema)).options(**location.EXACTLY).parquet(target).count()


def _body(schema: StructType) -> StructType:
    return StructType([f for f in schema.fields if f.name not in (CHECKPOINT, COMMIT)] or schema.fields)


def read(spark: SparkSession, region: Handle, table: Table) -> DataFrame:
    """The rows that count."""
    attempts = region.plane.read(lambda reader, row: _attempts(reader, row, table))
    numbers = attempts.numbers
    if not numbers:
        return no_records(spark)
    location.list_on_driver(spark)
    paths = [location.uri(table.path, folder(table, n)) for n in numbers]
    reader = spark.read.option("basePath", location.uri(table.path)).options(**location.EXACTLY)
    if table.shape:  # its columns may have become more
        reader = reader.option("mergeSchema", "true")
    rows = reader.parquet(*paths)
    for number in numbers:
        stale = sorted(c for c in attempts.written[number] if attempts.counting.get(c) != number)
        if stale:
            rows = rows.where(~((F.col(COMMIT) == number) & F.col(CHECKPOINT).isin(stale)))
    return rows.drop(COMMIT).withColumn(CHECKPOINT, F.col(CHECKPOINT).cast("bigint"))


@dataclass(frozen=True)
class _Attempts:
    """What SQL says of the commits to a table."""

    counting: Mapping[int, int]
    """Checkpoint → the commit that counts for it."""
    written: Mapping[int, frozenset[int]]
    """Finished commit → checkpoints in its folder."""
    filled: frozenset[int]
    """Those with rows: the folder of another has no file that tells columns, or is not there."""
    open: frozenset[int]
    """Commits that may be under way."""

    @property
    def numbers(self) -> list[int]:
        """Those whose rows count."""
        return sorted(set(self.counting.values()) & self.filled)


def _attempts(reader: Reader, row: Region, table: Table) -> _Attempts:
    commits = plane.commits(reader, table)
    done = [c for c in commits if c.status == plane.DONE]
    return _Attempts(
        contents.counting(reader, row, table),
        {c.number: frozenset(json.loads(c.checkpoints_json)) for c in done},
        frozenset(c.number for c in done if c.rows),
        frozenset(c.number for c in commits if c.status == plane.OPEN),
    )


def sweep(region: Handle, name: str) -> list[int]:
    """Remove folders of a Parquet table whose attempts count for nothing any more; their numbers. Never one that may be open."""
    (table, before), uid = region.plane.read(lambda reader, row: (_state(reader, row, name), row.uid))
    if table.format != "parquet":
        return []
    writing.refuse_copy(region, deletes=True)
    storage = _storage(region, table)
    there = {
        int(found.path.split("/")[0].partition("=")[2])
        for found in storage.list("")
        if found.path.startswith(f"{COMMIT}=")
    }
    # SQL is asked after the look: what is permitted and written in between is not among them.
    table, attempts = region.plane.read(lambda reader, row: _state(reader, row, name))
    if not there and before.numbers and attempts.numbers:  # both: what came or left meanwhile tells nothing
        check_there(table, "")
    _claim(region, table, uid)
    if table.owes_fence:
        return []
    gone = sorted(there - attempts.open - set(attempts.counting.values()))
    for number in gone:
        storage.delete_folder(folder(table, number))
    return gone


def _state(reader: Reader, row: Region, name: str) -> tuple[Table, _Attempts]:
    table = plane.of(reader, name)
    return table, _attempts(reader, row, table)
