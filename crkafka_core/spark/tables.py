"""Checkpoints into tables: advance, rewrite, fence, look, maintain; each row once, whatever crashes or comes late (SPEC K6, X4).

A write is: a permit from SQL (a number, a lease) → a look at what was committed since the last acknowledged version → one
commit of the format that carries the number → a look at what is there now → the acknowledgement in SQL.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from crkafka_core.control import Reader
from crkafka_core.model.errors import ConfigError, DataLoss, LeaseHeld, Refused
from crkafka_core.model.rows import Region, Table, TableCommit
from crkafka_core.plane import contents, permits
from crkafka_core.plane import tables as plane
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.reading import KafkaRange, ReadPlan
from crkafka_core.plane.states import anew, state_at
from crkafka_core.segments.storage import Storage
from crkafka_core.spark import frames, iceberg_catalog, location, parquet_table
from crkafka_core.spark.delta_table import DeltaTable
from crkafka_core.spark.iceberg_log import IcebergLog
from crkafka_core.spark.iceberg_table import IcebergTable
from crkafka_core.spark.schema import CHECKPOINT, RECORDS, with_checkpoint
from crkafka_core.spark.table_format import TableFormat, Where
from crkafka_core.tables import adopt, audit, content, put_back, writing
from crkafka_core.tables import maintain as adopted
from crkafka_core.tables.audit import Looked
from crkafka_core.tables.delta_log import DeltaLog, open_log
from crkafka_core.tables.handle import Handle
from crkafka_core.tables.hold import Hold
from crkafka_core.tables.log import Logs, MarkedRows, TableLog
from crkafka_core.tables.maintain import Maintained
from crkafka_core.tables.stamp import History, Stamp, check_known, check_owner
from crkafka_core.tables.writing import Committed, Fenced, Written

T = TypeVar("T")
Shape = Callable[[DataFrame], DataFrame]
"""Makes a table's rows of a checkpoint's; it has to keep the column `crkafka_checkpoint`, row by row."""


def advance(
    spark: SparkSession | None,
    region: Handle,
    name: str,
    *,
    limit: int | None = None,
    upto: int | None = None,
    shape: Shape | None = None,
) -> Committed | None:
    """Write what follows the table's acknowledged checkpoint; at most `limit` checkpoints, and not past `upto`. None: nothing new.

    A Delta table that adopts segments needs no Spark for it (None), unless their rows have to be read from Kafka again. One of a
    declared shape is written by it, together with the others of that shape.
    """
    if _declared(region, name, shape):
        from crkafka_core.spark import shaped

        return shaped.advance(_session(spark, name), region, name, limit=limit, upto=upto)
    if shape is not None:
        region.plane.do(lambda tx: plane.shape(tx, name))
    elif adopts(region, name, spark):
        return _adopting(
            spark, region, name, lambda fetch, logs: adopt.advance(region, name, limit=limit, upto=upto, fetch=fetch, logs=logs)
        )  # fmt: skip
    return writing.commit(region, name, lambda tx, token: permits.permit_commit(
        tx, name, holder=writing.holder(), token=token, limit=limit, upto=upto), _by_hand(spark, region, shape))  # fmt: skip


def rewrite(
    spark: SparkSession | None, region: Handle, name: str, ids: Collection[int], *, shape: Shape | None = None
) -> Committed | None:
    """Replace the rows of these live checkpoints: a backfill. Whether it needs Spark is as with `advance`."""
    if _declared(region, name, shape):
        from crkafka_core.spark import shaped

        return shaped.rewrite(_session(spark, name), region, name, ids)
    if shape is not None:
        region.plane.do(lambda tx: plane.shape(tx, name))
    elif adopts(region, name, spark):
        if not ids:
            return None
        return _adopting(spark, region, name, lambda fetch, logs: adopt.mend(region, name, ids, fetch=fetch, logs=logs))
    return writing.commit(region, name, lambda tx, token: permits.permit_commit(
        tx, name, holder=writing.holder(), token=token, ids=ids), _by_hand(spark, region, shape))  # fmt: skip


def _declared(region: Handle, name: str, given: Shape | None) -> bool:
    """Whether the table's shape is declared; then nobody writes it with another."""
    table = region.plane.read(lambda reader, row: plane.of(reader, name))
    if table.shape and given is not None:
        raise Refused(
            f"Table {name} of region {table.region} is declared with the shape {table.shape}; rows of another do not belong into it.",
            hint="Leave `shape` out, or declare a table of another name.",
        )
    return bool(table.shape)


