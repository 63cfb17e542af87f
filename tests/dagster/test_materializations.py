"""What comes into tables outside a run is told to Dagster as materializations (SPEC K6, A7)."""

from __future__ import annotations

import dataclasses
from typing import Any

import dagster as dg
import pytest

from crkafka_core.control import Tx
from crkafka_core.model.rows import TableCommit
from crkafka_core.plane import permits
from crkafka_core.plane.tables import SPARK_FEEDER
from crkafka_core.region.feeder import Feeder
from crkafka_core.region.lease import DriverLease
from dagster_project.metadata import ALL_ROWS, ROWS
from dagster_project.names import key_of
from dagster_project.sensors.tables import RANGE_START
from tests.dagster.conftest import LandedSeat

pytestmark = pytest.mark.dagster

BRONZE = [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]]


def of_tables(tick: Any) -> list[dg.AssetMaterialization]:
    """What a tick tells, beside what it publishes."""
    return [e for e in tick.asset_events if e.asset_key.path[-1] != "records"]


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]])
def test_what_a_host_feeds_starts_no_run_and_is_told_as_materializations(landed: LandedSeat) -> None:
    """SPEC K6, A7: runs are for what nobody feeds; what a run has brought is not told twice."""
    feeder = Feeder(landed.region)
    assert feeder.turn(0.0)
    landed.landing.land(1), landed.landing.land(0), landed.landing.land(2)
    landed.publish()
    said = landed.tick("publish").skip_message
    assert " feeds it; 2 checkpoints wait, the first for " in said and "every table has all" not in said
    assert feeder.turn(0.0)
    told = landed.tick("publish")
    assert not told.run_requests and told.skip_message.endswith(
        "bronze: 2 checkpoints shown; every table has all checkpoints"
    )
    shown = {e.partition: (e.metadata[ROWS].value, e.metadata[ALL_ROWS].value) for e in of_tables(told)}
    assert shown == {key_of(1): (2, 6), key_of(3): (4, 6)}
    assert of_tables(landed.tick("publish", cursor=told.cursor)) == []
    feeder._over.set()
    feeder.turn(0.0)
    landed.landing.land(1)
    landed.publish()
    (request,) = landed.tick("publish", cursor=told.cursor).run_requests
    assert request.tags[RANGE_START] == key_of(4)


@pytest.mark.parametrize("tables", BRONZE)
def test_what_a_host_writes_with_spark_starts_no_run_and_is_told_as_well(landed: LandedSeat) -> None:
    """SPEC K6, A7: Parquet, Iceberg and shaped tables too; once the host has gone, runs go on."""
    plane = landed.region.plane
    with DriverLease(plane, SPARK_FEEDER, "host:1"):
        landed.landing.land(1)
        landed.publish()
        assert "bronze: host:1 feeds it; 1 checkpoint waits" in landed.tick("publish").skip_message
        permit = plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="host:1", token="t"))
        assert permit is not None
        plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=2))
        told = landed.tick("publish")
        assert not told.run_requests
        assert [(e.partition, e.metadata["written_by"].value) for e in of_tables(told)] == [(key_of(1), "host:1")]
        assert of_tables(landed.tick("publish", cursor=told.cursor)) == []
    landed.landing.land(1)
    landed.publish()
    (request,) = landed.tick("publish", cursor=told.cursor).run_requests
    assert request.tags[RANGE_START] == key_of(2)


