"""Records, checks and tables: what a run reads and writes, and what it refuses (SPEC A3, A4, A7)."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from crkafka_core.model.rows import Checkpoint, Segment
from crkafka_core.plane import tables as plane_tables
from dagster_project import opened, resources
from dagster_project.names import key_of
from dagster_project.sensors.keep_up import RANGE_END, RANGE_START
from tests.dagster.conftest import LandedSeat

pytestmark = pytest.mark.dagster
BRONZE: list[Any] = [[{"name": "bronze", "format": "parquet", "path": "tables/bronze"}]]


def materialize(seat: LandedSeat, asset: dg.AssetKey, first: int, last: int, **more: Any) -> dg.ExecuteInProcessResult:
    tags = {RANGE_START: key_of(first), RANGE_END: key_of(last)}
    job = seat.defs.resolve_implicit_job_def_def_for_assets([asset])
    assert job is not None
    return job.execute_in_process(instance=seat.instance, asset_selection=[asset], tags=tags, **more)


def numbers(seat: LandedSeat, asset: dg.AssetKey) -> dict[str, dict[str, Any]]:
    found = seat.instance.fetch_materializations(asset, limit=100).records
    return {
        r.partition_key or "": {k: v.value for k, v in r.asset_materialization.metadata.items()}
        for r in found
        if r.asset_materialization
    }


def failure(result: dg.ExecuteInProcessResult) -> str:
    return str(
        next(e for e in result.all_events if e.is_step_failure).event_specific_data.user_failure_data.description
    )


def test_a_range_of_records_is_read_back_and_described_by_partition(landed: LandedSeat) -> None:
    for rows in (10, 20, 30):
        landed.landing.land(rows)
    landed.publish()
    landed.instance.wipe_assets([landed.names.records])
    assert materialize(landed, landed.names.records, 1, 3).success
    found = numbers(landed, landed.names.records)
    assert [(found[key_of(i)]["rows"], found[key_of(i)]["read_back"]) for i in (1, 2, 3)] == [
        (20, 20),
        (40, 40),
        (60, 60),
    ]


def test_records_of_a_superseded_checkpoint_are_refused(landed: LandedSeat) -> None:
    for _ in range(3):
        landed.landing.land(10)
    landed.publish()
    landed.landing.rewind(1)
    result = materialize(landed, landed.names.records, 2, 3, raise_on_error=False)
    assert "Checkpoint 2 of region orders is superseded" in failure(result)


def outcome(seat: LandedSeat) -> dict[str, tuple[bool, str]]:
    keys = [dg.AssetCheckKey(seat.names.records, n) for n in ("contiguous", "rows_equal_segments", "no_duplicates")]
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.checks(*keys))
    made = dg.Definitions.merge(seat.defs, dg.Definitions(jobs=[job])).resolve_job_def("checks")
    result = made.execute_in_process(instance=seat.instance)
    return {e.check_name: (e.passed, e.description or "") for e in result.get_asset_check_evaluations()}


def test_checks_pass_on_what_was_landed_well(landed: LandedSeat) -> None:
    for _ in range(3):
        landed.landing.land(10)
    assert {name: ok for name, (ok, _) in outcome(landed).items()} == {
        "contiguous": True,
        "rows_equal_segments": True,
        "no_duplicates": True,
    }


def test_a_segment_that_was_changed_a_row_twice_and_a_hole_are_each_found(landed: LandedSeat) -> None:
    landed.landing.land(10)
    landed.landing.land(10)
    plane = landed.region.plane

    def swap(tx) -> None:  # type: ignore[no-untyped-def]
        """Checkpoint 2's first segment names the file of checkpoint 1: its rows are there twice, its own are missing."""
        first, second = (
            tx.select(Segment, ("region", "=", "orders"), ("checkpoint", "=", i), order=("member",))[0] for i in (1, 2)
        )
        path = landed.landing.storage
        data = path.open_read(first.path).read()
        with path.open_read(second.path):
            pass
        out = path.open_write(second.path + ".other")
        out.write(memoryview(data))
        out.close()
        from dataclasses import replace

        tx.delete(Segment, ("region", "=", "orders"), ("path", "=", second.path))
        tx.add(replace(second, path=second.path + ".other"))

    plane.do(swap)
    found = outcome(landed)
    assert not found["no_duplicates"][0] and "orders[0] offset 0" in found["no_duplicates"][1]
    assert (
        not found["rows_equal_segments"][0] and "offsets 0 to 9; merged is [10, 20)" in found["rows_equal_segments"][1]
    )

    def hole(tx) -> None:  # type: ignore[no-untyped-def]
        from dataclasses import replace

        from crkafka_core.model.rows import MergedOffset

        row = tx.get(MergedOffset, "orders", 2, "orders", 1)
        tx.put(replace(row, from_offset=11))

    plane.do(hole)
    assert "checkpoint 2 begins orders[1] at 11; its parent ended at 10" in outcome(landed)["contiguous"][1]


