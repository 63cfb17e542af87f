"""Checkpoints into tables: advance, rewrite, fence, look; each row once, whatever crashes or comes late (SPEC K6, X4).

A write is: a permit from SQL (a number, a lease) → a look at what was committed since the last acknowledged version → one
commit of the format that carries the number → a look at what is there now → the acknowledgement in SQL.
"""

from __future__ import annotations

import itertools
import json
import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import ConfigError, CrkafkaError, DataLoss, Refused, WentBack
from crkafka_core.model.rows import Region, Table, TableCommit
from crkafka_core.plane import limits, reading
from crkafka_core.plane import tables as plane
from crkafka_core.plane.tables import Permit
from crkafka_core.segments.storage import Storage
from crkafka_core.spark import frames, parquet_table
from crkafka_core.spark.delta_table import DeltaTable
from crkafka_core.spark.handle import Handle
from crkafka_core.spark.hold import Hold
from crkafka_core.spark.iceberg_table import IcebergTable
from crkafka_core.spark.schema import CHECKPOINT, RECORDS, with_checkpoint
from crkafka_core.spark.table_format import History, Seen, Stamp, TableFormat, Where

_log = logging.getLogger(__name__)

Shape = Callable[[DataFrame], DataFrame]
"""Makes a table's rows of a checkpoint's; it has to keep the column `crkafka_checkpoint`, row by row."""


@dataclass(frozen=True)
class Committed:
    """What a write did."""

    table: str
    number: int
    checkpoints: tuple[int, ...]
    rows: int
    acknowledged: int
    version: str


def advance(
    spark: SparkSession,
    region: Handle,
    name: str,
    *,
    limit: int | None = None,
    upto: int | None = None,
    shape: Shape | None = None,
) -> Committed | None:
    """Write what follows the table's acknowledged checkpoint; at most `limit` checkpoints, and not past `upto`. None: nothing new."""
    return _commit(spark, region, name, lambda tx, token: plane.permit_commit(
        tx, name, holder=frames.holder(), token=token, limit=limit, upto=upto), shape)  # fmt: skip


def rewrite(
    spark: SparkSession, region: Handle, name: str, ids: Collection[int], *, shape: Shape | None = None
) -> Committed | None:
    """Replace the rows of these live checkpoints: a backfill."""
    return _commit(spark, region, name, lambda tx, token: plane.permit_commit(
        tx, name, holder=frames.holder(), token=token, ids=ids), shape)  # fmt: skip


def fence(spark: SparkSession | None, region: Handle, name: str) -> Table:
    """Make the table follow the latest rewind; what was superseded leaves it. Does nothing when no fence is owed.

    A Parquet table needs no Spark for it (None): SQL alone says which attempts count.
    """
    token = _token("fence")
    permit = region.plane.do(lambda tx: plane.permit_fence(tx, name, holder=frames.holder(), token=token))
    if permit is None:
        return region.plane.read(lambda reader, row: plane.of(reader, row.name, name))
    with _writing(region, permit) as hold:
        try:
            version = ""
            if permit.table.format != "parquet":
                version = _fence(_session(spark, name), region, permit)
            hold.check()
            return region.plane.do(lambda tx: plane.finish_fence(tx, permit, version=version))
        except BaseException as error:
            _give_up(region, permit, error)
            raise


def _session(spark: SparkSession | None, name: str) -> SparkSession:
    if spark is None:
        raise ConfigError(f"The fence of table {name} has to be committed by Spark.", hint="Give a Spark session.")
    return spark


def fence_all(spark: SparkSession | None, region: Handle) -> list[Table]:
    """Fence every table that owes it; the region leaves REWINDING with the last one."""
    owed = region.plane.read(lambda reader, row: plane.unfenced(reader, row.name))
    return [fence(spark, region, table.name) for table in owed]


