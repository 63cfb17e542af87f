"""Members that are killed, frozen or slow, at every step of a cut (faults 1 to 5, 9 to 11, 55, 63)."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Contribution, Segment
from tests.rigs import failpoints as fp
from tests.rigs.scenario import Scenario


def _row(s: Scenario, checkpoint: int) -> Checkpoint:
    row = s.region.plane.read(lambda reader, region: reader.get(Checkpoint, checkpoint))
    assert row is not None
    return row


def _rows(s: Scenario, kind: type, *where: Any) -> list[Any]:
    return s.region.plane.read(lambda reader, region: reader.select(kind, *where))


def _without(s: Scenario, checkpoint: int, number: int) -> None:
    """It merged without a member, which is named, and of which nothing is in it (SPEC X10)."""
    row = _row(s, checkpoint)
    assert (row.status, json.loads(row.without_json)) == (CheckpointStatus.MERGED, [s.member(number)])
    for part in (Contribution, Segment):
        assert s.member(number) not in {r.member for r in _rows(s, part, ("checkpoint", "=", checkpoint))}


def test_1_killed_static_member_costs_one_reset_and_no_rebalance(pair: Scenario) -> None:
    pair.cut()
    mark, head, was = pair.mark(), pair.head, pair.incarnation(0)
    pair.kill(0)
    pair.await_new(0, was)
    pair.settle()
    resets = pair.resets(mark)
    assert len(resets) == 1, [e.text for e in resets]
    assert not pair.events("lost", since=mark)
    _without(pair, resets[0].checkpoint, 0)
    assert _row(pair, resets[0].checkpoint).parent == head, "what the other had submitted is merged first"
    (death,) = pair.events("process died", since=mark)
    assert (death.member, "SIGKILL" in death.text) == (pair.member(0), True)
    assert not [e for e in pair.events("revoked", "assigned", since=mark) if e.member == pair.member(1)]
    pair.check()


def test_2_killed_between_drain_and_contribution_is_left_out_of_the_cut(pair: Scenario) -> None:
    pair.points.set(pair.member(0), fp.CONTRIBUTE)
    mark = pair.mark()
    time.sleep(0.7)  # both have submitted something since the last cut
    cut = pair.cut()
    _without(pair, cut.id, 0)
    pair.until(lambda: pair.resets(mark), "the reset behind the handover")
    assert pair.check().orphans > 0
    assert len(pair.resets(mark)) == 1 and not pair.events("abort", since=mark)


def test_3_killed_after_its_contribution_which_counts(pair: Scenario) -> None:
    dead, mark = pair.incarnation(0), pair.mark()
    pair.points.set(pair.member(1), fp.CONTRIBUTE, "hold")
    pair.points.set(pair.member(0), fp.CONTRIBUTED)
    opened = pair.region.open_cut(token=f"fault3-{mark}", cause="fault 3")
    pair.points.await_reached(pair.member(0), fp.CONTRIBUTED)
    pair.points.clear(pair.member(1), fp.CONTRIBUTE)
    assert pair.region.await_merged(opened.id).status is CheckpointStatus.MERGED
    pair.until(lambda: pair.resets(mark), "the reset behind the handover")
    pair.check()
    assert len(pair.resets(mark)) == 1, [e.text for e in pair.resets(mark)]
    contributions = _rows(pair, Contribution, ("checkpoint", ">=", opened.id))
    assert {c.checkpoint for c in contributions if c.incarnation == dead} == {opened.id}


def test_4_killed_after_the_merge_before_it_learns_of_it(pair: Scenario) -> None:
    pair.points.set(pair.member(0), fp.CONTRIBUTE, "sleep:0.5")
    pair.points.set(pair.member(0), fp.MERGED)
    cut = pair.cut()
    pair.points.await_reached(pair.member(0), fp.MERGED)
    assert _row(pair, cut.id).status is CheckpointStatus.MERGED
    pair.check()
    assert cut.id in {c.id for c in pair.region.checkpoints()}


def test_5_killed_after_writing_a_segment_before_naming_it(pair: Scenario) -> None:
    pair.points.set(pair.member(1), fp.SAVED)
    _without(pair, pair.cut().id, 1)
    assert pair.check().orphans > 0
    assert pair.region.retire().orphans > 0
    assert pair.verify().orphans == 0


def test_9_frozen_past_its_session_and_woken_has_no_effect(pair: Scenario) -> None:
    was = pair.incarnation(0)
    pair.kill(0, signal.SIGSTOP)
    pair.until(lambda: pair.region.status().members[0].status == "LOST", "the frozen member is lost", timeout=30)
    assert pair.cut_soon().members == 1
    pair.wake()
    pair.await_new(0, was)
    pair.check()


def test_10_frozen_for_less_than_its_session_costs_at_most_a_cut(pair: Scenario) -> None:
    mark = pair.mark()
    opened = pair.region.open_cut(token=f"fault10-{mark}", cause="fault 10")
    pair.stop_for(0, 1.5)
    pair.until(lambda: _row(pair, opened.id).status is not CheckpointStatus.OPEN, "the cut is over")
    assert len(pair.resets(mark)) <= 1
    assert not pair.events("lost", since=mark)
    pair.check()
    assert not pair.events("revoked", since=mark)


def test_55_second_host_of_a_region_makes_no_duel(pair: Scenario) -> None:
    mark = pair.mark()
    other = pair.new_host("logs2")
    other.begin()
    try:
        pair.until(lambda: not pair.host.pids(), "the older processes have ended")
        pair.settle()
        assert len(pair.events("registered", since=mark)) == 2
        assert set(other.pids()) == {pair.member(0), pair.member(1)}
        pair.check()
        time.sleep(1.0)
        assert len(pair.events("registered", since=mark)) == 2
    finally:
        pair.host.end(patience=0.0)
        pair.host = other


def test_63_all_members_restarted_shortly_after_each_other_make_one_reset(pair: Scenario) -> None:
    """SPEC R3, X5; fault 63: not STOPPED. The second comes back while the first one's reset is under way: that takes 0.4 s."""
    mark, was = pair.mark(), [pair.incarnation(0), pair.incarnation(1)]
    pair.kill(0)
    pair.kill(1)
    for number in (0, 1):
        pair.await_new(number, was[number])
    pair.settle()
    assert len(pair.resets(mark)) == 1, [e.text for e in pair.resets(mark)]
    pair.check()


