"""Compares a declared table with what SQL says it holds, with Spark where rows have to be counted (SPEC K6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from crkafka_core.control import Reader
from crkafka_core.lake import audit as raw
from crkafka_core.lake.audit import LOOKS, TableAudit, miscounted
from crkafka_core.lake.formats import on_the_road
from crkafka_core.lake.handle import Handle
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import checkpoints, contents
from crkafka_core.plane import tables as plane
from crkafka_core.spark.current import current
from crkafka_core.spark.formats import session_for, table_of
from crkafka_core.spark.keys import keys_of
from crkafka_core.tables import others
from crkafka_core.tables.stamp import check_known


def look(spark: SparkSession | None, region: Handle, name: str, *, exact: bool = True) -> TableAudit:
    """Compare a table with what SQL says it holds (SPEC K6). `exact`: row by row; of tables of one declared shape all together.

    Never row by row for a single table whose rows are shaped: how many there should be, nobody knows.
    """
    if on_the_road(region, name):
        return raw.look(region, name)
    expected = expected_of(region, name)
    table = expected.table
    spark = session_for(spark, name)
    wrong: Collection[int] = ()
    if exact and expected.countable and not any(keys_of(region, t.name) for t in expected.family):
        counts: Counter[int] = Counter()
        for each in expected.family:
            counts.update(_counts(spark, region, each, expected.rows))
        wrong = miscounted(expected.rows, counts)
    for _ in range(LOOKS):  # first the table, then SQL: what came into the table before is known to SQL by then
        before, written = region.plane.read(partial(_written, name))
        form = table_of(spark, region, before)
        seen = current(region, form, before).seen
        keyed = bool(keys_of(region, name))  # there each write of ours begins with what SQL has acknowledged
        written, present = ({}, set()) if keyed else (written, form.present())
        changes = form.changes(next(iter(written.values()), before.version), set(written.values()))
        lost = form.lost()
        table, uid, foreign = region.plane.read(partial(_strangers, name, present))
        if table.version == before.version:
            break
    check_known(table, seen, table.commits)
    found = others.of_others(changes, lambda entry: entry.is_of(uid, name), table.version, written, form.touched)
    without = {i for near in lost.values() for i in written if near is None or near[0] <= i <= near[1]}
    return TableAudit(
        tuple(sorted(foreign)),
        tuple(sorted({*wrong, *without})),
        len(found.commits),
        changed=tuple(sorted(found.changed)),
        lost=tuple(sorted(lost)),
    )


def _written(name: str, reader: Reader, row: Region) -> tuple[Table, Mapping[int, str]]:
    """The table, and the version with which each checkpoint came that it holds."""
    table = plane.of(reader, name)
    return table, contents.written(reader, row, table)


def _strangers(name: str, present: Collection[int], reader: Reader, row: Region) -> tuple[Table, str, set[int]]:
    """The table now, whose it is, and which of these do not belong there; of what is not acknowledged yet a commit may just be made."""
    table = plane.of(reader, name)
    belongs, on_the_way = contents.belonging(reader, row, table), set(reader.line(row.head))
    return table, row.uid, {c for c in present if not belongs(c) and c not in on_the_way}


def _counts(spark: SparkSession, region: Handle, table: Table, ids: Collection[int]) -> Mapping[int, int]:
    return table_of(spark, region, table).counts(ids)


@dataclass(frozen=True)
class Expected:
    """What SQL says of a table."""

    table: Table
    rows: Mapping[int, int]
    """Checkpoint → rows that were merged; of tables of one shape in all of them together, as many as came when they were written."""
    family: Sequence[Table]
    """All tables of its shape; it is among them."""

    @property
    def countable(self) -> bool:
        """Whether anybody knows how many rows there have to be."""
        return len(self.family) > 1 or not self.table.shape


def expected_of(region: Handle, name: str) -> Expected:
    declared = region.config.table(name)
    topics = declared.topics if declared is not None else None

    def ask(reader: Reader, row: Region) -> Expected:
        table = plane.of(reader, name)
        family = plane.siblings(reader, table)
        # Of tables of one shape, one may be behind the others for a moment.
        least = min(family, key=lambda t: t.acknowledged)
        rows = contents.counted_in(reader, row, least, topics)
        if table.shape:
            rows |= _as_given(reader, row, family, rows)
        return Expected(table, rows, family)

    return region.plane.read(ask)


def _as_given(reader: Reader, row: Region, family: Sequence[Table], ids: Collection[int]) -> dict[int, int]:
    """By the topics, and what becomes of bad records, that the configuration said then. Of what was erased since less is wanted."""
    erased = {c.id for c in checkpoints.within(reader, ids, ("erased_json", "!=", "{}"))}
    return {i: rows for i, rows in contents.given(reader, row, family).items() if i in ids and i not in erased}
