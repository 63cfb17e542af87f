"""The sensor that observes a region: the group, and whether tables keep up and retirement is free (SPEC A4, X8)."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import dagster as dg
import pytest

from crkafka_core.control import Tx
from crkafka_core.kafka.group import GroupReport, PartitionProgress
from crkafka_core.model import limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Member, Reset, Table
from crkafka_core.plane import checkpoints, lateness, permits
from dagster_project.metadata import UNKNOWN, count
from dagster_project.sensors import observe
from tests.dagster.conftest import LandedSeat, Seat
from tests.rigs.hand_member import HandMember

pytestmark = pytest.mark.dagster

BRONZE = [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]]


def test_the_group_is_observed_when_something_changed(seat: Seat, member: HandMember) -> None:
    first = seat.tick("observe")
    values = {k: v.value for k, v in first.asset_events[0].metadata.items()}
    assert (values["phase"], values["members"], values["lag"]) == ("RUNNING", 1, 7)
    assert seat.tick("observe", cursor=first.cursor).skip_message == "RUNNING: nothing new"
    assert seat.tick("observe", cursor="not what we wrote").asset_events
    for at in (0.0, time.time() + 86_400):  # long ago, and before the database's clock stepped back
        later = dataclasses.replace(observe.ObserveCursor.parse(first.cursor), observed=at)
        again = seat.tick("observe", cursor=str(later))
        assert [type(e) for e in again.asset_events] == [
            dg.AssetObservation
        ]  # unchanged checks are evaluated every ten minutes
    seat.region.cut()
    again = seat.tick("observe", cursor=first.cursor).asset_events[0]
    assert again.metadata["latest_checkpoint"].value == 1


def test_a_topic_that_members_read_has_an_asset_without_a_reload(landed: LandedSeat) -> None:
    """SPEC A4: one that a pattern matches is in no definitions; Dagster shows what has an observation."""
    cursor = ""

    def new(**topics: list[int]) -> list[tuple[str, int]]:
        nonlocal cursor
        report = json.dumps({"partitions": {topic: {"0": ends} for topic, ends in topics.items()}})
        member = Member("orders", "orders/0", "i", 1, metrics_json=report)
        landed.region.plane.do(lambda tx: tx.put(member))
        tick = landed.tick("observe", cursor=cursor)
        cursor = tick.cursor or cursor
        told = [e for e in tick.asset_events if e.asset_key.path[-2] == "topics"]
        for event in tick.asset_events:
            landed.instance.report_runless_asset_event(event)
        return [(e.metadata["topic"].value, e.metadata["lag"].value) for e in told]

    assert new(orders=[3, 10]) == [("orders", 7)]
    assert new(orders=[3, 10], clicks=[1, 2]) == [("clicks", 1)]
    assert landed.instance.has_asset_key(landed.names.topic("clicks"))
    assert "1 new topic: reload the code location" in landed.tick("observe", cursor=cursor).skip_message
    (told,) = landed.instance.fetch_observations(landed.names.topic("clicks"), limit=10).records
    assert told.asset_observation is not None and "dagster/column_schema" in told.asset_observation.metadata
    assert new(orders=[4, 10], clicks=[1, 2]) == []
    cursor = ""
    assert new(orders=[4, 10]) == [], "the cursor only saves work"


@pytest.mark.parametrize("tables", BRONZE)
def test_retirement_that_is_held_for_too_long_is_told(landed: LandedSeat) -> None:
    landed.landing.land(1, times=3)
    landed.region.plane.do(lambda tx: tx.set_region(limits_json=json.dumps({"retain": 1, "hold_max": 0.01})))
    time.sleep(0.05)
    outcome = {e.check_name: e for e in landed.tick("observe").asset_events if isinstance(e, dg.AssetCheckEvaluation)}
    assert "table bronze has acknowledged 0" in outcome["retirement_is_free"].description


def outcomes(seat: Seat) -> dict[str, dg.AssetCheckEvaluation]:
    return {e.check_name: e for e in seat.tick("observe").asset_events if isinstance(e, dg.AssetCheckEvaluation)}


@pytest.mark.parametrize("keys", [{"trigger": {"period": 5}}])
def test_a_region_that_only_starts_has_not_failed_to_merge_until_the_alarms_would_say_so(seat: Seat) -> None:
    seat.region.start(by="test")

    def checked(seconds: float, **row: Any) -> dg.AssetCheckEvaluation:
        def age(tx: Tx) -> None:
            begun, at = tx.get(Reset, tx.region().epoch), tx.now() - seconds
            assert begun is not None
            tx.put(dataclasses.replace(begun, at=at))
            tx.set_region(**{"phase": Phase.BIRTH, "phase_since": at, "reset_at": at, **row})

        seat.region.plane.do(age)
        return outcomes(seat)["cuts_merge"]

    starts = checked(100)
    assert starts.passed and (starts.description or "").startswith("The region is starting: BIRTH for 100 s; ")
    late = checked(limits.of(seat.region.plane.read(lambda _, row: row)).settle_timeout + 1)
    assert not late.passed and "No checkpoint was merged for" in (late.description or "")
    now = time.time()
    assert checked(100, phase=Phase.RUNNING, phase_since=now - 30).passed
    assert not checked(100, phase=Phase.RUNNING, phase_since=now - 61).passed
    assert not checked(100, phase=Phase.RUNNING, phase_since=now - 30, last_cut_at=now - 70).passed


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_that_has_everything_keeps_up_however_quiet_the_topic_is(landed: LandedSeat) -> None:
    assert outcomes(landed)["keeps_up"].passed
    landed.landing.land(1, times=2)
    old = landed.region.plane.read(lambda r, _: r.get(Checkpoint, 1))
    assert old is not None
    landed.region.plane.do(lambda tx: tx.put(dataclasses.replace(old, merged_at=tx.now() - 4_000)))
    late = outcomes(landed)["keeps_up"]
    assert not late.passed and "2 checkpoints wait for table bronze, the first for 400" in (late.description or "")
    permit = landed.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="h", token="t"))
    assert permit is not None
    landed.region.plane.do(lambda tx: permits.finish_commit(tx, permit, version="7", rows=2))
    assert outcomes(landed)["keeps_up"].passed
    shown = next(e for e in landed.tick("observe").asset_events if e.asset_key == landed.names.table("bronze"))
    values = {k: v.value for k, v in shown.metadata.items()}
    assert (values["latest_checkpoint"], values["checkpoints_behind"], values["version"]) == (2, 0, "7")


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_whose_commits_fail_or_that_owes_a_fence_does_not_keep_up_however_little_waits(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the region's alarm says it, long before `fresh` has passed."""
    plane = landed.region.plane
    landed.landing.land(1)
    permit = plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="h", token="t"))
    assert permit is not None
    plane.do(lambda tx: permits.fail_commit(tx, permit, "its folder is gone"))
    assert outcomes(landed)["keeps_up"].passed
    monkeypatch.setattr(lateness, "LATE", 0.0)
    why = outcomes(landed)["keeps_up"]
    assert not why.passed and "its commits have failed for" in (why.description or "")
    monkeypatch.setattr(lateness.TableLag, "stuck", False)
    assert outcomes(landed)["keeps_up"].passed
    monkeypatch.setattr(lateness.TableLag, "spoilt", "table bronze: half of its latest records could not be decoded")
    assert "half of its latest records" in (outcomes(landed)["keeps_up"].description or "")
    monkeypatch.undo()
    monkeypatch.setattr(lateness, "LATE", 0.0)
    landed.landing.rewind(0)
    assert "has not followed the rewind for" in (outcomes(landed)["keeps_up"].description or "")