@pytest.mark.spark
@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_keeps_up_by_a_range_and_a_backfill_rewrites_it(landed: LandedSeat) -> None:
    for _ in range(3):
        landed.landing.land(10)
    landed.publish()
    bronze = landed.names.table("bronze")
    (request,) = landed.tick("tables").run_requests
    job = landed.defs.resolve_implicit_job_def_def_for_assets([bronze])
    assert job is not None
    assert job.execute_in_process(instance=landed.instance, asset_selection=[bronze], tags=request.tags).success
    assert acknowledged(landed) == 3
    assert {k: v["rows"] for k, v in numbers(landed, bronze).items()} == {key_of(i): 20 for i in (1, 2, 3)}
    assert rows(landed) == {1: 20, 2: 20, 3: 20}
    assert materialize(landed, bronze, 2, 3).success  # a backfill: each row is there once afterwards
    assert rows(landed) == {1: 20, 2: 20, 3: 20}
    for _ in range(2):
        landed.landing.land(5)
    landed.publish()
    assert materialize(landed, bronze, 5, 5).success  # 4 comes along: a table advances without a gap
    assert rows(landed) == {1: 20, 2: 20, 3: 20, 4: 10, 5: 10}
    assert set(numbers(landed, bronze)) == {key_of(i) for i in range(1, 6)}
    replayed = landed.run("replay", {"rewrite": {"after": 1, "upto": 4}})
    assert replayed.success and rows(landed) == {1: 20, 2: 20, 3: 20, 4: 10, 5: 10}


def acknowledged(seat: LandedSeat) -> int:
    return seat.region.plane.read(lambda reader, row: plane_tables.of(reader, row.name, "bronze")).acknowledged


def rows(seat: LandedSeat) -> dict[int, int]:
    """Rows per checkpoint as the table is read."""
    from crkafka_core.spark.schema import CHECKPOINT
    from crkafka_core.spark.tables import read_table
    from dagster_project import SparkSessionResource

    spark = SparkSessionResource(definition=seat.config.to_json()).session()
    return {
        r[CHECKPOINT]: r["count"]
        for r in read_table(spark, seat.resource.handle, "bronze").groupBy(CHECKPOINT).count().collect()
    }


@pytest.mark.spark
def test_a_users_asset_gets_the_rows_of_its_range_with_one_call(landed: LandedSeat) -> None:
    from dagster_project import RegionResource, SparkSessionResource
    from dagster_project.partitions import definition

    counted: list[tuple[int, list[str]]] = []

    @dg.asset(
        partitions_def=definition(landed.names),
        deps=[landed.names.records],
        required_resource_keys={"orders", "orders_spark"},
    )
    def totals(context) -> None:  # type: ignore[no-untyped-def]
        region: RegionResource = context.resources.orders
        spark: SparkSessionResource = context.resources.orders_spark
        with region.records(context, spark.session()) as frame:
            counted.append((frame.count(), frame.columns))

    landed.landing.land(10)
    landed.landing.land(10)
    landed.publish()
    merged = dg.Definitions.merge(landed.defs, dg.Definitions(assets=[totals]))
    job = merged.resolve_implicit_job_def_def_for_assets([dg.AssetKey("totals")])
    assert job is not None
    job.execute_in_process(
        instance=landed.instance,
        asset_selection=[dg.AssetKey("totals")],
        tags={RANGE_START: key_of(1), RANGE_END: key_of(2)},
    )
    assert counted[0][0] == 40 and {"key", "value", "topic", "partition", "offset", "headers"} <= set(counted[0][1])


def test_nothing_is_connected_before_it_is_used(landed: LandedSeat) -> None:
    opened.forget(resources.STORE, landed.config.control_plane)
    assert landed.defs.get_repository_def().sensor_defs
    assert landed.region.plane.read(lambda reader, row: reader.count(Checkpoint, ("region", "=", row.name))) == 0
