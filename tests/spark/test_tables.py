"""Each row once in a table, whatever crashes, comes late or is rewound; with the real libraries (SPEC K6, X4; faults 53, 54)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as DeltaLog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from crkafka_core.control import Tx
from crkafka_core.lake import writing
from crkafka_core.model.errors import LeaseLost, NotRunning, Refused, WentBack
from crkafka_core.model.rows import Lease, Table
from crkafka_core.plane import permits
from crkafka_core.plane import tables as plane
from crkafka_core.spark import formats, frames, tables
from crkafka_core.spark.delta_table import DeltaTable
from crkafka_core.spark.iceberg_table import IcebergTable
from crkafka_core.spark.schema import CHECKPOINT
from crkafka_core.spark.table_format import TableFormat, Where
from crkafka_core.tables.stamp import History, LogEntry, OtherRegion, Stamp
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

pytestmark = pytest.mark.spark

BY_SPARK = "delta by Spark"
"""As shaped tables are, and those that were declared before raw tables adopted segments."""
ICEBERG_BY_SPARK = "iceberg by Spark"
FORMATS = ["delta", BY_SPARK, "iceberg"]
TRANSACTIONAL = [BY_SPARK, ICEBERG_BY_SPARK]
DELTA_LONG = [pytest.param(BY_SPARK, marks=pytest.mark.soak), ICEBERG_BY_SPARK]
"""Where test_shaped.py and test_layout.py show the same of Delta, or tests/tables of any format."""


class Crash(BaseException):
    """The process dies here."""


# What Spark writes to Delta is shown by test_shaped.py (both tables of a shape, crashes between them, rewinds), and here by the soak.
@pytest.fixture(params=[pytest.param(each, marks=pytest.mark.soak) if each == BY_SPARK else each for each in FORMATS])
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    return made(request.param, tmp_path)


def made(format: str, folder: Path) -> Landing:
    table = {"name": "bronze", "format": format.split()[0], "path": str(folder / "tables" / "bronze")}
    landing = Landing(MemoryStore(), folder, partitions=2, tables=[table])
    if format in TRANSACTIONAL:
        landing.region.plane.do(lambda tx: plane.shape(tx, "bronze"))
    return landing


def rows_in(spark: SparkSession, landing: Landing) -> list[tuple[int, int, int]]:
    """(checkpoint, partition, offset) of every row, in order: doubled rows show."""
    found = tables.read_table(spark, landing.region, "bronze")
    picked = found.select("crkafka_checkpoint", "partition", "offset").collect()
    return sorted((c or by_offset(landing, o), p, o) for c, p, o in picked)


def by_offset(landing: Landing, offset: int) -> int:
    """The checkpoint of a row in a file that Spark has written anew: its name does not tell."""
    line = landing.region.plane.read(lambda reader, row: reader.line(row.head))
    return next(c for c in line if offset < max(landing.offsets[c].values()))


def expected(*checkpoints: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Of (checkpoint, first offset, next offset), in two partitions."""
    return sorted((c, p, o) for c, start, stop in checkpoints for p in range(2) for o in range(start, stop))


def table(landing: Landing) -> Table:
    return landing.region.plane.read(lambda reader, row: plane.of(reader, "bronze"))


def die_before_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends after the format's commit and before SQL hears of it; it cannot give its permit back either."""

    def dead(*_: object, **__: object) -> None:
        raise Crash

    monkeypatch.setattr(permits, "finish_commit", dead)
    monkeypatch.setattr(writing, "give_up", lambda *_: None)


def lease_ends(landing: Landing) -> None:
    def end(tx: Tx) -> None:
        for lease in tx.select(Lease, ("kind", "=", "writer:bronze")):
            tx.put(
                Lease(
                    lease.region, lease.kind, lease.slot, lease.holder, lease.token, lease.number, 0.0, lease.data_json
                )
            )

    landing.region.plane.do(end)


