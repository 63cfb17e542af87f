"""A stop by a person: its last cut, how long it waits, and what comes in between (SPEC G9, X6)."""

from __future__ import annotations

import pytest

from crkafka_core.model.errors import DataLoss, Refused, RegionStopped
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import ResetCause
from crkafka_core.plane import epochs, events, life, members, resets, starts
from crkafka_core.plane.status import status_of
from crkafka_core.region import waiting
from tests.plane.conftest import LIMITS, P0, P1, Kit
from tests.rigs.merging import merge_cut


def _stopped(kit: Kit) -> list[str]:
    return [e.text for e in kit.events("idle")]


@pytest.mark.parametrize("rebalance", [False, True])
def test_g9_a_stop_in_an_unsettled_moment_waits_for_the_group_and_cuts(kit: Kit, rebalance: bool) -> None:
    """A member is between two reports: the last cut comes when all hold something again. A rebalance makes a handover, which is it."""
    kit.running()
    kit.unsettle(0)
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    assert kit.row.phase is Phase.RUNNING
    if rebalance:
        kit.withdraw(1)
    else:
        kit.generation += 1
        kit.settle()
        kit.advance()
    assert (kit.row.phase, kit.row.wanted) == (Phase.CUTTING, "stop")
    cut = kit.row.open_cut
    for number in (0, 1):
        kit.contribute(cut, number, 10)
    kit.do(lambda tx: merge_cut(tx, cut))
    assert (kit.row.phase, kit.row.head) == (Phase.IDLE, cut)


def test_g9_a_last_cut_that_is_aborted_is_tried_again_within_its_time(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    kit.dies(0)
    assert (kit.row.phase, kit.row.head) == (Phase.RESETTING, 1), "it merged without the member that died"
    kit.settle({1: {P0, P1}})
    assert kit.row.phase is Phase.RUNNING
    assert kit.advance() is Phase.CUTTING
    kit.dies(1)
    kit.advance(LIMITS.drain_timeout + 1)
    assert kit.row.phase is Phase.IDLE
    assert _stopped(kit)[0].startswith("stopped without a last cut: no member")


def test_g9_a_stop_waits_no_longer_than_a_cut_may_take(kit: Kit) -> None:
    kit.running()
    kit.unsettle(0)
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    assert kit.advance(LIMITS.drain_timeout) is Phase.RUNNING
    assert kit.advance(1) is Phase.IDLE
    assert kit.row.head == 0
    (alarm,) = kit.events(events.NO_LAST_CUT)
    assert "stopped without a last cut" in alarm.text and "no report" in alarm.text
    assert kit.read(status_of).alarm == alarm.text, "who looks later is told too"


def test_g9_a_stop_of_a_region_without_members_waits_for_nobody(kit: Kit) -> None:
    kit.running()
    for number in (0, 1):
        kit.do(lambda tx, name=f"orders/{number}": members.leave(tx, name, kit.live[name]))  # type: ignore[misc]
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    assert kit.row.phase is Phase.IDLE


def test_g9_what_stops_a_region_that_is_wanted_stopped_leaves_it_idle(kit: Kit) -> None:
    """Nobody waits for a person who has gone: the reason is in the event log, and the next start finds it again."""
    kit.running()
    kit.unsettle(0)
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    kit.do(lambda tx: epochs.halt(tx, "data loss", member="orders/0"))
    assert kit.row.phase is Phase.IDLE
    assert _stopped(kit) == ["stopped without a last cut: data loss"]


@pytest.mark.parametrize("wanted", [True, False])
def test_x6_a_stop_where_nothing_flows_aborts_nothing_and_raises_no_epoch(kit: Kit, wanted: bool) -> None:
    kit.running()
    kit.do(lambda tx: resets.request(tx, cause="c", by="me") if wanted else epochs.idle(tx, "test"))
    epoch = kit.row.epoch
    kit.do(lambda tx: epochs.halt(tx, "data loss"))
    assert (kit.row.phase, kit.row.epoch) == (Phase.STOPPED, epoch)


def test_g9_a_region_that_rests_is_wanted_no_more_once_it_is_stopped(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: epochs.idle(tx, "test"))
    kit.do(lambda tx: life.stop(tx, token="stop", by="me"))
    assert (kit.row.wanted, kit.row.phase) == (Wanted.STOP, Phase.IDLE)


def test_g9_a_last_cut_is_found_again_by_who_asked_for_it(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: life.stop(tx, token="stop 7", by="me"))
    assert kit.checkpoint(kit.row.open_cut).token == "stop 7"
    kit.do(lambda tx: resets.begin(tx, ResetCause.STOP, "test"))
    kit.settle()
    assert kit.advance() is Phase.CUTTING
    assert kit.checkpoint(kit.row.open_cut).token != "stop 7", "a second one is another cut"


def _stop_unsettled(kit: Kit) -> int:
    """A stop in an unsettled moment of a quiet region, without a reset: the last cut opens once it is settled."""
    kit.unsettle(0)
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
    kit.do(lambda tx: merge_cut(tx, first))
    assert (kit.row.phase, kit.row.epoch) == (Phase.RUNNING, epoch)
    assert _stop_unsettled(kit) > first


def test_g9_who_waits_for_a_stop_is_told_that_somebody_started_the_region_again(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: life.stop(tx, token="stop", by="ann"))
    kit.do(lambda tx: life.start(tx, by="bob"))
    with pytest.raises(Refused, match="started again"):
        waiting.until_idle(kit.plane, lambda _: None)
    kit.do(lambda tx: epochs.halt(tx, "data loss"))
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
            )
        )
    assert kit.row.phase is Phase.IDLE
