"""Tables of a declared shape: every writer uses it, and each record is in exactly one of them whatever dies in between (SPEC K6)."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from crkafka_core.config.sections import TableConfig
from crkafka_core.control import Tx
from crkafka_core.lake import writing
from crkafka_core.lake.delta.snapshot import DeltaSnapshot
from crkafka_core.lake.files import rows_of
from crkafka_core.lake.formats import open_log
from crkafka_core.model.errors import ConfigError, DataLoss
from crkafka_core.model.rows import Lease
from crkafka_core.plane import permits
from crkafka_core.plane import tables as plane
from crkafka_core.region import Region
from crkafka_core.spark import decode, frames, tables
from tests.rigs.landing import Landing
from tests.spark.place import Place

pytestmark = pytest.mark.spark

MODULE = '''
from pyspark.sql.types import LongType, StructField, StructType

from crkafka_core.spark.decode import decode
from crkafka_core.decode.decoders import Json

WHERE = ["partition = 0"]


def split(rows):
    """What is good is a matter of this program's version."""
    return {"good": rows.where(WHERE[0]), "dead": rows.where(f"NOT ({WHERE[0]})")}


def doubled(rows):
    return {"good": rows, "dead": rows.where("offset = 0")}


def one(rows):
    return rows.where("offset < 3").select("crkafka_checkpoint", "partition", "offset")


def typed(rows):
    """Values are no JSON, but for those made so: partition 1."""
    numbered = rows.selectExpr("* EXCEPT (value)", "if(partition = 1, binary(concat('{\\"id\\": ', offset, '}')), value) AS value")
    return decode(numbered.select(rows.columns), Json(), StructType([StructField("id", LongType())]))


