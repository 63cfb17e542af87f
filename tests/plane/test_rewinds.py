"""Rewinds: their target is never raised, and tables are fenced before records flow (SPEC X4, X5; faults 53, 66)."""

from __future__ import annotations

import pytest

from crkafka_core.model.errors import NoSuchCheckpoint, Stale
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import CheckpointStatus
from crkafka_core.plane import epochs, life, permits, resets
from crkafka_core.plane.status import waits_for
from tests.plane.conftest import Kit


def test_53_reset_asked_for_meanwhile_keeps_or_lowers_the_target(kit: Kit) -> None:
    kit.running()
    first, second, third = kit.cut(), kit.cut(), kit.cut()
    kit.do(lambda tx: resets.request(tx, cause="back", by="me", target=second))
    kit.withdraw(0)
    assert kit.row.head == second
    with pytest.raises(NoSuchCheckpoint):
        kit.do(lambda tx: resets.request(tx, cause="forth", by="me", target=third))
    kit.do(lambda tx: resets.request(tx, cause="further back", by="me", target=first))
    assert kit.row.head == first
    assert {kit.checkpoint(c).status for c in (second, third)} == {CheckpointStatus.SUPERSEDED}


def test_66_region_that_was_rewound_and_stopped_does_not_run_before_its_tables_are_fenced(make_kit: type[Kit]) -> None:
    kit = make_kit(tables=("bronze",)).running()
    first = kit.cut()
    kit.cut()
    kit.do(lambda tx: permits.permit_commit(tx, "bronze", holder="writer", token="w"))
    kit.do(lambda tx: resets.request(tx, cause="back", by="me", target=first))
    assert kit.row.phase is Phase.REWINDING
    kit.do(lambda tx: epochs.halt(tx, "test"))
    kit.do(lambda tx: life.start(tx, by="me"))
    kit.settle()
    assert kit.row.phase is Phase.REWINDING
    kit.do(lambda tx: life.stop(tx, token="s", by="me"))
    kit.do(lambda tx: life.start(tx, by="me"))
    for number in (0, 1):
        kit.register(number)
    kit.settle()
    assert kit.row.phase is Phase.REWINDING
    assert kit.read(waits_for) == "what was superseded leaves bronze first"
    permit = kit.do(lambda tx: permits.permit_fence(tx, "bronze", holder="me", token="f"))
    assert permit is not None
    kit.do(lambda tx: permits.finish_fence(tx, permit, version="7"))
    kit.settle()
    assert kit.row.phase is Phase.RUNNING


def _fence(kit: Kit, token: str) -> permits.Permit:
    permit = kit.do(lambda tx: permits.permit_fence(tx, "bronze", holder="me", token=token))
    assert permit is not None
    return permit


def test_x4_a_rewind_in_the_epoch_of_a_fence_takes_another_one(make_kit: type[Kit]) -> None:
    """A table that shows rows that have to leave takes one without a rewind."""
    kit = make_kit(tables=("bronze",)).running()
    first = kit.cut()
    kit.cut()
    kit.do(lambda tx: permits.owe_fence(tx, "bronze"))
    permit = _fence(kit, "f")
    kit.do(lambda tx: permits.finish_fence(tx, permit, version="7"))
    kit.do(lambda tx: resets.request(tx, cause="back", by="me", target=first))
    assert kit.row.phase is Phase.REWINDING


def test_x4_a_fence_of_an_earlier_rewind_is_none_of_a_further_one(make_kit: type[Kit]) -> None:
    """It had removed what was after the second checkpoint, and then the region went back to the first."""
    kit = make_kit(tables=("bronze",)).running()
    first, second = kit.cut(), kit.cut()
    kit.cut()
    kit.do(lambda tx: permits.permit_commit(tx, "bronze", holder="writer", token="w"))
    kit.do(lambda tx: resets.request(tx, cause="back", by="me", target=second))
    permit = _fence(kit, "f")
    kit.do(lambda tx: resets.request(tx, cause="further back", by="me", target=first))
    kit.do(lambda tx: permits.finish_fence(tx, permit, version="7"))
    assert kit.row.phase is Phase.REWINDING
    another = _fence(kit, "g")
    kit.do(lambda tx: permits.finish_fence(tx, another, version="8"))
    assert kit.row.phase is Phase.RESETTING


def test_k6_a_write_that_goes_on_from_what_another_has_passed_meanwhile_is_void(make_kit: type[Kit]) -> None:
    """SQL hears late of the first one, which is in the table: the second one has the same rows."""
    kit = make_kit(tables=("bronze",)).running()
    merged = kit.cut()

    def permitted(token: str) -> permits.Permit:
        permit = kit.do(lambda tx: permits.permit_commit(tx, "bronze", holder=token, token=token))
        assert permit is not None
        return permit

    first = permitted("a")
    kit.now += 1_000
    second = permitted("b")
    assert kit.do(lambda tx: permits.acknowledge(tx, "bronze", first.commit.number, holds=merged, version="1")), (
        "it was in the table"
    )
    with pytest.raises(Stale):
        kit.do(lambda tx: permits.finish_commit(tx, second, version="2", rows=10))