@pytest.mark.parametrize("tables", BRONZE)
def test_the_rows_of_a_table_are_counted_on_from_the_last_look_and_anew_after_a_rewind(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    kept = checkpoints.rows_of
    monkeypatch.setattr(checkpoints, "rows_of", lambda reader, ids: asked.append(len(ids)) or kept(reader, ids))
    known = None

    def total() -> int:
        nonlocal known
        known = landed.region.plane.read(lambda r, _: count(r, r.get(Table, "bronze"), known))
        return known[2]

    def write() -> None:
        permit = landed.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="h", token="t"))
        assert permit is not None
        landed.region.plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=0))

    def anew() -> int:
        return landed.region.plane.read(lambda r, _: count(r, r.get(Table, "bronze"), None))[2]

    for rows, expected, looked_at in ((10, 20, 1), (20, 60, 1), (0, 60, 0), (30, 120, 1)):
        landed.landing.land(rows)
        write()
        asked.clear()
        assert (total(), asked) == (expected, [looked_at])
    landed.landing.rewind(2)
    fence = landed.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="h", token="f"))
    assert fence is not None
    landed.region.plane.do(lambda tx: permits.finish_fence(tx, fence, version="2"))
    assert total() == 60
    landed.landing.retire(1, history=1)
    assert anew() == 60
    for _ in range(2):
        landed.landing.land(10)
        write()
    landed.landing.retire(2, history=1)
    assert total() == 100 and anew() == UNKNOWN, (
        "nothing is kept of checkpoint 1: its rows are in the table all the same"
    )


@pytest.mark.parametrize("ends, lag", [((None, None), {}), ((7, None), {"lag": 4}), ((7, 9), {"lag": 10})])
def test_a_lag_that_kafka_cannot_tell_is_not_0(
    seat: Seat, monkeypatch: pytest.MonkeyPatch, ends: tuple[int | None, ...], lag: dict[str, int]
) -> None:
    parts = tuple(PartitionProgress(TP("orders", p), 3, "", 0, end, end) for p, end in enumerate(ends))
    report = GroupReport("orders", "Unknown", "", "", (), parts, ("end offsets: the broker is away",))
    monkeypatch.setattr("dagster_project.ops.observe.report", lambda *_: report)
    assert seat.run("observe_group").success
    for asset in (seat.names.group, seat.names.topic("orders")):
        (told,) = seat.instance.fetch_observations(asset, limit=10).records
        shown: dict[str, Any] = dict(told.asset_observation.metadata) if told.asset_observation else {}
        assert {k: v.value for k, v in shown.items() if k == "lag"} == lag
        assert isinstance(shown["progress"], dg.TableMetadataValue)


@pytest.mark.parametrize("keys", [{"topics": None, "pattern": r"^shop\..*"}])
def test_each_topic_of_a_pattern_is_observed_as_its_own_asset_and_all_of_them_together(
    seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = tuple(PartitionProgress(TP(topic, 0), 3, "", 0, 5, 5) for topic in ("shop.a", "shop.b"))
    report = GroupReport("orders", "Stable", "", "", (), parts, ())
    monkeypatch.setattr("dagster_project.ops.observe.report", lambda *_: report)
    assert seat.run("observe_group").success
    for topic, lag in ((seat.names.topic("shop.a"), 2), (seat.names.topic("shop.b"), 2), (seat.names.topics, 4)):
        (told,) = seat.instance.fetch_observations(topic, limit=10).records
        assert told.asset_observation is not None and told.asset_observation.metadata["lag"].value == lag
