"""`mode: upsert`: one row for each key, whatever dies, comes late, is rewound or written by others (SPEC K6, X4)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from crkafka_core.control import Tx
from crkafka_core.lake import writing
from crkafka_core.model.errors import ConfigError, LeaseLost, Refused
from crkafka_core.model.rows import Lease
from crkafka_core.plane import permits
from crkafka_core.plane import tables as plane
from crkafka_core.spark import iceberg_catalog, iceberg_upsert, location, tables, upsert
from crkafka_core.spark.delta_table import DeltaTable
from crkafka_core.spark.iceberg_table import IcebergTable
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.tables import delta_upsert
from tests.rigs.landing import Landing
from tests.spark.place import Place, lake

pytestmark = pytest.mark.spark

SHAPE = '''
MORE = []
GONE = ["offset % 5 = 4"]


def latest(rows):
    """Seven keys in each partition; every fifth record deletes its key."""
    return rows.selectExpr(
        "crkafka_checkpoint", "partition", "offset", "concat(partition, '-', offset % 7) AS id", f"{GONE[0]} AS crkafka_deleted", *MORE
    )


def nobody(rows):
    return rows.selectExpr("crkafka_checkpoint", "partition", "offset", "CAST(NULL AS STRING) AS id")


def nowhere(rows):
    return rows.selectExpr("crkafka_checkpoint", "'a' AS id")


def typed(rows):
    from pyspark.sql.types import LongType, StructField, StructType

    from crkafka_core.spark.decode import decode
    from crkafka_core.decode.decoders import Json

    numbered = rows.selectExpr(
        "* EXCEPT (value, key)", "binary(concat('k', partition, offset % 3)) AS key",
        "CASE WHEN offset % 4 = 3 THEN NULL WHEN partition = 1 THEN value ELSE binary(concat('{\\"n\\": ', offset, '}')) END AS value",
    )
    columns, keep = StructType([StructField("n", LongType())]), ("key", "topic", "partition", "offset")
    return decode(numbered.select(rows.columns), Json(), columns, keep=keep, prefix="kafka_")
'''


class Crash(BaseException):
    """The process dies here."""


@pytest.fixture
def shop(program: Callable[[str, str], Any]) -> Any:
    return program("latest", SHAPE)


@pytest.fixture(params=["delta", "iceberg"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def made(place: Place, function: str = "latest", keys: tuple[str, ...] = ("id",), **more: Any) -> Landing:
    table = {
        "name": "now",
        "format": "delta",
        "path": place.path("now"),
        "shape": f"latest:{function}",
        "mode": "upsert",
        "keys": keys,
        **more,
    }
    return place.landing([{k: v for k, v in table.items() if v is not None}])


def truth(upto: int) -> dict[str, int]:
    """Key → offset of its last record below one, in two partitions."""
    found: dict[str, int] = {}
    for partition in range(2):
        for offset in range(upto):
            key = f"{partition}-{offset % 7}"
            if offset % 5 == 4:
                found.pop(key, None)
            else:
                found[key] = offset
    return found


def rows_in(spark: SparkSession, landing: Landing) -> dict[str, int]:
    """Key → offset; a key that is there twice fails. A table without rows has no columns of its shape yet."""
    found = tables.read_table(spark, landing.region, "now")
    rows = found.select("id", "offset").collect() if "id" in found.columns else found.collect()
    assert len({r.id for r in rows}) == len(rows)
    return {r.id: r.offset for r in rows}


def direct(spark: SparkSession, landing: Landing) -> dict[str, int]:
    """The same by a program that knows nothing of us."""
    table = landing.config.tables[0]
    if table.format == "delta":
        read = [(r["id"], r["offset"]) for r in lake(landing, table.path).to_pyarrow_table().to_pylist()]
    else:
        there = spark.table(iceberg_catalog.named(spark, table.path))
        read = [(r["id"], r["offset"]) for r in there.collect()]
        assert "main" in branches(spark, landing) <= {"main", "crkafka"}
    assert len(dict(read)) == len(read)
    return dict(read)


def branches(spark: SparkSession, landing: Landing) -> set[str]:
    """And tags."""
    name = iceberg_catalog.named(spark, landing.config.tables[0].path)
    return {r[0] for r in spark.table(f"{name}.refs").select("name").collect()}


def advanced(spark: SparkSession, landing: Landing, *rows: int) -> None:
    for each in rows:
        landing.land(each)
        tables.advance(spark, landing.region, "now")


def leases_end(landing: Landing) -> None:
    def end(tx: Tx) -> None:
        for lease in tx.select(Lease, ("region", "=", "orders")):
            tx.delete(Lease, ("region", "=", "orders"), ("kind", "=", lease.kind), ("slot", "=", lease.slot))

    landing.region.plane.do(end)


def acknowledged(landing: Landing) -> int:
    return landing.region.plane.read(lambda reader, row: plane.of(reader, "now")).acknowledged


def test_the_last_record_of_each_key_and_a_rewind_brings_back_what_later_ones_replaced(
    spark: SparkSession, place: Place, format: str, shop: Any
) -> None:
    landing = made(place, format=format)
    landing.land(6), landing.land(0), landing.land(5)
    tables.advance(spark, landing.region, "now")  # three checkpoints by one commit
    assert rows_in(spark, landing) == direct(spark, landing) == truth(11)
    assert "crkafka_deleted" not in tables.read_table(spark, landing.region, "now").columns
    advanced(spark, landing, 9, 4)
    assert direct(spark, landing) == truth(24)
    assert tables.look(spark, landing.region, "now").clean
    landing.rewind(4)
    assert rows_in(spark, landing) == truth(20)
    tables.fence_all(spark, landing.region)
    assert rows_in(spark, landing) == direct(spark, landing) == truth(20)
    landing.land(4)
    landing.rewind(1)  # in the middle of the first commit: what it had before is made anew
    tables.fence_all(spark, landing.region)
    assert (acknowledged(landing), direct(spark, landing)) == (0, {})
    tables.advance(spark, landing.region, "now")
    assert rows_in(spark, landing) == direct(spark, landing) == truth(6)
    advanced(spark, landing, 8)
    assert direct(spark, landing) == truth(14)
    assert tables.look(spark, landing.region, "now").clean


@pytest.mark.soak
def test_deletes_of_what_is_not_there_are_a_commit_like_any_other(
    spark: SparkSession, place: Place, format: str, shop: Any
) -> None:
    landing = made(place, format=format)
    shop.GONE[0] = "true"
    advanced(spark, landing, 6)
    assert (acknowledged(landing), direct(spark, landing)) == (1, {})
    shop.GONE[0] = "offset % 5 = 4"
    advanced(spark, landing, 5)
    assert rows_in(spark, landing) == {f"{p}-{o % 7}": o for p in range(2) for o in (6, 7, 8, 10)}


STEPS = [
    "before making the table",
    "before the columns",
    "before the merge",
    "after the merge",
    "before the acknowledgement",
]


LONG = pytest.mark.soak


@pytest.mark.parametrize(
    ("step", "rewound"),
    [
        *(pytest.param(step, False, marks=LONG) for step in STEPS),
        (STEPS[3], True),
    ],
)
def test_a_crash_at_any_step_and_a_retry_leave_each_key_once(
    spark: SparkSession, place: Place, format: str, shop: Any, monkeypatch: pytest.MonkeyPatch, step: str, rewound: bool
) -> None:
    """Between them the shape changes: what was deleted by the first try may not be gone."""
    landing = made(place, format=format)
    start = 0
    if step not in STEPS[:2]:
        advanced(spark, landing, 6)
        start = 6
    landing.land(6), landing.land(3)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        die(patch, step)
        shop.GONE[0] = "true"
        tables.advance(spark, landing.region, "now")
    shop.GONE[0] = "offset % 5 = 4"
    assert rows_in(spark, landing) == truth(start)
    leases_end(landing)
    if rewound:
        landing.rewind(2)
        tables.fence_all(spark, landing.region)
        assert direct(spark, landing) == truth(start)
    tables.advance(spark, landing.region, "now")
    assert rows_in(spark, landing) == direct(spark, landing) == truth(start + 6 if rewound else start + 9)
    assert tables.look(spark, landing.region, "now").clean


def die(patch: pytest.MonkeyPatch, step: str) -> None:
    """At the given step; nothing can be given back."""

    def dead(*_: Any, **__: Any) -> None:
        raise Crash

    def then_dead(what: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> None:
            what(*given, **more)
            raise Crash

        return call

    patch.setattr(writing, "give_up", lambda *_: None)
    if step == STEPS[0]:
        patch.setattr(delta_upsert, "acknowledged", dead)
        patch.setattr(IcebergTable, "make", dead)
    elif step == STEPS[1]:
        patch.setattr(DeltaTable, "widen", dead)
        patch.setattr(IcebergTable, "widen", dead)
    elif step == STEPS[2]:
        patch.setattr(upsert, "_merge", dead)
    elif step == STEPS[3]:
        patch.setattr(upsert, "_merge", then_dead(upsert._merge))
    else:
        patch.setattr(permits, "finish_commit", dead)


@pytest.mark.parametrize("step", ["_merge", pytest.param("put_back", marks=LONG)])
def test_who_comes_late_changes_nothing(
    spark: SparkSession, place: Place, format: str, shop: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It sleeps before its merge, or before putting back what another had left; meanwhile others take its place."""
    landing = made(place, format=format)
    advanced(spark, landing, 6)
    landing.land(6)
    if step == "put_back":
        with monkeypatch.context() as patch, pytest.raises(Crash):
            die(patch, STEPS[4])
            tables.advance(spark, landing.region, "now")
        leases_end(landing)
    where: Any = upsert if step == "_merge" else delta_upsert if format == "delta" else iceberg_upsert
    step = step if hasattr(where, step) else f"_{step}"
    original: Callable[..., Any] = getattr(where, step)

    def late(*given: Any) -> Any:
        monkeypatch.setattr(where, step, original)
        for ask in ("check", "confirm"):
            monkeypatch.setattr(
                writing.Hold, ask, lambda _: None
            )  # it does not know, and only the table stands between
        leases_end(landing)
        tables.advance(spark, landing.region, "now")
        advanced(spark, landing, 5)
        return original(*given)

    monkeypatch.setattr(where, step, late)
    with pytest.raises((LeaseLost, Refused)):
        tables.advance(spark, landing.region, "now")
    assert rows_in(spark, landing) == direct(spark, landing) == truth(17)
    assert tables.look(spark, landing.region, "now").clean


