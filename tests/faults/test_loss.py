"""Records and topics that Kafka no longer has: never a silent jump (faults 20, 21, 56, 59, 60, 64)."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from crkafka_core.cli.setup import check
from crkafka_core.config import RegionConfig
from crkafka_core.model.errors import DataLoss, NotRunning, Refused, WentBack, WrongRegion
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Initial, Segment, Start
from crkafka_core.plane import permits
from crkafka_core.region import Region
from crkafka_core.segments.scan import read_with_topics
from crkafka_core.verify.verdict import Verdict
from crkafka_core.verify.verify import verify
from tests.rigs.scenario import Scenario
from tests.rigs.seen import Remembered

Make = Callable[..., Scenario]


def _land(s: Scenario, rows: int) -> None:
    """Cut until so many rows are on the line."""

    def landed() -> int:
        return sum(c.rows for c in s.region.checkpoints())

    s.until(lambda: s.cut_soon().id and landed() >= rows, f"{rows} rows land", timeout=30)
    assert landed() == rows


def _send(s: Scenario, count: int, submitted: int) -> None:
    """To the first topic, and until all is submitted."""
    s.generator.send(s.topics[0], count, partitions=2)
    s.until(lambda: s.submitted() >= submitted, "all is submitted")


def _stop(s: Scenario) -> None:
    s.region.stop()
    s.until(lambda: not s.host.pids(), "the members have ended")


def _verified(s: Scenario) -> Verdict:
    verdict = verify(s.region, kafka=False)
    assert verdict.ok, str(verdict)
    return verdict


def _two_topics(scenario: Make) -> Scenario:
    """With 200 records of each, all of them merged."""
    s = scenario(topics=2, partitions=2, rate=0)
    s.generator.send(s.topics[1], 200, partitions=2)
    _send(s, 200, 400)
    s.cut()
    return s


def test_20_topic_recreated_quickly_stops_the_region_with_both_ids(scenario: Make) -> None:
    """SPEC S4, C3 (docs/clients.md C-R9, C-K22); faults 20, 64, 83: after `forget` the new topic starts by its own id, also if the old had
    a leader epoch above 0, as after any restart of a broker: a client that knew the old one never reads it."""
    s = scenario(rate=0, partitions=2)
    topic, old = s.topics[0], s.kafka.topics.id(s.topics[0])
    s.kafka.restart()
    s.settle()
    _send(s, 500, 500)
    s.cut_soon()
    s.kafka.topics.delete(topic)
    s.kafka.topics.create(topic, 2)
    new = s.kafka.topics.id(topic)
    assert new != old
    s.generator.send(topic, 300, partitions=2)
    with pytest.raises(Refused):
        for _ in range(40):
            s.cut()
            time.sleep(0.25)
    s.wait_phase(Phase.STOPPED)
    reason = s.region.status().region.stop_reason
    assert topic in reason
    assert old in reason, reason
    assert new in reason, reason
    assert "crkafka forget" in reason, "what to do stands where people look"
    wrong = [finding.text for finding in check(s.config) if not finding.ok]
    assert len(wrong) == 1, "`crkafka check` finds it too"
    assert old in wrong[0]
    assert new in wrong[0]
    with pytest.raises(DataLoss, match=f"{re.escape(old)}.*{re.escape(new)}.*crkafka forget"):
        s.region.reset("initial")
    s.region.forget(topic)
    s.region.start()
    s.settle()
    _land(s, 800)
    verdict = verify(s.region)
    assert verdict.ok, str(verdict)
    assert any(old in note and new in note for note in verdict.notes), "what the old one held is compared with nothing"
    landed = s.region.plane.read(lambda reader, row: reader.select(Segment, ("rows", ">", 0)))
    said = {read_with_topics(s.region.storage(), segment.path, ["offset"])[1][topic] for segment in landed}
    assert said == {old, new}, "an offset says nothing without the topic's id: it is in the file"


def test_20_topic_deleted_stops_the_region_until_it_is_forgotten(scenario: Make) -> None:
    """SPEC S4; faults 20 and 59: without resets; its offsets are carried forward afterwards."""
    s = _two_topics(scenario)
    gone, stays = s.topics
    mark = s.mark()
    with pytest.raises(Refused, match="nothing of it is to be forgotten"):
        s.region.forget(gone)
    s.kafka.topics.delete(gone)
    s.wait_phase(Phase.STOPPED, timeout=60)
    assert gone in s.region.status().region.stop_reason
    assert len(s.resets(mark)) <= 2, [e.text for e in s.resets(mark)]
    with pytest.raises(DataLoss, match=f"{gone}.*was deleted.*crkafka forget"):
        s.region.reset("initial")
    s.region.forget(gone)
    s.region.start()
    s.generator.send(stays, 100, partitions=2)
    s.settle()
    _land(s, 500)
    assert _verified(s).partitions == 4, "carried forward"


@pytest.mark.soak
def test_20_deletion_of_the_only_topic_stops_the_region(scenario: Make) -> None:
    """SPEC S4: Kafka then assigns nothing any more, and nobody asks where a partition starts."""
    s = scenario(topics=1, partitions=2, rate=0)
    (gone,) = s.topics
    _send(s, 200, 200)
    s.cut()
    s.kafka.topics.delete(gone)
    s.wait_phase(Phase.STOPPED, timeout=60)
    assert gone in s.region.status().region.stop_reason
    s.region.forget(gone)
    s.kafka.topics.create(gone, 2)
    s.region.start()
    s.generator.send(gone, 100, partitions=2)
    s.settle()
    _land(s, 300)


@pytest.mark.parametrize("policy", [pytest.param("stop", marks=pytest.mark.soak), "gap"])
def test_21_retention_that_passes_the_checkpoint_is_told_or_recorded(scenario: Make, policy: str) -> None:
    """SPEC S4, X4; faults 21 and 64: a data-loss error, or the recorded gap, which the next cuts merge."""
    s = scenario(rate=0, partitions=2, data_loss=policy)
    topic = s.topics[0]
    _send(s, 400, 400)
    s.cut()
    _stop(s)
    s.generator.send(topic, 400, partitions=2)
    s.kafka.topics.delete_records({(topic, p): 300 for p in range(2)})
    s.region.start()
    if policy == "stop":
        s.wait_phase(Phase.STOPPED)
        reason = s.region.status().region.stop_reason
        assert all(word in reason for word in (topic, "200", "300")), reason
        with pytest.raises(DataLoss):
            s.region.reset("initial")
        return
    s.settle()
    gaps = s.region.plane.read(lambda reader, row: reader.select(Start, ("reason", "=", "gap")))
    assert {(x.partition, x.offset) for x in gaps} == {(0, 300), (1, 300)}
    _land(s, 600)
    _verified(s)


def test_21_a_transactional_log_that_expired_as_a_whole_is_passed_over_by_hand(scenario: Make) -> None:
    """SPEC S4, X9; fault 21: behind the last record lies a marker; Kafka's log then begins behind it, and only a person knows that no
    record is missing."""
    s = scenario(rate=0, partitions=2)
    topic = s.topics[0]
    s.generator.transaction(s.topics, 40, partitions=2)
    s.until(lambda: s.submitted() >= 40, "all is submitted")
    s.cut()
    _stop(s)
    s.kafka.topics.delete_records({(topic, p): -1 for p in range(2)})
    s.region.start()
    s.wait_phase(Phase.STOPPED)
    assert "wanted offset 20, available from 21" in s.region.status().region.stop_reason
    for p in range(2):
        assert s.region.skip(TP(topic, p), 20, 20, by="test") == 21
    s.region.start()
    s.settle()
    s.generator.transaction(s.topics, 20, partitions=2)
    _land(s, 60)
    _verified(s)


def test_59_topic_dropped_from_the_configuration_is_carried_forward(scenario: Make) -> None:
    s = _two_topics(scenario)
    _stop(s)
    s.host.end()
    s.config = s.config.model_copy(update={"topics": (s.topics[1],)})
    s.region.config = s.config
    s.region.init()
    with pytest.raises(NotRunning):
        s.cut()
    s.region.start()
    s.host = s.new_host()
    s.host.begin()
    s.settle()
    s.generator.send(s.topics[1], 100, partitions=2)
    _land(s, 500)
    assert _verified(s).partitions == 4


@pytest.mark.soak
def test_76_a_topic_that_leaves_while_the_region_runs_is_given_back_by_static_members_that_come_again(
    scenario: Make,
) -> None:
    """SPEC S4; fault 76: they read less than before, so the group rebalances; the simulated broker does as this one."""
    s = _two_topics(scenario)
    s.config = s.config.model_copy(update={"topics": (s.topics[1],)})
    s.region.config = s.config
    s.region.init()
    s.host.end()
    s.host = s.new_host()
    s.host.begin()
    s.generator.send(s.topics[1], 100, partitions=2)
    _land(s, 500)


def test_76_a_topic_that_left_and_was_deleted_while_old_members_ran_is_carried_forward(scenario: Make) -> None:
    """SPEC S4; fault 76: they read it by their configuration, and no member could ever hold it again."""
    s = _two_topics(scenario)
    s.config = s.region.config = s.config.model_copy(update={"topics": (s.topics[1],)})
    s.region.init()
    s.kafka.topics.delete(s.topics[0])
    s.generator.send(s.topics[1], 100, partitions=2)
    s.until(lambda: {tp.topic for tp in s.held()} == {s.topics[1]}, "Kafka has taken it from them")
    _land(s, 500)


@pytest.mark.parametrize("table", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_56_new_region_on_an_old_group_is_refused_unless_it_adopts(
    scenario: Make, monkeypatch: pytest.MonkeyPatch, table: bool
) -> None:
    """SPEC S2, G6; fault 56: SQL is lost; `default` refuses the commits of the other uid, `adopt` starts at its last merged offset,

    or, where a declared table was behind, at what the table had: the segments of the rest are named by nobody any more.
    """
    monkeypatch.setattr(RegionConfig, "check_place", lambda *_: None)  # the test writes for it
    s = scenario(
        rate=0,
        partitions=2,
        tables=[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}] if table else [],
    )
    topic = s.topics[0]
    _send(s, 400, 400)
    first = s.cut()
    if table:
        permit = s.region.plane.do(
            lambda tx: permits.permit_commit(tx, "bronze", holder="test", token="t", upto=first.id)
        )
        assert permit is not None
        s.region.plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=400))
    _send(s, 100, 500)
    s.cut()
    _stop(s)
    s.host.end()
    uid = s.region.status().region.uid
    with pytest.raises(WrongRegion, match=f"adopt: {uid}"):
        s.region_on_new_sql(start={"position": "default"})
    admin = s.region.admin()
    s.until(lambda: not admin.client_ids(s.config.group_id), "Kafka has ended the members' sessions")
    admin.close()
    again = s.region_on_new_sql(start={"position": "default", "adopt": uid})
    again.settle()
    s.generator.send(topic, 60, partitions=2)
    _land(again, 60)
    starts = again.region.plane.read(lambda reader, row: reader.select(Initial))
    # The last cut, of the stop, was empty: what its commit names as merged before it is all that there was.
    assert {i.partition: i.offset for i in starts} == dict.fromkeys((0, 1), 200 if table else 250)
    again.host.end(patience=0.0)
    again.region.close()


@pytest.mark.parametrize("control_plane", ["sqlite"], indirect=True)
@pytest.mark.parametrize("held", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_60_restored_backup_is_noticed_and_rewound_if_kafka_holds_what_was_lost(
    scenario: Make, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    """SPEC G10, X4; fault 60: stopped before anything is written, with the choice named; nothing of a table is removed that is gone."""
    monkeypatch.setattr(RegionConfig, "check_place", lambda *_: None)  # the test writes for it
    s = scenario(rate=0, partitions=2, tables=[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}])
    file = Path(s.url.removeprefix("sqlite:///") or s.config.resolved_control_plane().removeprefix("sqlite:///"))
    _send(s, 400, 400)
    first = s.cut()
    with closing(sqlite3.connect(file)) as now, closing(sqlite3.connect(file.with_suffix(".backup"))) as backup:
        now.backup(backup)
    _send(s, 200, 600)
    s.cut()
    _stop(s)
    s.host.end()
    s.region.close()
    for left in file.parent.glob(f"{file.name}-*"):
        left.unlink()
    file.with_suffix(".backup").replace(file)
    s.region, s.seen = Region.open(s.config), Remembered()
    with pytest.raises(WentBack, match=r"newer backup.*--restored rewind"):
        s.region.start()
    assert s.phase is Phase.STOPPED
    if not held:
        s.kafka.topics.delete_records({(s.topics[0], p): 250 for p in range(2)})
        with pytest.raises(
            DataLoss, match=r"would start at 200.*keep what the tables hold: `crkafka tables undeclare bronze`"
        ):
            s.region.start(restored="rewind")
        assert s.phase is Phase.STOPPED
        assert not s.region.status().unfenced
        return
    s.region.start(restored="rewind")
    assert (s.phase, s.head) == (Phase.REWINDING, first.id)
    permit = s.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="test", token="fence"))
    assert permit is not None
    s.region.plane.do(lambda tx: permits.finish_fence(tx, permit, version="1"))
    s.host = s.new_host("logs2")
    s.host.begin()
    s.settle()
    cut = s.cut_soon()
    assert cut.parent == first.id
    assert cut.id > first.id + 2, "above every number that was seen"
    s.finish_and_verify()
