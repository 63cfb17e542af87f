"""Handovers: a rebalance, a loss or a leave while records flow merges first what was submitted (SPEC X10)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from crkafka_core.model.errors import Mismatch, NotOpen
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import CheckpointStatus, Filler, ResetCause
from crkafka_core.plane import cuts, life, member_plane, members, merging, resets, starts
from tests.plane.conftest import LIMITS, P0, P1, Kit
from tests.rigs.merging import merge_cut

P2, U0 = TP("t", 2), TP("u", 5)


def _merged(kit: Kit, checkpoint: int) -> dict[TP, tuple[int, int, str]]:
    rows = kit.read(lambda reader, _: starts.merged(reader, checkpoint))
    return {tp: (m.from_offset, m.to_offset, m.member) for tp, m in rows.items()}


def _lose(kit: Kit, number: int) -> None:
    name = f"orders/{number}"
    kit.do(lambda tx: members.lose(tx, name, kit.live[name], by=name, why="boom"))


def _mark(kit: Kit) -> int:
    return kit.do(lambda tx: cuts.open_cut(tx, token="mark", cause="test", flow=True)).id


def test_X10_a_rebalance_merges_what_was_submitted_and_resets_to_it_in_one_transaction(kit: Kit) -> None:
    kit.running()
    epoch, last_cut = kit.row.epoch, kit.row.last_cut_at
    kit.now += 3.0
    kit.withdraw(0)
    assert (kit.row.phase, kit.row.open_cut, kit.row.filling, kit.row.epoch) == (Phase.CUTTING, 1, 1, epoch)
    with kit.plane.store.read("orders") as reader:
        seen = member_plane.desired(reader, kit.row, [kit.member(0)], "orders/0", kit.live["orders/0"])
    assert seen.cut is not None and seen.cut.handover and seen.cut.mine == {P0}
    kit.contribute(1, 0, 7)
    kit.advance()
    assert kit.row.phase is Phase.CUTTING, "the other is there, and has time"
    kit.generation = 2
    kit.contribute(1, 1, 9)
    version = kit.row.version
    kit.advance()
    assert _merged(kit, 1) == {P0: (0, 7, "orders/0"), P1: (0, 9, "orders/1")}, "of whichever generation"
    assert (kit.row.phase, kit.row.head, kit.row.epoch, kit.row.handover_json) == (Phase.RESETTING, 1, epoch + 1, "")
    assert kit.row.version == version + 1
    reset = kit.resets()[-1]
    assert (reset.cause, reset.by, reset.aborted, reset.target) == (ResetCause.REBALANCE, "orders/0", 0, 1)
    assert kit.row.last_cut_at == last_cut, "it is no completed cut: it silences no alarm (X6)"


@pytest.mark.parametrize("first", [True, False])
def test_X10_who_is_lost_is_left_out_and_named_and_its_partition_stays_where_the_line_stands(
    kit: Kit, first: bool
) -> None:
    kit.running()
    if first:
        kit.do(lambda tx: resets.request(tx, by="me"))
        kit.resolve(1, {P1}, gaps={P1: starts.Gap(0, 4, "gone")})
        kit.settle()
    else:
        kit.cut(4)
    number, stands = kit.row.filling, 4
    kit.at[P1] = stands
    _lose(kit, 1)
    kit.contribute(number, 0, 5)
    kit.advance()
    checkpoint = kit.checkpoint(number)
    assert (checkpoint.without_json, checkpoint.members) == ('["orders/1"]', 1)
    begins = 0 if first else 4
    assert _merged(kit, number) == {P0: (begins, begins + 5, "orders/0"), P1: (stands, stands, "")}
    assert (kit.row.phase, kit.resets()[-1].cause, kit.resets()[-1].member) == (
        Phase.RESETTING,
        ResetCause.LOST,
        "orders/1",
    )
    assert "without orders/1" in kit.events("merged")[-1].text


def test_X10_what_was_contributed_counts_though_its_member_is_lost_since(kit: Kit) -> None:
    kit.running()
    kit.withdraw(0)
    kit.contribute(1, 1, 9)
    _lose(kit, 1)
    assert kit.row.phase is Phase.CUTTING
    kit.contribute(1, 0, 7)
    kit.advance()
    assert _merged(kit, 1) == {P0: (0, 7, "orders/0"), P1: (0, 9, "orders/1")}
    assert kit.resets()[-1].member == "orders/1", "the loss is what counts against a member"


def test_X10_who_is_silent_at_the_deadline_is_left_out_and_refused_afterwards(kit: Kit) -> None:
    kit.running()
    kit.withdraw(0)
    kit.contribute(1, 0, 7)
    kit.advance(LIMITS.handover_timeout)
    assert kit.row.phase is Phase.CUTTING
    kit.advance(0.1)
    assert (kit.row.phase, kit.row.head, json.loads(kit.checkpoint(1).without_json)) == (
        Phase.RESETTING,
        1,
        ["orders/1"],
    )
    with pytest.raises(NotOpen):
        kit.contribute(1, 1, 9)


def test_X10_an_open_cut_merges_first_and_the_handover_of_what_came_behind_it_opens_with_it(kit: Kit) -> None:
    kit.running()
    mark = _mark(kit)
    kit.contribute(mark, 0, 10)
    kit.withdraw(1)
    assert kit.checkpoint(mark).deadline == kit.now + LIMITS.handover_timeout
    kit.generation = 2
    kit.contribute(mark, 1, 10)
    kit.advance()
    assert (kit.row.head, kit.row.open_cut, kit.row.filling) == (mark, mark + 1, mark + 1)
    assert kit.row.proven_epoch == kit.row.epoch, "that one is a completed cut"
    kit.hand_over(3)
    assert _merged(kit, mark + 1) == {P0: (10, 13, "orders/0"), P1: (10, 13, "orders/1")}
    assert len(kit.events("reset")) == 1 and not kit.events("abort")


def test_X10_who_is_left_out_of_an_open_cut_fills_the_next_number_no_more(kit: Kit) -> None:
    """Its rows of that one follow others that count nowhere."""
    kit.running()
    mark = _mark(kit)
    kit.withdraw(0)
    kit.contribute(mark, 0, 10)
    kit.advance(LIMITS.handover_timeout + 0.1)
    assert (kit.row.head, kit.row.open_cut) == (mark, mark + 1)
    fillers = kit.read(lambda reader, _: reader.select(Filler, ("checkpoint", "=", mark + 1)))
    assert {f.member: f.offsets for f in fillers} == {"orders/0": {P0: 10}}
    kit.hand_over(3)
    assert _merged(kit, mark + 1) == {P0: (10, 13, "orders/0"), P1: (0, 0, "")}


def test_X10_a_cut_without_new_records_names_whom_it_went_without(kit: Kit) -> None:
    kit.running()
    kit.cut(4)
    number = kit.row.filling
    _lose(kit, 1)
    kit.hand_over()
    cut = kit.checkpoint(number)
    assert (cut.status, cut.without, cut.note) == (
        CheckpointStatus.EMPTY,
        ("orders/1",),
        "nothing new since checkpoint 1, without orders/1",
    )
    assert kit.events("left out")[-1].checkpoint == number


def test_X10_a_member_that_fails_at_its_part_is_left_out_and_drops_nothing_of_others(kit: Kit) -> None:
    kit.running()
    kit.withdraw(0)
    kit.contribute(1, 0, 7)
    who = {"member": "orders/1", "incarnation": kit.live["orders/1"]}
    kit.do(lambda tx: merging.give_up(tx, 1, **who, why="disk full", cause=ResetCause.UNAVAILABLE))
    assert _merged(kit, 1) == {P0: (0, 7, "orders/0"), P1: (0, 0, "")}
    assert (kit.checkpoint(1).without, kit.resets()[-1].cause) == (("orders/1",), ResetCause.REBALANCE)
    assert kit.events("left out")[-1].text == "disk full"


@pytest.mark.parametrize("wrong", ["topic", "offset"])
def test_X10_a_contribution_that_does_not_match_is_left_out_and_drops_nothing_of_others(kit: Kit, wrong: str) -> None:
    """A topic that was recreated since its start aborted the handover, and what all had submitted was read again."""
    kit.running()
    kit.withdraw(0)
    kit.contribute(1, 0, 7)
    kit.at[P1] = 3 if wrong == "offset" else 0
    with pytest.raises(Mismatch, match="id-new" if wrong == "topic" else "begins at 3"):
        kit.contribute(1, 1, 9, topic_ids={"t": "id-new" if wrong == "topic" else "id-t"})
    kit.advance()
    assert _merged(kit, 1) == {P0: (0, 7, "orders/0"), P1: (0, 0, "")}
    assert (kit.checkpoint(1).without, kit.resets()[-1].cause) == (("orders/1",), ResetCause.REBALANCE)


def test_X10_the_failure_of_a_member_that_has_contributed_waits_for_the_reset_that_comes(kit: Kit) -> None:
    """But what it writes behind a mark may be broken: it fills the next number no more."""
    kit.running()
    mark, epoch = _mark(kit), kit.row.epoch
    kit.contribute(mark, 0, 7)
    kit.withdraw(1)
    for _ in range(2):
        kit.do(lambda tx: merging.failed(tx, ResetCause.FAILURE, "boom", member="orders/0", epoch=epoch))
    kit.contribute(mark, 1, 9)
    kit.advance()
    assert (kit.row.head, kit.row.open_cut, kit.row.epoch) == (mark, mark + 1, epoch)
    kit.at |= {P0: 7, P1: 9}
    with pytest.raises(NotOpen):
        kit.contribute(mark + 1, 0, 5)
    kit.contribute(mark + 1, 1, 5)
    kit.advance()
    assert _merged(kit, mark + 1) == {P0: (7, 7, ""), P1: (9, 14, "orders/1")}
    assert (kit.checkpoint(mark + 1).without, kit.row.consecutive) == (("orders/0",), 0)


def test_X10_a_member_that_was_moved_before_it_saw_the_resume_is_not_waited_for(kit: Kit) -> None:
    """It fills what it holds no more, and has submitted nothing."""
    kit.running()
    kit.withdraw(0)
    kit.report(0, {P2})
    kit.contribute(1, 1, 9)
    kit.advance()
    assert _merged(kit, 1) == {P0: (0, 0, ""), P1: (0, 9, "orders/1")}


def _read_a_second_topic(kit: Kit) -> None:
    """From a checkpoint without it, which the region has by now."""
    kit.rebalance(0)
    kit.settle({0: {P0}, 1: {P1, U0}})
    assert kit.row.phase is Phase.RUNNING


def _forget(kit: Kit, topic: str) -> None:
    kit.do(lambda tx: starts.forget(tx, topic, by="me"))


def test_X10_a_topic_that_is_made_anew_meanwhile_starts_at_its_beginning(kit: Kit) -> None:
    """The offset of the old one was carried as if it were of the new one: its first records were skipped."""
    kit.running()
    _read_a_second_topic(kit)
    cut = kit.open()
    kit.contribute(cut, 0, 100), kit.contribute(cut, 1, 100, held={P1, U0})
    kit.do(lambda tx: merge_cut(tx, cut))
    kit.at = dict.fromkeys(kit.at, 100)
    _forget(kit, "u")
    anew = {P0: "id-t", P1: "id-t", U0: "new"}
    kit.resolve(0, {P0, P1, U0}, ids=anew)
    kit.withdraw(0)
    kit.contribute(kit.row.open_cut, 0, 5)
    kit.advance(LIMITS.handover_timeout + 0.1)
    assert _merged(kit, kit.row.head)[U0] == (100, 100, "")
    assert kit.resolve(0, {P0, P1, U0}, ids=anew).offsets[U0] == 0


def test_X10_what_was_contributed_counts_though_its_topic_is_dropped_since(kit: Kit) -> None:
    """The merge was refused, and what all had submitted was read again."""
    kit.running()
    _read_a_second_topic(kit)
    kit.withdraw(0)
    number = kit.row.open_cut
    kit.contribute(number, 1, 9, held={P1, U0})
    _forget(kit, "u")
    kit.contribute(number, 0, 7)
    kit.advance()
    assert (kit.row.head, kit.resets()[-1].cause) == (number, ResetCause.REBALANCE)
    assert _merged(kit, number)[U0] == (0, 9, "orders/1")


@pytest.mark.parametrize("silent", [True, False])
def test_X10_with_no_contribution_or_nothing_new_it_is_a_plain_reset(kit: Kit, silent: bool) -> None:
    kit.running()
    kit.cut(5)
    kit.withdraw(0)
    if silent:
        kit.advance(LIMITS.handover_timeout + 0.1)
    else:
        kit.hand_over(0)
    assert (kit.row.phase, kit.row.head) == (Phase.RESETTING, 1)
    for number in (0, 1):
        _lose(kit, number)
    kit.register(0), kit.register(1)
    kit.settle()
    _lose(kit, 0), _lose(kit, 1)
    kit.advance()
    assert (kit.row.phase, kit.row.head) == (Phase.RESETTING, 1), "nobody who fills the number is left"


@pytest.mark.parametrize("begin", [_lose, Kit.withdraw])
def test_X10_a_handover_zeroes_no_count(kit: Kit, begin: Callable[[Kit, int], None]) -> None:
    kit.running()
    kit.fail(0)
    kit.advance(60.0)
    kit.settle()
    proven = kit.row.proven_epoch
    begin(kit, 0)
    kit.hand_over(5)
    assert (kit.row.consecutive, kit.row.proven_epoch, kit.row.phase) == (1, proven, Phase.RESETTING)


def test_X10_a_partition_that_became_known_since_is_no_hole(kit: Kit) -> None:
    kit.running()
    kit.withdraw(0)
    kit.resolve(1, {P2})
    kit.hand_over(5)
    assert _merged(kit, 1).keys() == {P0, P1}
    kit.settle({0: {P0, P2}, 1: {P1}})
    assert kit.at[P2] == 0


def test_X10_a_leaver_asks_for_one_and_leaves_once_it_is_over(kit: Kit) -> None:
    kit.running()
    who = kit.live["orders/1"]
    for _ in range(2):
        kit.do(lambda tx: members.ask_to_leave(tx, "orders/1", who))
    assert (kit.row.phase, len(kit.events("handover"))) == (Phase.CUTTING, 1)
    kit.hand_over(5)
    kit.do(lambda tx: members.ask_to_leave(tx, "orders/1", who))
    kit.do(lambda tx: members.leave(tx, "orders/1", who))
    assert (kit.row.phase, kit.row.head, kit.resets()[-1].cause) == (Phase.RESETTING, 1, ResetCause.LEFT)
    kit.settle({0: {P0, P1}})
    assert (kit.row.phase, len(kit.events("reset"))) == (Phase.RUNNING, 1)


def test_X10_a_reset_that_somebody_asks_for_meanwhile_ends_it(kit: Kit) -> None:
    kit.running()
    kit.withdraw(0)
    kit.contribute(1, 0, 5)
    kit.do(lambda tx: resets.request(tx, by="me"))
    assert (kit.row.phase, kit.row.head, kit.row.handover_json) == (Phase.RESETTING, 0, "")


def test_X10_a_region_that_is_to_stop_rests_behind_it(kit: Kit) -> None:
    kit.running()
    kit.withdraw(0)
    kit.do(lambda tx: life.stop(tx, token="s", by="me"))
    kit.hand_over(5)
    assert (kit.row.phase, kit.row.head) == (Phase.IDLE, 1)


def test_X10_a_part_of_a_topic_that_was_made_anew_is_refused_by_what_its_own_member_started_from(kit: Kit) -> None:
    """Whatever another member knows of other topics."""
    other = TP("u", 0)
    kit.running()
    kit.rebalance(0)
    kit.resolve(0, {P0, P1})
    kit.resolve(1, {other}, ids={other: "id-u"})
    kit.report(0, {P0, P1})
    kit.report(1, {other})
    kit.advance()
    kit.withdraw(1)
    with pytest.raises(Mismatch, match="orders/0 read topic t with id another; the group knows it as id-t"):
        kit.contribute(kit.row.open_cut, 0, 5, held={P0, P1}, topic_ids={"t": "another"})
