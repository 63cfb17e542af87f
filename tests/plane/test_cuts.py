"""Cuts: how one is merged, what aborts it, and that ids only grow (SPEC C3 to C6, D2, D4, G7; fault 58)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from crkafka_core.model.errors import CutOpen, Mismatch, Superseded
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import CheckpointStatus, Filler, ResetCause
from crkafka_core.plane import advance, merging, resets
from tests.plane.conftest import P0, P1, Kit
from tests.rigs.merging import merge_cut


def test_C3_merge_compares_sets_and_not_counts(kit: Kit) -> None:
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0, 10)
    kit.contribute(cut, 1, 10)
    kit.do(lambda tx: tx.put(replace(tx.select(Filler, ("member", "=", "orders/1"))[0], incarnation="another")))
    with pytest.raises(Mismatch):
        kit.do(lambda tx: merge_cut(tx, cut))
    assert kit.row.head == 0


def test_C2_contribution_that_does_not_begin_where_its_number_was_fixed_is_refused_with_its_member(kit: Kit) -> None:
    kit.running()
    kit.cut(10)
    cut = kit.open()
    kit.contribute(cut, 0, 10)
    kit.at[P1] += 3
    with pytest.raises(Mismatch, match=r"orders/1: t\[1\] begins at 13, but checkpoint 1 left it at 10"):
        kit.contribute(cut, 1, 10)
    assert kit.checkpoint(cut).status is CheckpointStatus.ABORTED


def test_D4_cut_past_its_deadline_is_aborted_by_anyone(kit: Kit) -> None:
    kit.running()
    cut, epoch = kit.open(), kit.row.epoch
    kit.contribute(cut, 0)
    kit.advance(21.0)
    assert kit.checkpoint(cut).status is CheckpointStatus.ABORTED
    assert "orders/1" in kit.checkpoint(cut).note
    assert kit.resets()[-1].member == "orders/1"
    assert kit.row.epoch == epoch + 1


def test_G7_nobody_takes_the_lock_for_a_cut_that_only_waits(kit: Kit) -> None:
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0)
    assert not kit.read(advance.due)
    kit.now = kit.checkpoint(cut).deadline
    assert not kit.read(advance.due)
    kit.now += 1.0
    assert kit.read(advance.due)
    assert kit.advance() is Phase.RESETTING


def test_C5_numbers_only_grow_also_after_an_abort_and_a_rewind(kit: Kit) -> None:
    kit.running()
    first = kit.cut()
    aborted = kit.open()
    kit.do(lambda tx: resets.begin(tx, ResetCause.LATE, "test"))
    kit.settle()
    kit.do(lambda tx: resets.request(tx, cause="back", by="me", target=0))
    kit.at = {P0: 0, P1: 0}
    kit.settle()
    third = kit.cut()
    assert first < aborted < third
    assert kit.checkpoint(third).parent == 0


def test_C6_checkpoint_without_new_tuples_merges_with_its_parents_offsets(kit: Kit) -> None:
    kit.running()
    kit.cut(10)
    empty = kit.cut(0)
    assert (kit.checkpoint(empty).rows, kit.row.head) == (0, empty)


def test_C4_cut_opened_twice_with_one_token_is_one_cut(kit: Kit) -> None:
    kit.running()
    assert kit.open("run 7") == kit.open("run 7")
    cut = kit.row.open_cut
    with pytest.raises(CutOpen, match=f"Cut {cut} of region orders is open"):
        kit.open("run 8")
    kit.contribute(cut, 0)
    kit.contribute(cut, 1)
    done = kit.do(lambda tx: merge_cut(tx, cut))
    assert kit.do(lambda tx: merge_cut(tx, cut)) == done
    assert kit.open("run 7") == cut


def test_C3_a_merge_that_cannot_be_says_why_and_changes_nothing(kit: Kit) -> None:
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0)
    kit.do(merging.finish)
    assert kit.read(lambda reader, _: merging.waits_for(reader)) == ["orders/1"]
    assert (kit.row.phase, kit.checkpoint(cut).status) == (Phase.CUTTING, CheckpointStatus.OPEN)
    kit.advance(21.0)
    assert kit.checkpoint(cut).status is CheckpointStatus.ABORTED


def test_D2_who_cannot_do_its_part_aborts_the_cut_and_is_named(kit: Kit) -> None:
    kit.running()
    cut, mine = kit.open(), kit.live["orders/0"]

    def give_up(incarnation: str) -> None:
        kit.do(
            lambda tx: merging.give_up(
                tx, cut, member="orders/0", incarnation=incarnation, why="disk full", cause=ResetCause.FAILURE
            )
        )

    with pytest.raises(Superseded):
        give_up("older")
    assert kit.row.open_cut == cut
    give_up(mine)
    assert (kit.checkpoint(cut).status, kit.checkpoint(cut).note) == (CheckpointStatus.ABORTED, "disk full")
    assert (kit.resets()[-1].cause, kit.resets()[-1].member) == (ResetCause.FAILURE, "orders/0")


@pytest.mark.parametrize("quickly", [True, False])
def test_20_a_topic_made_anew_is_noticed_by_the_merge(kit: Kit, quickly: bool) -> None:
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0, 5, topic_ids={"t": "id-new" if quickly else "id-t"})
    kit.contribute(cut, 1, 5)
    merged = kit.plane.store.run("orders", lambda tx: merge_cut(tx, cut))
    assert ("id-new" in str(merged)) is quickly
    assert json.loads(kit.events("merge refused")[0].data_json) if quickly else True
