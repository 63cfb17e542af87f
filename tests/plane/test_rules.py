"""Single rules of the control plane, each where two things meet: gaps and merges, readers and rewinds, outages and time limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from checkpoints_db import initialise, open_store
from crkafka_core.config.resolving import remember
from crkafka_core.model.errors import DataLoss, LeaseLost, Refused, RegionStopped, Stale, Superseded
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import ROWS, Initial, Region, ResetCause, Start, Table
from crkafka_core.plane import (
    alarms,
    checkpoints,
    cuts,
    events,
    halting,
    leases,
    life,
    limits,
    members,
    pauses,
    reading,
    resets,
    restored,
    retire,
    settling,
    skips,
    starts,
)
from crkafka_core.plane.status import status_of
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol.version import SPOKEN
from crkafka_core.region import waiting
from tests.plane.conftest import LIMITS

if TYPE_CHECKING:
    from tests.plane.conftest import Kit

P0, P1 = TP("t", 0), TP("t", 1)


def renewed(kit: Kit, number: int, **metrics: object) -> None:
    name = f"orders/{number}"
    kit.do(lambda tx: members.renew(tx, name, kit.live[name], metrics))


def test_s4_an_accepted_gap_holds_until_it_is_merged(kit: Kit) -> None:
    """Truncated to 30, so epoch e starts there; by the next attempt the log has grown past the head's 50 again, with other records."""
    kit.running()
    kit.at |= {P0: 0, P1: 0}
    kit.cut(50)
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    kit.at |= kit.resolve(0, {P0}, gaps={P0: starts.Gap(50, 30, "truncated")}).offsets
    assert kit.at[P0] == 30
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    kit.settle()
    assert kit.at == {P0: 30, P1: 50}
    second = kit.cut(5)
    assert kit.checkpoint(second).status == "MERGED"
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    kit.settle()
    assert kit.at == {P0: 35, P1: 55}, "the gap is behind the new head"


def test_x9_a_person_passes_over_what_no_client_can_read_and_the_gap_is_recorded(kit: Kit) -> None:
    kit.running()
    kit.cut(10)
    for first, last in ((3, 9), (11, 12)):
        with pytest.raises(Refused, match="stands at offset 10"):
            kit.do(lambda tx, f=first, t=last: skips.skip(tx, P0, f, t, by="ann"))
    with pytest.raises(Refused, match="knows no partition"):
        kit.do(lambda tx: skips.skip(tx, TP("u", 0), 10, 10, by="ann"))
    assert kit.do(lambda tx: skips.skip(tx, P0, 10, 12, by="ann")) == 13
    kit.settle()
    assert kit.at == {P0: 13, P1: 10}
    assert kit.events("skip")[-1].by == "ann"
    checkpoint = kit.cut(5)
    assert kit.checkpoint(checkpoint).status == "MERGED"
    merged = kit.plane.read(lambda reader, row: starts.merged(reader, checkpoint))
    assert (merged[P0].from_offset, merged[P0].to_offset) == (13, 18)


def test_x9_a_skip_of_unknown_outcome_is_asked_again_and_done_once(kit: Kit) -> None:
    kit.running()
    kit.cut(10)
    for _ in range(2):
        assert kit.do(lambda tx: skips.skip(tx, P0, 10, 12, by="ann", token="t")) == 13
    epoch = kit.row.epoch
    kit.settle()
    kit.cut(5)
    assert kit.do(lambda tx: skips.skip(tx, P0, 10, 12, by="ann", token="t")) == 13, (
        "also when a cut has come meanwhile"
    )
    assert kit.row.epoch == epoch
    assert len(kit.events("skip")) == 1
    with pytest.raises(Refused, match="behind already"):
        kit.do(lambda tx: skips.skip(tx, P0, 10, 12, by="ann", token="another"))


