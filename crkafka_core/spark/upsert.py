"""A table that keeps the last record of each key: one MERGE for the checkpoints of a pass (SPEC K6).

A write to Delta: the table is put back to what SQL has acknowledged, if anybody has changed it since → the rows' last record for each key →
MERGE, whose transaction number the log takes once, in order (docs/clients.md C-P5). A rewind restores the version of the latest
acknowledged commit that is on the line; the checkpoints from there to the target are written again.

Each permit has two numbers in Delta's log, that of putting back and that of the MERGE after it: a writer that comes late is below both of
whoever came after it, so that it can neither merge nor put back. In Iceberg both are done on a branch (`iceberg_upsert`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from crkafka_core.config.json_columns import PREFIX
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.writing import Written
from crkafka_core.model.errors import ConfigError, Refused
from crkafka_core.model.plural import plural
from crkafka_core.plane import permits
from crkafka_core.plane.permits import Permit
from crkafka_core.spark import iceberg_upsert, location
from crkafka_core.spark.delta_table import DeltaTable, beside_compaction
from crkafka_core.spark.iceberg_branch import Branch
from crkafka_core.spark.iceberg_table import IcebergTable
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.table_format import TableFormat
from crkafka_core.tables import delta_upsert
from crkafka_core.tables.delta_log import log_of
from crkafka_core.tables.stamp import Stamp

DELETED = "crkafka_deleted"
"""Of a shape: true where a record deletes its key. It does not become a column."""
TOMBSTONE = f"{PREFIX}tombstone"
_connect = threading.Lock()
"""A session of Spark Connect has one set of settings for all of its threads."""


def write(
    region: Handle, form: TableFormat, permit: Permit, hold: Hold, frame: DataFrame, keys: Sequence[str]
) -> Written:
    """Merge the rows of the permitted checkpoints into the table."""
    if region.plane.read(lambda reader, _: permits.began_late(reader, permit.table)):
        raise Refused(
            f"Table {permit.table.name} has one row for each {', '.join(keys)}, and what led to checkpoint {permit.table.acknowledged} is "
            "not archived any more: rows of keys that came before, and not since, would be missing.",
            hint="Nothing was written. `crkafka tables undeclare` it, and let a region of its own read the topic from the beginning.",
        )
    if not permit.plan.rows:
        return Written("", 0)
    rows = _marked(frame, form.table.name, keys).persist()
    try:
        count = _count(rows, form.table.name, keys)
        into = _into_iceberg if isinstance(form, IcebergTable) else _into_delta
        return Written(into(region, form, permit, hold, rows, keys), count)
    finally:
        rows.unpersist()


def _into_delta(
    region: Handle, form: TableFormat, permit: Permit, hold: Hold, rows: DataFrame, keys: Sequence[str]
) -> str:
    assert isinstance(form, DeltaTable)
    stamp, log = Stamp.of(permit.plan.uid, permit.commit), log_of(region, permit.table)
    version = delta_upsert.acknowledged(region, log, permit, stamp, keys, CHECKPOINT)
    form.widen(rows.drop(DELETED), stamp)
    hold.check()
    settings = {
        "spark.databricks.delta.write.txnAppId": stamp.app,
        "spark.databricks.delta.write.txnVersion": str(delta_upsert.number_of_merge(stamp)),
        "spark.databricks.delta.commitInfo.userMetadata": stamp.to_json(kind="merge"),
    }
    _merge(form.spark, form.name, form.read().schema, _last(rows, keys), keys, settings)
    return delta_upsert.merged(log, stamp, version)


def _into_iceberg(
    region: Handle, form: TableFormat, permit: Permit, hold: Hold, rows: DataFrame, keys: Sequence[str]
) -> str:
    assert isinstance(form, IcebergTable)
    stamp = Stamp.of(permit.plan.uid, permit.commit)

    def merge(branch: Branch) -> None:
        form.widen(rows.drop(DELETED), stamp)
        settings = {iceberg_upsert.STAMP_SETTING: stamp.to_json(kind="merge")}
        _merge(form.spark, branch.name, form.spark.table(branch.name).schema, _last(rows, keys), keys, settings)

    return iceberg_upsert.write(region, form, permit, hold, keys, merge)


def _marked(frame: DataFrame, table: str, keys: Sequence[str]) -> DataFrame:
    """With the column that says which records delete their key."""
    place = _place(frame)
    if missing := [c for c in (CHECKPOINT, *keys) if c not in frame.columns]:
        raise ConfigError(
            f"Table {table} is kept by {', '.join(keys)}, and its rows have no column {missing[0]}; they have {', '.join(frame.columns)}.",
            hint="Give it in the shape. Nothing was written.",
        )
    if len(place) < 2:
        raise ConfigError(
            f"Table {table} keeps the last record of each key, and its rows do not tell which that is.",
            hint="Keep the columns partition and offset in the shape. Nothing was written.",
        )
    gone = DELETED if DELETED in frame.columns else TOMBSTONE if TOMBSTONE in frame.columns else ""
    return frame.withColumn(DELETED, F.coalesce(F.col(gone).cast("boolean"), F.lit(False)) if gone else F.lit(False))


def _place(frame: DataFrame) -> list[str]:
    """Where a record was in Kafka: topic, if the rows tell it, partition, offset."""
    found = ([n for n in (PREFIX + each, each) if n in frame.columns] for each in ("topic", "partition", "offset"))
    return [names[0] for names in found if names]


def _count(rows: DataFrame, table: str, keys: Sequence[str]) -> int:
    """How many there are; refused if one has no key: nobody could say which row is its."""
    nobody = F.lit(True)
    for key in keys:
        nobody = nobody & F.col(key).isNull()
    counted = rows.agg(F.count("*"), F.count_if(nobody)).collect()[0]
    if counted[1]:
        first = rows.where(nobody).orderBy(CHECKPOINT, *_place(rows)).select(*_place(rows)).first()
        raise Refused(
            f"Table {table} is kept by {', '.join(keys)}, and "
            f"{plural(counted[1], 'record has', 'records have')} none of it, the first at {tuple(first or ())}.",
            hint="Nothing was written. Leave such records out in the table's shape.",
        )
    return int(counted[0])


def _last(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of each key the record that came last."""
    later = [F.col(c).desc() for c in (CHECKPOINT, *_place(rows))]
    at = F.row_number().over(Window.partitionBy(*keys).orderBy(*later))
    return rows.withColumn("crkafka_at", at).where("crkafka_at = 1").drop("crkafka_at")