def _by_hand(spark: SparkSession | None, region: Handle, shape: Shape | None) -> Callable[[Permit, Hold], Written]:
    """Writes records as they are, or in the shape that the calling program gives."""

    def put(permit: Permit, hold: Hold) -> Written:
        session = _session(spark, permit.table.name)
        frame = frames.from_plan(session, region.config, permit.plan, numbered=True)
        if shape is not None:
            return write(session, region, permit, hold, shape(frame), None)
        return write(session, region, permit, hold, frame, {c.id: c.rows for c in permit.plan.line})

    return put


def fence(spark: SparkSession | None, region: Handle, name: str) -> Table:
    """Make the table follow the latest rewind; what was superseded leaves it. Does nothing when no fence is owed.

    A Delta table that adopts segments and a Parquet table need no Spark for it (None).
    """
    if adopts(region, name, spark):
        return _adopting(spark, region, name, lambda fetch, logs: adopt.fence(region, name, fetch=fetch, logs=logs))
    if keys := keys_of(region, name):
        return put_back.fence(region, name, keys, CHECKPOINT)
    return writing.fence(
        region,
        name,
        lambda permit, hold: Fenced(
            "" if permit.table.format == "parquet" else _fence(_session(spark, name), region, permit)
        ),
    )


def adopts(region: Handle, name: str, spark: SparkSession | None = None) -> bool:
    """Whether the table adopts segments.

    Through Connect Iceberg's log cannot be written: a session of that kind that is the first to write the table makes it one of rows.
    """
    table = region.plane.read(lambda reader, row: plane.of(reader, name))
    if table.layout == plane.FILES and table.format == "iceberg" and spark is not None and location.is_connect(spark):
        with contextlib.suppress(Refused):
            return region.plane.do(lambda tx: plane.shape(tx, name)).layout == plane.FILES
    return table.layout == plane.FILES


def logs_of(spark: SparkSession | None) -> Logs:
    """Opens the logs of tables that adopt segments, with this session where one is needed."""

    def opened(region: Handle, table: Table) -> TableLog:
        if table.format != "iceberg" or spark is None:
            return open_log(region, table)
        if location.is_connect(spark):
            raise ConfigError(
                f"Table {table.name} adopts segments by Iceberg's Java library, which is not reached through Spark Connect.",
                hint="Use a classic session; or declare it at another path: what Connect writes first it writes row by row.",
            )
        return IcebergLog(spark, table, region.config.resolve().storage_options)

    return opened


def _adopting(
    spark: SparkSession | None, region: Handle, name: str, work: Callable[[adopt.Fetch | None, Logs], T]
) -> T:
    """Of a table that adopts segments Spark reads from Kafka again; of Delta also writes rows anew that are marked as deleted; of Iceberg
    its Java process writes the log.
    """
    logs = logs_of(spark)
    if spark is None:
        return work(None, logs)
    session, table = spark, region.plane.read(lambda reader, row: plane.of(reader, name))

    def fetch(plan: ReadPlan, target: str) -> None:
        rows = frames.from_plan(session, region.config, replace(plan, segments=()), numbered=True)
        writer = rows.write.partitionBy(CHECKPOINT).options(**_options(region, table))
        writer.parquet(location.uri(target))

    try:
        return work(fetch, logs)
    except MarkedRows:
        session.sql(f"REORG TABLE delta.`{location.uri(table.path)}` APPLY (PURGE)")
        return work(fetch, logs)


def keys_of(region: Handle, name: str) -> tuple[str, ...]:
    """The columns by which the table is kept, one row for each; none where it has a row for each record."""
    declared = region.config.table(name)
    return () if declared is None else declared.keys or ()


def refuse_rewrite(region: Handle, name: str) -> None:
    """Rows of one checkpoint cannot be replaced where later ones have come over them."""
    if keys := keys_of(region, name):
        raise Refused(
            f"Table {name} of region {region.config.region} keeps the last record of each {', '.join(keys)}: rows of single checkpoints "
            "cannot be written again.",
            hint=anew(name),
        )


def _session(spark: SparkSession | None, name: str) -> SparkSession:
    if spark is None:
        raise ConfigError(f"Table {name} has to be written by Spark.", hint="Give a Spark session.")
    return spark


def fence_all(spark: SparkSession | None, region: Handle) -> list[Table]:
    """Fence every table that owes it, but those that somebody fences at this moment; the region leaves REWINDING with the last one."""
    done = []
    for table in region.plane.read(lambda reader, row: plane.unfenced(reader)):
        with contextlib.suppress(LeaseHeld):
            done.append(fence(spark, region, table.name))
    return done


