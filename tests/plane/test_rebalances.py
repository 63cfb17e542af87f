"""Rebalances: one makes one reset, and nothing flows before the group is settled (SPEC R3, G8; fault 63)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crkafka_core.model.errors import NotRunning, NotSettled
from crkafka_core.model.phase import Phase
from crkafka_core.plane import epochs, life
from tests.plane.conftest import P0, P1, Kit


def test_R3_one_rebalance_makes_one_reset_however_many_members_it_hits(kit: Kit) -> None:
    kit.running()
    epoch = kit.row.epoch
    for number in (0, 1):
        kit.withdraw(number)
    kit.hand_over(5)
    assert (kit.row.epoch, kit.row.phase) == (epoch + 1, Phase.RESETTING)
    kit.withdraw(0)
    assert kit.row.epoch == epoch + 1, "a revocation while resetting only withdraws the report"
    kit.settle()
    assert kit.row.phase is Phase.RUNNING


def test_G8_no_cut_and_no_resume_before_the_group_is_settled(kit: Kit) -> None:
    kit.running()
    kit.rebalance(0)
    kit.settle({1: {P1}})
    assert kit.row.phase is Phase.RESETTING
    with pytest.raises(NotRunning, match="is RESETTING; a cut needs RUNNING"):
        kit.open()
    kit.settle({0: {P0, P1}})
    assert kit.row.phase is Phase.RESETTING, "held twice"
    kit.settle({0: {P0}})
    assert kit.row.phase is Phase.RUNNING
    kit.do(lambda tx: tx.put(replace(kit.member(0), assignment_json="")))
    with pytest.raises(NotSettled, match="orders/0"):
        kit.open()
    kit.do(lambda tx: epochs.halt(tx, "disk full"))
    with pytest.raises(NotRunning, match="is STOPPED: disk full; a cut needs RUNNING"):
        kit.open()


def _join(kit: Kit, number: int) -> None:
    """One more member: Kafka takes everything away from the others and assigns anew; range gives the two partitions to the first two."""
    kit.register(number)
    there = [int(name.rpartition("/")[2]) for name in kit.live]
    for other in there:
        if other != number:
            kit.withdraw(other)
    kit.hand_over()
    kit.generation += 1
    kit.settle({n: {P0} if n == 0 else {P1} if n == 1 else set() for n in there})


def test_63_thirty_members_that_trickle_in_at_the_first_start_make_no_reset(make_kit: type[Kit]) -> None:
    """SPEC G8: each comes within the grace of the one before; nothing flows until all are there."""
    kit = make_kit(wanted=30)
    kit.do(lambda tx: life.start(tx, by="test"))
    for number in range(30):
        assert kit.row.phase is Phase.BIRTH
        _join(kit, number)
        kit.now += 5.0
    assert kit.row.phase is Phase.RUNNING
    assert not kit.events("reset")
    assert kit.checkpoint(kit.open()).members == 30


def test_63_thirty_members_that_trickle_in_while_running_make_one_reset(make_kit: type[Kit]) -> None:
    kit = make_kit(wanted=2).running()
    kit.cut()
    kit.do(lambda tx: life.scale(tx, 30, by="me"))
    for number in range(2, 30):
        _join(kit, number)
        kit.now += 5.0
    assert kit.row.phase is Phase.RUNNING
    assert len(kit.events("reset")) == 1
    assert kit.row.consecutive == 0
    assert kit.checkpoint(kit.open()).members == 30
