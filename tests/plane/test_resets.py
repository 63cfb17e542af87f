"""Resets: what raises the epoch, what counts, what stops, and that a call may be repeated (SPEC §11, G7, G9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from crkafka_core.model.errors import Stale
from crkafka_core.model.phase import Phase
from crkafka_core.plane import resets, restored

if TYPE_CHECKING:
    from tests.plane.conftest import Kit


def test_x5_a_persons_reset_repeated_with_its_token_raises_the_epoch_once(kit: Kit) -> None:
    kit.running()
    first = kit.do(lambda tx: resets.request(tx, cause="c", by="me", token="run 7"))
    assert kit.do(lambda tx: resets.request(tx, cause="c", by="me", token="run 7")) == first
    assert kit.row.epoch == first
    kit.settle()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me", token="run 7"))
    assert (kit.row.epoch, kit.row.phase) == (first, Phase.RUNNING), "also when the region has resumed meanwhile"
    assert kit.do(lambda tx: resets.request(tx, cause="c", by="me", token="run 8")) == first + 1


def test_x4_a_rewind_repeated_with_its_token_goes_back_once(kit: Kit) -> None:
    kit.running()
    first, second = kit.cut(), kit.cut()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me", target=first, token="a"))
    kit.settle()
    third = kit.cut()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me", target=first, token="a"))
    assert kit.row.head == third > second


def test_x5_a_failure_seen_in_an_older_epoch_asks_for_nothing(kit: Kit) -> None:
    kit.running()
    epoch = kit.row.epoch
    kit.do(lambda tx: resets.request(tx, cause="c", by="orders/0", epoch=epoch, member="orders/0"))
    with pytest.raises(Stale):
        kit.do(lambda tx: resets.request(tx, cause="c", by="orders/0", epoch=epoch, member="orders/0"))
    assert kit.row.epoch == epoch + 1


def test_x6_a_persons_reset_out_of_stopped_counts_anew(kit: Kit) -> None:
    kit.running()
    for _ in range(5):
        kit.do(lambda tx: resets.request(tx, cause="broken", by="orders/0", epoch=kit.row.epoch, member="orders/0"))
    assert kit.row.phase is Phase.STOPPED
    kit.do(lambda tx: resets.request(tx, cause="mended", by="me"))
    assert (kit.row.phase, kit.row.consecutive) == (Phase.RESETTING, 0)
    kit.do(lambda tx: resets.request(tx, cause="broken", by="orders/0", epoch=kit.row.epoch, member="orders/0"))
    assert kit.row.phase is Phase.RESETTING


def test_x6_a_persons_reset_out_of_stopped_gives_a_flapping_member_a_new_budget(kit: Kit) -> None:
    kit.running()
    for _ in range(10):
        kit.withdraw(0)
        if kit.row.phase is Phase.STOPPED:
            break
        kit.settle()
    assert kit.row.stop_member == "orders/0"
    kit.do(lambda tx: resets.request(tx, cause="mended", by="me"))
    kit.settle()
    kit.withdraw(0)
    assert kit.row.phase is Phase.RESETTING


def test_x6_hours_of_failing_storage_back_off_and_never_overflow(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: tx.set_region(failing=5_000))
    kit.do(
        lambda tx: resets.request(
            tx, cause="storage", by="orders/0", epoch=kit.row.epoch, member="orders/0", counted=False
        )
    )
    assert kit.row.not_before == kit.now + 60.0


def test_x6_the_budget_sees_forced_resets_between_counted_ones_of_the_same_member(kit: Kit) -> None:
    kit.running()
    for _ in range(9):
        kit.withdraw(0)
        kit.settle()
        for _ in range(3):
            kit.do(lambda tx: resets.request(tx, cause="x", by="orders/0", epoch=kit.row.epoch, member="orders/0"))
            kit.advance(60.0)
        kit.settle()
    kit.withdraw(0)
    assert kit.row.phase is Phase.STOPPED, "ten without a completed cut"


def test_g10_a_region_never_resumed_waits_for_its_tables_after_a_restored_backup(make_kit: type[Kit]) -> None:
    kit = make_kit(tables=("a",))
    kit.do(lambda tx: restored.rewind(tx, restored.Seen(epoch=9, checkpoint=9, where="x"), by="me"))
    assert kit.row.phase is Phase.REWINDING


def test_r5_a_clean_leave_during_a_cut_counts_as_no_failure(kit: Kit) -> None:
    from crkafka_core.plane import members

    kit.running()
    cut = kit.open()
    kit.do(lambda tx: members.leave(tx, "orders/0", kit.live["orders/0"]))
    assert kit.checkpoint(cut).status == "ABORTED"
    assert (kit.row.consecutive, kit.row.failing, kit.row.not_before) == (0, 0, 0.0)