def test_s4_a_merged_offset_keeps_the_leader_epoch_of_its_last_record(kit: Kit) -> None:
    kit.running()
    first = kit.cut(10, epochs={P0: 3})
    assert merged_epochs(kit, first) == {P0: 3, P1: -1}
    second = kit.cut(0)
    assert merged_epochs(kit, second) == {P0: 3, P1: -1}, "where nothing came, the parent's holds"
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    found = kit.resolve(0, {P0, P1})
    assert found.leader_epochs == {P0: 3}, "the client is told of it with the seek"
    looked = kit.plane.read(lambda reader, row: starts.lookup(reader, row, {P0: "id-t", P1: "id-t"}))
    assert looked.offsets[P0] == 10
    third_epoch = kit.row.epoch
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    assert kit.row.epoch > third_epoch
    fresh = kit.plane.read(lambda reader, row: starts.lookup(reader, row, {P0: "id-t", P1: "id-t"}))
    assert fresh.leader_epochs == {P0: 3}, "what is unknown is not asked for"
    kit.settle()
    third = kit.cut(10)
    assert merged_epochs(kit, third) == {P0: -1, P1: -1}, "an epoch that is unknown is not the parent's"


def test_s4_the_first_leader_epoch_of_a_log_is_looked_at_as_any(kit: Kit) -> None:
    kit.running()
    kit.cut(10, epochs={P0: 0})
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    looked = kit.plane.read(lambda reader, row: starts.lookup(reader, row, {P0: "id-t", P1: "id-t"}))
    assert looked.leader_epochs == {P0: 0}


def merged_epochs(kit: Kit, checkpoint: int) -> dict[TP, int]:
    rows = kit.plane.read(lambda reader, row: starts.merged(reader, checkpoint))
    return {tp: m.leader_epoch for tp, m in rows.items()}


def test_c3_a_gap_of_this_attempt_is_where_the_contribution_begins(kit: Kit) -> None:
    kit.running()
    kit.cut(50)
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    kit.at |= kit.resolve(0, {P0}, gaps={P0: starts.Gap(50, 70, "retention")}).offsets
    kit.report(0, {P0})
    kit.settle({1: {P1}})
    first = kit.cut(5)
    second = kit.cut(5)
    assert kit.checkpoint(second).parent == first
    assert kit.checkpoint(second).status == "MERGED"


def test_c3_a_gap_of_a_topic_that_is_no_longer_read_or_was_made_anew_is_no_place_to_begin(kit: Kit) -> None:
    kit.running()
    head = kit.cut(50)
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    kit.resolve(0, {P0}, gaps={P0: starts.Gap(50, 70, "retention")})

    def begins(first: dict[TP, Initial]) -> dict[TP, int]:
        return kit.plane.read(
            lambda reader, row: starts.line_offsets(reader, row.epoch, head, first, starts.merged(reader, head))
        )

    known = kit.plane.read(lambda reader, _: starts.known(reader))
    assert begins(known) == {P0: 70, P1: 50}
    assert begins({P1: known[P1]}) == {P1: 50}
    assert begins({P0: replace(known[P0], topic_id="new", offset=3)}) == {P0: 3}


def test_s4_records_that_kafka_no_longer_holds_stop_the_region_unless_gaps_are_accepted(kit: Kit) -> None:
    kit.running()
    kit.cut(50)
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    with pytest.raises(DataLoss, match="Data loss in region orders"):
        _resolve(kit, gaps={tp: starts.Gap(50, 70, "retention passed") for tp in (P0, P1)})
    assert kit.row.phase is Phase.STOPPED
    assert kit.row.stop_reason.startswith(
        "Data loss in region orders: t[0]: retention passed: wanted offset 50, available from 70; "
        "t[1]: retention passed: wanted offset 50, available from 70. Set `data_loss: gap`"
    )


def test_s4_a_topic_that_was_made_anew_is_told_once_for_all_its_partitions(kit: Kit) -> None:
    kit.running()
    with pytest.raises(DataLoss):
        _resolve(kit, ids="id-new")
    assert kit.row.stop_reason.startswith(
        "Data loss in region orders: topic t was made anew: the region knows it with the id id-t, and it has the id id-new now."
    )


