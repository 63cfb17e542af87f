"""Publishing checkpoints as partitions with what a person wants to see (SPEC A3, A4, X4)."""

from __future__ import annotations

import time

import dagster as dg
import pytest

from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from dagster_project.names import key_of
from dagster_project.sensors.publish import CHUNK
from tests.dagster.conftest import LandedSeat, Seat

pytestmark = pytest.mark.dagster


def many(seat: LandedSeat, count: int) -> None:
    """Merged checkpoints in SQL alone, quickly."""

    def write(tx) -> None:  # type: ignore[no-untyped-def]
        row = tx.region()
        tx.add(
            *(
                Checkpoint(
                    row.name, i, i - 1, 1, CheckpointStatus.RETIRED, rows=5, merged_at=tx.now(), opened_at=tx.now()
                )
                for i in range(1, count + 1)
            )
        )
        tx.set_region(head=count, next_checkpoint=count + 1)

    seat.landing.region.plane.do(write)


def events(seat: Seat) -> list[dg.AssetMaterialization]:
    records = seat.instance.fetch_materializations(seat.names.records, limit=1_000).records
    return [r.asset_materialization for r in records if r.asset_materialization is not None][::-1]


def test_after_an_outage_two_hundred_checkpoints_appear_in_order_in_one_tick(landed: LandedSeat) -> None:
    many(landed, 200)
    assert landed.publish() == 1
    assert landed.partitions() == [key_of(i) for i in range(1, 201)]
    assert [e.partition for e in events(landed)] == landed.partitions()


def test_a_merge_is_described_by_its_numbers(landed: LandedSeat) -> None:
    landed.landing.land(10)
    landed.landing.land(5)
    landed.publish()
    shown = {k: v.value for k, v in events(landed)[-1].metadata.items()}
    assert (shown["rows"], shown["dagster/row_count"], shown["members"], shown["parent"], shown["resets"]) == (
        10,
        10,
        2,
        1,
        0,
    )
    offsets = [r.data for r in events(landed)[-1].metadata["offsets"].records]
    assert offsets == [{"topic": "orders", "partition": p, "from": 10, "to": 15, "rows": 5} for p in (0, 1)]


def test_an_empty_checkpoint_has_no_partition(landed: LandedSeat) -> None:
    landed.landing.land(10)
    landed.landing.land(0)
    landed.landing.land(10)
    landed.publish()
    assert landed.partitions() == [key_of(1), key_of(3)]


def test_superseded_ones_leave_and_new_ones_follow_in_order(landed: LandedSeat) -> None:
    for _ in range(4):
        landed.landing.land(10)
    landed.publish()
    landed.landing.rewind(2)
    landed.publish()
    assert landed.partitions() == [key_of(1), key_of(2)]
    landed.landing.land(10)
    landed.publish()
    assert landed.partitions() == [key_of(1), key_of(2), key_of(5)]


def test_retirement_leaves_partitions_where_they_are(landed: LandedSeat) -> None:
    for _ in range(3):
        landed.landing.land(10)
    landed.publish()
    landed.landing.retire(1, 2)
    assert landed.publish() == 0
    assert landed.partitions() == [key_of(1), key_of(2), key_of(3)]


@pytest.mark.parametrize("keys", [{"ui_history": 3}])
def test_only_the_history_for_the_ui_is_kept(landed: LandedSeat) -> None:
    for _ in range(5):
        landed.landing.land(1)
        landed.publish()
    assert landed.partitions() == [key_of(3), key_of(4), key_of(5)]


def test_a_partition_that_a_person_deleted_comes_back_in_its_place(landed: LandedSeat) -> None:
    for _ in range(3):
        landed.landing.land(1)
    landed.publish()
    landed.instance.delete_dynamic_partition(landed.names.partitions, key_of(2))
    landed.publish()
    assert landed.partitions() == [key_of(1), key_of(2), key_of(3)]


def test_with_ten_thousand_partitions_a_tick_takes_less_than_a_second(landed: LandedSeat) -> None:
    many(landed, 10_000)
    landed.instance.add_dynamic_partitions(landed.names.partitions, [key_of(i) for i in range(1, 10_000)])
    landed.tick("publish")
    began = time.monotonic()
    result = landed.tick("publish")
    took = time.monotonic() - began
    assert [list(r.partition_keys) for r in result.dynamic_partitions_requests] == [[key_of(10_000)]]
    assert took < 1.0


def test_a_long_outage_is_caught_up_in_chunks(landed: LandedSeat) -> None:
    many(landed, CHUNK + 7)
    first = landed.tick("publish")
    assert len(first.dynamic_partitions_requests[0].partition_keys) == CHUNK
    assert first.skip_message == f"{CHUNK} published, 0 removed, more to come"


def test_a_region_that_is_not_made_yet_is_no_failure_of_a_tick(seat: Seat) -> None:
    seat.region.delete()
    for sensor in ("publish", "trigger", "watch", "observe", "host"):
        assert "There is no region" in seat.tick(sensor).skip_message