@pytest.mark.soak
def test_a_session_that_cannot_be_doubled_carries_the_commits_number_only_for_the_merge(
    spark: SparkSession, place: Place, format: str, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of Spark Connect."""
    landing, merge = made(place), upsert._merge
    advanced(spark, landing, 6)
    monkeypatch.setattr(upsert, "location", SimpleNamespace(is_connect=lambda _: True, identifier=location.identifier))
    advanced(spark, landing, 5)
    assert rows_in(spark, landing) == direct(spark, landing) == truth(11)
    landing.land(6)

    def fails(*given: Any) -> None:
        merge(*given)
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(upsert, "_merge", fails)
        tables.advance(spark, landing.region, "now")
    for setting in ("delta.write.txnAppId", "delta.write.txnVersion", "delta.commitInfo.userMetadata"):
        assert spark.conf.get(f"spark.databricks.{setting}", None) is None
    leases_end(landing)
    tables.advance(spark, landing.region, "now")
    assert rows_in(spark, landing) == direct(spark, landing) == truth(17)
    assert tables.look(spark, landing.region, "now").clean


@pytest.mark.soak
def test_what_others_write_is_undone_and_what_they_compact_is_not(spark: SparkSession, place: Place, shop: Any) -> None:
    landing = made(place)
    advanced(spark, landing, 6, 6)
    path = landing.config.tables[0].path
    tables.maintain(spark, landing.region, "now")
    assert tables.look(spark, landing.region, "now").clean
    now = lake(landing, path)
    write_deltalake(now, now.to_pyarrow_table(), mode="append")
    assert tables.look(spark, landing.region, "now").foreign == 1
    assert rows_in(spark, landing) == truth(12)
    tables.mend(spark, landing.region, "now")
    assert direct(spark, landing) == truth(12)
    lake(landing, path).delete("offset < 9")
    advanced(spark, landing, 6)
    assert rows_in(spark, landing) == direct(spark, landing) == truth(18)


@pytest.mark.soak  # tests/tables/test_delta_upsert.py does it without Spark
def test_a_version_that_was_vacuumed_is_said_before_anything_changes(
    spark: SparkSession, place: Place, shop: Any
) -> None:
    landing = made(place)
    advanced(spark, landing, 6, 6)
    path = landing.config.tables[0].path
    lake(landing, path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    landing.rewind(1)
    with pytest.raises(Refused, match=r"cannot go back to checkpoint 1, its version \d+: its files were vacuumed"):
        tables.fence_all(spark, landing.region)
    assert direct(spark, landing) == truth(12)


def test_of_iceberg_what_others_write_is_undone_and_a_snapshot_that_is_gone_is_said(
    spark: SparkSession, place: Place, shop: Any
) -> None:
    landing = made(place, format="iceberg")
    advanced(spark, landing, 6, 6)
    name = iceberg_catalog.named(spark, landing.config.tables[0].path)
    tables.maintain(spark, landing.region, "now")
    assert tables.look(spark, landing.region, "now").clean
    spark.table(name).where("offset < 9").writeTo(name).append()
    assert tables.look(spark, landing.region, "now").foreign == 1
    assert rows_in(spark, landing) == truth(12)
    tables.mend(spark, landing.region, "now")
    assert direct(spark, landing) == truth(12)
    catalog, _, table = name.partition(".")
    of = f"table => '{table.strip('`')}', older_than => current_timestamp(), retain_last => 1"
    spark.sql(f"CALL {catalog}.system.expire_snapshots({of})").collect()
    spark.sql(f"DELETE FROM {name} WHERE offset > 9").collect()
    spark.sql(f"CALL {catalog}.system.expire_snapshots({of})").collect()
    advanced(spark, landing, 5)  # the acknowledged snapshot is kept
    assert rows_in(spark, landing) == direct(spark, landing) == truth(17)
    landing.rewind(1)
    with pytest.raises(Refused, match=r"cannot go back to checkpoint 1, its version \d+: its snapshot has expired"):
        tables.fence_all(spark, landing.region)
    assert direct(spark, landing) == truth(17)


@pytest.mark.soak
def test_columns_may_become_more(spark: SparkSession, place: Place, format: str, shop: Any) -> None:
    landing = made(place, format=format)
    advanced(spark, landing, 6)
    shop.MORE.append("named_struct('a', offset) AS more")
    advanced(spark, landing, 6)
    shop.MORE[0] = "named_struct('a', offset, 'b', 'x') AS more"
    advanced(spark, landing, 6)
    assert rows_in(spark, landing) == truth(18)
    shop.MORE.clear()
    advanced(spark, landing, 7)
    found = tables.read_table(spark, landing.region, "now")
    assert found.where("offset >= 18").count() and not found.where("offset >= 18 AND more IS NOT NULL").count()
    landing.rewind(1)
    tables.fence_all(spark, landing.region)
    assert direct(spark, landing) == truth(6)


@pytest.mark.parametrize("format", ["delta", pytest.param("iceberg", marks=LONG)], indirect=True)
def test_fields_inside_of_structs_and_lists_come_and_go(
    spark: SparkSession, place: Place, format: str, shop: Any
) -> None:
    landing = made(place, format=format)
    given = [
        ("named_struct('a', 1)", "array(named_struct('a', 1))", "map('k', named_struct('a', 1))"),
        ("named_struct('a', 2)", "array(named_struct('b', 'x', 'a', 2))", "map('k', named_struct('a', 2))"),
        ("named_struct('b', 'y')", "array(named_struct('b', 'y'))", "map('k', named_struct('b', 'y'))"),
        (
            "CAST(NULL AS STRUCT<a INT>)",
            "CAST(array() AS ARRAY<STRUCT<a INT>>)",
            "CAST(NULL AS MAP<STRING, STRUCT<a INT>>)",
        ),
    ]
    seen = []
    for one, many, named in given:
        shop.MORE[:] = [f"{one} AS one", f"{many} AS many", f"{named} AS named"]
        advanced(spark, landing, 5)
        found = tables.read_table(spark, landing.region, "now").orderBy("offset", ascending=False).first()
        assert found is not None
        row = found.asDict(recursive=True)
        seen.append([row[name] for name in ("one", "many", "named")])
    shop.MORE.clear()
    assert rows_in(spark, landing) == truth(20)
    only_b = {"a": None, "b": "y"}
    assert seen[0] == [{"a": 1}, [{"a": 1}], {"k": {"a": 1}}]
    assert seen[1] == [{"a": 2}, [{"a": 2, "b": "x"}], {"k": {"a": 2}}]
    assert seen[2:] == [[only_b, [only_b], {"k": only_b}], [None, [], None]]


@pytest.mark.parametrize(
    ("function", "keys", "said"),
    [
        ("nobody", ("id",), r"16 records have none of it, the first at \(0, 0\)"),
        ("nowhere", ("id",), "do not tell which that is"),
        ("latest", ("name",), "have no column name"),
    ],
)
def test_rows_that_cannot_be_kept_by_key_are_refused(
    spark: SparkSession, place: Place, shop: Any, function: str, keys: tuple[str, ...], said: str
) -> None:
    landing = made(place, function, keys)
    with pytest.raises((ConfigError, Refused), match=said):
        advanced(spark, landing, 8)


def test_other_keys_no_keys_and_a_rewrite_are_refused(
    spark: SparkSession, place: Place, format: str, shop: Any
) -> None:
    landing = made(place, format=format)
    advanced(spark, landing, 6)
    with pytest.raises(Refused, match="rows of single checkpoints cannot be written again"):
        tables.rewrite(spark, landing.region, "now", [1])
    landing.land(6)
    for config in (
        made(place, keys=("id", "partition"), format=format),
        made(place, mode=None, keys=None, format=format),
    ):
        object.__setattr__(landing.region, "config", config.region.config)
        with pytest.raises(Refused, match="has one row for each id, and is declared with one for each"):
            tables.advance(spark, landing.region, "now")
    landing.rewind(1)  # nor does a program of the older configuration fence it
    with pytest.raises(Refused, match="has one row for each id, and is declared with one for each record"):
        tables.fence_all(spark, landing.region)
    assert direct(spark, landing) == truth(6)


@pytest.mark.soak
def test_a_table_of_decoded_rows_is_kept_by_kafkas_key_beside_its_dead_letters(
    spark: SparkSession, place: Place, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tombstones delete; bad records are in the other table, of which each is there once, also if the process dies between the two."""
    landing = made(place, "typed", ("kafka_key",), output="good")
    dead = {"name": "bad", "format": "delta", "path": place.path("bad"), "shape": "latest:typed", "output": "dead"}
    landing = place.landing([landing.config.tables[0].model_dump(exclude_none=True), dead])
    advanced(spark, landing, 6)
    landing.land(6)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        die(patch, STEPS[3])
        tables.advance(spark, landing.region, "now")
    leases_end(landing)
    landing.land(1)
    tables.advance(spark, landing.region, "now")
    tables.advance(spark, landing.region, "bad")
    kept = {bytes(r.kafka_key): r.n for r in tables.read_table(spark, landing.region, "now").collect()}
    # Of partition 0: k00 at 0 3 6 9 12, k01 at 1 4 7 10, k02 at 2 5 8 11; those of offset 3, 7 and 11 are tombstones.
    assert kept == {b"k00": 12, b"k01": 10}
    bad = tables.read_table(spark, landing.region, "bad").select("partition", "offset").collect()
    assert sorted(tuple(r) for r in bad) == [(1, o) for o in range(13) if o % 4 != 3]
    foreign = lake(landing, place.path("bad"))
    rows = foreign.to_pyarrow_table()
    strange = pa.array([99] * len(rows), pa.int64())
    write_deltalake(
        foreign, rows.set_column(rows.schema.get_field_index(CHECKPOINT), CHECKPOINT, strange), mode="append"
    )
    assert tables.look(spark, landing.region, "bad").strangers == (99,)
    tables.mend(spark, landing.region, "bad")
    assert tables.look(spark, landing.region, "bad").clean
    assert tables.read_table(spark, landing.region, "bad").count() == len(rows)
