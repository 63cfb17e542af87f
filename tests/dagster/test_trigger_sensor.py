"""The sensor that asks for cuts: when one is due, how long a tick waits, and when no run is launched (SPEC A2)."""

from __future__ import annotations

import threading
import time

import dagster as dg
import pytest

from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from crkafka_core.plane import leases, triggers
from dagster_project import consistent_region
from dagster_project.launch_ahead import AHEAD
from dagster_project.names import ASKED_AT
from dagster_project.sensors import shared
from dagster_project.sensors.trigger import next_cut
from tests.dagster.conftest import Seat
from tests.rigs.hand_member import HandMember

pytestmark = pytest.mark.dagster

PERIODIC = [{"trigger": {"period": 1}}]


@pytest.mark.parametrize("keys", PERIODIC)
def test_a_due_cut_is_asked_for_once_and_its_run_is_void_when_it_is_past(seat: Seat, member: HandMember) -> None:
    time.sleep(1.1)
    (first,), (again,) = seat.tick("trigger").run_requests, seat.tick("trigger").run_requests
    assert first.run_key == again.run_key
    now = seat.region.status().region
    assert first.run_key == f"orders:{now.uid[:8]}:cut:{now.epoch}:1:0"
    assert first.run_config == {"ops": {"open_cut": {"config": {"cause": "every 1 s"}}}}
    assert first.tags[ASKED_AT] == f"{now.epoch}/0/1"
    assert seat.launch("cut", first).success
    assert seat.region.status().region.head == 1
    assert seat.launch("cut", first).success
    assert seat.region.status().region.head == 1
    member.rows = 0
    time.sleep(1.1)
    (due,) = seat.tick("trigger").run_requests
    assert due.run_key == f"orders:{now.uid[:8]}:cut:{now.epoch}:2:0"
    assert seat.launch("cut", due).success
    for number in (
        3,
        4,
    ):  # nothing is new: the head stays, no run is launched, and the next one is asked for all the same
        time.sleep(1.1)
        assert f"cut {number} is opened without a run" in seat.tick("trigger").skip_message
        seat.region.await_merged(number)
        assert seat.region.status().region.head == 1


@pytest.mark.parametrize("keys", PERIODIC)
def test_the_trigger_waits_for_a_cut_to_fall_due(seat: Seat, member: HandMember) -> None:
    last = seat.region.status().region.last_cut_at
    while True:
        result = seat.tick("trigger")
        if result.run_requests:
            break
        assert "no cut is due" in result.skip_message
    late = seat.region.plane.read(lambda reader, _: reader.now()) - last - 1
    assert late < 3.0, "it is seen while the tick lingers, and not when it ends"


@pytest.mark.parametrize("keys", [{"trigger": {"period": 3}}])
def test_a_run_is_launched_ahead_and_opens_its_cut_when_it_is_due(seat: Seat, member: HandMember) -> None:
    """What Dagster takes until the first op is no part of the period."""

    def now() -> tuple[float, float]:
        """When the cut is due, and when its run is launched."""
        due = seat.region.plane.read(lambda reader, row: next_cut(reader, row, period=3.0, counted=False))
        at = triggers.due_at(due.region, period=3.0, counted=False)
        assert at is not None
        return at, due.now + due.after

    due, launched = now()
    assert launched == pytest.approx(due - AHEAD)
    while not (asked := seat.tick("trigger").run_requests):
        assert now()[0] == due
    assert seat.launch("cut", asked[0]).success
    (made,) = seat.region.checkpoints()
    assert made.opened_at >= due


@pytest.mark.parametrize("keys", [{"trigger": {"period": 3}}])
def test_a_run_that_comes_after_a_cut_that_found_nothing_opens_none(seat: Seat, member: HandMember) -> None:
    """The head stayed, and the period began anew."""
    while not (asked := seat.tick("trigger").run_requests):
        pass
    assert seat.launch("cut", asked[0]).success
    member.rows = 0
    while not (asked := seat.tick("trigger").run_requests):
        pass
    seat.region.cut(cause="beside it", if_new=True)
    before = seat.region.status().region
    assert seat.launch("cut", asked[0]).success
    assert seat.region.status().region.next_checkpoint == before.next_checkpoint


