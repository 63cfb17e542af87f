"""Declared tables: their shapes, their places, who feeds them, and what a configuration may change of them (SPEC K6)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial

import pytest

from crkafka_core.model.errors import Refused
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Table
from crkafka_core.plane import events, life, permits, retire, tables
from tests.plane.bronze import allowed, fence, finish, table
from tests.rigs.landing import Landing


def test_an_undeclared_table_holds_nothing_back_and_owes_no_fence(landing: Landing) -> None:
    landing.land(10, times=2)
    finish(landing, allowed(landing))
    landing.rewind(1)
    landing.do(lambda tx: tables.undeclare(tx, "bronze"))
    assert landing.read(lambda _, region: region.phase) is Phase.RESETTING
    again = landing.do(lambda tx: tables.declare(tx, "bronze", "delta", "lake.shop.other"))
    assert (again.commits, again.acknowledged) == (1, 0)
    (told,) = landing.read(lambda reader, _: events.last(reader, 1))
    assert (told.kind, told.text) == ("table declared", "bronze: delta at lake.shop.other")
    assert allowed(landing, "b").commit.number == 2


def test_a_table_is_behind_until_it_has_the_head_unless_it_is_left_to_others(landing: Landing) -> None:
    def late(*left: str) -> dict[str, int]:
        return landing.read(lambda reader, region: tables.late(reader, region, left))

    assert late() == {}
    landing.land(10, times=2)
    finish(landing, allowed(landing, limit=1))
    assert late() == {"bronze": 1} and late("bronze") == {}
    finish(landing, allowed(landing, "b"))
    assert late() == {}


def test_how_far_a_table_was_by_a_time_is_told_by_its_commits(landing: Landing) -> None:
    def advanced(by: float) -> int:
        return landing.read(lambda reader, _: tables.advanced(reader, table(landing), by=by))

    landing.land(10)
    assert advanced(9e9) == 0
    finish(landing, allowed(landing))
    assert (advanced(0), advanced(9e9)) == (0, 1)


def test_a_table_declared_otherwise_is_refused(landing: Landing) -> None:
    with pytest.raises(Refused, match=r"declared as delta at lake\.shop\.bronze"):
        landing.do(lambda tx: tables.declare(tx, "bronze", "delta", "/t/bronze"))


@pytest.mark.parametrize(
    ("format", "path", "shape", "adopts", "needs_spark"),
    [
        ("delta", "/t/b", "", True, False),
        ("delta", "hdfs://n/t/b", "", False, True),
        ("iceberg", "/t/b", "", True, False),
        ("iceberg", "s3://t/b", "", True, False),
        ("iceberg", "hdfs://n/t/b", "", False, True),
        ("iceberg", "lake.raw.b", "", False, True),
        ("iceberg", "gs://t/b", "", True, False),
        ("iceberg", "/t/b", "shop:typed", False, True),
        ("delta", "lake.shop.b", "", False, True),
    ],
)
def test_K6_raw_tables_whose_log_is_reached_without_spark_need_none(
    landing: Landing, format: str, path: str, shape: str, adopts: bool, needs_spark: bool
) -> None:
    made = landing.do(lambda tx: tables.declare(tx, "other", format, path, shape=shape))
    fed = landing.read(lambda reader, row: tables.fed_by_spark(reader, row, ()))
    assert (made.layout == tables.FILES, tables.needs_spark(made)) == (adopts, needs_spark)
    assert (made.name in {t.name for family in fed for t in family}) == needs_spark


@pytest.mark.parametrize(("format", "path"), [("delta", "lake.shop.elsewhere"), ("delta", "/t/bronze")])
def test_K6_configuration_that_moves_a_table_is_refused_and_what_it_acknowledged_stands(
    landing: Landing, format: str, path: str
) -> None:
    landing.land(10)
    finish(landing, allowed(landing))
    store, before = landing.region.plane.store, landing.read(lambda _, region: region)
    changed = replace(before, config_json='{"other": true}')
    with pytest.raises(
        Refused, match=r"declared as delta at lake.shop.bronze.*`crkafka tables undeclare bronze` first"
    ):
        life.declare(store, changed, (Table("orders", "bronze", format, path),))
    assert (table(landing).path, table(landing).acknowledged) == ("lake.shop.bronze", 1)
    assert landing.read(lambda _, region: region) == before  # nothing of the new configuration is kept
    landing.do(lambda tx: tables.undeclare(tx, "bronze"))
    life.declare(store, changed, (Table("orders", "bronze", format, path),))
    adopts = table(landing).layout == tables.FILES
    if adopts:  # it may hold what was superseded meanwhile
        fence(landing)
    made = allowed(landing, "b")
    assert (made.plan.checkpoints, made.commit.number) == (
        (1,),
        3 if adopts else 2,
    )  # from birth, by numbers that go on


def test_K6_a_table_with_rows_of_one_shape_takes_no_other(landing: Landing) -> None:
    def declare(shape: str, output: str = "") -> Table:
        return landing.do(
            lambda tx: tables.declare(tx, "bronze", "delta", "lake.shop.bronze", shape=shape, output=output)
        )

    assert declare("shop.shapes:typed").shape == "shop.shapes:typed"  # nothing is in it yet
    assert declare("shop.shapes:typed").acknowledged == 0
    for shape, output, would in (
        ("shop.shapes:other", "", "with shape shop.shapes:other"),
        ("shop.shapes:typed", "dead", "with shape shop.shapes:typed, output dead"),
        ("", "", "without one"),
    ):
        refused = f"declared with shape shop.shapes:typed and holds such rows; {would} its rows would be others"
        with pytest.raises(Refused, match=re.escape(refused)):
            declare(shape, output)


def test_K6_a_table_of_records_as_they_are_takes_no_shape(landing: Landing) -> None:
    landing.land(4)
    permit = landing.do(lambda tx: permits.permit_commit(tx, "bronze", holder="h", token="t"))
    assert permit is not None
    landing.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=permit.plan.rows))
    with pytest.raises(Refused, match=r"declared without a shape.*undeclare"):
        landing.do(lambda tx: tables.declare(tx, "bronze", "delta", "lake.shop.bronze", shape="shop.shapes:typed"))


def test_K6_tables_of_one_shape_are_siblings(landing: Landing) -> None:
    def declare(name: str, shape: str, output: str = "") -> Table:
        return landing.do(lambda tx: tables.declare(tx, name, "delta", f"/t/{name}", shape=shape, output=output))

    dead, good = declare("failed", "m:f", "dead"), declare("orders", "m:f")
    declare("others", "m:g")
    assert landing.read(lambda reader, _: tables.siblings(reader, dead)) == [good, dead]
    raw = landing.read(lambda reader, row: tables.of(reader, "bronze"))
    assert landing.read(lambda reader, _: tables.siblings(reader, raw)) == [raw]


def test_K6_two_tables_for_one_output_of_a_shape_are_refused(landing: Landing) -> None:
    """As after another name in the configuration, such as of dead letters: neither was written any more, nor what is beside them."""
    plane = landing.region.plane
    for name, output in (("orders", ""), ("orders_dead", "dead")):
        plane.do(partial(tables.declare, name=name, format="delta", path=f"/t/{name}", shape="m:f", output=output))
    for output, other in (("good", "orders"), ("dead", "orders_dead")):
        refused = rf"{other} of region orders takes the output {output} of the shape m:f, and new.*`crkafka tables undeclare {other}` first"
        with pytest.raises(Refused, match=refused):
            plane.do(partial(tables.declare, name="new", format="delta", path="/t/new", shape="m:f", output=output))
    plane.do(lambda tx: tables.undeclare(tx, "orders_dead"))
    plane.do(lambda tx: tables.declare(tx, "new", "delta", "/t/new", shape="m:f", output="dead"))


def test_two_tables_at_one_path_are_refused(landing: Landing) -> None:
    with pytest.raises(
        Refused,
        match=r"declared at one path: lake.shop.bronze.*keep bronze, or `crkafka tables undeclare bronze`, and silver",
    ):
        landing.do(lambda tx: tables.declare(tx, "silver", "delta", "lake.shop.bronze"))


def _fed(landing: Landing) -> list[list[str]]:
    fed = landing.read(lambda reader, row: tables.fed_by_spark(reader, row, ()))
    return [[t.name for t in family] for family in fed]


def test_K6_spark_is_fed_each_table_by_itself_and_those_of_one_shape_together(landing: Landing) -> None:
    for name, output in (("dead", "dead"), ("good", "")):
        landing.do(
            lambda tx, n=name, o=output: tables.declare(tx, n, "delta", f"/t/{n}", shape="m:f", output=o)  # type: ignore[misc]
        )
    landing.do(lambda tx: tables.declare(tx, "raw", "delta", "lake.shop.raw"))
    assert _fed(landing) == [["bronze"], ["good", "dead"], ["raw"]]


@pytest.mark.parametrize("fenced", [False, True])
def test_T2_a_table_that_is_declared_once_checkpoints_are_forgotten_begins_behind_them(
    landing: Landing, fenced: bool
) -> None:
    """It was refused for ever, since what led to the first one that is known is not there, and held back retirement."""
    landing.land(10, times=4)
    finish(landing, allowed(landing))
    landing.retire(1, 2, 3, history=1)
    plane = landing.region.plane
    plane.do(lambda tx: tables.declare(tx, "late", "delta", "lake.shop.late"))
    if fenced:  # as one that is declared again
        plane.do(lambda tx: permits.owe_fence(tx, "late"))
        empty = plane.do(lambda tx: permits.permit_fence(tx, "late", holder="h", token="f"))
        assert empty is not None
        plane.do(lambda tx: permits.finish_fence(tx, empty, version="1"))
    made = plane.do(lambda tx: permits.permit_commit(tx, "late", holder="h", token="t"))
    assert made is not None
    assert (made.table.acknowledged, made.commit.after, made.plan.checkpoints) == (2, 2, (3, 4))
    said = plane.read(lambda reader, _: events.last(reader, 1))[0]
    assert (said.kind, said.text) == (
        "table begins",
        "late: behind checkpoint 2, since what led to it is not archived any more",
    )
    made = plane.do(lambda tx: permits.permit_commit(tx, "late", holder="h", token="t"))
    assert made is not None
    assert plane.read(lambda reader, _: events.last(reader, 1)) == [said], "it begins once"
    done = plane.do(lambda tx: permits.finish_commit(tx, made, version="1", rows=40))
    assert done.acknowledged == 4
    plane.do(lambda tx: tx.put(replace(done, acknowledged=0)))  # as by a rewind of one with a row for each key
    again = plane.do(lambda tx: permits.permit_commit(tx, "late", holder="h", token="a"))
    assert again is not None and again.plan.checkpoints == (3, 4)


def test_T2_a_table_of_which_kafka_has_let_go_the_beginning_can_begin_later_by_a_shorter_history(
    landing: Landing,
) -> None:
    """It keeps all else from being retired meanwhile."""
    landing.land(10, times=4)
    finish(landing, allowed(landing))
    landing.retire(1, 2, 3)
    plane = landing.region.plane
    plane.do(lambda tx: tables.declare(tx, "late", "delta", "lake.shop.late"))
    plane.do(lambda tx: tx.set_region(limits_json=json.dumps({"retain": 1, "history": 1})))
    plane.do(retire.clean_up)
    made = plane.do(lambda tx: permits.permit_commit(tx, "late", holder="h", token="t"))
    assert made is not None and made.plan.checkpoints == (3, 4)


def test_T2_what_a_table_has_not_got_is_not_forgotten(landing: Landing) -> None:
    """A shorter `history` left it before a hole for ever."""
    landing.land(10, times=5)
    finish(landing, allowed(landing))
    landing.retire(1, 2, 3, 4)
    plane = landing.region.plane
    plane.do(lambda tx: tables.declare(tx, "late", "delta", "lake.shop.late"))

    def advance(token: str, limit: int | None) -> tuple[int, ...]:
        made = plane.do(lambda tx: permits.permit_commit(tx, "late", holder="h", token=token, limit=limit))
        assert made is not None
        plane.do(lambda tx: permits.finish_commit(tx, made, version=token, rows=made.plan.rows))
        return made.plan.checkpoints

    assert advance("1", 1) == (1,)
    landing.retire(history=1)
    assert advance("2", None) == (2, 3, 4, 5)
    landing.retire(history=1)
    assert plane.read(lambda reader, row: reader.line(row.head)) == [4, 5]
