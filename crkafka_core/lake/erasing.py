"""Takes records out of every table of a region for good: noted in SQL first, so that no replay and no repair brings them back (SPEC K6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from crkafka_core.control import Reader
from crkafka_core.lake import erase as erased
from crkafka_core.lake import road, writing
from crkafka_core.lake.columns import keys_of
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.road import MEANS, Means
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, life, tables
from crkafka_core.plane.erasure import Records

BY_KEY = (
    "keeps one row for each key: write a tombstone for the key, or the rows stay until a later record replaces them"
)


@dataclass(frozen=True)
class Erased:
    checkpoints: Mapping[int, int]
    """Checkpoint → its records that are erased."""
    left: Mapping[str, str]
    """Tables that may still have them, and why."""


def erase(region: Handle, records: Records, *, means: Means = MEANS) -> Erased:
    """Note the records as erased, then take them out of every declared table; may be repeated."""
    writing.refuse_copy(region)
    noted = erased.note(region, records)
    left: dict[str, str] = {}
    for family in region.plane.read(lambda reader, _: tables.families(life.tables_of(reader))):
        keyed = [table.name for table in family if keys_of(region.config, table)]
        left |= dict.fromkeys(keyed, BY_KEY)
        rest = [table for table in family if table.name not in keyed]
        ids = region.plane.read(partial(_held, rest, noted))
        try:
            if ids:
                road.erase(region, rest[0].name, ids, means=means)
        except CrkafkaError as error:
            left |= {table.name: str(error) for table in rest}
    return Erased(noted, left)


def _held(family: Collection[Table], ids: Collection[int], reader: Reader, region: Region) -> list[int]:
    live: set[int] = set()
    for table in family:
        live.update(contents.live_in(reader, region, table))
    return sorted(live & set(ids))