def _fence(spark: SparkSession, region: Handle, permit: Permit) -> str:
    form = table_of(spark, region, permit.table)
    uid = permit.plan.uid
    before = form.history(permit.table.version)
    form.check_owner(before.seen, uid)
    if not before.version:
        return ""
    gone = set(region.plane.read(lambda reader, row: plane.superseded(reader, row.name)))
    strangers = _strangers(region, form, permit.table)
    in_flight = {i for c in permit.overtaken for i in json.loads(c.checkpoints_json)} & gone
    stamp = Stamp.of(uid, permit.commit)
    form.fence(stamp, Where(ids=tuple(sorted(strangers | in_flight))), in_flight, before.version)
    return form.own(form.history(before.version), stamp)


def _strangers(region: Handle, form: TableFormat, table: Table) -> set[int]:
    """Checkpoints whose rows are in the table and do not belong there."""
    present = form.present()
    return region.plane.read(
        lambda reader, row: set(itertools.filterfalse(plane.belonging(reader, row, table), present))
    )


def _commit(
    spark: SparkSession, region: Handle, name: str, ask: Callable[[Tx, str], Permit | None], shape: Shape | None
) -> Committed | None:
    token = _token("write")
    permit, held = region.plane.do(lambda tx: _ask(tx, ask, token))
    if permit is None or held is None:
        return None
    length = region.plane.read(lambda _, row: limits.of(row).driver_lease)

    def release() -> None:
        region.plane.do(lambda tx: reading.release(tx, held.lease))

    def renew() -> None:
        region.plane.do(lambda tx: reading.renew(tx, held.lease, length))

    with Hold(renew, release, length / 3, f"reader for table {name}"), _writing(region, permit) as hold:
        try:
            written = _write(spark, region, permit, hold, shape)
            done = region.plane.do(
                lambda tx: plane.finish_commit(
                    tx, permit, version=written.version, rows=written.rows, folder=written.folder
                )
            )
        except BaseException as error:
            _give_up(region, permit, error)
            raise
    return Committed(name, permit.commit.number, permit.plan.checkpoints, written.rows, done.acknowledged, done.version)


def _ask(tx: Tx, ask: Callable[[Tx, str], Permit | None], token: str) -> tuple[Permit | None, reading.Reading | None]:
    """The permit and a reader's lease on what it reads, in one transaction (SPEC T1)."""
    permit = ask(tx, token)
    if permit is None:
        return None, None
    length = limits.of(tx.region()).driver_lease
    return permit, reading.take(
        tx, holder=frames.holder(), token=f"{token}-reads", length=length, ids=permit.plan.checkpoints
    )


def _writing(region: Handle, permit: Permit) -> Hold:
    length = region.plane.read(lambda _, row: limits.of(row).driver_lease)
    return Hold(
        lambda: region.plane.do(lambda tx: plane.renew(tx, permit)),
        lambda: None,
        length / 3,
        f"writer of table {permit.table.name}",
    )


def _give_up(region: Handle, permit: Permit, error: BaseException) -> None:
    try:
        region.plane.do(lambda tx: plane.fail_commit(tx, permit, f"{type(error).__name__}: {error}"[:500]))
    except CrkafkaError as refused:
        _log.warning("commit %s to table %s ends by its lease: %s", permit.commit.number, permit.table.name, refused)


@dataclass(frozen=True)
class _Written:
    version: str
    rows: int
    folder: str = ""


def _write(spark: SparkSession, region: Handle, permit: Permit, hold: Hold, shape: Shape | None) -> _Written:
    frame = frames.from_plan(spark, region.config, permit.plan, numbered=True)
    if shape is not None:
        frame = shape(frame)
    if permit.table.format == "parquet":
        return _write_parquet(region, permit, frame, exact=shape is None)
    form = table_of(spark, region, permit.table)
    stamp = Stamp.of(permit.plan.uid, permit.commit)
    before = form.history(permit.table.version)
    wrong = _wrong(region, form, permit, before)
    hold.check()
    writes = bool(permit.plan.rows or wrong)
    if writes:
        form.replace(frame if permit.plan.rows else None, _where(permit, wrong), stamp, before.version)
    counts = form.counts(permit.plan.filled)
    after = form.history(before.version)
    version = form.own(after, stamp) if writes else before.version
    if shape is None:
        _check(permit, counts)
    if any(s.stamp != stamp and s.changes_rows for s in after.seen):
        raise Refused(
            f"Table {permit.table.name} was written by somebody else meanwhile: its history names them.",
            hint="This commit is not acknowledged. Write again: the next one looks at what they did.",
        )
    return _Written(version, sum(counts.values()))