@pytest.mark.parametrize("tables", BRONZE)
def test_what_was_brought_by_who_has_ended_and_never_told_is_told_after_a_while(landed: LandedSeat) -> None:
    """A host's last cut before it ended, or what a run was killed after: whatever waits for each partition would wait for ever."""
    plane = landed.region.plane

    def brought() -> TableCommit:
        landed.landing.land(1)
        permit = plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="somebody", token="t"))
        assert permit is not None
        plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=1))
        return permit.commit

    def later(commit: TableCommit) -> None:
        def back(tx: Tx) -> None:
            done = tx.get(TableCommit, "bronze", commit.number)
            assert done is not None
            tx.put(dataclasses.replace(done, at=done.at - 61))

        plane.do(back)

    first = brought()
    assert of_tables(landed.tick("publish")) == []
    later(first)
    told = landed.tick("publish")
    assert [e.partition for e in of_tables(told)] == [key_of(1)]
    assert of_tables(landed.tick("publish", cursor=told.cursor)) == []
    table = landed.names.table("bronze")
    landed.instance.report_runless_asset_event(dg.AssetMaterialization(table, partition=key_of(2)))  # as a run does
    later(brought())
    assert of_tables(landed.tick("publish", cursor=told.cursor)) == []


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]])
@pytest.mark.parametrize("keys", [{"ui_history": 2}])
def test_tables_of_a_region_that_was_made_anew_are_told_anew(landed: LandedSeat) -> None:
    """Its checkpoints begin at 1 again, and those who follow the table wait for them. What has left the partitions is not told."""
    feeder = Feeder(landed.region)
    landed.landing.land(1, times=3)
    assert feeder.turn(0.0)
    told = landed.tick("publish")
    assert [e.partition for e in of_tables(told)] == [key_of(2), key_of(3)]
    for event in of_tables(told):
        landed.instance.report_runless_asset_event(event)
    assert of_tables(landed.tick("publish")) == []
    landed.region.plane.do(lambda tx: tx.set_region(uid="another", created_at=tx.now()))
    left = landed.tick("publish", cursor=told.cursor)
    assert of_tables(left) == [], "what is there of the other one leaves first"
    anew = landed.tick("publish", cursor=left.cursor)
    assert [e.partition for e in of_tables(anew)] == [key_of(2), key_of(3)]
    assert of_tables(landed.tick("publish", cursor=anew.cursor)) == []


SHAPED: list[Any] = [
    [
        {"name": "typed", "format": "delta", "path": "tables/typed", "shape": "shop:typed"},
        {"name": "typed_dead", "format": "delta", "path": "tables/dead", "shape": "shop:typed", "output": "dead"},
    ]
]


@pytest.mark.parametrize("tables", SHAPED)
def test_a_typed_table_and_its_dead_letters_tell_their_own_rows(landed: LandedSeat) -> None:
    """Both said that they had every record of the checkpoint."""
    plane = landed.region.plane
    with DriverLease(plane, SPARK_FEEDER, "host:1"):
        landed.landing.land(5, times=3)
        landed.publish()

        def written(name: str, rows: int, **told: Any) -> None:
            token = f"{name} {rows}"
            permit = plane.do(lambda tx: permits.permit_commit(tx, name, holder="host:1", token=token))
            assert permit is not None
            plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=rows, **told))

        written("typed", 24, counts={1: 9, 2: 8, 3: 7})
        written("typed_dead", 6)
        told = landed.tick("publish")
        shown = {(e.asset_key.path[-1], e.partition): e.metadata for e in of_tables(told)}
        rows = [shown["typed", key_of(i)] for i in (1, 2, 3)]
        assert [(m[ROWS].value, m[ALL_ROWS].value) for m in rows] == [(9, 24), (8, 24), (7, 24)]
        dead = [shown["typed_dead", key_of(i)] for i in (1, 2, 3)]
        assert not any({ROWS, ALL_ROWS} & m.keys() for m in dead), "three in one commit, and nobody counted them apart"
        landed.landing.land(5)
        landed.publish()
        written("typed", 10)
        written("typed_dead", 0)
        again = landed.tick("publish", cursor=told.cursor)
        shown = {e.asset_key.path[-1]: e.metadata for e in of_tables(again)}
        assert (shown["typed"][ROWS].value, shown["typed"][ALL_ROWS].value) == (10, 34)
        assert shown["typed_dead"][ROWS].value == 0 and ALL_ROWS not in shown["typed_dead"]