def _fence(spark: SparkSession, region: Handle, permit: Permit) -> str:
    form = table_of(spark, region, permit.table)
    uid = permit.plan.uid
    stamp = Stamp.of(uid, permit.commit)
    before = form.history(permit.table.version)
    check_owner(permit.table, before.seen, uid)
    if not before.version:
        if plane.has_log(permit.table.format, permit.table.path):
            return adopt.make_fenced(region, permit, CHECKPOINT)
        form.make_fenced(stamp)
        return form.own(form.history(""), stamp)
    _refuse_kept(form, before)
    gone = set(region.plane.read(lambda reader, row: plane.superseded(reader)))
    strangers = _strangers(region, form, permit.table)
    in_flight = {i for c in permit.overtaken for i in json.loads(c.checkpoints_json)} & gone
    form.fence(stamp, Where(ids=tuple(sorted(strangers | in_flight))), in_flight, before.version)
    return form.own(form.history(before.version), stamp)


def _refuse_kept(form: TableFormat, found: History) -> None:
    """Refuse to treat a table that is kept by keys as one with a row for each record: what came over a row could not be brought back."""
    if found.version and form.table.shape and isinstance(form, DeltaTable):
        put_back.check_keys(form.table, form.property(put_back.KEYS), ())


def _strangers(region: Handle, form: TableFormat, table: Table) -> set[int]:
    """Checkpoints whose rows are in the table and do not belong there."""
    present = form.present()
    return region.plane.read(
        lambda reader, row: set(itertools.filterfalse(contents.belonging(reader, row, table), present))
    )


def write(
    spark: SparkSession,
    region: Handle,
    permit: Permit,
    hold: Hold,
    frame: DataFrame,
    expected: Mapping[int, int] | None,
) -> Written:
    """The format's own commit of these rows. `expected`: how many of each checkpoint there have to be; None: nobody knows."""
    if permit.table.format == "parquet":
        return _write_parquet(region, permit, frame, expected)
    form = table_of(spark, region, permit.table)
    if isinstance(form, DeltaTable) and (keys := keys_of(region, permit.table.name)):
        from crkafka_core.spark import upsert

        log = DeltaLog(permit.table, region.config.resolve().storage_options)
        return upsert.write(form, log, permit, hold, frame, keys)
    stamp = Stamp.of(permit.plan.uid, permit.commit)
    before = form.history(permit.table.version)
    _refuse_kept(form, before)
    wrong = _wrong(region, form, permit, before)
    where = _where(permit, wrong)
    hold.check()
    writes = bool(permit.plan.rows or wrong)
    if writes:
        form.replace(frame if permit.plan.rows else None, where, stamp, before.version)
    counts = form.counts(permit.plan.filled)
    after = form.history(before.version)
    version = form.own(after, stamp) if writes else before.version
    if expected is not None:
        _check(permit, counts, expected)
    if any(s.stamp != stamp and s.changes_rows for s in after.seen):
        raise Refused(
            f"Table {permit.table.name} was written by somebody else meanwhile: its history names them.",
            hint="This commit is not acknowledged. Write again: the next one looks at what they did.",
        )
    return Written(version, sum(counts.values()))


def _where(permit: Permit, wrong: Collection[int]) -> Where:
    if permit.commit.kind == plane.ADVANCE:
        return Where(after=permit.commit.after, upto=permit.commit.upto, ids=tuple(wrong))
    return Where(ids=tuple(sorted({*permit.plan.checkpoints, *wrong})))


def _wrong(region: Handle, form: TableFormat, permit: Permit, history: History) -> set[int]:
    """Checkpoints whose rows do not belong into the table; looked for when something came after what SQL acknowledged."""
    if history.version == permit.table.version:
        return set()
    check_owner(permit.table, history.seen, permit.plan.uid)
    check_known(permit.table, history.seen, permit.commit.number)
    return _strangers(region, form, permit.table) - set(permit.plan.checkpoints)


def _check(permit: Permit, counts: Mapping[int, int], expected: Mapping[int, int]) -> None:
    """Rows of what was just written are as many as they have to be."""
    for checkpoint in permit.plan.checkpoints:
        found, wanted = counts.get(checkpoint, 0), expected.get(checkpoint, 0)
        if found != wanted:
            raise DataLoss(
                f"Table {permit.table.name} has {found} rows of checkpoint {checkpoint}; there have to be {wanted}.",
                hint="The commit is not acknowledged; the next one replaces it.",
            )


