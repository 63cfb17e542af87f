"""The life of a region on a real Kafka: cuts, scaling, going back, growing topics, transactions; the oracle after each."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.testing.pytest_services import unique
from tests.rigs.scenario import Scenario

Make = Callable[..., Scenario]


def test_twenty_cuts_of_a_steady_run_land_every_record_once(scenario: Make) -> None:
    s = scenario(members=2, partitions=4)
    before = s.mark()
    parent = s.head
    for _ in range(20):
        cut = s.cut()
        assert cut.parent == parent
        parent = cut.id
    assert s.resets(before) == []
    verdict = s.finish_and_verify()
    assert verdict.checkpoints >= 21
    assert s.verify().rows == s.ledger.rows()


def test_X1_reset_to_initial_state_twice_starts_at_the_same_offsets(scenario: Make) -> None:
    s = scenario()
    for _ in range(3):
        s.cut()
    starts = []
    for _ in range(2):
        epoch = s.region.reset("initial", wait=True)
        starts.append({(r.topic, r.partition): r.offset for r in _starts(s, epoch)})
        s.cut_soon()
    assert starts[0] == starts[1]
    assert len(starts[0]) == 4
    s.finish_and_verify()


def _starts(s: Scenario, epoch: int) -> list:  # type: ignore[type-arg]
    from crkafka_core.model.rows import Start

    return s.region.plane.read(lambda reader, row: reader.select(Start, ("epoch", "=", epoch)))


def test_X4_going_back_to_an_older_checkpoint_lands_what_came_after_it_again(scenario: Make) -> None:
    s = scenario()
    cuts = [s.cut_soon() for _ in range(4)]
    time.sleep(0.3)
    s.region.reset(cuts[1].id, wait=True)
    again = s.cut_soon()
    assert again.parent == cuts[1].id
    assert {c.id for c in s.region.checkpoints()} >= {cuts[0].id, cuts[1].id, again.id}
    assert not {c.id for c in s.region.checkpoints()} & {cuts[2].id, cuts[3].id}
    s.finish_and_verify()


def test_18_partitions_added_while_running_lose_nothing(scenario: Make) -> None:
    """SPEC S3, M7; fault 18: records written before the discovery land too; the same first offset after each reset."""
    s = scenario(partitions=2)
    s.cut()
    topic = s.topics[0]
    s.quieten()
    s.kafka.topics.add_partitions(topic, 4)
    s.generator.send(topic, 400, partitions=4)
    s.until(lambda: len(s.held()) == 4, "all four partitions are held")
    s.settle()
    s.region.reset(cause="a failure downstream, before the next cut", wait=True)
    s.finish_and_verify()


def by_pattern(scenario: Make) -> tuple[Scenario, list[str]]:
    """A region that reads the first of two topics, and runs; the other one, which matches its pattern, is not there yet."""
    prefix = unique("shop").replace("-", "")
    names = [f"{prefix}.a", f"{prefix}.b"]
    s = scenario(names=[], topics=0, pattern=f"^{prefix}\\..*", rate=0, settle=False, begin=False)
    s.kafka.topics.create(names[0], 2)
    s.host.begin()
    s.wait_running()
    s.generator.send(names[0], 200, partitions=2)
    return s, names


def test_19_a_new_topic_that_matches_the_pattern_is_consumed_within_seconds(scenario: Make) -> None:
    s, names = by_pattern(scenario)
    began = time.monotonic()
    s.kafka.topics.create(names[1], 2)
    s.generator.send(names[1], 200, partitions=2)
    s.until(lambda: any(tp.topic == names[1] for tp in s.held()), "the new topic is held", timeout=30)
    s.settle()
    assert time.monotonic() - began < 40, "and not after the five minutes that a client waits by itself"
    s.finish_and_verify(rows=400)


def test_19_what_kafka_has_got_while_all_static_members_were_away_is_read(scenario: Make) -> None:
    """They come back to the assignment that they had, without a rebalance: it was nobody's, and nobody was told."""
    s, names = by_pattern(scenario)
    s.region.stop()
    s.kafka.topics.create(names[1], 2)
    s.kafka.topics.add_partitions(names[0], 4)
    s.generator.send(names[1], 200, partitions=2)
    s.region.start()
    wanted = {TP(name, p) for name, count in zip(names, (4, 2), strict=True) for p in range(count)}
    s.until(lambda: s.held() == wanted, "all partitions are held", timeout=40)
    s.finish_and_verify(rows=400)


