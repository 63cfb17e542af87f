"""Triggers, pauses, bounded runs, raw records, reading while it runs; on a real Kafka."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

from crkafka_core.member.main import MemberProcess, run_member
from crkafka_core.model.errors import NoSuchCheckpoint
from crkafka_core.model.offsets import TP
from crkafka_core.plane import reading
from crkafka_core.region.caught_up import consume
from crkafka_core.region.driver import Driver
from crkafka_core.verify.verify import verify
from tests.rigs.scenario import Scenario

Make = Callable[..., Scenario]


def test_V1_periodic_cuts_come_by_themselves(scenario: Make) -> None:
    """SPEC V1: counted from the last completed cut, and one second after a resume when overdue."""
    s = scenario(trigger={"period": 1.0}, session=8.0)
    driver = Driver(s.region)
    driver.start()
    try:
        head = s.head
        s.wait_head(head + 3)
        merged = sorted(c.merged_at for c in s.region.checkpoints())
        assert all(later - earlier >= 0.99 for earlier, later in itertools.pairwise(merged))
        s.region.reset(cause="a reset must not starve cuts", wait=True)
        s.wait_head(s.head + 1)
    finally:
        driver.end()
    s.finish_and_verify()


def test_V2_operator_driven_cut_holds_exactly_the_tuples_that_were_asked_for(scenario: Make) -> None:
    """SPEC V2, D1: batches are split at the count; the count restarts at each cut and each reset."""
    s = scenario(trigger={"tuples": 500}, members=1, partitions=2, rate=0, session=8.0)
    driver = Driver(s.region)
    driver.start()
    try:
        s.generator.send(s.topics[0], 2_300, partitions=2)
        s.wait_head(2)
        s.region.reset(cause="in the middle", wait=True)
        s.until(lambda: sum(c.rows for c in s.region.checkpoints()) >= 2_000, "four cuts by count")
    finally:
        driver.end()
    assert [c.rows for c in s.region.checkpoints() if c.rows][::-1] == [500, 500, 500, 500]
    s.finish_and_verify()


def test_V3_bounded_run_reaches_the_ends_also_behind_control_records(scenario: Make) -> None:
    """SPEC V3 (docs/clients.md C-R6): ends are last stable offsets; a paused partition is left out, and named."""
    s = scenario(rate=0, session=8.0)
    for abort in (False, True, False, True):
        s.generator.transaction(s.topics, 40, partitions=4, abort=abort)
    done = consume(s.region)
    assert (done.partitions, done.left_out, done.checkpoint.rows) == (4, (), 80)
    s.region.pause("partition", f"{s.topics[0]}[1]")
    s.cut()  # who contributes to it has read the mark
    s.generator.send(s.topics[0], 40, partitions=4)
    done = consume(s.region)
    assert done.left_out == (TP(s.topics[0], 1),)
    assert done.checkpoint.rows == 30
    s.region.resume("partition", f"{s.topics[0]}[1]")
    s.finish_and_verify()


def test_V3_bounded_run_opens_the_cuts_that_members_ask_for_where_nobody_drives(scenario: Make) -> None:
    """SPEC V2, V3: a member that has submitted its count submits nothing more before a cut, so the ends were never reached."""
    s = scenario(trigger={"tuples": 100}, rate=0, session=8.0)
    s.generator.send(s.topics[0], 1_000, partitions=4)
    run = threading.Thread(target=consume, args=(s.region,), daemon=True)
    run.start()
    run.join(30)
    assert not run.is_alive(), s.account()
    assert sum(c.rows for c in s.region.checkpoints()) == 1_000
    s.finish_and_verify()


def test_P2_pause_follows_the_partition_and_hands_out_nothing(scenario: Make) -> None:
    """SPEC P1, P2, P3: through a reset and a scale-out; other partitions go on."""
    s = scenario(session=8.0)
    paused = TP(s.topics[0], 2)
    s.region.pause("partition", f"{paused.topic}[{paused.partition}]")
    s.cut_soon()  # who contributes to it has read the mark
    before = _position(s, paused)
    s.region.reset(wait=True)
    s.region.scale(3)
    s.settle()
    s.until(lambda: s.cut_soon().rows, "the other partitions go on")
    assert _position(s, paused) == before
    s.region.resume("partition", f"{paused.topic}[{paused.partition}]")
    s.until(lambda: s.cut_soon().id and _position(s, paused) > before, "the partition goes on")
    s.finish_and_verify()


def test_P1_pause_of_one_member_outlives_a_rebalance_only_where_the_partition_stays(scenario: Make) -> None:
    """SPEC P1, V3: 2 → 3 members; by range, partition 0 stays with member 0, and partition 3 goes from member 1 to member 2."""
    s = scenario(rate=0, session=8.0)
    stays, moves = (TP(s.topics[0], p) for p in (0, 3))
    for number, tp in ((0, stays), (1, moves)):
        s.region.pause("partition", str(tp), member=s.member(number))
    s.cut()  # who contributes to it has read the marks
    s.generator.send(s.topics[0], 40, partitions=4)
    done = consume(s.region)
    assert (done.left_out, done.checkpoint.rows) == ((stays, moves), 20)
    s.region.scale(3)
    s.settle()
    done = consume(s.region)
    assert (done.left_out, done.checkpoint.rows) == ((stays,), 10), "it flows with the member that got it"
    assert s.region.resume("partition", str(stays), member=s.member(0))
    s.finish_and_verify()


def _position(s: Scenario, tp: TP) -> int:
    from crkafka_core.plane import starts

    return s.region.plane.read(lambda reader, row: starts.merged(reader, row.head)[tp].to_offset)


def test_46_null_values_keys_headers_and_big_records_land_as_they_are(scenario: Make) -> None:
    s = scenario(rate=0, members=1, partitions=2, session=8.0)
    producer = Producer({"bootstrap.servers": s.kafka.bootstrap, "message.max.bytes": 4_000_000})
    values = [None, b"", b"\xff\xfe not text", b"x" * 1_000_000, "Grüße".encode()]
    for i in range(200):
        producer.produce(
            s.topics[0],
            values[i % 5] if i % 40 else values[3],
            key=None if i % 3 else b"\x00k",
            partition=i % 2,
            headers=[("h", None), ("h", b"\x00\x01")] if i % 7 == 0 else None,
        )
    assert producer.flush(30) == 0
    assert consume(s.region).checkpoint.rows == 200
    s.until(lambda: verify(s.region, quiet=True).ok, "Kafka has the last commit")  # it follows the merge (SPEC D5)
    verdict = verify(s.region, quiet=True)
    assert (verdict.truth, verdict.rows) == ("kafka", 200)


def test_47_reading_while_the_region_runs_disturbs_nobody(scenario: Make) -> None:
    s = scenario(session=8.0)
    for _ in range(3):
        s.cut_soon()
    mark, generation = s.mark(), {m.generation for m in s.region.status().members}
    verdict = verify(s.region)
    assert verdict.ok, str(verdict)
    assert verdict.truth == "kafka"
    assert not s.events("revoked", "assigned", "reset", since=mark)
    assert {m.generation for m in s.region.status().members} == generation
    with pytest.raises(NoSuchCheckpoint):
        s.region.plane.read(lambda reader, row: reading.plan(reader, row, upto=s.head + 1))
    s.finish_and_verify()


ROWS = 150_000


def test_D5_records_flow_while_a_cut_is_open(scenario: Make) -> None:
    """The longest time without a submitted batch while the queue is full, of marks and of cuts that stop, in turns in one run."""
    s = scenario(begin=False, rate=0, members=1, partitions=2, session=8.0, max_poll_records=2)
    s.generator.send(s.topics[0], ROWS, partitions=2)
    times: list[float] = []
    wired: list[MemberProcess] = []

    def hook(parts: MemberProcess) -> None:
        write, close = parts.submitter._write, parts.submitter._close

        def noted(batch: Any, stamp: Any) -> None:
            write(batch, stamp)
            time.sleep(0.004)  # the downstream: the queue stays full
            times.append(time.monotonic())

        def slow(*given: Any) -> None:
            time.sleep(0.15)  # the storage: members that stop for a cut wait for it
            close(*given)

        setattr(parts.submitter, "_write", noted)  # noqa: B010
        setattr(parts.submitter, "_close", slow)  # noqa: B010
        wired.append(parts)

    stop = threading.Event()
    member = threading.Thread(target=run_member, args=(s.config, s.member(0)), kwargs={"stop": stop, "hook": hook})
    member.start()
    try:
        s.until(lambda: len(times) > 20, "records flow")
        flowing: list[float] = []
        stopping: list[float] = []
        for _ in range(6):
            for region, gaps in ((s.region, flowing), (s.stopping, stopping)):
                begun = time.monotonic()
                cut = region.cut()
                ended = time.monotonic()
                s.until(lambda at=ended: times[-1] > at, "it goes on")
                assert cut.rows
                gaps.append(_longest(times, begun, ended))
        assert sum(wired[0].submitter.nexts().values()) < ROWS, "there was more to read all the time"
        assert statistics.median(flowing) < statistics.median(stopping) / 2, f"{flowing} against {stopping}"
    finally:
        s.region.stop()
        stop.set()
        member.join(30)
    assert verify(s.region).ok


def _longest(times: Sequence[float], begun: float, ended: float) -> float:
    """Between two batches, of which one at least came while the cut was open, or none did."""
    return max(later - earlier for earlier, later in itertools.pairwise(times) if later > begun and earlier < ended)