def _where(permit: Permit, wrong: Collection[int]) -> Where:
    if permit.commit.kind == plane.ADVANCE:
        return Where(after=permit.commit.after, upto=permit.commit.upto, ids=tuple(wrong))
    return Where(ids=tuple(sorted({*permit.plan.checkpoints, *wrong})))


def _wrong(region: Handle, form: TableFormat, permit: Permit, history: History) -> set[int]:
    """Checkpoints whose rows do not belong into the table; looked for when something came after what SQL acknowledged."""
    if history.version == permit.table.version:
        return set()
    form.check_owner(history.seen, permit.plan.uid)
    check_known(permit.table, history.seen, permit.commit.number)
    return _strangers(region, form, permit.table) - set(permit.plan.checkpoints)


def check_known(table: Table, seen: Collection[Seen], highest: int) -> None:
    """A number that SQL never issued means that SQL went back in time (SPEC G10)."""
    unknown = [s.stamp.number for s in seen if s.stamp is not None and s.stamp.number > highest]
    if unknown:
        raise WentBack(
            f"Table {table.name} of region {table.region} has commit {max(unknown)}; the control plane never issued one above {highest}.",
            hint="Restore a newer backup, or `crkafka start --restored rewind`: what was lost leaves the tables and is read again.",
        )


def _check(permit: Permit, counts: Mapping[int, int]) -> None:
    """Rows of what was just written are as many as were merged."""
    for checkpoint in permit.plan.line:
        if counts.get(checkpoint.id, 0) != checkpoint.rows:
            raise DataLoss(
                f"Table {permit.table.name} has {counts.get(checkpoint.id, 0)} rows of checkpoint {checkpoint.id}; "
                f"{checkpoint.rows} were merged.",
                hint="The commit is not acknowledged; the next one replaces it.",
            )


def _write_parquet(region: Handle, permit: Permit, frame: DataFrame, *, exact: bool) -> _Written:
    number = permit.commit.number
    if not permit.plan.rows:
        return _Written(str(number), 0)
    rows = parquet_table.write(frame, permit.table, number, _options(region, permit.table))
    if exact and rows != permit.plan.rows:
        raise DataLoss(
            f"Commit {number} to table {permit.table.name} has {rows} rows; {permit.plan.rows} were merged.",
            hint="It does not count.",
        )
    return _Written(str(number), rows, parquet_table.folder(permit.table, number))


def read_table(spark: SparkSession, region: Handle, name: str) -> DataFrame:
    """The rows of the acknowledged checkpoints, whatever else lies in the table; superseded ones are never among them."""
    table, counting, commits, gone = region.plane.read(lambda reader, row: _state(reader, row, name))
    if table.format != "parquet":
        form = table_of(spark, region, table)
        version = form.history(table.version).version
        if not version:
            return spark.createDataFrame([], with_checkpoint(RECORDS))
        known = version == table.version and table.rewind_epoch <= table.fenced_epoch
        rows = form.read().where(f"{CHECKPOINT} <= {table.acknowledged}")
        return rows if known or not gone else rows.where(f"{CHECKPOINT} NOT IN ({', '.join(map(str, gone))})")
    written = {c.number: frozenset(json.loads(c.checkpoints_json)) for c in commits if c.status == plane.DONE}
    found = parquet_table.read(spark, table, counting, written)
    return spark.createDataFrame([], with_checkpoint(RECORDS)) if found is None else found


def _state(reader: Reader, row: Region, name: str) -> tuple[Table, dict[int, int], list[TableCommit], list[int]]:
    table = plane.of(reader, row.name, name)
    return table, plane.counting(reader, row, table), plane.commits(reader, table), plane.superseded(reader, row.name)