def _merge(
    spark: SparkSession,
    into: str,
    there: StructType,
    rows: DataFrame,
    keys: Sequence[str],
    settings: Mapping[str, str],
) -> None:
    rows = rows.to(StructType([*there.fields, rows.schema[DELETED]]))  # null is what they lack, also inside of structs
    columns = [location.identifier(c) for c in there.names]
    with _as_writer(spark, settings) as session, _view(rows, session) as view:
        merge = (
            f"MERGE INTO {into} t USING {view} s ON {' AND '.join(f't.{k} <=> s.{k}' for k in map(location.identifier, keys))} "
            f"WHEN MATCHED AND s.{DELETED} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{c} = s.{c}' for c in columns)} "
            f"WHEN NOT MATCHED AND NOT s.{DELETED} THEN INSERT ({', '.join(columns)}) VALUES ({', '.join(f's.{c}' for c in columns)})"
        )
        beside_compaction(lambda: session.sql(merge).collect())


@contextmanager
def _as_writer(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session in which a MERGE carries the commit's number: settings of a session are all that it is taken from."""
    if not location.is_connect(spark):
        session = spark.newSession()  # nobody else's commits carry the number then
        for key, value in {**_catalogs(spark, session), **settings}.items():
            session.conf.set(key, value)
        yield session
        return
    with _connect:
        try:
            for key, value in settings.items():
                spark.conf.set(key, value)
            yield spark
        finally:
            for key in settings:
                spark.conf.unset(key)


def _catalogs(spark: SparkSession, new: SparkSession) -> dict[str, str]:
    """Settings of those that only this session has, as it has folders of Iceberg tables."""
    here, there = spark.conf.getAll, new.conf.getAll
    return {k: v for k, v in here.items() if k.startswith("spark.sql.catalog.") and there.get(k) != v}


@contextmanager
def _view(rows: DataFrame, session: SparkSession) -> Iterator[str]:
    """The rows under a name that the session knows."""
    name = f"crkafka_{uuid.uuid4().hex}"
    if location.is_connect(session):
        rows.createOrReplaceTempView(name)
        try:
            yield name
        finally:
            session.catalog.dropTempView(name)
        return
    rows.createOrReplaceGlobalTempView(name)
    try:
        yield f"global_temp.{name}"
    finally:
        session.catalog.dropGlobalTempView(name)
