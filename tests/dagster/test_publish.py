"""Publishing checkpoints as partitions with what a person wants to see (SPEC A3, A4, X4)."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import dagster as dg
import pytest

from crkafka_core.control import Reader
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Region
from dagster_project.names import key_of
from dagster_project.partitions import Change
from dagster_project.sensors import publish
from dagster_project.sensors.publish import CHUNK
from tests.dagster.conftest import LandedSeat, Seat, merged_in_sql

pytestmark = pytest.mark.dagster


def supersede(seat: LandedSeat, *, after: int) -> None:
    """As a reset leaves it, once the region runs again."""

    def write(tx) -> None:  # type: ignore[no-untyped-def]
        for row in tx.select(Checkpoint, ("id", ">", after)):
            tx.put(dataclasses.replace(row, status=CheckpointStatus.SUPERSEDED))
        tx.set_region(head=after)

    seat.landing.region.plane.do(write)


def events(seat: Seat) -> list[dg.AssetMaterialization]:
    records = seat.instance.fetch_materializations(seat.names.records, limit=1_000).records
    return [r.asset_materialization for r in records if r.asset_materialization is not None][::-1]


def test_a_merge_is_described_by_its_numbers(landed: LandedSeat) -> None:
    landed.landing.land(10)
    landed.landing.land(5)
    landed.publish()
    shown = {k: v.value for k, v in events(landed)[-1].metadata.items()}
    numbers = ("dagster/partition_row_count", "members", "parent", "resets")
    assert [shown[name] for name in numbers] == [10, 2, 1, 0] and "rows" not in shown
    offsets = [r.data for r in events(landed)[-1].metadata["offsets"].records]
    assert offsets == [{"topic": "orders", "partition": p, "from": 10, "to": 15, "rows": 5} for p in (0, 1)]


def test_a_partition_that_a_person_deleted_comes_back_in_its_place_and_wakes_nobody(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed.landing.land(1, times=3)
    landed.publish()
    landed.instance.delete_dynamic_partition(landed.names.partitions, key_of(2))
    assert landed.publish() == 0  # everything is compared every ten minutes only
    ahead = dataclasses.replace(publish.PublishCursor.parse(landed.cursor), compared=time.time() + 86_400)
    assert landed.tick("publish", cursor=str(ahead)).dynamic_partitions_requests  # the database's clock stepped back
    monkeypatch.setattr(publish, "WHOLE", 0.0)
    landed.publish()
    assert landed.partitions() == [key_of(1), key_of(2), key_of(3)]
    assert len(events(landed)) == 3
    landed.landing.land(1)
    landed.publish()
    assert [e.partition for e in events(landed)] == [key_of(i) for i in (1, 2, 3, 4)]


def test_a_sensor_that_has_lost_its_cursor_tells_nothing_twice(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A code location of another name has sensors without cursors."""
    landed.landing.land(1, times=3)
    landed.publish()
    landed.cursor = None
    landed.publish()
    landed.instance.delete_dynamic_partition(landed.names.partitions, key_of(2))
    monkeypatch.setattr(publish, "WHOLE", 0.0)
    landed.publish()
    assert landed.partitions() == [key_of(1), key_of(2), key_of(3)]
    assert [e.partition for e in events(landed)] == [key_of(1), key_of(2), key_of(3)]


@pytest.mark.parametrize("keys", [{"ui_history": 20}])
def test_a_reset_in_a_long_history_removes_what_was_superseded_and_tells_nothing_anew(landed: LandedSeat) -> None:
    merged_in_sql(landed.landing, 1, 30)
    landed.publish()
    assert landed.partitions() == [key_of(i) for i in range(11, 31)]
    supersede(landed, after=25)
    assert landed.publish() == 1
    assert landed.partitions() == [key_of(i) for i in range(11, 26)]
    assert len(events(landed)) == 20
    landed.landing.offsets[25] = landed.landing.offsets[0]
    landed.landing.land(1)
    landed.publish()
    assert landed.partitions()[-2:] == [key_of(25), key_of(31)]
    assert len(events(landed)) == 21