def _write_parquet(region: Handle, permit: Permit, frame: DataFrame, expected: Mapping[int, int] | None) -> Written:
    number = permit.commit.number
    if not permit.plan.rows:
        return Written(str(number), 0)
    rows = parquet_table.write(frame, permit.table, number, _options(region, permit.table))
    if expected is not None and rows != sum(expected.values()):
        raise DataLoss(
            f"Commit {number} to table {permit.table.name} has {rows} rows; there have to be {sum(expected.values())}.",
            hint="It does not count.",
        )
    return Written(str(number), rows, parquet_table.folder(permit.table, number))


def read_table(spark: SparkSession, region: Handle, name: str) -> DataFrame:
    """The rows of the acknowledged checkpoints, whatever else lies in the table; superseded ones are never among them."""
    table, counting, commits, gone = region.plane.read(lambda reader, row: _state(reader, row, name))
    if table.format == "delta":
        location.refuse_tolerant(spark)
    if table.layout == plane.FILES:
        return _adopted(spark, region, table)
    if table.format != "parquet":
        form = table_of(spark, region, table)
        if keys_of(region, name):
            return _kept_by_keys(spark, region, form, table)
        version = form.history(table.version).version
        if not version:
            return spark.createDataFrame([], with_checkpoint(RECORDS))
        known = version == table.version and table.rewind_epoch <= table.fenced_epoch
        rows = form.read().where(f"{CHECKPOINT} <= {table.acknowledged}")
        return rows if known or not gone else rows.where(f"{CHECKPOINT} NOT IN ({', '.join(map(str, gone))})")
    written = {c.number: frozenset(json.loads(c.checkpoints_json)) for c in commits if c.status == plane.DONE}
    found = parquet_table.read(spark, table, counting, written)
    return spark.createDataFrame([], with_checkpoint(RECORDS)) if found is None else found


def _adopted(spark: SparkSession, region: Handle, table: Table) -> DataFrame:
    """With the checkpoint of each row, by the name of its file; null where a compaction has mixed them."""
    view = content.visible(region, table, logs_of(spark)) if table.version else None
    if view is None:
        return spark.createDataFrame([], with_checkpoint(RECORDS))
    if table.format == "delta":
        there = spark.read.format("delta").option("versionAsOf", view.at).load(location.uri(table.path))
        path = F.col("_metadata.file_path")
    else:
        there = spark.read.option("versionAsOf", view.at).table(iceberg_catalog.named(spark, table.path))
        path = F.col("_file")
    number = F.regexp_extract(path, f"/{view.uid}/[0-9]+/([0-9]{{12,}})-[^/]+$", 1)
    rows = there.select("*", F.when(number != "", number.cast("bigint")).alias(CHECKPOINT))
    if view.wrong:
        rows = rows.where(F.col(CHECKPOINT).isNull() | ~F.col(CHECKPOINT).isin(view.wrong))
    if view.ranges:
        rows = rows.where(F.col(CHECKPOINT).isNotNull() | ~F.expr(" OR ".join(map(_range, view.ranges))))
    return rows


def _kept_by_keys(spark: SparkSession, region: Handle, form: TableFormat, table: Table) -> DataFrame:
    """In the version that counts: what came over a row since is not undone by leaving rows out."""
    state = region.plane.read(lambda reader, row: state_at(reader, row, table))
    if not state.version:
        return form.read().where(F.lit(False)) if table.version else spark.createDataFrame([], with_checkpoint(RECORDS))
    if not any(s.changes_rows for s in form.history(state.version).seen):
        return form.read()
    return spark.read.format("delta").option("versionAsOf", state.version).load(location.uri(table.path))


def _range(r: KafkaRange) -> str:
    topic = r.topic.replace("\\", "\\\\").replace("'", "\\'")
    return f"(topic = '{topic}' AND `partition` = {r.partition} AND `offset` >= {r.start} AND `offset` < {r.stop})"


def _state(reader: Reader, row: Region, name: str) -> tuple[Table, dict[int, int], list[TableCommit], list[int]]:
    table = plane.of(reader, name)
    return (
        table,
        contents.counting(reader, row, table),
        plane.commits(reader, table),
        plane.superseded(reader),
    )


