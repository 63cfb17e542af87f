"""Takes records out of every table of a region for good: noted in SQL first, so that no replay and no mend brings them back (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from crkafka_core.control import Reader
from crkafka_core.lake import erase as erasing
from crkafka_core.lake import road, writing
from crkafka_core.lake.columns import keys_of
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.road import Means
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, life
from crkafka_core.plane import tables as plane
from crkafka_core.plane.erasure import Records
from crkafka_core.spark.frame_shape import means

BY_KEY = (
    "keeps one row for each key: write a tombstone for the key, or the rows stay until a later record replaces them"
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
        if any(keys_of(region.config, table) for table in family):
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
        if keys_of(region.config, table):
            left[table.name] = BY_KEY
            continue
        ids = region.plane.read(partial(_held, [table], checkpoints))
        try:
            if ids:
                road.erase(region, table.name, ids, means=_means(session, table))
        except CrkafkaError as error:
            left[table.name] = str(error)
    return left


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
    road.erase(region, table.name, ids, means=_means(session, table))


def _means(session: Callable[[], SparkSession], table: Table) -> Means:
    return means(session() if plane.needs_spark(table) else None)