def test_advance_writes_each_checkpoint_once_and_goes_on(spark: SparkSession, landing: Landing) -> None:
    assert rows_in(spark, landing) == []
    landing.land(5), landing.land(5)
    first = tables.advance(spark, landing.region, "bronze")
    assert first is not None and (first.checkpoints, first.rows, first.acknowledged) == ((1, 2), 20, 2)
    assert tables.advance(spark, landing.region, "bronze") is None
    landing.land(5), landing.land(0), landing.land(5)
    second = tables.advance(spark, landing.region, "bronze", limit=2)
    assert second is not None and second.acknowledged == 4
    third = tables.advance(spark, landing.region, "bronze")
    assert third is not None and third.checkpoints == (5,)
    assert rows_in(spark, landing) == expected((1, 0, 5), (2, 5, 10), (3, 10, 15), (5, 15, 20))


def test_a_crash_after_the_commit_and_a_retry_leave_each_row_once(
    spark: SparkSession, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    landing.land(5), landing.land(5)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        die_before_finish(patch)
        tables.advance(spark, landing.region, "bronze")
    assert table(landing).acknowledged == 1
    assert rows_in(spark, landing) == expected((1, 0, 5))
    lease_ends(landing)
    landing.land(5)
    again = tables.advance(spark, landing.region, "bronze", limit=1)
    assert again is not None
    if table(landing).layout == plane.FILES:  # what is in the table is heard of, and not done again
        assert again.checkpoints == (4,)
    else:
        assert again.acknowledged == 2
        assert rows_in(spark, landing) == expected((1, 0, 5), (2, 5, 10))
    tables.advance(spark, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5), (2, 5, 10), (3, 10, 15), (4, 15, 20))


def test_a_crash_in_the_middle_of_the_write_leaves_nothing(
    spark: SparkSession, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing.land(5), landing.land(5)

    def torn(frame: DataFrame) -> DataFrame:
        return frame.where(F.expr("if(offset = 7, cast(raise_error('torn') as boolean), true)"))

    with pytest.raises(Exception, match="torn"):
        tables.advance(spark, landing.region, "bronze", shape=torn)
    assert rows_in(spark, landing) == []
    tables.advance(spark, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5), (2, 5, 10))


@pytest.mark.parametrize("key", ["ignoreMissingFiles", "ignoreCorruptFiles"])
def test_K3_a_delta_table_is_not_read_by_a_session_that_would_leave_out_rows(
    spark: SparkSession, tmp_path: Path, key: str
) -> None:
    landing = made("delta", tmp_path)
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    spark.conf.set(f"spark.sql.files.{key}", "true")
    try:
        with pytest.raises(Refused, match=f"{key}.*would be missing"):
            tables.read_table(spark, landing.region, "bronze")
    finally:
        spark.conf.unset(f"spark.sql.files.{key}")
    assert tables.read_table(spark, landing.region, "bronze").count() == 10


def test_rewriting_is_idempotent(spark: SparkSession, landing: Landing) -> None:
    for _ in range(3):
        landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    for ids in ([2], [1, 3], [2]):
        tables.rewrite(spark, landing.region, "bronze", ids)
    assert table(landing).acknowledged == 3
    assert rows_in(spark, landing) == expected((1, 0, 5), (2, 5, 10), (3, 10, 15))


def test_a_rewrite_can_change_the_shape_of_rows_but_not_their_number_unseen(
    spark: SparkSession, landing: Landing
) -> None:
    landing.land(5)
    done = tables.advance(spark, landing.region, "bronze", shape=lambda frame: frame.where("offset < 3"))
    assert done is not None and done.rows == 6
    assert rows_in(spark, landing) == expected((1, 0, 3))
    tables.rewrite(spark, landing.region, "bronze", [1])
    assert rows_in(spark, landing) == expected((1, 0, 5))


def test_superseded_checkpoints_leave_the_table_with_the_fence(spark: SparkSession, landing: Landing) -> None:
    for _ in range(3):
        landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    landing.rewind(1)
    assert rows_in(spark, landing) == expected((1, 0, 5))
    with pytest.raises(NotRunning, match="fence first"):
        tables.advance(spark, landing.region, "bronze")
    assert [t.acknowledged for t in tables.fence_all(spark, landing.region)] == [1]
    assert rows_in(spark, landing) == expected((1, 0, 5))
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5), (4, 5, 10))


