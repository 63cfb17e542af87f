"""The trigger: when its thread opens a cut, and which cut gets a run that follows it (SPEC A2, V1, V2)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import dagster as dg
import pytest

from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from crkafka_core.plane import checkpoints, cuts, leases, resets
from dagster_project.names import CHECKPOINT, CUT, TRIGGER
from dagster_project.sensors.trigger import Opener
from tests.dagster.conftest import Seat, failure, shown
from tests.rigs.hand_member import HandMember
from tests.rigs.until import until

pytestmark = pytest.mark.dagster

PERIODIC = [{"trigger": {"period": 1}}]


def newest(seat: Seat) -> Checkpoint | None:
    return next(iter(seat.region.plane.read(lambda reader, _: checkpoints.newest(reader, 1))), None)


@pytest.fixture
def opener(seat: Seat, member: HandMember) -> Iterator[Opener]:
    made = Opener(seat.resource)
    made.go_on(60.0)
    yield made
    made.go_on(0.0)


@pytest.mark.parametrize("keys", PERIODIC)
def test_cuts_are_opened_when_they_are_due(seat: Seat, opener: Opener) -> None:
    """Each within a fraction of a second, whatever Dagster's daemon does meanwhile."""
    until(lambda: len(seat.region.checkpoints()) >= 3)
    made = seat.region.checkpoints()[::-1]
    late = [now.opened_at - (before.merged_at + 1.0) for before, now in pairwise(made)]
    assert all(0 <= seconds < 0.9 for seconds in late), late
    assert {c.cause for c in made} == {"every 1 s"} and all(c.token.startswith(TRIGGER) for c in made)
    assert seat.region.plane.read(lambda reader, _: leases.held(reader, leases.DRIVER)) == []


@pytest.mark.parametrize("keys", [{"trigger": {"period": 2}}])
def test_the_latest_cut_gets_one_run_in_which_its_steps_are_seen(seat: Seat, member: HandMember) -> None:
    first = seat.tick("trigger")
    assert not first.run_requests
    until(lambda: seat.region.status().region.head == 1)
    (request,) = (asked := seat.tick("trigger")).run_requests
    now = seat.region.status().region
    assert request.run_key == f"orders:{now.uid[:8]}:cut:{now.epoch}:1:0" and request.tags[CHECKPOINT] == "1"
    assert not seat.tick("trigger", cursor=asked.cursor).run_requests
    result = seat.launch("cut", request)
    assert result.success
    assert [shown(result, op)["checkpoint"] for op in ("open_cut", "drain", "checkpoint")] == [1, 1, 1]
    assert seat.launch("cut", request).success, "it opens none of its own"
    assert all(c.token.startswith(TRIGGER) for c in seat.region.checkpoints())


@pytest.mark.parametrize("keys", PERIODIC)
def test_a_run_follows_its_cut_while_another_drives(seat: Seat, member: HandMember) -> None:
    """It shows what members do by themselves: it needs no right to drive, and keeps nobody from it."""
    token = f"{TRIGGER} 1:1"
    seat.region.open_cut(token=token, cause="every 1 s", if_new=True)
    seat.region.plane.do(lambda tx: leases.take(tx, "driver", holder="somebody else", token="x", length=60))
    assert seat.run("cut", tags={CUT: token}).success


@pytest.mark.parametrize("keys", PERIODIC)
def test_a_run_fails_with_the_reason_for_which_its_cut_was_aborted(seat: Seat, member: HandMember) -> None:
    member.contributes.clear()
    token = f"{TRIGGER} 1:1"
    seat.region.open_cut(token=token, cause="every 1 s", if_new=True)
    seat.region.plane.do(lambda tx: resets.begin(tx, resets.ResetCause.LATE, "the disk of orders/0 is full"))
    member.contributes.set()
    result = seat.run("cut", tags={CUT: token}, raise_on_error=False)
    assert [e.step_key for e in result.all_events if e.is_step_failure] == ["drain"]
    assert "the disk of orders/0 is full" in failure(result)
    seat.region.await_running(timeout=20)
    assert len(seat.region.plane.read(lambda reader, _: checkpoints.newest(reader, 9))) == 1


