"""Resets from Dagster: asked once however often a run is retried; partitions and tables follow (SPEC X3, X4)."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Event
from crkafka_core.plane import permits
from crkafka_core.region import Region
from crkafka_core.region import region as region_room
from dagster_project.names import FOLLOWS, key_of
from tests.dagster.conftest import Seat, failure, shown
from tests.rigs.hand_member import HandMember

pytestmark = pytest.mark.dagster

BRONZE: list[dict[str, Any]] = [{"tables": [{"name": "bronze", "format": "delta", "path": "tables/bronze"}]}]


@pytest.fixture(autouse=True)
def kafka_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no broker here; what it still holds is asked on the real one, in tests/browser."""
    monkeypatch.setattr(region_room, "check_available", lambda *_: None)


def resets(seat: Seat) -> list[Event]:
    return seat.region.plane.read(lambda r, row: r.select(Event, ("kind", "=", "reset"), order=("seq",)))


def test_a_reset_to_the_head_names_who_asked(seat: Seat, member: HandMember) -> None:
    result = seat.run("reset_region", {"reset": {"cause": "a bad deployment"}})
    assert result.success
    last = resets(seat)[-1]
    assert last.by.startswith(f"dagster run {result.run_id}")
    assert last.text == f"back to initial state, as asked by {last.by}: a bad deployment"
    assert seat.region.status().region.phase is Phase.RUNNING


@pytest.mark.parametrize("keys", BRONZE)
def test_going_back_takes_partitions_away_before_the_region_goes_on(seat: Seat, member: HandMember) -> None:
    for _ in range(3):
        assert seat.run("cut").success
    seat.publish()
    seat.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="a writer", token="w"))
    result = seat.run("reset_region", {"reset": {"to": 1, "cause": "back"}})
    assert result.success
    assert shown(result, "rewind")["tables"] == "bronze"
    assert seat.partitions() == [key_of(1)]
    assert seat.region.status().region.head == 1 and seat.region.status().unfenced == ()
    steps = [e.step_key for e in result.all_events if e.is_step_success]
    assert steps == ["reset", "rewind", "resume"]
    resumed = seat.region.status().region.resumed_at
    (ended,) = (e for e in result.all_events if e.is_successful_output and e.step_key == "resume")
    seconds = ended.step_output_data.metadata["seconds"].value
    assert seconds == pytest.approx(resumed - resets(seat)[-1].at, abs=0.002)  # from the asking on, not from the fence
    assert seat.run("cut").success
    seat.publish()
    assert seat.partitions() == [key_of(1), key_of(5)], "the reset leaves number 4 behind (SPEC C8)"


def test_a_partition_that_a_person_has_added_does_not_keep_tables_from_following(
    seat: Seat, member: HandMember
) -> None:
    assert seat.run("cut").success
    seat.publish()
    seat.instance.add_dynamic_partitions(seat.names.partitions, ["yesterday"])
    assert seat.run("reset_region").success
    assert seat.partitions() == [key_of(1)]


def test_a_retry_finds_the_reset_it_has_asked_for(
    seat: Seat, member: HandMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Region.reset

    def fails(self: Region, *args: Any, **kwargs: Any) -> int:
        kept(self, *args, **kwargs)
        raise dg.Failure("the machine went away", allow_retries=False)

    with monkeypatch.context() as patch:
        patch.setattr(Region, "reset", fails)
        failed = seat.run_anew("reset_region")
    before = len(resets(seat))
    assert seat.retry(failed.run_id, "reset_region").success
    assert len(resets(seat)) == before


def test_all_of_an_old_reset_executed_again_is_another_reset(seat: Seat, member: HandMember) -> None:
    old = seat.run_anew("reset_region", {"reset": {"cause": "a bad deployment"}})
    before = len(resets(seat))
    assert seat.run_again(old.run_id, "reset_region").success
    assert len(resets(seat)) == before + 1 and resets(seat)[-1].text.endswith(": a bad deployment")


@pytest.mark.parametrize("to", ["-1", "newest", ""])
def test_a_target_that_is_none_is_refused(seat: Seat, to: str) -> None:
    said = failure(seat.run("reset_region", {"reset": {"to": to}}, raise_on_error=False))
    assert said == f"{to!r} is not a target for a reset. Write head, initial, or the number of a merged checkpoint."
    assert resets(seat) == []


def test_rows_of_a_forgotten_topic_are_lost_only_if_that_is_said(seat: Seat, member: HandMember) -> None:
    for _ in range(2):
        assert seat.run("cut").success
    seat.region.forget("orders")
    for dry in (True, False):
        said = failure(seat.run("reset_region", {"reset": {"to": 1, "dry_run": dry}}, raise_on_error=False))
        assert "rows of orders would be superseded" in said and "`give_up: [orders]`" in said
    assert seat.run("reset_region", {"reset": {"to": 1, "dry_run": True, "give_up": ["orders"]}}).success
    assert seat.region.status().region.head == 2


def test_a_dry_run_tells_what_would_go_and_asks_for_nothing(
    seat: Seat, member: HandMember, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        assert seat.run("cut").success
    before = len(resets(seat))
    for to, said in (
        (1, "2 checkpoints with 40 rows, 2 to 3"),
        ("initial", "3 checkpoints with 60 rows, 1 to 3"),
        ("head", "0 checkpoints"),
    ):
        result = seat.run("reset_region", {"reset": {"to": to, "dry_run": True}})
        assert result.success and {e.step_key for e in result.all_events if e.is_step_skipped} == {"rewind", "resume"}
        assert f"A reset to {to} would supersede {said}" in "".join(capfd.readouterr())
    assert len(resets(seat)) == before and seat.region.status().region.head == 3
    said = failure(seat.run("reset_region", {"reset": {"to": 7, "dry_run": True}}, raise_on_error=False))
    assert "Checkpoint 7 of region orders is unknown" in said and "It can go back to 1, 2, 3" in said


@pytest.mark.parametrize("to", ["initial", 0])
def test_a_reset_to_the_beginning_is_refused_until_the_regions_name_is_said(
    seat: Seat, member: HandMember, to: str | int
) -> None:
    assert seat.run("cut").success
    before = len(resets(seat))
    for sure in ("", "yes"):
        said = failure(seat.run("reset_region", {"reset": {"to": to, "sure": sure}}, raise_on_error=False))
        assert f"`sure` says {sure!r}" in said and "write `sure: orders`" in said
    assert len(resets(seat)) == before and seat.region.status().region.head == 1
    assert seat.run("reset_region", {"reset": {"to": to, "sure": "orders"}}).success
    assert seat.region.status().region.head == 0


def test_follow_asks_for_nothing(seat: Seat, member: HandMember) -> None:
    before = len(resets(seat))
    assert seat.run("reset_region", tags={FOLLOWS: "1"}).success
    assert len(resets(seat)) == before


@pytest.mark.parametrize("keys", BRONZE)
def test_an_idle_region_is_rewound_and_waits_for_nobody(seat: Seat) -> None:
    seat.region.start(by="test")
    with HandMember(seat.config, seat.region.plane):
        seat.region.await_running(timeout=20)
        for _ in range(2):
            seat.region.cut()
        seat.region.stop(by="test")
    assert seat.region.status().region.phase is Phase.IDLE
    assert seat.run("reset_region", {"reset": {"to": "1"}}).success
    assert seat.region.status().region.head == 1 and seat.region.status().unfenced == ()
