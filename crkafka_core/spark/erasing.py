"""Takes records out of every table of a region for good: noted in SQL first, so that no replay and no mend brings them back (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from crkafka_core.control import Reader
from crkafka_core.lake import erase as erasing
from crkafka_core.lake import road, writing
from crkafka_core.lake.formats import on_the_road
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.writing import Written
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, life
from crkafka_core.plane import tables as plane
from crkafka_core.plane.erasure import Records
from crkafka_core.plane.permits import Permit
from crkafka_core.spark import commit, tables
from crkafka_core.spark.frame_shape import means
from crkafka_core.spark.keys import keys_of
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.table_reader import read_table

BY_KEY = (
    "keeps one row for each key: write a tombstone for the key, or the rows stay until a later record replaces them"
)
NO_PLACES = (
    "does not tell which record each row is, and lies beside a table that keeps one row for each key: delete them in it"
)


@dataclass(frozen=True)
class Erased:
    """What was done."""

    checkpoints: Mapping[int, int]
    """Checkpoint → its records that are erased."""
    left: Mapping[str, str]
    """Tables that may still have them, and why."""


def erase(session: Callable[[], SparkSession], region: Handle, records: Records) -> Erased:
    """Note the records as erased, then write the checkpoints that had them again, without them, in every declared table.

    `session` is asked for Spark where a table needs it. May be repeated; a table that could not be written is named, and so is why.
    """
    writing.refuse_copy(region)
    found = erasing.note(region, records)
    left: dict[str, str] = {}
    for family in region.plane.read(lambda reader, _: plane.families(life.tables_of(reader))):
        if any(keys_of(region, table.name) for table in family):
            left.update(_beside_keys(session, region, family, found))
            continue
        names = [t.name for t in family]
        try:
            _rewrite(session, region, family, found)
        except CrkafkaError as error:
            left.update(dict.fromkeys(names, str(error)))
    return Erased(found, left)


def _beside_keys(
    session: Callable[[], SparkSession], region: Handle, family: Collection[Table], checkpoints: Collection[int]
) -> Mapping[str, str]:
    """Take the rows out of what lies beside a table with one row for each key, as its dead letters; what is left, and why."""
    left: dict[str, str] = {}
    for table in family:
        if keys_of(region, table.name):
            left[table.name] = BY_KEY
            continue
        ids = region.plane.read(partial(_held, [table], checkpoints))
        try:
            if ids and on_the_road(region, table.name):
                road.erase(region, table.name, ids)
            elif ids and not _take_out(session(), region, table.name, ids):
                left[table.name] = NO_PLACES
        except CrkafkaError as error:
            left[table.name] = str(error)
    return left


def _take_out(spark: SparkSession, region: Handle, name: str, ids: Collection[int]) -> bool:
    """Write what stays of these checkpoints in their place; False: the rows do not tell which records they are."""
    columns = read_table(spark, region, name).columns
    if columns == [CHECKPOINT]:  # there has been none yet
        return True
    if not {"topic", "partition", "offset"} <= set(columns):
        return False

    def write(permit: Permit, hold: Hold) -> Written:
        rows = read_table(spark, region, name).where(F.col(CHECKPOINT).isin(*permit.plan.checkpoints))
        for checkpoint, topic, partition, offsets in permit.plan.selection.erased:
            place = (F.col(CHECKPOINT) == checkpoint) & (F.col("topic") == topic) & (F.col("partition") == partition)
            rows = rows.where(~(place & F.col("offset").isin(*offsets)))
        found = {row[0]: row[1] for row in rows.groupBy(CHECKPOINT).count().collect()}
        counts = {i: found.get(i, 0) for i in permit.plan.checkpoints}
        return replace(commit.write(spark, region, permit, hold, rows, counts), counts=counts)

    writing.commit(region, name, writing.asking(name, ids=ids), write)
    return True


def _held(family: Collection[Table], ids: Collection[int], reader: Reader, region: Region) -> list[int]:
    """Those of the checkpoints that one of the tables holds."""
    live: set[int] = set()
    for table in family:
        live.update(contents.live_in(reader, region, table))
    return sorted(live & set(ids))


def _rewrite(
    session: Callable[[], SparkSession], region: Handle, family: Sequence[Table], checkpoints: Collection[int]
) -> None:
    ids, table = region.plane.read(partial(_held, family, checkpoints)), family[0]
    if not ids:
        return
    if on_the_road(region, table.name):
        spark = session() if plane.needs_spark(table) else None
        road.erase(region, table.name, ids, means=means(spark))
        return
    tables.rewrite(session(), region, table.name, ids)
