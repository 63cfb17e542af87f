"""Cuts that are marks: the next number is there at the opening, and nothing waits for the merge (SPEC D5)."""

from __future__ import annotations

import pytest

from crkafka_core.model.errors import Mismatch
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import CheckpointStatus, Filler, ResetCause
from crkafka_core.plane import advance, cuts, life, member_plane, resets
from tests.plane.conftest import LIMITS, P0, P1, Kit
from tests.rigs.merging import merge_cut


def _mark(kit: Kit, **how: bool) -> int:
    return kit.do(lambda tx: cuts.open_cut(tx, token=f"mark {kit.row.filling}", cause="test", flow=True, **how)).id


def _fillers(kit: Kit, number: int) -> dict[str, dict[TP, int]]:
    with kit.plane.store.read("orders") as reader:
        return {f.incarnation: f.offsets for f in reader.select(Filler, ("checkpoint", "=", number))}


def _merge(kit: Kit, number: int, rows: int) -> None:
    for member in (0, 1):
        kit.contribute(number, member, rows)
    kit.do(lambda tx: merge_cut(tx, number))
    kit.at = {tp: at + rows for tp, at in kit.at.items()}


def test_D5_the_opening_hands_out_the_next_number_and_the_merge_says_from_where(kit: Kit) -> None:
    kit.running()
    i0, i1 = kit.live["orders/0"], kit.live["orders/1"]
    mark = _mark(kit)
    assert (mark, kit.row.filling, kit.row.opened, kit.row.phase) == (1, 2, 1, Phase.CUTTING)
    assert {who: set(at) for who, at in _fillers(kit, 2).items()} == {i0: {P0}, i1: {P1}}
    with kit.plane.store.read("orders") as reader:
        seen = member_plane.desired(reader, kit.row, [kit.member(0)], "orders/0", i0)
    assert (seen.filling, seen.fills, seen.cut and seen.cut.mine) == (2, {P0}, {P0})
    _merge(kit, mark, 10)
    assert (kit.row.filling, kit.row.phase) == (2, Phase.RUNNING), "the merge hands out none"
    assert _fillers(kit, 2) == {i0: {P0: 10}, i1: {P1: 10}}
    assert kit.cut(5) == 2


def test_D5_who_contributes_from_elsewhere_than_the_marks_merge_ends_is_refused(kit: Kit) -> None:
    kit.running()
    _merge(kit, _mark(kit), 10)
    following, kit.at = _mark(kit), {P0: 12, P1: 10}
    with pytest.raises(Mismatch, match="checkpoint 1 left it at 10"):
        kit.contribute(following, 0, 5)


def test_D5_an_abort_leaves_both_numbers_behind(kit: Kit) -> None:
    kit.running()
    mark = _mark(kit)
    kit.contribute(mark, 0, 10)
    kit.do(lambda tx: resets.begin(tx, ResetCause.LATE, "test"))
    assert (_fillers(kit, 1), _fillers(kit, 2)) == ({}, {})
    kit.settle()
    kit.advance(5.0)
    assert (kit.checkpoint(mark).status, kit.row.filling, kit.cut(5)) == (CheckpointStatus.ABORTED, 3, 3)


def test_D5_a_mark_with_nothing_new_goes_on_with_the_number_that_is_filled_already(kit: Kit) -> None:
    kit.running()
    kit.cut(10)
    empty = _mark(kit, if_new=True)
    _merge(kit, empty, 0)
    assert (kit.checkpoint(empty).status, kit.row.head) == (CheckpointStatus.EMPTY, 1)
    assert (kit.row.filling, kit.cut(5), kit.checkpoint(3).parent) == (3, 3, 1)


def test_G9_a_stop_while_a_mark_is_open_cuts_once_more(kit: Kit) -> None:
    """What members have submitted behind the mark is not in it."""
    kit.running()
    mark = _mark(kit)
    kit.do(lambda tx: life.stop(tx, token="t", by="me"))
    _merge(kit, mark, 10)
    assert (kit.row.phase, kit.row.stopping) == (Phase.RUNNING, True)
    assert kit.advance() is Phase.CUTTING
    assert (kit.row.open_cut, kit.row.filling) == (2, 2), "the last cut is no mark"
    _merge(kit, 2, 3)
    assert (kit.row.phase, kit.row.head) == (Phase.IDLE, 2)


def test_G4_who_has_not_reported_a_rebalance_in_a_cut_is_not_lost(kit: Kit) -> None:
    """It reports in the next epoch; the joiner, of which the cut expects nothing, has reported before."""
    kit.running()
    mark = _mark(kit)
    kit.do(lambda tx: life.scale(tx, 3, by="me"))
    kit.register(2)
    kit.resolve(2, {P0})
    kit.report(2, {P0}, generation=2)
    assert not kit.read(advance.due)
    kit.advance()
    kit.advance(LIMITS.handover_timeout)
    assert {kit.member(n).stale_since for n in (0, 1, 2)} == {0.0}
    _merge(kit, mark, 10)
    assert (kit.row.phase, kit.row.head) == (Phase.CUTTING, mark), "what was submitted behind the mark is merged too"
    kit.hand_over(5)
    assert (kit.row.phase, kit.row.head, kit.checkpoint(mark + 1).rows) == (Phase.RESETTING, mark + 1, 10)