def test_the_partitions_of_a_region_that_is_gone_leave_before_those_of_its_successor_come(landed: LandedSeat) -> None:
    landed.landing.land(1, times=2)
    landed.publish()
    landed.region.plane.do(lambda tx: tx.set_region(uid="another"))
    assert landed.publish() == 2
    assert landed.partitions() == [key_of(1), key_of(2)]
    assert [e.partition for e in events(landed)] == [key_of(i) for i in (1, 2, 1, 2)]


def test_the_partitions_of_another_control_plane_are_left_alone(landed: LandedSeat) -> None:
    landed.landing.land(1)
    landed.publish()
    key = f"crkafka partitions {landed.names.partitions}"
    storage = landed.instance.daemon_cursor_storage
    uid, plane = json.loads(storage.get_cursor_values({key})[key])
    storage.set_cursor_values({key: json.dumps(["another", "elsewhere"])})
    assert "Give one of the two a key_prefix" in landed.tick("publish").skip_message
    for kept in ([uid, "elsewhere"], ["another", plane]):  # the database was moved; the region was made anew
        storage.set_cursor_values({key: json.dumps(kept)})
        landed.landing.land(1)  # a tick that publishes nothing does not ask
        assert "published, 0 removed" in landed.tick("publish", cursor=landed.cursor).skip_message
        assert json.loads(storage.get_cursor_values({key})[key]) == [uid, plane]


class Asked:
    """Reads as the reader that it wraps, and keeps how many rows each question brought."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.rows = reader, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reader, name)

    def select(self, *args: Any, **more: Any) -> list[Any]:
        found = self.reader.select(*args, **more)
        self.rows += len(found)
        return found


def test_with_twenty_thousand_partitions_a_tick_reads_only_what_is_new(landed: LandedSeat) -> None:
    """Whole rows are read of what is new alone, also where everything is compared; reading the archives would cost seconds."""
    merged_in_sql(landed.landing, 1, 20_000)
    landed.instance.add_dynamic_partitions(landed.names.partitions, [key_of(i) for i in range(1, 9_999)])
    landed.instance.add_dynamic_partitions(landed.names.partitions, [key_of(i) for i in range(9_999, 20_000)])
    publisher = publish.Publisher(landed.names, lambda: landed.instance, 20_000)

    def tick(cursor: publish.PublishCursor) -> tuple[publish.Tick, int, float]:
        def look(reader: Reader, row: Region) -> tuple[publish.Tick, int, float]:
            asked, began = Asked(reader), time.thread_time()
            found = publisher.plan(asked, row, cursor)
            return found, asked.rows, time.thread_time() - began

        return landed.region.plane.read(look)

    whole, rows, _ = tick(publish.PublishCursor())
    assert whole.change == Change((key_of(20_000),), ()) and rows <= 2
    landed.instance.add_dynamic_partitions(landed.names.partitions, [key_of(20_000)])
    assert min(tick(publish.PublishCursor())[2] for _ in range(10)) < 0.5
    quiet, rows, _ = tick(whole.cursor)
    assert quiet.change == Change() and rows == 0
    assert min(tick(whole.cursor)[2] for _ in range(3)) < 0.03


@pytest.mark.parametrize("keys", [{"ui_history": 3}])
def test_what_another_tick_has_published_is_gone_on_behind_and_the_history_stays_bounded(landed: LandedSeat) -> None:
    landed.landing.land(1, times=3)
    landed.publish()
    for number in (4, 5):
        landed.landing.land(1)
        landed.instance.add_dynamic_partitions(landed.names.partitions, [key_of(number)])
    landed.landing.land(1)
    landed.publish()
    assert landed.partitions() == [key_of(i) for i in (4, 5, 6)]
    assert [e.partition for e in events(landed)] == [key_of(i) for i in (1, 2, 3, 6)], "who has published has told"


def test_a_long_outage_is_caught_up_in_chunks(landed: LandedSeat) -> None:
    merged_in_sql(landed.landing, 1, CHUNK + 7)
    first = landed.tick("publish")
    assert len(first.dynamic_partitions_requests[0].partition_keys) == CHUNK
    assert first.skip_message == f"{CHUNK} published, 0 removed, more to come"


def test_a_region_that_is_not_made_yet_is_no_failure_of_a_tick(seat: Seat) -> None:
    seat.region.delete()
    for sensor in ("publish", "trigger", "watch", "observe", "host"):
        assert "There is no region" in seat.tick(sensor).skip_message
