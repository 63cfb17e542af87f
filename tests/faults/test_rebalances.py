"""Rebalances at bad moments, and what was resolved or fetched too early (faults 13, 14, 28, 49, 50, 61, 62, 63)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from crkafka_core.model.errors import Refused
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import CheckpointStatus, Contribution, Initial, Start
from crkafka_core.region.waiting import CutAborted
from tests.rigs import failpoints as fp
from tests.rigs.scenario import Scenario

Make = Callable[..., Scenario]


@pytest.mark.parametrize("drain", ["flow", pytest.param("stop", marks=pytest.mark.soak)])
def test_13_rebalance_during_a_cut_aborts_nothing(pair: Scenario, drain: str) -> None:
    region = pair.stopping if drain == "stop" else pair.region
    mark = pair.mark()
    pair.points.set(pair.member(0), fp.CONTRIBUTE, "hold")
    opened = region.open_cut(token=f"fault13-{mark}", cause="fault 13")
    pair.points.await_reached(pair.member(0), fp.CONTRIBUTE)
    with pair.stranger():
        if drain == "stop":
            time.sleep(1.0)  # it joins the group, and members are not polling
            assert not pair.events("revoked", since=mark)
        else:
            pair.until(lambda: pair.events("handover", since=mark), "the rebalance is heard of")
        assert pair.region.status().region.open_cut == opened.id
        pair.points.clear(pair.member(0), fp.CONTRIBUTE)
        assert pair.region.await_merged(opened.id).status is CheckpointStatus.MERGED
        pair.until(lambda: pair.phase is Phase.RESETTING, "the rebalance has its reset")
    pair.settle()
    assert len(pair.resets(mark)) == 1, [e.text for e in pair.resets(mark)]
    assert not pair.events("abort", since=mark)
    pair.check()


def test_14_rebalances_during_a_reset_make_no_second_one(pair: Scenario) -> None:
    mark = pair.mark()
    pair.points.set(pair.member(0), fp.RESOLVED, "hold")
    epoch = pair.region.reset(cause="fault 14")
    pair.points.await_reached(pair.member(0), fp.RESOLVED)
    for _ in range(2):
        seen = pair.mark()
        with pair.stranger():
            pair.until(lambda since=seen: pair.events("revoked", since=since), "the group rebalances")
        # Only who reports again can be seen to be revoked again: a stranger that came sooner would be part of this rebalance.
        pair.until(lambda since=seen: pair.events("assigned", since=since), "the member that may has reported")
        assert pair.phase is Phase.RESETTING
    pair.points.clear(pair.member(0), fp.RESOLVED)
    pair.settle()
    assert [e.epoch for e in pair.resets(mark)] == [epoch]
    assert not pair.events("merged", since=mark)
    pair.check()


def test_D3_nothing_is_written_between_drain_and_resume(pair: Scenario) -> None:
    mark = pair.mark()
    pair.points.set(pair.member(0), fp.CONTRIBUTE, "hold")
    opened = pair.stopping.open_cut(token=f"d3-{mark}", cause="D3")
    pair.points.await_reached(pair.member(0), fp.CONTRIBUTE)
    pair.until(lambda: _contributed(pair, opened.id) == {pair.member(1)}, "the other has contributed")
    files = _files(pair)
    time.sleep(0.7)
    assert _files(pair) == files
    pair.points.clear(pair.member(0), fp.CONTRIBUTE)
    pair.region.await_merged(opened.id)
    pair.check()
    assert not pair.resets(mark)


def _contributed(s: Scenario, checkpoint: int) -> set[str]:
    where = ("checkpoint", "=", checkpoint)
    return {c.member for c in s.region.plane.read(lambda reader, row: reader.select(Contribution, where))}


def _files(s: Scenario) -> dict[str, int]:
    return {file.path: file.bytes for file in s.region.storage().list(s.region.status().region.uid)}


def test_62_start_that_was_resolved_for_an_older_epoch_is_dropped(pair: Scenario) -> None:
    first = pair.cut()
    pair.cut()
    pair.points.set(pair.member(0), fp.RESOLVED, "hold")
    pair.region.reset(cause="fault 62, resolved at the head")
    pair.points.await_reached(pair.member(0), fp.RESOLVED)
    pair.region.reset(first.id, cause="fault 62, and back before the answer came")
    pair.points.clear(pair.member(0), fp.RESOLVED)
    pair.settle()
    cut = pair.cut_soon()
    assert cut.parent == first.id
    pair.check()


def test_61_lost_batch_with_a_full_queue_is_fetched_again(scenario: Make) -> None:
    s = scenario(rate=0, max_poll_records=10, partitions=2, session=8.0)
    for number in (0, 1):
        s.points.set(s.member(number), fp.WRITE, "hold")
    s.generator.send(s.topics[0], 6_000, partitions=2)  # a queue holds a thousand
    for number in (0, 1):
        s.points.await_reached(s.member(number), fp.WRITE)
        s.points.set(s.member(number), fp.POLL, "raise")
        s.points.clear(s.member(number), fp.WRITE)
    s.until(
        lambda: not s.points.pending(s.member(0), fp.POLL) and not s.points.pending(s.member(1), fp.POLL),
        "polls lost their batches",
    )
    s.finish_and_verify(rows=6_000)


@pytest.mark.parametrize(
    ("error", "restarts"),
    [
        ("fenced", True),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in (("rebalanced", False), ("unavailable", False), ("broken", True))
        ),
    ],
)
def test_28_commit_that_is_refused_has_its_own_reaction(pair: Scenario, error: str, restarts: bool) -> None:
    """SPEC D2, X6, X10; fault 28: where members stop, an outage aborts the cut; fencing and a broken client restart the member, and a
    rebalance nothing: its handover follows."""
    pair.stopping.cut()  # the commits of earlier cuts are over
    was, mark = pair.incarnation(0), pair.mark()
    pair.points.set(pair.member(0), fp.COMMIT, error)
    with pytest.raises(CutAborted) if error == "unavailable" else contextlib.nullcontext():
        pair.stopping.cut()
    if restarts:
        pair.await_new(0, was)
    pair.settle()
    assert (pair.incarnation(0) != was) is restarts
    assert len(pair.events("abort", since=mark)) == (error == "unavailable")
    assert pair.region.status().region.consecutive == 0
    pair.check()


def test_49_members_that_join_one_after_another_cause_no_reset(scenario: Make) -> None:
    s = scenario(members=3, partitions=6, settle=False, begin=False)
    s.points.set(s.member(1), fp.START, "sleep:1")
    s.points.set(s.member(2), fp.START, "sleep:2")
    s.host.begin()
    s.settle()
    assert s.resets(0) == []
    resumed = s.events("resumed")
    assert len(resumed) == 1
    assert len([e for e in s.events("registered") if e.seq < resumed[0].seq]) == 3
    s.cut()
    s.finish_and_verify()


def test_50_idle_member_that_takes_over_a_partition_starts_at_the_head(scenario: Make) -> None:
    s = scenario(members=2, partitions=1, static_membership=False)
    s.cut()
    s.cut()
    holder = next(i for i, m in enumerate(s.region.status().members) if m.partitions)
    s.kill(holder)
    s.until(lambda: s.epoch > 2, "a reset")
    s.settle()
    head = s.head
    starts = s.region.plane.read(lambda reader, row: reader.select(Start, ("epoch", "=", row.epoch)))
    assert {(x.reason, x.base) for x in starts} == {("head", head)}
    s.finish_and_verify()


@pytest.mark.soak
def test_63_members_that_trickle_in_while_it_runs_make_one_reset(scenario: Make) -> None:
    s = scenario(members=1, partitions=6)
    s.cut()
    for number in range(1, 6):
        s.points.set(s.member(number), fp.START, f"sleep:{number}")
    mark = s.mark()
    s.region.scale(6)
    s.settle(timeout=90)
    assert len(s.resets(mark)) == 1, [e.text for e in s.resets(mark)]
    assert s.cut().members == 6
    s.finish_and_verify()


def test_G8_partition_that_nobody_holds_makes_a_static_group_rebalance(pair: Scenario) -> None:
    """SPEC G8: the group is stable and would stay so; one of its members makes it assign anew, once in a while and not all the time."""
    mark, generation = pair.mark(), _generation(pair)
    nobodys = Initial(
        pair.region.config.region, pair.kafka.topics.id(pair.topics[0]), 9, pair.topics[0], 0, "beginning"
    )
    pair.region.plane.do(lambda tx: tx.put(nobodys))
    with pytest.raises(Refused, match="nobody holds"):
        pair.cut()
    pair.until(lambda: _generation(pair) > generation, "the group rebalances", timeout=20)
    pair.region.plane.do(lambda tx: tx.delete(Initial, ("partition", "=", 9)))
    pair.settle()
    assert len(pair.resets(mark)) == 1, [e.text for e in pair.resets(mark)]
    assert not pair.events("lost", since=mark)
    pair.check()


def _generation(s: Scenario) -> int:
    return max(m.generation for m in s.region.status().members)