@pytest.mark.parametrize("past", [{"epoch": -1}, {"base": 1}])
def test_s1_starts_asked_for_before_a_reset_or_from_another_head_are_not_written(
    kit: Kit, past: dict[str, int]
) -> None:
    kit.running()
    before = kit.plane.read(lambda reader, _: reader.select(Start))
    with pytest.raises(Stale, match="Starts were asked for epoch"):
        _resolve(kit, **past)
    assert kit.plane.read(lambda reader, _: reader.select(Start)) == before


def test_s1_a_replaced_process_writes_no_starts(kit: Kit) -> None:
    kit.running()
    older = kit.live["orders/0"]
    kit.register(0)
    with pytest.raises(Superseded):
        _resolve(kit, incarnation=older)


def test_s3_who_holds_nothing_and_found_nothing_is_not_the_birth_of_a_region(kit: Kit) -> None:
    """Of partitions that are found before the birth the configuration says where they start; later ones start at their beginning."""
    kit.do(lambda tx: life.start(tx, by="test"))
    kit.register(0)
    assert not _resolve(kit, held=()).born and not kit.row.born
    kit.resolve(0, {P0})
    assert kit.row.born


def _resolve(
    kit: Kit,
    *,
    gaps: dict[TP, starts.Gap] | None = None,
    ids: str = "id-t",
    epoch: int = 0,
    base: int = 0,
    incarnation: str = "",
    held: Sequence[TP] = (P0, P1),
) -> starts.Resolved:
    """Member 0 asks for what it holds and accepts no gap; `epoch` and `base` as seen from what is so."""
    row, who = kit.row, incarnation or kit.live["orders/0"]
    return kit.do(
        lambda tx: starts.resolve(
            tx,
            member="orders/0",
            incarnation=who,
            epoch=row.epoch + epoch,
            base=row.head + base,
            topic_ids=dict.fromkeys(held, ids),
            proposals={},
            gaps=gaps or {},
            accept_gaps=False,
        )
    )


def test_t1_what_a_reader_reads_stays_also_when_a_rewind_left_it_behind(kit: Kit) -> None:
    kit.running()
    first, second, third = kit.cut(), kit.cut(), kit.cut()
    taken = kit.do(lambda tx: reading.take(tx, holder="me", token="r", length=30, after=first))
    kit.do(lambda tx: resets.request(tx, cause="c", by="me", target=first))
    assert kit.do(lambda tx: retire.retire(tx, (second, third))) == []
    plan = kit.plane.read(retire.plan)
    assert plan.retire == ()
    assert any("me reads" in why for why in plan.held)
    kit.do(lambda tx: reading.release(tx, taken.lease))
    assert kit.plane.read(retire.plan).retire == (second, third)
    kit.do(lambda tx: reading.follow(tx, stream="s", holder="a stream", after=third, length=30.0))
    plan = kit.plane.read(retire.plan)
    assert (plan.retire, plan.held) == ((second, third), ()), "who has it behind it does not hold it"