NO_FUNCTION = 5
'''


class Crash(BaseException):
    """The process dies here."""


@pytest.fixture
def shop(program: Callable[[str, str], Any]) -> Any:
    return program("shop", MODULE)


def declared(place: Place, format: str, name: str, function: str, output: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "format": format,
        "path": place.path(f"tables/{name}"),
        "shape": f"shop:{function}",
        "output": output,
    }


def made(place: Place, function: str = "split", formats: tuple[str, str] = ("delta", "delta")) -> Landing:
    good = declared(place, formats[0], "orders", function)
    return place.landing([good, declared(place, formats[1], "failed", function, "dead")])


Places = list[tuple[int, int, int]]


def rows_in(spark: SparkSession, landing: Landing, name: str) -> Places:
    """(checkpoint, partition, offset) of every row; doubled ones show."""
    result = tables.read_table(spark, landing.region, name).select("crkafka_checkpoint", "partition", "offset")
    return sorted(tuple(r) for r in result.collect())  # type: ignore[misc]


def expected(partition: int, *checkpoints: int, rows: int = 4) -> Places:
    return [(c, partition, o) for c in checkpoints for o in range((c - 1) * rows, c * rows)]


def leases_end(landing: Landing) -> None:
    def end(tx: Tx) -> None:
        for lease in tx.select(Lease):
            tx.delete(Lease, ("kind", "=", lease.kind), ("slot", "=", lease.slot))

    landing.region.plane.do(end)


def test_all_tables_of_a_shape_are_written_together_and_follow_rewinds(
    spark: SparkSession, place: Place, shop: Any
) -> None:
    landing = made(place, formats=("delta", "iceberg"))
    landing.land(4, times=3)
    done = tables.advance(spark, landing.region, "failed", limit=2)
    assert done is not None and (done.table, done.checkpoints, done.rows) == ("failed", (1, 2), 8)
    assert rows_in(spark, landing, "orders") == expected(0, 1, 2)
    assert rows_in(spark, landing, "failed") == expected(1, 1, 2)
    tables.advance(spark, landing.region, "orders")
    assert tables.advance(spark, landing.region, "failed") is None
    landing.rewind(1)
    tables.fence_all(spark, landing.region)
    landing.offsets[4] = landing.offsets[1]
    landing.land(0)
    tables.advance(spark, landing.region, "orders")
    tables.rewrite(spark, landing.region, "orders", [1])
    assert rows_in(spark, landing, "orders") == expected(0, 1)
    assert rows_in(spark, landing, "failed") == expected(1, 1)
    assert all(tables.look(spark, landing.region, name).clean for name in ("orders", "failed"))


STEPS = [
    "before the first commit",
    "between the commits",
    "before they are acknowledged",
    "between the acknowledgements",
]


@pytest.mark.parametrize(
    ("step", "again"),
    [
        pytest.param(STEPS[1], False, marks=pytest.mark.soak),
        pytest.param(STEPS[2], False, marks=pytest.mark.soak),
        pytest.param(STEPS[1], True, marks=pytest.mark.soak),
        (STEPS[2], True),
        pytest.param(STEPS[3], True, marks=pytest.mark.soak),
    ],
)
def test_whatever_dies_between_two_tables_each_record_is_in_exactly_one_of_them(
    spark: SparkSession, place: Place, shop: Any, monkeypatch: pytest.MonkeyPatch, step: str, again: bool
) -> None:
    """The program is changed while it is down: what was good is bad now."""
    landing = made(place)
    landing.land(4)
    if again:
        landing.land(4)
    tables.advance(spark, landing.region, "orders")
    if not again:
        landing.land(4)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        die(patch, step)
        shop.WHERE[0] = "offset >= 6"
        if again:
            tables.rewrite(spark, landing.region, "orders", [2])
        else:
            tables.advance(spark, landing.region, "orders")
    leases_end(landing)
    shop.WHERE[0] = "offset >= 7"
    landing.land(4)
    tables.advance(spark, landing.region, "failed")
    good, bad = rows_in(spark, landing, "orders"), rows_in(spark, landing, "failed")
    everything = sorted(row for p in (0, 1) for row in expected(p, 1, 2, 3))
    assert Counter(good) + Counter(bad) == Counter(everything)
    least = 6 if step == STEPS[2] and not again else 7  # what both tables show is acknowledged as it is
    assert [row for row in good if row[0] == 2] == [(2, p, offset) for p in (0, 1) for offset in range(least, 8)]
    assert [row[0] for row in good if row[0] == 3] == [3] * 8
    for name in ("orders", "failed"):
        assert tables.look(spark, landing.region, name).clean


def die(patch: pytest.MonkeyPatch, step: str) -> None:
    """At the given step of the pass; nothing can be given back."""
    at, count = STEPS.index(step), [0]

    def counting(what: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            if count[0] == at:
                raise Crash
            count[0] += 1
            return what(*given, **more)

        return call

    patch.setattr(DeltaSnapshot, "commit", counting(DeltaSnapshot.commit))
    patch.setattr(permits, "finish_commit", counting(permits.finish_commit))
    patch.setattr(writing, "give_up", lambda *_: None)


def test_decoding_is_done_once_for_both_tables(
    spark: SparkSession, place: Place, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = made(place, "typed")
    landing.land(4)
    kept: list[DataFrame] = []
    keep = decode.keep_once
    monkeypatch.setattr("crkafka_core.spark.decode.keep_once", lambda frame: kept.append(keep(frame)) or kept[-1])
    tables.advance(spark, landing.region, "orders")
    assert len(kept) == 2, "one to see the columns, and one that is computed once for both"
    assert not any(frame.storageLevel.useMemory for frame in kept)
    orders = tables.read_table(spark, landing.region, "orders")
    assert [tuple(r) for r in orders.orderBy("offset").select("partition", "offset", "id", "tombstone").collect()] == [
        (1, o, o, False) for o in range(4)
    ]
    dead = tables.read_table(spark, landing.region, "failed")
    assert [(r.partition, r.offset, bytes(r.value)) for r in dead.orderBy("offset").collect()] == [
        (0, o, f"orders:0:{o}".encode()) for o in range(4)
    ]


def test_a_shape_that_gives_a_row_twice_writes_nothing(spark: SparkSession, place: Place, shop: Any) -> None:
    landing = made(place, "doubled")
    landing.land(4)
    with pytest.raises(DataLoss, match=r"10 rows were made of them \(8 good, 2 dead\); 8 were merged"):
        tables.advance(spark, landing.region, "orders")
    assert rows_in(spark, landing, "orders") == rows_in(spark, landing, "failed") == []


@pytest.mark.parametrize(
    ("function", "refusal"),
    [
        ("gone", "shape shop:gone of table orders cannot be imported"),
        ("one", "takes the output dead"),
        ("NO_FUNCTION", "is not a function"),
    ],
)
def test_a_shape_that_cannot_be_meant_is_refused(
    spark: SparkSession, place: Place, shop: Any, function: str, refusal: str
) -> None:
    landing = made(place, function)
    landing.land(4)
    with pytest.raises(ConfigError, match=refusal):
        tables.advance(spark, landing.region, "orders")
    with pytest.raises(ConfigError, match=f"shop:{function}, a function of DataFrames: Spark makes its rows"):
        tables.advance(None, landing.region, "orders")


def test_a_table_that_the_configuration_names_no_more_is_not_written_with_records_of_other_topics(
    spark: SparkSession, place: Place, shop: Any
) -> None:
    landing = place.landing([declared(place, "delta", "orders", "one")], partitions=1, topics=["orders"])
    landing.land(1)
    without = Region(landing.region.config.model_copy(update={"tables": ()}), landing.region.plane)
    with pytest.raises(
        ConfigError, match=r"the configuration here does not say what that is.*`crkafka tables undeclare` it"
    ):
        tables.advance(spark, without, "orders")


def test_a_table_that_joins_a_shape_later_gets_its_rows_and_the_others_lose_them(
    spark: SparkSession, place: Place, shop: Any
) -> None:
    shop.split = lambda rows: {"good": rows}
    landing = place.landing([declared(place, "delta", "orders", "split")])
    landing.land(4, times=2)
    tables.advance(spark, landing.region, "orders")
    landing.declare(TableConfig(**declared(place, "delta", "failed", "split", "dead")))
    shop.split = lambda rows: {"good": rows.where("partition = 0"), "dead": rows.where("partition = 1")}
    landing.land(4)
    tables.advance(spark, landing.region, "orders")
    assert rows_in(spark, landing, "orders") == expected(0, 1, 2, 3)
    assert rows_in(spark, landing, "failed") == expected(1, 1, 2, 3)


def test_a_table_that_had_only_empty_checkpoints_and_was_fenced_takes_its_first_rows(
    spark: SparkSession, place: Place, shop: Any
) -> None:
    """The fence has made it, without the columns of its rows."""
    table = declared(place, "delta", "orders", "one")
    landing = place.landing([table])
    landing.land(0, times=2)
    tables.advance(spark, landing.region, "orders")
    landing.rewind(1)
    tables.fence_all(spark, landing.region)
    landing.offsets[2] = landing.offsets[1]
    landing.land(4)
    tables.advance(spark, landing.region, "orders")
    assert rows_in(spark, landing, "orders") == [(3, p, o) for p in (0, 1) for o in range(3)]


PARTED = """
from pyspark.sql import functions as F


def by_day(rows):
    day = F.expr("timestamp + make_interval(0, 0, 0, int(offset % 2)) AS at")
    odd = F.expr("if(offset % 2 = 0, null, array('odd')) AS tags")
    return rows.select("*", day, odd, F.expr("'p' || partition AS part"), F.lit(1).alias("one"))
"""


@pytest.mark.parametrize("format", ["delta", pytest.param("iceberg", marks=pytest.mark.soak)])
def test_rows_of_every_kind_come_as_they_are_into_files_of_their_partitions(
    spark: SparkSession, place: Place, program: Callable[[str, str], Any], format: str
) -> None:
    """Files are written by tasks of ours, as a host's pool does it: bounds in the log, no file of two partitions, null lists stay null."""
    program("parted", PARTED)
    path = place.path("tables/or-ders")
    table = {"name": "orders", "format": format, "path": path, "shape": "parted:by_day", "partition_by": ["part"]}
    landing = place.landing([table])
    landing.rewind(0)  # the fence makes it, with its partitions
    tables.fence_all(spark, landing.region)
    landing.land(4, times=2)
    tables.advance(spark, landing.region, "orders")
    shaped = importlib.import_module("parted").by_day(frames.checkpoints(spark, landing.region))
    columns = shaped.columns
    stored_rows = tables.read_table(spark, landing.region, "orders").select(columns)
    assert sorted(map(str, stored_rows.collect())) == sorted(map(str, shaped.collect()))
    assert stored_rows.where("tags IS NULL").count() == 8
    row = landing.region.plane.read(lambda reader, _: plane.of(reader, "orders"))
    snapshot = open_log(landing.region, row).look()
    assert snapshot is not None
    files = list(snapshot.files())
    assert {(file.values["part"], file.lowest["partition"], file.highest["partition"]) for file in files} == {
        ("p0", 0, 0),
        ("p1", 1, 1),
    }
    assert all(file.numbers is not None and "/".join(file.path.split("/")[:1]) == landing.uid for file in files)


def test_a_shape_may_give_more_columns_fewer_and_in_another_order_in_a_catalog_too(
    spark: SparkSession, place: Place, program: Callable[[str, str], Any]
) -> None:
    """The catalog chooses where the table's files are to be, once the table is made."""
    shop = program(
        "more", 'MORE = []\n\n\ndef more(rows):\n    return rows.selectExpr("crkafka_checkpoint", "offset", *MORE)\n'
    )
    warehouse, uri = place.path("warehouse"), f"sqlite:///{place.folder}/catalog.db"
    settings = {"type": "jdbc", "uri": f"jdbc:{uri.replace('///', '')}", "warehouse": warehouse}
    conf = {f"spark.sql.catalog.my-lake.{key}": value for key, value in settings.items()}
    table = {"name": "orders", "format": "iceberg", "path": "my-lake.bronze.orders", "shape": "more:more"}
    landing = place.landing([table], host={"spark": "local[2]", "conf": conf})
    for more in ([], ["CAST(key AS STRING) AS who"], ["'x' AS extra"]):
        shop.MORE[:] = more
        landing.land(2)
        tables.advance(spark, landing.region, "orders")
    row = landing.region.plane.read(lambda reader, _: plane.of(reader, "orders"))
    log = open_log(landing.region, row)
    snapshot = log.look()
    assert snapshot is not None and snapshot.schema.names == ["crkafka_checkpoint", "offset", "who", "extra"]
    result = [batch for file in snapshot.files() for batch in rows_of(log.storage, file)]
    rows = sorted(
        (row["crkafka_checkpoint"], row["offset"], row.get("extra")) for batch in result for row in batch.to_pylist()
    )
    assert rows == [(n + 1, o, "x" if n == 2 else None) for n in range(3) for o in (2 * n, 2 * n, 2 * n + 1, 2 * n + 1)]
    shop.MORE[:] = ["5 AS extra"]
    landing.land(2)
    with pytest.raises(ConfigError, match="column extra is string and would become int32"):
        tables.advance(spark, landing.region, "orders")
