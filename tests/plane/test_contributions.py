"""Contributions to a cut: each once, from whom and of what the cut has fixed, and refused otherwise (SPEC C2, C3; faults 30 to 35)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crkafka_core.model.errors import Conflict, Lost, Mismatch, NotOpen, Superseded
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import CheckpointStatus, ContributedOffset, Contribution, Initial, ResetCause
from crkafka_core.model.segment import ClosedSegment, Span, segment_path
from crkafka_core.plane import contributions, merging, resets, retire
from tests.plane.conftest import P0, P1, Kit
from tests.rigs.merging import merge_cut


def _part(kit: Kit, checkpoint: int, number: int, rows: int = 10, **other: object) -> contributions.Part:
    name, tp = f"orders/{number}", P0 if number == 0 else P1
    at = kit.at[tp]
    segment = ClosedSegment(
        segment_path("uid", kit.row.epoch, kit.live[name], checkpoint, 0),
        rows,
        1,
        "h",
        (Span(tp, at, at + rows, rows),),
    )
    return replace(
        contributions.Part(
            checkpoint,
            name,
            kit.live[name],
            kit.row.epoch,
            kit.row.head,
            kit.generation,
            tuple(sorted(kit.live)),
            {tp: (at, at + rows, rows)},
            {"t": "id-t"},
            [segment],
        ),
        **other,
    )


def _stored(kit: Kit, checkpoint: int) -> int:
    return kit.read(lambda reader, row: reader.count(Contribution, ("checkpoint", "=", checkpoint)))


def test_30_same_contribution_twice_is_accepted_once(kit: Kit) -> None:
    kit.running()
    cut = kit.open()
    part = _part(kit, cut, 0)
    kit.do(lambda tx: contributions.contribute(tx, part))
    kit.do(lambda tx: contributions.contribute(tx, replace(part, drain_ms=99)))
    assert _stored(kit, cut) == 1
    kit.contribute(cut, 1)
    kit.do(lambda tx: merge_cut(tx, cut))
    kit.do(lambda tx: contributions.contribute(tx, part))
    assert kit.row.head == cut, "sent again after the merge, it changes nothing either"


def test_31_different_contribution_of_one_incarnation_is_a_conflict(kit: Kit) -> None:
    kit.running()
    cut, epoch = kit.open(), kit.row.epoch
    kit.do(lambda tx: contributions.contribute(tx, _part(kit, cut, 0, 10)))
    with pytest.raises(Conflict):
        kit.do(lambda tx: contributions.contribute(tx, _part(kit, cut, 0, 11)))
    assert (kit.checkpoint(cut).status, kit.row.epoch) == (CheckpointStatus.ABORTED, epoch + 1)
    assert _stored(kit, cut) == 0
    assert "11" in kit.events("contribution refused")[0].data_json


def test_32_contribution_of_an_unknown_or_old_incarnation_is_refused(kit: Kit) -> None:
    kit.running()
    cut = kit.open()
    with pytest.raises(Superseded):
        kit.do(lambda tx: contributions.contribute(tx, _part(kit, cut, 0, incarnation="older")))
    with pytest.raises(Lost):
        kit.do(lambda tx: contributions.contribute(tx, _part(kit, cut, 0, member="orders/7", incarnation="i7")))
    assert _stored(kit, cut) == 0
    assert kit.checkpoint(cut).status is CheckpointStatus.OPEN


@pytest.mark.parametrize("what", ["merged", "aborted", "unknown", "retired"])
def test_33_contribution_to_a_checkpoint_that_is_not_open_is_refused(kit: Kit, what: str) -> None:
    kit.running()
    if what == "aborted":
        cut = kit.open()
        kit.do(lambda tx: resets.begin(tx, ResetCause.LATE, "test"))
        kit.settle()
    else:
        cut = kit.cut()
    if what == "retired":
        kit.do(lambda tx: tx.set_region(limits_json='{"retain": 1}'))
        kit.cut()
        kit.do(lambda tx: retire.retire(tx, [cut]))
        assert kit.checkpoint(cut).status is CheckpointStatus.RETIRED
    number = 99 if what == "unknown" else cut
    before = _stored(kit, number)
    with pytest.raises(NotOpen, match=what):
        kit.do(lambda tx: contributions.contribute(tx, _part(kit, number, 0, 5)))
    assert _stored(kit, number) == before


def test_33_contribution_of_an_old_epoch_is_refused(kit: Kit) -> None:
    kit.running()
    cut = kit.open()
    with pytest.raises(NotOpen, match="epoch"):
        kit.do(lambda tx: contributions.contribute(tx, _part(kit, cut, 0, epoch=kit.row.epoch - 1)))
    assert _stored(kit, cut) == 0


def test_35_two_members_that_claim_one_partition_are_not_merged(kit: Kit) -> None:
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0, 10)
    part = _part(kit, cut, 1)
    both = replace(part, offsets={**part.offsets, P0: (0, 10, 10)})
    with pytest.raises(Mismatch):
        kit.do(lambda tx: contributions.contribute(tx, both))
    assert kit.checkpoint(cut).status is CheckpointStatus.ABORTED
    kit.settle()
    kit.advance(5.0)
    cut = kit.open()
    kit.contribute(cut, 0, 10)
    kit.contribute(cut, 1, 10)
    kit.do(lambda tx: tx.add(ContributedOffset("orders", cut, "orders/1", "t", 0, 0, 10, 10)))
    with pytest.raises(Mismatch, match="contributed by orders/0 and by orders/1"):
        kit.do(lambda tx: merge_cut(tx, cut))
    assert kit.checkpoint(cut).status is CheckpointStatus.ABORTED
    assert kit.events("merge refused"), "the evidence is kept"


def test_C3_span_with_a_hole_is_no_contribution(kit: Kit) -> None:
    kit.running()
    cut = kit.open()
    path = segment_path("uid", kit.row.epoch, kit.live["orders/0"], cut, 0)
    holey = ClosedSegment(path, 10, 1, "h", (Span(P0, 2, 10, 10),))
    with pytest.raises(Mismatch, match="begins at 2"):
        kit.do(lambda tx: contributions.contribute(tx, _part(kit, cut, 0, segments=[holey])))


def test_C2_contribution_of_another_generation_or_assignment_is_refused(kit: Kit) -> None:
    kit.running()
    for other in ({"generation": 7}, {"base": 9}, {"members": ("orders/0",)}):
        cut = kit.open()
        with pytest.raises(Mismatch):
            kit.do(lambda tx, c=cut, o=other: contributions.contribute(tx, _part(kit, c, 0, **o)))
        assert kit.checkpoint(cut).status is CheckpointStatus.ABORTED
        kit.settle()
        kit.advance(5.0)


def test_58_the_last_contribution_merges_and_one_that_does_not_fit_aborts(kit: Kit) -> None:
    kit.running()
    cut = kit.open()
    kit.do(lambda tx: merging.hand_in(tx, _part(kit, cut, 0)))
    assert kit.row.phase is Phase.CUTTING
    last = _part(kit, cut, 1)
    kit.do(lambda tx: merging.hand_in(tx, last))
    assert (kit.row.phase, kit.row.head) == (Phase.RUNNING, cut)
    kit.do(lambda tx: merging.hand_in(tx, last))  # sent again it is not an error
    kit.at = {P0: 10, P1: 10}
    wrong = kit.open()
    kit.do(lambda tx: tx.add(Initial("orders", "id-t", 2, "t", 0, "beginning")))  # known, and filled by no member
    kit.do(lambda tx: merging.hand_in(tx, _part(kit, wrong, 0)))
    kit.do(lambda tx: merging.hand_in(tx, _part(kit, wrong, 1)))
    assert kit.checkpoint(wrong).status is CheckpointStatus.ABORTED
    assert (kit.row.phase, kit.row.head) == (Phase.RESETTING, cut)
    assert kit.events("merge refused"), "the evidence is kept"