def look(spark: SparkSession | None, region: Handle, name: str, *, exact: bool = True) -> Looked:
    """Compare a table with what SQL says it holds (SPEC K6). `exact`: row by row; of tables of one declared shape all together.

    Never row by row for a single table whose rows are shaped: how many there should be, nobody knows.
    """
    table, expected, shaped, family = region.plane.read(lambda reader, row: _expected(reader, row, name))
    if table.layout == plane.FILES:
        return audit.look(region, name, logs_of(spark))
    spark = _session(spark, name)
    wrong: tuple[int, ...] = ()
    if keys_of(region, name):
        expected = {}
    elif (
        exact and (len(family) > 1 or not (shaped or table.shape)) and not any(keys_of(region, t.name) for t in family)
    ):
        counts: Counter[int] = Counter()
        for each in family:
            counts.update(_counts(spark, region, each, expected))
        wrong = audit.miscounted(expected, counts)
    if table.format == "parquet":
        return Looked((), wrong)
    form = table_of(spark, region, table)
    seen = form.history(table.version).seen
    check_known(table, seen, table.commits)
    strangers = set() if keys_of(region, name) else _strangers(region, form, table)
    return Looked(tuple(sorted(strangers)), wrong, sum(s.changes_rows for s in seen))


def _counts(spark: SparkSession, region: Handle, table: Table, ids: Collection[int]) -> Mapping[int, int]:
    if table.format == "parquet":
        return {r[0]: r[1] for r in read_table(spark, region, table.name).groupBy(CHECKPOINT).count().collect()}
    return table_of(spark, region, table).counts(ids)


def _expected(reader: Reader, row: Region, name: str) -> tuple[Table, dict[int, int], bool, list[Table]]:
    table = plane.of(reader, name)
    family = plane.siblings(reader, table)
    # Of tables of one shape, one may be behind the others for a moment.
    least = min(family, key=lambda t: t.acknowledged)
    return table, contents.counted_in(reader, row, least), plane.shaped(reader, table), family


def mend(spark: SparkSession | None, region: Handle, name: str, *, shape: Shape | None = None) -> Committed | None:
    """Undo what others committed: strangers leave, and what has other rows than were merged is written again.

    A table that holds nothing of ours yet has nothing to write again: its next `advance` does it. A Delta table that adopts
    segments needs no Spark (None), as long as those are kept.
    """
    found = look(spark, region, name, exact=shape is None)
    if found.clean:
        return None
    table, live, shaped, family = region.plane.read(lambda reader, row: _expected(reader, row, name))
    if shaped and not table.shape and shape is None:
        raise Refused(
            f"The rows of table {name} are shaped by the program that writes it; others would put raw ones in their place.",
            hint="Mend it there, with the same shape.",
        )
    if adopts(region, name, spark):
        return _adopting(spark, region, name, lambda fetch, logs: adopt.mend(region, name, fetch=fetch, logs=logs))
    if any(keys_of(region, t.name) for t in family):  # what others did leaves as after a rewind
        region.plane.do(lambda tx: permits.owe_fence(tx, name))
        fence(spark, region, name)
        return advance(spark, region, name)
    if not live:
        return advance(spark, region, name, shape=shape)
    return rewrite(_session(spark, name), region, name, found.miscounted or sorted(live)[-1:], shape=shape)


def maintain(spark: SparkSession | None, region: Handle, name: str) -> Maintained:
    """The format's own compaction, and the deletion of what no version within its retention needs; no row changes.

    A Delta table that adopts segments and a Parquet table need no Spark for it (None).
    """
    table = region.plane.read(lambda reader, row: plane.of(reader, name))
    if not plane.needs_spark(table):
        return adopted.maintain(region, name)
    if table.format == "parquet":
        return Maintained(name, deleted=len(sweep(region, name)))
    writing.refuse_copy(region, deletes=True)
    form = table_of(_session(spark, name), region, table)
    if not table.version:
        return Maintained(name)
    merged, into = form.compact()
    form.clean()
    return Maintained(name, merged, into)


def sweep(region: Handle, name: str) -> list[int]:
    """Remove folders of a Parquet table whose attempts count for nothing any more; their numbers. Never one that may be open."""
    table, counting, commits, _ = region.plane.read(lambda reader, row: _state(reader, row, name))
    if table.format != "parquet" or table.rewind_epoch > table.fenced_epoch:
        return []
    writing.refuse_copy(region, deletes=True)
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
    declared = region.config.table(table.name)
    return kinds[table.format](spark, table, _options(region, table), (declared and declared.partition_by) or ())


def _options(region: Handle, table: Table) -> dict[str, str]:
    return region.config.resolved_table_options(table.name)
