"""The cut job: its ops, their repetition, and what becomes of a run that dies (SPEC A1, A6)."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import dagster as dg
import pytest

from crkafka_core.lake.hold import Hold
from crkafka_core.model.errors import LeaseHeld, ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Lease, ResetCause
from crkafka_core.plane import leases, resets
from crkafka_core.region import Region
from crkafka_core.region.lease import DriverLease
from dagster_project import consistent_region, failures
from dagster_project.names import CUT, TRIGGER
from tests.dagster.conftest import Seat, failure
from tests.rigs.hand_member import HandMember

pytestmark = pytest.mark.dagster


def checkpoints(seat: Seat) -> list[Checkpoint]:
    return seat.region.plane.read(lambda r, row: r.select(Checkpoint, order=("id",)))


def test_a_cut_makes_a_checkpoint_and_its_numbers_are_shown(seat: Seat, member: HandMember) -> None:
    result = seat.run("cut", {"open_cut": {"cause": "by a test"}})
    assert result.success
    (made,) = checkpoints(seat)
    assert (made.status, made.cause, made.rows) == (CheckpointStatus.MERGED, "by a test", 20)
    output = next(e for e in result.get_step_success_events() if e.step_key == "checkpoint")
    shown = next(e for e in result.all_events if e.is_successful_output and e.step_key == "checkpoint")
    assert output and shown.event_specific_data.metadata["rows"].value == 20
    assert seat.region.status().region.phase is Phase.RUNNING
    seat.publish()
    told = seat.instance.fetch_materializations(seat.names.records, limit=1).records[0].asset_materialization
    assert told is not None and told.metadata["cut_by"] == dg.MetadataValue.dagster_run(result.run_id)
    assert seat.run("scale_region", {"scale": {"members": 2}}).success
    assert list(Path(seat.instance.storage_directory()).rglob("*result*")) == [], "each run would leave files behind"


def test_where_the_host_drives_cuts_a_persons_cut_goes_beside_it(seat: Seat, member: HandMember) -> None:
    """`cuts: false`: no sensor opens cuts, and the driver's lease is the host's for good."""
    defs = consistent_region(seat.config, cuts=False)
    assert "orders_trigger" not in {s.name for s in defs.sensors or ()}
    seat.region.plane.do(lambda tx: leases.take(tx, "driver", holder="the host", token="x", length=60))
    other = Seat(seat.config, defs, seat.instance, seat.region)
    assert other.run("cut", {"open_cut": {"cause": "by a person"}}).success
    assert [(c.cause, c.status) for c in checkpoints(seat)] == [("by a person", CheckpointStatus.MERGED)]


def test_a_service_that_is_away_is_tried_for_two_minutes() -> None:
    waits: list[float] = []
    for tried in range(failures.TRIES):
        with (
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(dg.RetryRequested) as asked,
            failures.as_dagster_failure(),
        ):
            patch.setattr(failures, "_retries_so_far", lambda n=tried: n)
            raise ServiceUnavailable("SQL is away.")
        waits.append(asked.value.seconds_to_wait or 0.0)
    assert 100 < sum(waits) < 140 and waits == sorted(waits)


def test_a_second_driver_is_refused_with_the_holder_named(seat: Seat, member: HandMember) -> None:
    lease = seat.region.plane.do(lambda tx: leases.take(tx, "driver", holder="somebody else", token="x", length=60))
    assert "held by somebody else" in failure(seat.run("cut", raise_on_error=False))
    seat.region.plane.do(lambda tx: leases.release(tx, lease))
    assert seat.run("cut").success


def test_7_the_lease_is_kept_from_step_to_step(seat: Seat, member: HandMember, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Region.await_merged

    def another(self: Region, *args: object, **kwargs: object) -> object:
        with pytest.raises(LeaseHeld, match="held by dagster run"):
            self.plane.do(lambda tx: leases.take(tx, "driver", holder="another", token="x", length=1))
        return kept(self, *args, **kwargs)  # type: ignore[arg-type]

    seen: list[int] = []
    monkeypatch.setattr(Region, "await_merged", another)
    monkeypatch.setattr(
        DriverLease, "keep", lambda self: seen.append(self.lease.number) or setattr(self, "_kept", True)
    )
    assert seat.run("cut").success
    assert seen == [1, 2]
    assert seat.region.plane.read(lambda r, row: leases.held(r, "driver")) == []


@pytest.mark.parametrize("keys", [{"driver_lease": 0.5}])
def test_8_a_run_that_slept_past_its_lease_opens_nothing(
    seat: Seat, member: HandMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 8, SPEC A6: it waits for somebody's cut, is stopped (renews nothing), another run takes over, and it wakes."""
    member.contributes.clear()
    first: list[dg.ExecuteInProcessResult] = []
    with monkeypatch.context() as patch:
        patch.setattr(Hold, "turn", lambda self: False)
        seat.region.open_cut(token="somebody's", cause="in the way")
        sleeper = threading.Thread(target=lambda: first.append(seat.run("cut", raise_on_error=False)))
        sleeper.start()
        # Also a lease that is over already.
        while not seat.region.plane.read(lambda r, row: r.count(Lease, ("kind", "=", "driver"))):
            time.sleep(0.01)
        time.sleep(0.6)
    lease = seat.region.plane.do(lambda tx: leases.take(tx, "driver", holder="the second", token="x", length=60))
    member.contributes.set()
    sleeper.join()
    said = failure(first[0])
    assert "is no longer dagster run" in said and "the second has it" in said
    assert [c.token for c in checkpoints(seat)] == ["somebody's"]
    seat.region.plane.do(lambda tx: leases.release(tx, lease))
    assert seat.run("cut").success