def test_a_run_whose_cut_the_region_does_not_know_any_more_does_nothing(seat: Seat, member: HandMember) -> None:
    result = seat.run("cut", tags={CUT: f"{TRIGGER} 1:1"})
    assert result.success and newest(seat) is None
    assert {e.step_key for e in result.all_events if e.is_step_skipped} == {"drain", "checkpoint"}


@pytest.mark.parametrize("keys", PERIODIC)
def test_beside_a_running_driver_no_cut_is_opened(seat: Seat, member: HandMember) -> None:
    lease = seat.region.plane.do(lambda tx: leases.take(tx, "driver", holder="a run", token="x", length=60))
    seat.tick("trigger")
    time.sleep(1.5)
    assert newest(seat) is None
    assert seat.tick("trigger").skip_message == "RUNNING: a run drives a cut"
    seat.region.plane.do(lambda tx: leases.release(tx, lease))
    until(lambda: newest(seat))


@pytest.mark.parametrize("keys", PERIODIC)
def test_while_a_run_waits_for_its_worker_cuts_go_on_and_no_other_run_is_launched(
    seat: Seat, member: HandMember
) -> None:
    """On a busy machine runs would queue up, and a person's reset behind them."""
    job = seat.defs.resolve_job_def("orders_cut")
    seat.tick("trigger")
    until(lambda: seat.region.status().region.head >= 2)
    for status in (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING):
        run = seat.instance.create_run_for_job(job, status=status, tags=dict(job.tags))
        assert "the run of an earlier one has not started" in seat.tick("trigger").skip_message
        seat.instance.delete_run(run.run_id)
    (request,) = seat.tick("trigger").run_requests
    assert int(request.tags[CHECKPOINT]) >= 2, "the latest"


@pytest.mark.parametrize("keys", PERIODIC)
def test_a_quiet_topic_costs_no_runs_and_its_first_record_is_cut_in_time(seat: Seat, member: HandMember) -> None:
    member.rows = 0
    assert seat.run("cut").success
    seat.tick("trigger")
    until(lambda: (cut := newest(seat)) and cut.id >= 3 and cut.status is CheckpointStatus.EMPTY)
    assert not seat.tick("trigger").run_requests and seat.region.status().region.head == 1
    member.rows = 20
    until(lambda: seat.region.status().region.head > 1)
    assert seat.tick("trigger").run_requests


@pytest.mark.parametrize("keys", PERIODIC)
def test_once_ticks_have_ceased_no_cut_is_opened(seat: Seat, member: HandMember) -> None:
    """As of a sensor that somebody has switched off."""
    opener = Opener(seat.resource)
    opener.go_on(0.1)
    time.sleep(1.5)
    assert newest(seat) is None
    opener.go_on(30.0)
    until(lambda: newest(seat))
    opener.go_on(0.0)


@pytest.mark.parametrize("keys", [{"trigger": {"tuples": 100}}])
def test_a_members_ask_is_answered_at_once(seat: Seat, opener: Opener, member: HandMember) -> None:
    now = seat.region.status().region
    seat.region.plane.do(
        lambda tx: cuts.ask(tx, member=member.name, incarnation=member.incarnation, epoch=now.epoch, head=now.head)
    )
    began = time.monotonic()
    until(lambda: newest(seat))
    assert time.monotonic() - began < 5
    cut = newest(seat)
    assert cut is not None and cut.cause == "asked by orders/0"


@pytest.mark.parametrize("keys", PERIODIC)
def test_why_no_cut_can_be_opened_stands_in_the_tick_and_cuts_come_once_it_is_mended(
    seat: Seat, member: HandMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("something unknown")

    with monkeypatch.context() as patch:
        patch.setattr("crkafka_core.plane.cuts.open_cut", broken)
        seat.tick("trigger")
        until(lambda: "ValueError: something unknown" in seat.tick("trigger").skip_message)
    until(lambda: newest(seat))
