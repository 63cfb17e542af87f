"""One commit of rows to a declared table, by the means of its format (SPEC K6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.writing import Written
from crkafka_core.model.errors import DataLoss, Refused
from crkafka_core.model.plural import plural
from crkafka_core.plane import tables as plane
from crkafka_core.plane.permits import Permit
from crkafka_core.spark import upsert
from crkafka_core.spark.current import current
from crkafka_core.spark.formats import table_of
from crkafka_core.spark.keys import keys_of, refuse_keyed
from crkafka_core.spark.strangers import strangers
from crkafka_core.spark.table_format import TableFormat, Where
from crkafka_core.tables.on_snapshot import until_done
from crkafka_core.tables.stamp import History, Stamp, check_known, check_owner


def write(
    spark: SparkSession,
    region: Handle,
    permit: Permit,
    hold: Hold,
    rows: DataFrame,
    expected: Mapping[int, int] | None,
) -> Written:
    """The format's own commit of these rows. `expected`: how many of each checkpoint there have to be; None: nobody knows."""
    form = table_of(spark, region, permit.table)
    if keys := keys_of(region, permit.table.name):
        return upsert.write(region, form, permit, hold, rows, keys)
    return until_done(permit.table, lambda: _write_once(region, form, permit, hold, rows, expected))


def _write_once(
    region: Handle, form: TableFormat, permit: Permit, hold: Hold, rows: DataFrame, expected: Mapping[int, int] | None
) -> Written:
    """On the table as it is. Who is still allowed to write after the look is refused by the table if another comes after it."""
    stamp = Stamp.of(permit.plan.uid, permit.commit)
    before = current(region, form, permit.table)
    refuse_keyed(form, before)
    wrong = _wrong(region, form, permit, before)
    hold.confirm()
    writes = bool(permit.plan.rows or wrong)
    added = _put(form, permit, rows, expected, wrong, stamp, before.version) if writes else None
    counts = form.counts(permit.plan.filled) if added is None else {}
    after = form.history(before.version)
    version = form.our_version(after, stamp) if writes else before.version
    if expected is not None and added is None:
        _check(permit, counts, expected)
    if any(s.stamp != stamp and s.changes_rows for s in after.seen):
        raise Refused(
            f"Table {permit.table.name} was written by somebody else meanwhile: its history names them.",
            hint="This commit is not acknowledged. Write again: the next one looks at what they did.",
        )
    return Written(version, sum(counts.values()) if added is None else added)


def _put(
    form: TableFormat,
    permit: Permit,
    rows: DataFrame,
    expected: Mapping[int, int] | None,
    wrong: Collection[int],
    stamp: Stamp,
    based_on: str,
) -> int | None:
    """Commit the rows; how many they are where the table has just taken them, None where it has to be looked at."""
    where = _where(permit, wrong)
    if not wrong:
        nothing = not permit.plan.rows or (expected is not None and not any(expected.values()))
        wanted = None if expected is None else sum(expected.values())
        added = form.add(None if nothing else rows, where, stamp, based_on, wanted)
        if added is not None:
            return added
    form.replace(rows if permit.plan.rows else None, where, stamp, based_on)
    return None


def _where(permit: Permit, wrong: Collection[int]) -> Where:
    if permit.commit.kind == plane.ADVANCE:
        return Where(after=permit.commit.after, upto=permit.commit.upto, ids=tuple(wrong))
    return Where(ids=tuple(sorted({*permit.plan.checkpoints, *wrong})))


def _wrong(region: Handle, form: TableFormat, permit: Permit, history: History) -> set[int]:
    """Checkpoints whose rows do not belong in the table; looked for when something came after what SQL acknowledged."""
    if history.version == permit.table.version:
        return set()
    check_owner(permit.table, history.seen, permit.plan.uid)
    check_known(permit.table, history.seen, permit.commit.number)
    return strangers(region, form, permit.table) - set(permit.plan.checkpoints)


def _check(permit: Permit, counts: Mapping[int, int], expected: Mapping[int, int]) -> None:
    """Rows of what was just written are as many as they have to be."""
    for checkpoint in permit.plan.checkpoints:
        there, wanted = counts.get(checkpoint, 0), expected.get(checkpoint, 0)
        if there != wanted:
            raise DataLoss(
                f"Table {permit.table.name} has {plural(there, 'row')} of checkpoint {checkpoint}; there have to be {wanted}.",
                hint="The commit is not acknowledged; the next one replaces it.",
            )
