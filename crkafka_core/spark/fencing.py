"""Makes tables follow the latest rewind: what was superseded leaves them, and late writes are refused (SPEC K6, X4)."""

from __future__ import annotations

import contextlib
import json

import pyarrow as pa
from pyspark.sql import SparkSession

from crkafka_core.config.location import has_log
from crkafka_core.lake import road, writing
from crkafka_core.lake.formats import on_the_road
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import Moved
from crkafka_core.lake.writing import Fenced
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.rows import Table
from crkafka_core.plane import epochs
from crkafka_core.plane import tables as plane
from crkafka_core.plane.permits import Permit
from crkafka_core.spark import iceberg_upsert
from crkafka_core.spark.current import current
from crkafka_core.spark.formats import session_for, table_of
from crkafka_core.spark.frame_shape import means
from crkafka_core.spark.keys import keys_of, refuse_keyed
from crkafka_core.spark.schema import CHECKPOINT
from crkafka_core.spark.strangers import strangers
from crkafka_core.spark.table_format import TableFormat, Where
from crkafka_core.tables import delta_upsert
from crkafka_core.tables.delta_log import log_of
from crkafka_core.tables.on_snapshot import until_done
from crkafka_core.tables.stamp import Stamp, check_owner


def fence(spark: SparkSession | None, region: Handle, name: str) -> Table:
    """Make the table follow the latest rewind; what was superseded leaves it. Does nothing when no fence is owed.

    A table that adopts segments needs no Spark for it (None).
    """
    if on_the_road(region, name):
        return road.fence(region, name, means=means(spark))
    if keys := keys_of(region, name):
        if region.plane.read(lambda reader, row: plane.of(reader, name)).format == "iceberg":
            return iceberg_upsert.fence(session_for(spark, name), region, name, keys)
        return delta_upsert.fence(region, name, keys, CHECKPOINT)
    return writing.fence(
        region,
        name,
        lambda permit, hold: Fenced(_fence(session_for(spark, name), region, permit)),
    )


def fence_all(spark: SparkSession | None, region: Handle) -> list[Table]:
    """Fence every table that owes it, but those that somebody fences at this moment; the region leaves REWINDING with the last one."""
    done = []
    for table in region.plane.read(lambda reader, row: epochs.unfenced(reader)):
        with contextlib.suppress(LeaseHeld):
            done.append(fence(spark, region, table.name))
    return done


def _fence(spark: SparkSession, region: Handle, permit: Permit) -> str:
    return until_done(permit.table, lambda: _fence_once(region, table_of(spark, region, permit.table), permit))


def _fence_once(region: Handle, form: TableFormat, permit: Permit) -> str:
    uid = permit.plan.uid
    stamp = Stamp.of(uid, permit.commit)
    before = current(region, form, permit.table)
    check_owner(permit.table, before.seen, uid)
    if not before.version:
        if permit.table.format == "delta" and has_log(permit.table.path):
            return _make_fenced(region, permit)
        form.make_fenced(stamp)
        return form.our_version(form.history(""), stamp)
    refuse_keyed(form, before)
    gone = set(region.plane.read(lambda reader, row: plane.superseded(reader)))
    foreign = strangers(region, form, permit.table)
    in_flight = {i for c in permit.overtaken for i in json.loads(c.checkpoints_json)} & gone
    form.replace(None, Where(ids=tuple(sorted(foreign | in_flight))), stamp, before.version)
    return form.our_version(form.history(before.version), stamp)


def _make_fenced(region: Handle, permit: Permit) -> str:
    """Make a Delta table with nothing but the fence in it: a first write under way is refused by the log then.

    It has the column of the checkpoint's number; the others come with the first rows.
    """
    stamp, table = Stamp.of(permit.plan.uid, permit.commit), permit.table
    log = log_of(region, table)
    snapshot = log.snapshot()
    if snapshot is None:
        log.create(stamp, pa.schema([(CHECKPOINT, pa.int64())]))
        snapshot = log.snapshot()
    if snapshot is None or snapshot.files():
        raise Moved(f"Table {table.name} was made by somebody else meanwhile; it is fenced with the next try.")
    return str(snapshot.take((), stamp, {"kind": permit.commit.kind}))