def test_g8_members_of_a_region_started_again_are_waited_for_as_at_first(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    for number in (0, 1):
        kit.contribute(kit.row.open_cut, number)
    kit.do(lambda tx: cuts.merge(tx, kit.row.open_cut))
    assert kit.row.phase is Phase.IDLE
    for number in (0, 1):
        kit.do(lambda tx, n=f"orders/{number}": members.leave(tx, n, kit.live[n]))  # type: ignore[misc]
    kit.now += 1_000
    kit.do(lambda tx: life.start(tx, by="me"))
    kit.live.clear()
    kit.register(0)
    kit.resolve(0, {P0, P1})
    kit.report(0, {P0, P1})
    assert kit.advance() is Phase.RESETTING, "the second member has ten seconds to come"
    assert kit.advance(11) is Phase.RUNNING


def test_x7_an_attempt_that_kafka_holds_up_backs_off_and_never_stops_the_region(kit: Kit) -> None:
    """Kafka away for hours: groups stay settled, starts cannot be resolved (faults 26, 57)."""
    kit.running()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    for _ in range(400):
        renewed(kit, 0, unavailable="Kafka failed resolving starts: _TRANSPORT")
        kit.advance(30.0)
    assert kit.row.phase is Phase.RESETTING
    assert kit.row.consecutive == 0
    assert kit.row.failing > 5
    renewed(kit, 0)
    kit.now += 60
    kit.settle()
    assert kit.row.phase is Phase.RUNNING


def test_x7_an_attempt_that_nothing_holds_up_counts(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    for _ in range(400):
        renewed(kit, 0)
        kit.advance(30.0)
    assert kit.row.phase is Phase.STOPPED


def test_g8_an_unsettled_group_is_alarmed_once_in_an_attempt_with_what_is_missing(kit: Kit) -> None:
    kit.do(lambda tx: life.start(tx, by="test"))
    kit.register(0)
    kit.advance(LIMITS.settle_timeout)
    assert not kit.events("unsettled")
    for _ in range(5):
        kit.advance(10.0)
    (alarm,) = kit.events("unsettled")
    assert "no report of what it holds from orders/0" in alarm.text
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    for _ in range(5):
        kit.advance(10.0)
    assert len(kit.events("unsettled")) == 2


def test_g8_a_settled_group_is_not_alarmed(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    kit.report(0, {P0}), kit.report(1, {P1}, base=-1)
    for _ in range(3):
        kit.advance(12.0)
    assert not kit.events("unsettled")


@pytest.mark.parametrize("quickly", [True, False])
def test_20_a_topic_made_anew_is_noticed_by_the_merge(kit: Kit, quickly: bool) -> None:
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0, 5, topic_ids={"t": "id-new" if quickly else "id-t"})
    kit.contribute(cut, 1, 5)
    merged = kit.plane.store.run("orders", lambda tx: cuts.merge(tx, cut))
    assert ("id-new" in str(merged)) is quickly
    assert json.loads(kit.events("merge refused")[0].data_json) if quickly else True


def test_m7_a_region_whose_topic_does_not_exist_yet_waits_for_it_without_attempts(kit: Kit) -> None:
    kit.do(lambda tx: life.start(tx, by="test"))
    for number in (0, 1):
        kit.register(number)
        kit.report(number, set())
    for _ in range(50):
        kit.advance(30.0)
    assert (kit.row.phase, kit.row.consecutive) == (Phase.BIRTH, 0)
    assert "no topic" in kit.plane.read(settling.unready)
    kit.settle()
    assert kit.row.phase is Phase.RUNNING


def test_g8_foreign_members_of_the_group_are_named_when_it_does_not_settle(kit: Kit) -> None:
    kit.do(lambda tx: life.start(tx, by="test"))
    kit.register(0)
    row = kit.row
    clients = [
        f"crkafka-orders/0-{kit.live['orders/0']}",
        "crkafka-orders/1-gone",
        "kafka-console-consumer",
        "crkafka-other/0-a",
    ]
    found = kit.plane.read(lambda reader, _: alarms.foreign(reader, row, clients))
    assert found == ["crkafka-other/0-a", "kafka-console-consumer"]
    kit.do(lambda tx: alarms.strangers(tx, found, by="orders/0"))
    assert not kit.events("foreign members"), "it is not late yet"
    kit.advance(31.0)
    for _ in range(3):
        kit.do(lambda tx: alarms.strangers(tx, found, by="orders/0"))
    assert len(kit.events("foreign members")) == 1
    alarm = kit.plane.read(status_of).alarm
    assert "kafka-console-consumer" in alarm
    assert "not settled for 30 s" in alarm


def test_8_a_driver_that_slept_past_its_lease_opens_no_cut(kit: Kit) -> None:
    kit.running()
    first = kit.do(lambda tx: leases.take(tx, "driver", holder="run 1", token="a", length=30.0))
    kit.now += 31.0
    second = kit.do(lambda tx: leases.take(tx, "driver", holder="run 2", token="b", length=30.0))
    with pytest.raises(LeaseLost, match="run 2"):
        kit.do(lambda tx: cuts.open_cut(tx, token="late", cause="due", lease=first))
    assert kit.row.phase is Phase.RUNNING
    assert kit.do(lambda tx: cuts.open_cut(tx, token="ours", cause="due", lease=second)).id == kit.row.open_cut


def test_d2_a_commit_that_a_rebalance_refused_is_a_forced_reset_without_back_off(kit: Kit) -> None:
    kit.running()
    cut, mine = kit.open(), kit.live["orders/0"]
    kit.do(
        lambda tx: cuts.give_up(
            tx, cut, member="orders/0", incarnation=mine, why="illegal generation", cause=ResetCause.REBALANCE
        )
    )
    assert (kit.row.phase, kit.row.consecutive, kit.row.failing, kit.row.not_before) == (Phase.RESETTING, 0, 0, 0.0)
    assert (kit.resets()[-1].cause, kit.resets()[-1].member) == (ResetCause.REBALANCE, ""), "nobody's known doing"
    kit.do(
        lambda tx: cuts.give_up(tx, cut, member="orders/0", incarnation=mine, why="again", cause=ResetCause.REBALANCE)
    )
    assert len(kit.events("reset")) == 1, "void when the cut is over"


def test_p1_a_members_mark_on_a_partition_stays_while_the_member_keeps_it(kit: Kit) -> None:
    """Through a rebalance that leaves it there; gone for the member that loses it, also when it comes back later."""
    kit.running()
    kit.do(lambda tx: pauses.pause(tx, "partition", "t[0]", member="orders/0", by="me"))
    kit.do(lambda tx: pauses.pause(tx, "topic", "t", member="orders/1", by="me"))
    assert _paused(kit) == {P0, P1}
    kit.withdraw(0)
    kit.generation += 1
    kit.settle()
    assert _paused(kit) == {P0, P1}
    kit.withdraw(1)
    kit.generation += 1
    kit.settle({1: {P0}, 0: {P1}})
    assert _paused(kit) == {P0}, "orders/1 is paused for the topic, wherever it is; orders/0 has lost the partition"
    kit.withdraw(0)
    kit.generation += 1
    kit.settle()
    assert _paused(kit) == {P1}
    assert [e.by for e in kit.events("resumed mark")] == ["orders/0 lost the partition"]


def test_p1_a_members_mark_on_a_partition_is_gone_as_soon_as_another_reports_it(kit: Kit) -> None:
    """The member that lost it may be gone, and report nothing any more."""
    kit.running()
    kit.do(lambda tx: pauses.pause(tx, "partition", "t[0]", member="orders/0", by="me"))
    kit.generation += 1
    kit.resolve(1, {P0, P1})
    kit.report(1, {P0, P1})
    assert not kit.plane.read(lambda reader, row: pauses.marks(reader))


@pytest.mark.parametrize("what", ["t[1]", "t[7]"])
def test_p1_what_a_member_does_not_hold_cannot_be_paused_for_it(kit: Kit, what: str) -> None:
    kit.running()
    with pytest.raises(Refused, match="does not hold"):
        kit.do(lambda tx: pauses.pause(tx, "partition", what, member="orders/0", by="me"))
    kit.withdraw(0)
    with pytest.raises(Refused, match="does not say"):
        kit.do(lambda tx: pauses.pause(tx, "partition", "t[0]", member="orders/0", by="me"))


def _paused(kit: Kit) -> set[TP]:
    return set(kit.plane.read(lambda reader, row: pauses.paused_now(reader, (P0, P1))))


def _stopped(kit: Kit) -> list[str]:
    return [e.text for e in kit.events("idle")]


@pytest.mark.parametrize("rebalance", [False, True])
def test_g9_a_stop_in_an_unsettled_moment_waits_for_the_group_and_cuts(kit: Kit, rebalance: bool) -> None:
    """A member is between two reports, or a rebalance even makes a reset: the last cut comes when all hold something again."""
    kit.running()
    kit.withdraw(0, wants_reset=False)
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    assert kit.row.phase is Phase.RUNNING
    if rebalance:
        kit.withdraw(1)
        assert kit.row.phase is Phase.RESETTING
    kit.generation += 1
    kit.settle()
    kit.advance()
    assert (kit.row.phase, kit.row.wanted) == (Phase.CUTTING, "stop")
    cut = kit.row.open_cut
    for number in (0, 1):
        kit.contribute(cut, number, 10)
    kit.do(lambda tx: cuts.merge(tx, cut))
    assert (kit.row.phase, kit.row.head) == (Phase.IDLE, cut)


def test_g9_a_last_cut_that_is_aborted_is_tried_again_within_its_time(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    kit.withdraw(0)
    assert kit.row.phase is Phase.RESETTING
    kit.settle()
    assert kit.row.phase is Phase.RUNNING
    assert kit.advance() is Phase.CUTTING
    kit.withdraw(0)
    kit.advance(LIMITS.drain_timeout + 1)
    assert kit.row.phase is Phase.IDLE
    assert _stopped(kit)[0].startswith("stopped without a last cut: no report")


def test_g9_a_stop_waits_no_longer_than_a_cut_may_take(kit: Kit) -> None:
    kit.running()
    kit.withdraw(0, wants_reset=False)
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    assert kit.advance(LIMITS.drain_timeout) is Phase.RUNNING
    assert kit.advance(1) is Phase.IDLE
    assert kit.row.head == 0
    (alarm,) = kit.events(alarms.NO_LAST_CUT)
    assert "stopped without a last cut" in alarm.text and "no report" in alarm.text
    assert kit.plane.read(status_of).alarm == alarm.text, "who looks later is told too"


def test_g9_a_stop_of_a_region_without_members_waits_for_nobody(kit: Kit) -> None:
    kit.running()
    for number in (0, 1):
        kit.do(lambda tx, name=f"orders/{number}": members.leave(tx, name, kit.live[name]))  # type: ignore[misc]
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    assert kit.row.phase is Phase.IDLE


def test_g9_what_stops_a_region_that_is_wanted_stopped_leaves_it_idle(kit: Kit) -> None:
    """Nobody waits for a person who has gone: the reason is in the event log, and the next start finds it again."""
    kit.running()
    kit.withdraw(0, wants_reset=False)
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    kit.do(lambda tx: halting.halt(tx, "data loss", member="orders/0"))
    assert kit.row.phase is Phase.IDLE
    assert _stopped(kit) == ["stopped without a last cut: data loss"]


def test_x8_an_event_shows_no_secret_that_this_process_has_resolved(kit: Kit) -> None:
    remember("canary-in-an-event")
    kit.do(lambda tx: events.log(tx, "NOTE", "refused: canary-in-an-event", data={"said": "canary-in-an-event"}))
    found = kit.events("NOTE")[0]
    assert (found.text, found.data_json) == ("refused: ***", '{"said": "***"}')


def test_nor_has_any_row_that_tells_why_a_region_reset_or_stopped(kit: Kit) -> None:
    """Also no zero byte, which PostgreSQL refuses: the member could not even say that it failed."""
    remember("canary-in-a-row")
    kit.running()
    kit.open()
    said = "RuntimeError: refused: canary-in-a-row \0"
    kit.do(lambda tx: members.fail(tx, "orders/0", kit.live["orders/0"], said))
    kit.do(lambda tx: halting.halt(tx, said))
    kit.do(lambda tx: alarms._raise(tx, "unsettled", said))
    with kit.plane.store.read("orders") as reader:
        rows = [row for kind in ROWS for row in reader.select(kind)]
    assert sum("refused: ***" in str(row) for row in rows) >= 5
    assert not [row for row in rows if "canary-in-a-row" in str(row) or "\\x00" in repr(row)]


def test_x8_a_text_that_is_no_utf_8_is_kept_as_far_as_it_goes(tmp_path: Path) -> None:
    """As an argument of a command in another encoding, or an error about a folder with such a name: no database took it."""
    initialise(url := f"sqlite:///{tmp_path}/control.db")
    with closing(open_store(url)) as store:
        plane = ControlPlane(store, "orders")
        life.declare(store, Region("orders", "uid", 0))
        plane.do(lambda tx: life.start(tx, by="me"))
        plane.do(lambda tx: resets.request(tx, cause="caf\udce9", by="me"))
        assert plane.read(lambda _, row: row.reset_cause).endswith("as asked by me: caf?")


def test_a_limit_of_another_version_of_this_program_is_no_concern_of_a_member_that_runs(kit: Kit) -> None:
    stored = json.dumps({"retain": 3, "of_the_next_release": 1.0})
    assert limits.of(replace(kit.row, limits_json=stored)).retain == 3


@pytest.mark.parametrize("wanted", [True, False])
def test_x6_a_stop_where_nothing_flows_aborts_nothing_and_raises_no_epoch(kit: Kit, wanted: bool) -> None:
    kit.running()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me") if wanted else halting.idle(tx, "test"))
    epoch = kit.row.epoch
    kit.do(lambda tx: halting.halt(tx, "data loss"))
    assert (kit.row.phase, kit.row.epoch) == (Phase.STOPPED, epoch)


def test_g9_a_region_that_rests_is_wanted_no_more_once_it_is_stopped(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: halting.idle(tx, "test"))
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    assert (kit.row.wanted, kit.row.phase) == (Wanted.STOP, Phase.IDLE)


def test_g9_a_last_cut_is_found_again_by_who_asked_for_it(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: life.stop(tx, token="stop 7", by="me"))
    assert kit.checkpoint(kit.row.open_cut).token == "stop 7"
    kit.withdraw(0)
    kit.settle()
    assert kit.advance() is Phase.CUTTING
    assert kit.checkpoint(kit.row.open_cut).token != "stop 7", "a second one is another cut"


def _stop_unsettled(kit: Kit) -> int:
    """A stop in an unsettled moment of a quiet region, without a reset: the last cut opens once it is settled."""
    kit.withdraw(0, wants_reset=False)
    kit.do(lambda tx: life.stop(tx, token="stop", by="ann"))
    kit.generation += 1
    kit.settle()
    assert kit.advance() is Phase.CUTTING
    return kit.row.open_cut


def test_g9_a_region_that_is_started_during_its_last_cut_can_be_stopped_again_in_the_same_epoch(kit: Kit) -> None:
    """The second stop found the cut of the first by its name, opened none, and the region ran on for ever."""
    kit.running()
    epoch, first = kit.row.epoch, _stop_unsettled(kit)
    kit.do(lambda tx: life.start(tx, by="bob"))
    for number in (0, 1):
        kit.contribute(first, number, 10)
    kit.do(lambda tx: cuts.merge(tx, first))
    assert (kit.row.phase, kit.row.epoch) == (Phase.RUNNING, epoch)
    assert _stop_unsettled(kit) > first


def test_g9_who_waits_for_a_stop_is_told_that_somebody_started_the_region_again(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: life.stop(tx, token="stop", by="ann"))
    kit.do(lambda tx: life.start(tx, by="bob"))
    with pytest.raises(Refused, match="started again"):
        waiting.until_idle(kit.plane, lambda _: None)
    kit.do(lambda tx: halting.halt(tx, "data loss"))
    with pytest.raises(RegionStopped, match="data loss"):
        waiting.until_idle(kit.plane, lambda _: None)


def test_g9_what_a_member_finds_wrong_after_the_stop_leaves_the_region_idle(kit: Kit) -> None:
    """A stop while the region resets makes it idle at once; who still resolves its starts then may find records gone."""
    kit.running()
    kit.cut(10)
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    row = kit.row
    with pytest.raises(DataLoss, match="available from 15"):
        kit.do(
            lambda tx: starts.resolve(
                tx,
                member="orders/0",
                incarnation=kit.live["orders/0"],
                epoch=row.epoch,
                base=row.head,
                topic_ids={P0: "id-t"},
                proposals={},
                gaps={P0: starts.Gap(10, 15, "retention")},
                accept_gaps=False,
            )
        )
    assert kit.row.phase is Phase.IDLE


def test_g10_that_sql_went_back_is_the_reason_also_where_the_region_was_stopped_before(kit: Kit) -> None:
    """Whoever asked for a reset was refused with the reason of the earlier stop, and told to restore a backup."""
    kit.running()
    kit.do(lambda tx: halting.halt(tx, "5 resets in a row"))
    kit.do(lambda tx: restored.notice(tx, "The control plane went back.", by="retire"))
    assert kit.row.stop_reason == "The control plane went back."


def test_x7_an_attempt_has_its_time_from_when_the_group_was_settled_last(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    for number, tp in enumerate((P0, P1)):
        kit.report(number, {tp}, base=-1)
    kit.advance()
    epoch = kit.row.epoch
    kit.do(lambda tx: life.scale(tx, 3, by="me"))
    kit.advance(1.0)
    assert "2 of 3 members are there" in kit.plane.read(settling.unsettled)
    kit.advance(LIMITS.start_grace)
    assert kit.plane.read(settling.unsettled) == ""
    kit.advance(LIMITS.reset_timeout)
    assert kit.row.epoch == epoch
    kit.advance(1.0)
    assert kit.row.epoch == epoch + 1
    kit.advance()
    kit.do(lambda tx: tx.set_region(not_before=kit.now + 60.0))
    kit.advance(59.0)
    assert kit.row.epoch == epoch + 1, "no next attempt before the back-off is over"
    kit.advance(1.0)
    assert kit.row.epoch == epoch + 2


def test_g6_a_region_that_is_declared_anew_is_run_by_the_rules_of_this_program(kit: Kit) -> None:
    kit.do(lambda tx: tx.set_region(protocol=SPOKEN - 1))
    life.declare(kit.plane.store, kit.row)
    assert kit.row.protocol == SPOKEN


def test_k6_a_table_is_declared_with_its_shape_and_which_of_its_outputs(kit: Kit) -> None:
    table = Table("orders", "failed", "delta", "/t/failed", shape="shop:f", output="dead")
    life.declare(kit.plane.store, kit.row, (table,))
    (stored,) = kit.plane.read(lambda reader, _: life.tables_of(reader))
    assert (stored.shape, stored.output) == ("shop:f", "dead")


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({}, [1, 3, 4]),
        ({"oldest": 2}, [1, 3]),
        ({"latest": 2}, [3, 4]),
        ({"above": 1}, [3, 4]),
        ({"upto": 3}, [1, 3]),
        ({"merged": (1_000.0, 1_030.0)}, [1, 3]),
        ({"merged": (1_001.0, 1_031.0)}, [3, 4]),
    ],
)
def test_which_checkpoints_have_rows(kit: Kit, asked: dict[str, Any], ids: list[int]) -> None:
    """Cuts at 1000, 1010, 1020, 1030; nothing came before the second."""
    kit.running()
    for rows in (5, 0, 5, 5):
        kit.cut(rows)
        kit.now += 10.0
    assert kit.plane.read(lambda reader, _: checkpoints.filled(reader, **asked)) == ids
    assert kit.plane.read(lambda reader, _: checkpoints.rows_of(reader, [1, 3])) == {1: 10, 3: 10}
    merged = kit.plane.read(lambda reader, _: checkpoints.offsets(reader, 1, 3))
    assert sorted((m.checkpoint, m.partition, m.from_offset, m.to_offset) for m in merged) == [
        (1, 0, 0, 5),
        (1, 1, 0, 5),
        (3, 0, 5, 10),
        (3, 1, 5, 10),
    ], "of the second there is nothing"