def test_20_a_topic_that_was_deleted_while_all_static_members_were_away_holds_nobody_up(scenario: Make) -> None:
    """They get its partitions back with what they had, and Kafka describes it no more: none of them could say where it starts."""
    s = scenario(topics=2, partitions=2, rate=0)
    s.generator.send(s.topics[0], 200, partitions=2)
    s.cut()
    s.region.stop()
    s.kafka.topics.delete(s.topics[1])
    s.region.start()
    s.wait_phase(Phase.STOPPED)
    s.region.forget(s.topics[1])
    s.region.start()
    s.wait_running(timeout=40)
    s.generator.send(s.topics[0], 200, partitions=2)
    s.finish_and_verify(rows=400)


@pytest.mark.soak
def test_20_a_topic_that_was_made_anew_with_fewer_partitions_while_all_static_members_were_away_holds_nobody_up(
    scenario: Make,
) -> None:
    """They get back partitions that are there no more, of a topic that is."""
    s = scenario(partitions=4, rate=0)
    topic = s.topics[0]
    s.generator.send(topic, 200, partitions=4)
    s.until(lambda: s.submitted() >= 200, "all is submitted")
    s.cut()
    s.region.stop()
    s.kafka.topics.delete(topic)
    s.kafka.topics.create(topic, 1)
    s.region.start()
    s.wait_phase(Phase.STOPPED)
    s.region.forget(topic)
    s.region.start()
    s.generator.send(topic, 100, partitions=1)
    s.wait_running(timeout=40)
    s.until(lambda: s.cut_soon().id and sum(c.rows for c in s.region.checkpoints()) == 300, "the new one lands")


def test_45_aborted_and_open_transactions_land_nothing(scenario: Make) -> None:
    s = scenario(abort_every=2)
    for _ in range(3):
        s.cut_soon()
        time.sleep(0.2)
    s.quieten()
    s.generator.unfinished(s.topics[0], 50, partitions=4)
    s.cut()
    s.generator.abort()
    s.generator.transaction(s.topics, 40, partitions=4)
    s.finish_and_verify()


def test_17_more_members_than_partitions_cut_at_normal_speed(scenario: Make) -> None:
    s = scenario(members=3, partitions=2)
    began = time.monotonic()
    cuts = [s.cut() for _ in range(5)]
    assert time.monotonic() - began < 5 * s.config.drain_timeout
    assert all(c.members == 3 for c in cuts)
    s.finish_and_verify()


def test_G9_stop_cuts_a_last_time_and_start_goes_on(scenario: Make) -> None:
    s = scenario()
    s.cut()
    before, head = s.mark(), s.head
    s.region.stop()
    assert s.head > head
    assert s.resets(before) == []
    s.until(lambda: not s.host.pids(), "the members have ended")
    s.region.start()
    s.settle()
    s.finish_and_verify()


def test_reset_right_after_a_merge_keeps_what_the_merge_names(pair: Scenario) -> None:
    """SPEC C7, X2; I13: members that hear of merge and reset at once must not remove what they closed for the merge."""
    for _ in range(4):
        pair.await_flow()
        cut = pair.cut()
        epoch = pair.region.reset(cause="at once")
        pair.wait_running(epoch)
        assert cut.id in {c.id for c in pair.region.checkpoints()}
        pair.verify()
    pair.check()
