"""An Iceberg table that keeps one row for each key: a commit is made on a branch, and counts by one step of `main` (SPEC K6, X4).

There the rows become what SQL has acknowledged, if anybody has changed them since, or what they were before what a rewind left behind:
the rows of that older snapshot are written anew, since `main` only goes forward. Then comes the MERGE, which writes whole files anew
(Iceberg's copy-on-write, unless the table says otherwise): what any reader reads at full speed. A tag keeps the acknowledged snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from crkafka_core.lake import writing
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.port import Moved
from crkafka_core.lake.writing import Fenced
from crkafka_core.model.rows import Table
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.table_versions import State, state_at
from crkafka_core.spark.current import current
from crkafka_core.spark.formats import table_of
from crkafka_core.spark.iceberg_branch import Branch, made, staged
from crkafka_core.spark.iceberg_catalog import STAMP
from crkafka_core.spark.iceberg_table import IcebergTable
from crkafka_core.tables.delta_upsert import KEYS, check_keys, gone_for_good
from crkafka_core.tables.on_snapshot import until_done
from crkafka_core.tables.stamp import PUT_BACK, History, Stamp, check_known, check_owner

STAMP_SETTING = f"spark.sql.iceberg.snapshot-property.{STAMP}"
"""Of a session: what a MERGE in it puts into the snapshot's summary."""


def write(
    region: Handle,
    form: IcebergTable,
    permit: Permit,
    hold: Hold,
    keys: Sequence[str],
    merge: Callable[[Branch], None],
) -> str:
    """The table as SQL has acknowledged it, and what `merge` does to that; the snapshot."""
    stamp, state = Stamp.of(permit.plan.uid, permit.commit), State(permit.table.acknowledged, permit.table.version)

    def once() -> str | None:
        before = _look(region, form, permit, stamp, keys)
        check_known(permit.table, before.seen, permit.commit.number)
        return _on_branch(form, stamp, before, state, hold, merge)

    return until_done(permit.table, once)


def fence(spark: SparkSession, region: Handle, name: str, keys: Sequence[str]) -> Table:
    """Let the table follow the latest rewind: it is what it was at the latest acknowledged commit that is on the line."""

    def commit(permit: Permit, hold: Hold) -> Fenced:
        form, stamp = table_of(spark, region, permit.table), Stamp.of(permit.plan.uid, permit.commit)
        assert isinstance(form, IcebergTable)
        state = region.plane.read(
            lambda reader, row: state_at(reader, replace(row, head=permit.commit.upto), permit.table)
        )

        def once() -> str | None:
            before = _look(region, form, permit, stamp, keys)
            return _on_branch(form, stamp, before, state, hold, lambda _: None)

        return Fenced(until_done(permit.table, once), state.checkpoint)

    return writing.fence(region, name, commit)


def _look(region: Handle, form: IcebergTable, permit: Permit, stamp: Stamp, keys: Sequence[str]) -> History:
    """What came after the acknowledged snapshot; refused if the table is not ours, of these keys. It is made if it is not there."""
    before = current(region, form, permit.table)
    if not before.version:
        form.make(stamp, {KEYS: ",".join(keys)})
        before = current(region, form, permit.table)
    check_owner(permit.table, before.seen, stamp.uid)
    check_keys(permit.table, form.property(KEYS), keys)
    return before


def _on_branch(
    form: IcebergTable, stamp: Stamp, before: History, state: State, hold: Hold, work: Callable[[Branch], None]
) -> str:
    """Who is still allowed to write after the look is refused by the table if another comes after it."""
    hold.confirm()
    try:
        with staged(form.spark, form.name, stamp, before.version) as branch:
            if not form.untouched_since(state.version):
                _put_back(form, branch, stamp, state)
            work(branch)
            if branch.head() == branch.start:  # nothing to do: then a snapshot without rows stops who comes late
                nothing = form.spark.table(branch.name).where(F.lit(False))
                nothing.writeTo(branch.name).option(f"snapshot-property.{STAMP}", stamp.to_json()).append()
            head = branch.publish()
            branch.keep(head)
            return head
    except Moved as moved:
        raise form.late(stamp, before.version, moved) from moved


def _put_back(form: IcebergTable, branch: Branch, stamp: Stamp, state: State) -> None:
    """Let the branch have the rows of that state."""
    about = stamp.to_json(kind=PUT_BACK, to=state.version)
    if not state.version:
        _overwrite(form.spark.table(branch.name).where(F.lit(False)), branch, about)
        return
    if not form.knows(state.version):
        raise gone_for_good(form.table, state, "its snapshot has expired", "history.expire.max-snapshot-age-ms")
    older = Branch(form.spark, form.name, stamp, state.version)  # a branch is read with the columns that there are now
    with made(older):
        _overwrite(form.spark.table(older.name), branch, about)


def _overwrite(rows: DataFrame, branch: Branch, about: str) -> None:
    rows.writeTo(branch.name).option(f"snapshot-property.{STAMP}", about).overwrite(F.lit(True))