def test_T2_rows_of_forgotten_checkpoints_stay_through_a_rewind(spark: SparkSession, landing: Landing) -> None:
    for _ in range(4):
        landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    landing.retire(1, 2, history=1)  # 2 is archived, of 1 not even that is left
    landing.rewind(3)
    tables.fence(spark, landing.region, "bronze")
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5), (2, 5, 10), (3, 10, 15), (5, 15, 20))
    assert tables.look(spark, landing.region, "bronze").clean


@pytest.mark.parametrize("format", DELTA_LONG)
def test_anybody_who_reads_the_table_sees_no_superseded_row_after_the_fence(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    landing = made(format, tmp_path)
    for _ in range(3):
        landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    landing.rewind(0)
    tables.fence_all(spark, landing.region)
    form = formats.table_of(spark, landing.region, table(landing))
    assert form.read().count() == 0
    assert form.present() == set()


@pytest.mark.parametrize("format", TRANSACTIONAL)
@pytest.mark.parametrize("acknowledged", [True, False], ids=["with rows to remove", "nothing to remove"])
def test_a_late_commit_is_refused_by_the_table_after_a_fence(
    spark: SparkSession, tmp_path: Path, format: str, acknowledged: bool
) -> None:
    """Fault 54: a Spark job of a killed run lives on and commits after the rewind."""
    landing = made(format, tmp_path)
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    landing.land(5)
    if acknowledged:
        tables.advance(spark, landing.region, "bronze")
    late = zombie(spark, landing, ids=[2] if acknowledged else None)
    landing.rewind(1)
    tables.fence_all(spark, landing.region)
    with pytest.raises(LeaseLost):
        late()
    assert formats.table_of(spark, landing.region, table(landing)).present() == {1}
    assert rows_in(spark, landing) == expected((1, 0, 5))


@pytest.mark.parametrize("format", TRANSACTIONAL)
def test_a_late_first_write_is_refused_by_the_table_that_the_fence_made(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    """The table is not there yet: what is under way must not make it with rows that a rewind has left behind."""
    landing = made(format, tmp_path)
    landing.land(5), landing.land(5)
    late = zombie(spark, landing)
    landing.rewind(1)
    tables.fence_all(spark, landing.region)
    with pytest.raises(LeaseLost):
        late()
    assert formats.table_of(spark, landing.region, table(landing)).present() == set()
    tables.advance(spark, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5))


@pytest.mark.parametrize("format", TRANSACTIONAL)
def test_a_late_commit_of_the_same_checkpoints_is_refused_by_the_table(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    landing = made(format, tmp_path)
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    landing.land(5)
    late = zombie(spark, landing)
    lease_ends(landing)
    tables.advance(spark, landing.region, "bronze")
    with pytest.raises(LeaseLost):
        late()
    assert rows_in(spark, landing) == expected((1, 0, 5), (2, 5, 10))


def zombie(
    spark: SparkSession, landing: Landing, ids: list[int] | None = None, name: str = "bronze"
) -> Callable[[], str]:
    """A writer that has looked at the table, and commits when called."""
    permit = landing.region.plane.do(
        lambda tx: permits.permit_commit(tx, name, holder="zombie", token="zombie", ids=ids)
    )
    assert permit is not None
    form = formats.table_of(spark, landing.region, permit.table)
    based_on = form.history("").version
    stamp = Stamp.of(permit.plan.uid, permit.commit)
    rows = frames.from_plan(spark, landing.region.config, permit.plan)
    where = Where(after=permit.commit.after, upto=permit.commit.upto) if ids is None else Where(ids=tuple(ids))

    def late() -> str:
        form.replace(rows, where, stamp, based_on)
        return form.our_version(form.history(based_on), stamp)

    return late


@pytest.mark.parametrize("format", DELTA_LONG)
def test_a_late_write_to_checkpoints_that_nobody_else_has_written_is_refused_by_the_table(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    landing = made(format, tmp_path)
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    landing.land(5)
    late = zombie(spark, landing, ids=[1])
    lease_ends(landing)
    tables.advance(spark, landing.region, "bronze")
    with pytest.raises(LeaseLost):
        late()
    assert formats.table_of(spark, landing.region, table(landing)).counts([1, 2]) == {1: 10, 2: 10}
    assert tables.look(spark, landing.region, "bronze").clean


@pytest.mark.parametrize("format", DELTA_LONG)
def test_rows_that_somebody_else_adds_are_found_and_mended(spark: SparkSession, tmp_path: Path, format: str) -> None:
    landing = made(format, tmp_path)
    landing.land(5), landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    form = formats.table_of(spark, landing.region, table(landing))
    appended(form, form.read().where("crkafka_checkpoint = 2"))
    seen = tables.look(spark, landing.region, "bronze")
    assert (seen.miscounted, seen.foreign) == ((2,), 1)
    tables.mend(spark, landing.region, "bronze")
    assert tables.look(spark, landing.region, "bronze").clean
    assert rows_in(spark, landing) == expected((1, 0, 5), (2, 5, 10))


@pytest.mark.parametrize("format", TRANSACTIONAL)
def test_who_writes_between_the_look_and_the_commit_is_noticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    landing = made(format, tmp_path)
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    landing.land(5)
    form = formats.table_of(spark, landing.region, table(landing))
    add, appends = type(form).add, [1]

    def after_somebody_else(self: TableFormat, *rest: Any) -> int | None:
        if appends:
            appends.clear()
            appended(form, form.read().withColumn("crkafka_checkpoint", F.lit(99).cast("long")))
        return add(self, *rest)

    monkeypatch.setattr(type(form), "add", after_somebody_else)
    if format == BY_SPARK:
        with pytest.raises(Refused, match="by somebody else"):
            tables.advance(spark, landing.region, "bronze")
        assert (table(landing).acknowledged, form.present()) == (1, {1, 2, 99})
    tables.advance(spark, landing.region, "bronze")  # of Iceberg it looks anew by itself
    assert (table(landing).acknowledged, form.present()) == (2, {1, 2})
    assert tables.look(spark, landing.region, "bronze").clean


def appended(form: TableFormat, rows: DataFrame) -> None:
    """By somebody who knows nothing of this project."""
    if isinstance(form, DeltaTable):
        rows.write.format("delta").mode("append").save(form.path)
    else:
        assert isinstance(form, IcebergTable)
        rows.writeTo(form.name).append()


@pytest.mark.parametrize("format", TRANSACTIONAL)
def test_another_regions_table_is_refused(spark: SparkSession, tmp_path: Path, format: str) -> None:
    one = made(format, tmp_path)
    one.land(5)
    tables.advance(spark, one.region, "bronze")
    other = made(format, tmp_path)
    other.land(5)
    with pytest.raises(OtherRegion, match=one.uid):
        tables.advance(spark, other.region, "bronze")
    assert rows_in(spark, one) == expected((1, 0, 5))


@pytest.mark.parametrize("format", DELTA_LONG)
def test_a_control_plane_that_went_back_in_time_is_noticed(spark: SparkSession, tmp_path: Path, format: str) -> None:
    landing = made(format, tmp_path)
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    before = table(landing)
    landing.land(5), tables.advance(spark, landing.region, "bronze")
    landing.land(5), tables.advance(spark, landing.region, "bronze")
    landing.region.plane.do(lambda tx: tx.put(before))
    landing.region.plane.do(lambda tx: tx.delete(plane.TableCommit, ("number", ">", 1)))
    with pytest.raises(WentBack, match="has commit 3"):
        tables.advance(spark, landing.region, "bronze")


@pytest.mark.parametrize("known", ["", "0", "5", "20", "21", "22", "28", "29"])
def test_all_that_came_after_a_version_of_delta_is_found_however_much(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    landing = made("delta", tmp_path)
    log = [LogEntry(str(version), None, True) for version in range(30)]
    monkeypatch.setattr(DeltaTable, "_described", lambda _, limit: log[-limit:])
    form = DeltaTable(spark, table(landing), {})
    assert form.history(known) == History("29", tuple(log[int(known) + 1 if known else 0 :]))


def log_and_spark(spark: SparkSession, landing: Landing) -> tuple[DeltaTable, DeltaTable]:
    """The table as its log tells of it, and as Spark does."""
    by_log = formats.table_of(spark, landing.region, table(landing))
    assert isinstance(by_log, DeltaTable) and by_log.log is not None
    return by_log, DeltaTable(spark, table(landing), {})


def test_the_log_of_a_delta_table_answers_without_spark_what_spark_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question costs Spark a plan, and a count a job: for nothing, at each checkpoint."""
    landing = made(BY_SPARK, tmp_path)
    by_log, by_spark = log_and_spark(spark, landing)
    assert (by_log.history(""), by_log.counts([1]), by_log.present()) == (by_spark.history(""), {}, set())
    for _ in range(3):
        landing.land(5)
        tables.advance(spark, landing.region, "bronze")
    appended(by_log, by_log.read().where("crkafka_checkpoint = 2"))
    questions: list[Callable[[DeltaTable], object]] = [
        lambda form: form.history(""),
        lambda form: form.history("1"),
        lambda form: form.history("3"),
        lambda form: form.counts([1, 2, 7]),
        lambda form: form.counts([3]),
        lambda form: form.present(),
    ]
    told = [ask(by_spark) for ask in questions]
    assert told[3:] == [{1: 10, 2: 20}, {3: 10}, {1, 2, 3}]
    monkeypatch.setattr(DeltaTable, "_collected", lambda *_: pytest.fail("Spark was asked"))
    assert [ask(by_log) for ask in questions] == told


@pytest.mark.parametrize(
    "done",
    [
        ["OPTIMIZE {}"],
        ["ALTER TABLE {} SET TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0')", "UPDATE {} SET partition = 0"],
        [
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
            "DELETE FROM {} WHERE offset = 1",
        ],
    ],
    ids=["two checkpoints in a file", "no statistics", "deletion vectors"],
)
def test_where_the_log_of_a_delta_table_does_not_tell_spark_counts(
    spark: SparkSession, tmp_path: Path, done: list[str]
) -> None:
    landing = made(BY_SPARK, tmp_path)
    for _ in range(2):
        landing.land(5)
        tables.advance(spark, landing.region, "bronze")
    by_log, by_spark = log_and_spark(spark, landing)
    for statement in done:
        spark.sql(statement.format(by_log.name))
    snapshot = by_log.log and by_log.log.snapshot()
    assert snapshot and snapshot.counts(CHECKPOINT, 1, 2) is None
    rows = 8 if "DELETE" in done[-1] else 10
    assert by_log.counts([1, 2]) == by_spark.counts([1, 2]) == {1: rows, 2: 10}
    assert (by_log.present(), by_log.history("1")) == (by_spark.present(), by_spark.history("1"))


def test_a_delta_table_goes_on_past_the_checkpoints_of_its_log_in_a_new_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    """More than twenty commits; those of others, between ours, need no Spark and so little time."""
    landing = made(BY_SPARK, tmp_path)
    path = tmp_path / "tables" / "bronze"

    def advance(session: SparkSession) -> int:
        landing.land(1)
        done = tables.advance(session, landing.region, "bronze", shape=lambda frame: frame)
        assert done is not None
        return done.acknowledged

    advance(spark)
    for tens in (10, 20):
        while (there := DeltaLog(path)).version() < tens - 1:
            there.alter.set_table_properties({"seen": str(there.version())}, raise_if_not_exists=False)
        session = forgetful(spark)
        session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")  # so that the commit is Spark's
        advance(session)
        assert (path / "_delta_log" / f"{tens:020}.checkpoint.parquet").exists()
    new = forgetful(spark)
    assert rows_in(new, landing) == [(c, p, c - 1) for c in range(1, 4) for p in range(2)]
    assert advance(new) == 4
    assert DeltaLog(path).version() > 20
    assert forgetful(spark).read.format("delta").load(str(path)).count() == 8


def forgetful(spark: SparkSession) -> SparkSession:
    """A session that has to read the logs of all tables anew, as one in another process does."""
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    return spark.newSession()


@pytest.mark.soak
def test_rows_leave_a_file_with_a_deletion_vector_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    landing = made("delta", tmp_path)
    for _ in range(3):
        landing.land(5)
        tables.advance(None, landing.region, "bronze")
    name = f"delta.`{tmp_path / 'tables' / 'bronze'}`"
    spark.sql(f"OPTIMIZE {name}")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {name} WHERE `partition` = 0 AND `offset` = 1")
    landing.land(5)
    tables.advance(None, landing.region, "bronze")
    assert tables.look(None, landing.region, "bronze").miscounted == (1,)
    landing.rewind(2)
    tables.fence(None, landing.region, "bronze")
    gone = (1, 0, 1)
    assert rows_in(spark, landing) == [row for row in expected((1, 0, 5), (2, 5, 10)) if row != gone]
    tables.mend(None, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5), (2, 5, 10))


def test_a_row_that_is_marked_as_deleted_in_an_adopted_file_comes_back_with_mending(
    spark: SparkSession, tmp_path: Path
) -> None:
    landing = made("delta", tmp_path)
    landing.land(5)
    tables.advance(None, landing.region, "bronze")
    name = f"delta.`{tmp_path / 'tables' / 'bronze'}`"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {name} WHERE `partition` = 0 AND `offset` = 1")
    tables.mend(None, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5))
    assert tables.look(None, landing.region, "bronze").clean


def test_a_delta_table_that_is_clustered_goes_on_without_spark_and_stays_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake refuses its features: the table stopped for good."""
    landing = made("delta", tmp_path)
    name = f"delta.`{tmp_path / 'tables' / 'bronze'}`"

    def land() -> None:
        landing.land(5)
        tables.advance(None, landing.region, "bronze")

    land()
    spark.sql(f"ALTER TABLE {name} CLUSTER BY (topic, `offset`)")
    land()
    spark.sql(f"OPTIMIZE {name}")
    landing.land(5)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        die_before_finish(patch)
        tables.advance(None, landing.region, "bronze")
    lease_ends(landing)
    land()
    assert spark.table(name).count() == 40
    assert spark.table(name).where("topic = 'orders' AND `offset` = 17").count() == 2
    landing.rewind(1)  # out of a file that OPTIMIZE has made of two checkpoints
    tables.fence(None, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5))
    land()
    detail = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]
    assert (detail["clusteringColumns"], detail["numFiles"]) == (["topic", "offset"], 3)
    spark.sql(f"OPTIMIZE {name} FULL")
    spark.sql(f"ALTER TABLE {name} CLUSTER BY NONE")
    land()
    assert tables.look(None, landing.region, "bronze").clean
    assert spark.table(name).count() == 30


def test_two_writers_at_once_are_one(spark: SparkSession, landing: Landing) -> None:
    landing.land(5)
    zombie_permit = landing.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="host:1", token="t"))
    assert zombie_permit is not None
    with pytest.raises(Refused, match="held by host:1"):
        tables.advance(spark, landing.region, "bronze")


@pytest.mark.parametrize("format", TRANSACTIONAL)
def test_a_table_of_rows_that_is_not_there_is_neither_written_nor_fenced_anew(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    """As one that adopts segments: perhaps its folder is only not mounted on this machine."""
    landing, there = made(format, tmp_path), tmp_path / "tables"
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    shutil.copytree(there, tmp_path / "older")
    landing.land(5)
    tables.advance(spark, landing.region, "bronze")
    there.rename(tmp_path / "newer")
    landing.land(5)
    with pytest.raises(Refused, match=r"is not there, and version \d+ of it was acknowledged"):
        tables.advance(spark, landing.region, "bronze")
    landing.rewind(2)
    with pytest.raises(Refused, match=r"is not there, and version \d+ of it was acknowledged"):
        tables.fence(spark, landing.region, "bronze")
    if format == BY_SPARK:
        (tmp_path / "older").rename(there)
        with pytest.raises(Refused, match=r"is at version \d+, and version \d+ of it was acknowledged"):
            tables.fence(spark, landing.region, "bronze")
        shutil.rmtree(there)
    (tmp_path / "newer").rename(there)
    tables.fence(spark, landing.region, "bronze")
    assert rows_in(spark, landing) == expected((1, 0, 5), (2, 5, 10))
