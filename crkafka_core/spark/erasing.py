"""Takes records out of every table of a region for good: noted in SQL first, so that no replay and no mend brings them back (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from crkafka_core.control import Reader
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, life
from crkafka_core.plane import tables as plane
from crkafka_core.plane.erasure import Records
from crkafka_core.spark import tables
from crkafka_core.spark.keys import keys_of
from crkafka_core.tables import erase as erasing
from crkafka_core.tables import writing
from crkafka_core.tables.handle import Handle
from crkafka_core.tables.log import NeedsSpark

BY_KEY = (
    "keeps one row for each key: write a tombstone for the key, or the rows stay until a later record replaces them"
)
BY_PROGRAM = "is shaped by the program that writes it: rewrite these checkpoints there, with the same shape"


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
    for family in region.plane.read(lambda reader, _: _families(reader)):
        names = [t.name for t in family]
        if why := _why_not(region, family):
            left.update(dict.fromkeys(names, why))
            continue
        try:
            _rewrite(session, region, family, found)
        except CrkafkaError as error:
            left.update(dict.fromkeys(names, str(error)))
    return Erased(found, left)


def _families(reader: Reader) -> list[list[Table]]:
    """Tables that are written together, together."""
    families: dict[str, list[Table]] = {}
    for table in life.tables_of(reader):
        families.setdefault(table.shape or f":{table.name}", []).append(table)
    return list(families.values())


def _why_not(region: Handle, family: Collection[Table]) -> str:
    if any(keys_of(region, table.name) for table in family):
        return BY_KEY
    if region.plane.read(lambda reader, _: any(not t.shape and plane.shaped(reader, t) for t in family)):
        return BY_PROGRAM
    return ""


def _held(reader: Reader, region: Region, family: Collection[Table], ids: Collection[int]) -> list[int]:
    """Those of the checkpoints that one of the tables holds."""
    live: set[int] = set()
    for table in family:
        live.update(contents.live_in(reader, region, table))
    return sorted(live & set(ids))


def _rewrite(
    session: Callable[[], SparkSession], region: Handle, family: Sequence[Table], checkpoints: Collection[int]
) -> None:
    ids, table = region.plane.read(lambda reader, row: _held(reader, row, family, checkpoints)), family[0]
    if not ids:
        return
    if plane.needs_spark(table):
        tables.rewrite(session(), region, table.name, ids)
        return
    try:
        tables.rewrite(None, region, table.name, ids)
    except NeedsSpark:
        tables.rewrite(session(), region, table.name, ids)
