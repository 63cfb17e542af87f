"""A checkpoint has its number before its first row: who hands it out, who fills it, and which rows belong nowhere (SPEC C8)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crkafka_core.model.errors import Mismatch
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import CheckpointStatus, DeadNumbers, Filler, ResetCause, Table
from crkafka_core.model.segment import ClosedSegment, Span, segment_path
from crkafka_core.plane import contributions, cuts, life, members, numbers, resets, restored, settling
from crkafka_core.protocol import subscription
from tests.plane.conftest import P0, P1, Kit
from tests.rigs.merging import merge_cut


def _filled(kit: Kit) -> dict[str, dict[object, int]]:
    """Who fills the number that was handed out last, and from where."""
    with kit.plane.store.read("orders") as reader:
        return {f.incarnation: dict(f.offsets) for f in reader.select(Filler, ("checkpoint", "=", kit.row.filling))}


def test_C8_the_resume_and_each_merge_hand_out_a_number_with_its_fillers(kit: Kit) -> None:
    kit.running()
    i0, i1 = kit.live["orders/0"], kit.live["orders/1"]
    assert (kit.row.filling, kit.row.opened) == (1, 0)
    assert _filled(kit) == {i0: {P0: 0}, i1: {P1: 0}}
    assert kit.read(lambda reader, _: reader.count(cuts.Checkpoint)) == 0, "a checkpoint is one whose cut is opened"
    assert kit.cut(10) == 1
    assert (kit.row.filling, kit.row.opened) == (2, 1)
    assert _filled(kit) == {i0: {P0: 10}, i1: {P1: 10}}


def test_C8_a_reset_an_abort_and_an_empty_cut_leave_their_number_behind_for_ever(kit: Kit) -> None:
    kit.running()
    kit.cut(10)
    kit.fail(0)
    assert _filled(kit) == {}, "nobody fills it any more"
    kit.settle()
    kit.advance(5.0)
    assert kit.row.filling == 3
    aborted = kit.open()
    kit.do(lambda tx: resets.begin(tx, ResetCause.LATE, "test"))
    kit.settle()
    kit.advance(5.0)
    empty = kit.do(lambda tx: cuts.open_cut(tx, token="due", cause="due", if_new=True)).id
    for number in (0, 1):
        kit.contribute(empty, number)
    assert kit.do(lambda tx: merge_cut(tx, empty)).status is CheckpointStatus.EMPTY
    assert (aborted, empty, kit.cut(5)) == (3, 4, 5)


def test_C8_a_stop_hands_out_none_and_the_next_resume_goes_on_counting(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: life.stop(tx, token="t", by="me"))
    for number in (0, 1):
        kit.contribute(1, number, 5)
    kit.do(lambda tx: merge_cut(tx, 1))
    assert (kit.row.phase, kit.row.filling) == (Phase.IDLE, 1)
    merged = _filled(kit)
    for number in (0, 1):
        kit.do(lambda tx, n=f"orders/{number}": members.leave(tx, n, kit.live[n]))  # type: ignore[misc]
    kit.do(lambda tx: life.start(tx, by="me"))
    assert _filled(kit) == merged, "who filled the last checkpoint stays known"
    for number in (0, 1):
        kit.register(number)
    kit.settle()
    assert kit.row.filling == 2


@pytest.mark.parametrize(
    "path", ["other/{e}/{i}/1", "uid/{past}/{i}/1", "uid/{e}/older/1", "uid/{e}/{i}/2", "uid/{e}/{i}/0"]
)
def test_C8_a_segment_of_another_region_epoch_incarnation_or_number_aborts_the_cut(kit: Kit, path: str) -> None:
    kit.running()
    kit.open()
    row, who = kit.row, kit.live["orders/0"]
    uid, epoch, incarnation, number = path.format(e=row.epoch, past=row.epoch - 1, i=who).split("/")
    segment = ClosedSegment(segment_path(uid, int(epoch), incarnation, int(number), 0), 5, 1, "h", (Span(P0, 0, 5, 5),))
    part = contributions.Part(
        1,
        "orders/0",
        who,
        row.epoch,
        0,
        kit.generation,
        ("orders/0", "orders/1"),
        {P0: (0, 5, 5)},
        {"t": "id-t"},
        [segment],
    )
    with pytest.raises(Mismatch, match="not filled for checkpoint 1"):
        kit.do(lambda tx: contributions.contribute(tx, part))
    assert kit.row.phase is Phase.RESETTING
    assert kit.checkpoint(1).status is CheckpointStatus.ABORTED


def test_C8_who_reports_other_partitions_than_it_fills_makes_a_reset(kit: Kit) -> None:
    """Nothing had been fetched when the partitions moved, so that nobody had asked for one (SPEC R2)."""
    kit.running()
    for number in (0, 1):
        kit.unsettle(number)
    kit.generation += 1
    assert kit.row.phase is Phase.RUNNING
    kit.report(0, {P0, P1})
    kit.hand_over(5)
    assert (kit.row.phase, kit.row.head) == (Phase.RESETTING, 1), "what was submitted counts"


def test_C8_the_same_partitions_reported_again_go_on_with_the_same_number(kit: Kit) -> None:
    kit.running()
    for number in (0, 1):
        kit.unsettle(number)
    kit.generation += 1
    kit.report(0, {P0})
    kit.report(1, {P1})
    assert (kit.row.phase, kit.cut(5)) == (Phase.RUNNING, 1)


def test_C8_nobody_waits_for_an_idle_member_that_has_left(make_kit: type[Kit]) -> None:
    kit = make_kit(wanted=3).running()
    kit.do(lambda tx: members.leave(tx, "orders/2", kit.live.pop("orders/2")))
    assert kit.cut(5) == 1
    assert kit.checkpoint(1).members == 2


def test_C8_a_rewind_kills_the_numbers_between_its_target_and_the_last_that_was_handed_out(kit: Kit) -> None:
    kit.running()
    for _ in range(4):
        kit.cut(5)
    kit.do(lambda tx: tx.put(Table("orders", "bronze", "delta", "/t")))
    kit.do(lambda tx: resets.request(tx, by="me", target=2))
    kit.do(lambda tx: resets.request(tx, by="me", target=1))
    kit.do(lambda tx: tx.put(replace(tx.select(Table)[0], fenced_epoch=99)))
    kit.settle()
    kit.at = {P0: 5, P1: 5}
    assert kit.cut(5) == 6
    dead = kit.read(lambda reader, _: numbers.dead(reader))
    assert [n for n in range(9) if dead.belongs(n, 7)] == [1, 6, 7]
    assert [n for n in range(9) if dead.belongs(n, 1)] == [1]


def test_G10_going_on_after_a_restored_backup_kills_all_that_was_seen_and_the_margin(kit: Kit) -> None:
    kit.running()
    kit.cut(5)
    kit.do(lambda tx: life.stop(tx, token="", by="me"))
    kit.do(lambda tx: tx.set_region(phase=Phase.IDLE))
    seen = restored.Seen(kit.row.epoch, 7, numbers=frozenset({(kit.row.epoch, 9)}))
    kit.do(lambda tx: restored.rewind(tx, seen, by="me"))
    kit.settle()
    next_one = kit.cut(5)
    dead = kit.read(lambda reader, _: numbers.dead(reader))
    assert next_one == 9 + restored.MARGIN + 1
    assert [n for n in (1, 2, 9, next_one - 1, next_one) if dead.belongs(n, next_one)] == [1, next_one]


def test_C8_a_plain_start_after_sql_went_back_kills_the_numbers_that_the_other_state_may_have_filled(kit: Kit) -> None:
    """An older state went on before a process that had seen more noticed it; nothing outside SQL names a number above its own by then."""
    kit.running()
    kit.cut(5)  # 2 is being filled, here and in the state that was lost, which merged it
    kit.fail(0)
    kit.settle()
    kit.advance(5.0)
    assert (kit.row.head, kit.row.filling) == (1, 3)
    kit.do(lambda tx: restored.notice(tx, "orders/0 saw checkpoint 2 as the head", by="orders/0"))
    kit.do(lambda tx: restored.trust(tx, restored.Seen(), by="me"))
    assert not kit.row.went_back
    kit.do(lambda tx: life.start(tx, by="me"))
    kit.settle()
    kit.advance(5.0)
    last = kit.cut(5)
    dead = kit.read(lambda reader, _: numbers.dead(reader))
    assert last == 3 + restored.MARGIN + 1
    assert [n for n in range(1, last + 1) if dead.belongs(n, last)] == [1, last]


def test_C8_no_cut_waits_for_a_member_that_left_with_the_last_partitions_of_a_topic_that_is_no_longer_read(
    kit: Kit,
) -> None:
    """A rolling restart with a topic less: the cut that followed waited for the member until its deadline (SPEC S4)."""
    u0, both, less = TP("u", 0), subscription.dump(("t", "u"), None), subscription.dump(("t",), None)
    kit.do(lambda tx: tx.set_region(subscription_json=both))
    kit.do(lambda tx: life.start(tx, by="test"))
    for name, reads in (("orders/0", less), ("orders/1", both)):
        launch = kit.do(lambda tx, n=name: members.launch(tx, n))  # type: ignore[misc]
        kit.live[name] = f"i-{name[-1]}"
        who = members.Registration(name, kit.live[name], launch, 0, "cluster", "group", subscription=reads)
        kit.do(lambda tx, w=who: members.register(tx, w))  # type: ignore[misc]
    kit.resolve(1, {u0}, ids={u0: "id-u"})
    kit.resolve(0, {P0, P1})
    kit.report(0, {P0, P1})
    kit.report(1, {u0})
    kit.advance()
    assert _filled(kit).keys() == {"i-0", "i-1"}
    kit.do(lambda tx: tx.set_region(subscription_json=less))
    kit.do(members.drop_topics)
    assert _filled(kit).keys() == {"i-0", "i-1"}, "it is still read"
    kit.do(lambda tx: members.leave(tx, "orders/1", kit.live.pop("orders/1")))
    assert kit.read(settling.unready) == ""
    cut = kit.open()
    kit.contribute(cut, 0, 5, held={P0, P1})
    assert kit.do(lambda tx: merge_cut(tx, cut)).status is CheckpointStatus.MERGED


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30))), st.integers(0, 40))
def test_C8_a_number_belongs_if_no_interval_has_it(pairs: list[tuple[int, int]], acknowledged: int) -> None:
    rows = [DeadNumbers("r", max(pair), min(pair)) for pair in pairs]

    class Rows:
        def select(self, row: type) -> list[DeadNumbers]:
            return rows

    dead = numbers.dead(Rows())  # type: ignore[arg-type]
    for number in range(42):
        alive = not any(row.after < number <= row.upto for row in rows)
        assert dead.belongs(number, acknowledged) == (0 < number <= acknowledged and alive)
    assert all(a[1] < b[0] for a, b in zip(dead.intervals, dead.intervals[1:], strict=False))