@dataclass(frozen=True)
class Looked:
    """What is in a table and should not be, or not so."""

    strangers: tuple[int, ...] = ()
    """Checkpoints whose rows do not belong there: superseded, or not acknowledged."""
    miscounted: tuple[int, ...] = ()
    """Checkpoints with other rows than were merged."""
    foreign: int = 0
    """Commits since the last acknowledged one that SQL has not acknowledged."""

    @property
    def clean(self) -> bool:
        return not (self.strangers or self.miscounted or self.foreign)


def look(spark: SparkSession, region: Handle, name: str, *, exact: bool = True) -> Looked:
    """Compare a table with what SQL says it holds (SPEC K6). `exact`: row by row; never for a table whose rows are shaped."""
    table, expected, shaped = region.plane.read(lambda reader, row: _expected(reader, row, name))
    exact = exact and not shaped
    if table.format == "parquet":
        counts = {r[0]: r[1] for r in read_table(spark, region, name).groupBy(CHECKPOINT).count().collect()}
        return Looked((), _miscounted(expected, counts) if exact else ())
    form = table_of(spark, region, table)
    seen = form.history(table.version).seen
    check_known(table, seen, table.commits)
    strangers = _strangers(region, form, table)
    wrong = _miscounted(expected, form.counts(expected)) if exact else ()
    return Looked(tuple(sorted(strangers)), wrong, sum(s.changes_rows for s in seen))


def _miscounted(expected: Mapping[int, int], counts: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(sorted(c for c, n in expected.items() if counts.get(c, 0) != n))


def _expected(reader: Reader, row: Region, name: str) -> tuple[Table, dict[int, int], bool]:
    table = plane.of(reader, row.name, name)
    return table, plane.counted_in(reader, row, table), plane.shaped(reader, table)


def mend(spark: SparkSession, region: Handle, name: str, *, shape: Shape | None = None) -> Committed | None:
    """Undo what others committed: strangers leave, and what has other rows than were merged is written again.

    A table that holds nothing of ours yet has nothing to write again: its next `advance` does it.
    """
    found = look(spark, region, name, exact=shape is None)
    if found.clean:
        return None
    _, live, shaped = region.plane.read(lambda reader, row: _expected(reader, row, name))
    if shaped and shape is None:
        raise Refused(
            f"The rows of table {name} are shaped by the program that writes it; others would put raw ones in their place.",
            hint="Mend it there, with the same shape.",
        )
    if not live:
        return advance(spark, region, name, shape=shape)
    return rewrite(spark, region, name, found.miscounted or sorted(live)[-1:], shape=shape)


def sweep(region: Handle, name: str) -> list[int]:
    """Remove folders of a Parquet table whose attempts count for nothing any more; their numbers. Never one that may be open."""
    table, counting, commits, _ = region.plane.read(lambda reader, row: _state(reader, row, name))
    if table.format != "parquet" or table.rewind_epoch > table.fenced_epoch:
        return []
    kept = {*counting.values(), *(c.number for c in commits if c.status == plane.OPEN)}
    storage = Storage.open(table.path, region.config.resolve().storage_options)
    there = {
        int(found.path.split("/")[0].partition("=")[2])
        for found in storage.list("")
        if found.path.startswith(f"{parquet_table.COMMIT}=")
    }
    gone = sorted(there - kept)
    for number in gone:
        storage.delete_folder(parquet_table.folder(table, number))
    return gone


def table_of(spark: SparkSession, region: Handle, table: Table) -> TableFormat:
    """The format behind a declared table."""
    kinds: dict[str, type[TableFormat]] = {"delta": DeltaTable, "iceberg": IcebergTable}
    if table.format not in kinds:
        raise ConfigError(f"Table {table.name} is {table.format}: it is read and written by attempt, not as a whole.")
    return kinds[table.format](spark, table, _options(region, table))


def _options(region: Handle, table: Table) -> dict[str, str]:
    found = region.config.table(table.name)
    return dict(found.options) if found else {}


def _token(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex}"