@pytest.mark.parametrize("keys", PERIODIC)
def test_beside_a_running_driver_no_second_run_is_launched(seat: Seat, member: HandMember) -> None:
    seat.region.plane.do(lambda tx: leases.take(tx, "driver", holder="a run", token="x", length=60))
    time.sleep(1.1)
    assert seat.tick("trigger").skip_message == "a cut is due; a run drives one"


@pytest.mark.parametrize("keys", PERIODIC)
def test_while_a_run_is_on_its_way_no_other_is_launched(seat: Seat, member: HandMember) -> None:
    """On a busy machine cuts would queue up, and a person's reset behind them."""
    time.sleep(1.1)
    job = seat.defs.resolve_job_def("orders_cut")
    for status in (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING):
        run = seat.instance.create_run_for_job(job, status=status, tags=dict(job.tags))
        assert seat.tick("trigger").skip_message == "a cut is due; a run is on its way"
        seat.instance.delete_run(run.run_id)
    assert seat.tick("trigger").run_requests


@pytest.mark.parametrize("keys", PERIODIC)
def test_a_quiet_topic_costs_no_runs_and_its_first_record_is_cut_in_time(seat: Seat, member: HandMember) -> None:
    member.rows = 0
    assert seat.run("cut").success

    def cut_in_a_tick() -> Checkpoint:
        before = seat.region.status().region.last_cut_at
        end = time.monotonic() + 20
        while seat.region.status().region.last_cut_at == before:
            result = seat.tick("trigger")
            assert not result.run_requests and time.monotonic() < end, result.skip_message
            while seat.region.plane.read(lambda _, row: row.open_cut):  # else the next tick sees one more fall due
                assert time.monotonic() < end
                time.sleep(0.02)
        return seat.region.plane.read(
            lambda r, row: r.select(Checkpoint, ("id", "<", row.next_checkpoint), order=("id",), desc=True, limit=1)
        )[0]

    assert cut_in_a_tick().status is CheckpointStatus.EMPTY
    assert seat.region.status().region.head == 1
    member.rows = 20
    assert (full := cut_in_a_tick()).rows == 40 and full.cause == "every 1 s"
    end = time.monotonic() + 20
    while not seat.tick("trigger").run_requests:
        assert time.monotonic() < end


@pytest.mark.parametrize("keys", [{"trigger": {"period": 60}}])
def test_a_tick_waits_only_where_sensors_have_threads(seat: Seat, member: HandMember) -> None:
    began = time.monotonic()
    seat.tick("trigger")
    assert time.monotonic() - began >= 0.5
    with (
        dg.instance_for_test(overrides={"sensors": {"use_threads": False}}) as stock,
        shared.lingering(threads_of(stock), 4.5) as seconds,
    ):
        assert seconds == 0.0


def threads_of(instance: dg.DagsterInstance) -> int:
    return shared.threads_of(dg.build_sensor_context(instance_ref=instance.get_ref()))


def test_triggers_linger_on_a_quarter_of_the_threads_at_most() -> None:
    """Other sensors of the instance are evaluated on the rest."""
    with dg.instance_for_test(overrides={"sensors": {"use_threads": True, "num_workers": 8}}) as instance:
        with (
            shared.lingering(threads_of(instance), 4.5) as first,
            shared.lingering(threads_of(instance), 4.5) as second,
        ):
            with shared.lingering(threads_of(instance), 4.5) as third:
                assert (first, second, third) == (4.5, 4.5, 0.0)
            with shared.lingering(threads_of(instance), 4.5) as fourth:
                assert fourth == 0.0
        with shared.lingering(threads_of(instance), 4.5) as fifth:
            assert fifth == 4.5


@pytest.mark.parametrize("keys", [{"trigger": {"tuples": 100}}])
def test_a_members_ask_ends_the_wait_at_once(seat: Seat, member: HandMember) -> None:
    def ask() -> None:
        time.sleep(0.2)
        now = seat.region.status().region
        seat.region.plane.do(
            lambda tx: triggers.ask(
                tx, member=member.name, incarnation=member.incarnation, epoch=now.epoch, head=now.head
            )
        )

    patient = Seat(seat.config, consistent_region(seat.config, linger=30.0), seat.instance, seat.region)
    asking = threading.Thread(target=ask)
    asking.start()
    began = time.monotonic()
    result = patient.tick("trigger")
    asking.join()
    assert time.monotonic() - began < 15, "at once, and not when the tick ends"
    (request,) = result.run_requests
    assert request.run_config["ops"]["open_cut"]["config"]["cause"] == "asked by orders/0"