def test_a_cut_that_was_aborted_before_its_run_knew_of_it_is_cut_anew(
    seat: Seat, member: HandMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC A6: the run died once it had opened the cut; the cut was aborted; retried from `open_cut`."""
    kept = Region.open_cut

    def dies(self: Region, **kwargs: object) -> object:
        member.contributes.clear()
        kept(self, **kwargs)  # type: ignore[arg-type]
        self.plane.do(lambda tx: resets.begin(tx, ResetCause.LATE, "its run died"))
        member.contributes.set()
        raise dg.Failure("the machine went away", allow_retries=False)

    with monkeypatch.context() as patch:
        patch.setattr(Region, "open_cut", dies)
        failed = seat.run_anew("cut")
    assert seat.retry(failed.run_id).success
    assert [c.status for c in checkpoints(seat)] == [CheckpointStatus.ABORTED, CheckpointStatus.MERGED]


def test_an_aborted_cut_fails_the_run_with_its_reason_and_the_region_goes_on(seat: Seat, member: HandMember) -> None:
    member.contributes.clear()

    def abort() -> None:
        while not seat.region.plane.read(lambda _, row: row.open_cut):
            time.sleep(0.02)
        seat.region.plane.do(
            lambda tx: resets.begin(tx, ResetCause.LATE, "the disk of orders/0 is full", member="orders/0")
        )
        member.contributes.set()

    other = threading.Thread(target=abort)
    other.start()
    result = seat.run("cut", raise_on_error=False)
    other.join()
    assert [e.step_key for e in result.all_events if e.is_step_failure] == ["drain"]
    assert "the disk of orders/0 is full" in failure(result)
    seat.region.await_running(timeout=20)
    assert seat.run("cut").success
    assert [c.status for c in checkpoints(seat)] == [CheckpointStatus.ABORTED, CheckpointStatus.MERGED]


@pytest.mark.parametrize("step", ["open_cut", "drain", "checkpoint"])
def test_a_cut_that_fails_in_a_step_is_retried_from_failure(
    seat: Seat, member: HandMember, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Each step fails once its work is done, which is the worst moment; the retry completes the same cut."""
    name = {"open_cut": "open_cut", "drain": "await_drained", "checkpoint": "await_merged"}[step]
    kept = getattr(Region, name)

    def fails(self: object, *args: object, **kwargs: object) -> object:
        kept(self, *args, **kwargs)
        raise dg.Failure("the machine went away", allow_retries=False)

    with monkeypatch.context() as patch:
        patch.setattr(Region, name, fails)
        failed = seat.run_anew("cut")
    assert not failed.success
    retried = seat.retry(failed.run_id)
    assert retried.success
    assert [(c.id, c.status) for c in checkpoints(seat)] == [(1, CheckpointStatus.MERGED)]
    assert seat.region.plane.read(lambda r, row: r.count(Lease, ("until", ">", r.now()))) == 0


def test_all_of_an_old_cut_executed_again_is_another_cut(seat: Seat, member: HandMember) -> None:
    """SPEC A6: a retry goes on with what was begun; *Re-execute all* begins anew, also of a run that followed the trigger's cut."""
    token = f"{TRIGGER} 1:1"
    seat.region.open_cut(token=token, cause="every 1 s")
    old = seat.run_anew("cut", tags={CUT: token})
    first = seat.run_again(old.run_id, "cut")
    assert first.success and seat.run_again(first.run_id, "cut").success
    said = [entry.user_message for entry in seat.instance.all_logs(first.run_id)]
    assert f"Cut 2 is another one: what run {old.run_id} has cut stays as it is." in said
    assert [(c.id, c.status) for c in checkpoints(seat)] == [(i, CheckpointStatus.MERGED) for i in (1, 2, 3)]


def test_a_cut_that_somebody_else_has_open_is_waited_for(seat: Seat, member: HandMember) -> None:
    member.contributes.clear()
    seat.region.open_cut(token="other", cause="of another")
    threading.Timer(0.5, member.contributes.set).start()
    assert seat.run("cut").success
    assert [c.status for c in checkpoints(seat)] == [CheckpointStatus.MERGED, CheckpointStatus.MERGED]


def test_an_idle_region_says_so_at_once(seat: Seat) -> None:
    assert "is IDLE; a cut needs RUNNING" in failure(seat.run("cut", raise_on_error=False))