def test_1_killed_dynamic_member_is_back_after_the_session(dynamic: Scenario) -> None:
    dynamic.cut()
    mark, was = dynamic.mark(), dynamic.incarnation(0)
    began = time.monotonic()
    dynamic.kill(0)
    dynamic.await_new(0, was)
    dynamic.settle()
    took = time.monotonic() - began
    # Restarted within the lease: one reset. Later than that, the others went on without it, and its return is a scale-out.
    late = bool(dynamic.events("lost", since=mark))
    assert len(dynamic.resets(mark)) == (2 if late else 1), [e.text for e in dynamic.resets(mark)]
    assert took < dynamic.session + 15
    dynamic.check()


def test_9_frozen_dynamic_member_in_the_middle_of_a_cut(dynamic: Scenario) -> None:
    """Fault 9 while a cut is open: it merges without the member once that is lost; what it says later is refused."""
    was, mark = dynamic.incarnation(1), dynamic.mark()
    dynamic.points.set(dynamic.member(1), fp.CONTRIBUTE, "hold")
    opened = dynamic.region.open_cut(token=f"fault9-{mark}", cause="fault 9")
    dynamic.points.await_reached(dynamic.member(1), fp.CONTRIBUTE)
    dynamic.kill(1, signal.SIGSTOP)
    dynamic.points.clear(dynamic.member(1), fp.CONTRIBUTE)
    dynamic.region.await_merged(opened.id)
    _without(dynamic, opened.id, 1)
    dynamic.wait_running()
    dynamic.wake()
    dynamic.await_new(1, was)
    assert dynamic.events("lost", since=mark)
    dynamic.check()


def test_11_hung_event_thread_is_lost_and_ended(dynamic: Scenario) -> None:
    """SPEC G3; fault 11: the lease is renewed only while both threads make progress; a watchdog ends the process."""
    was = dynamic.incarnation(1)
    pid = dynamic.pid(1)
    dynamic.points.set(dynamic.member(1), fp.POLL, "sleep:60")
    dynamic.points.await_reached(dynamic.member(1), fp.POLL)
    dynamic.await_new(1, was)
    assert pid not in dynamic.host.pids().values()
    dynamic.check()
