"""The gate that every mutation of a member's process passes: region, incarnation, epoch (SPEC G11; fault 77)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from crkafka_core.control import Tx
from crkafka_core.model.errors import CrkafkaError, Lost, Stale, Superseded, WentBack
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import ROWS, Region, ResetCause
from crkafka_core.plane import (
    advance,
    alarms,
    cuts,
    epochs,
    goals,
    life,
    member_plane,
    members,
    merging,
    resets,
    restored,
    roster,
    starts,
)
from crkafka_core.plane.member_plane import MemberPlane
from tests.plane.conftest import Kit
from tests.rigs.simulation.backup import put, rows_of

NAME = "orders/0"
EVERYTHING: dict[str, Callable[[Tx, str], Any]] = {
    "renew": lambda tx, me: members.renew(tx, NAME, me),
    "report": lambda tx, me: members.report(tx, NAME, me, epoch=tx.region().epoch, base=0, generation=9, held=()),
    "withdraw": lambda tx, me: members.withdraw(tx, NAME, me, why="x"),
    "lose": lambda tx, me: members.lose(
        tx, "orders/1", tx.get(members.Member, "orders/1").incarnation, renewals=0, by=NAME, why="x"
    ),
    "ask for a reset": lambda tx, me: merging.failed(tx, ResetCause.FAILURE, "x", member=NAME, epoch=tx.region().epoch),
    "give up": lambda tx, me: merging.give_up(
        tx, tx.region().open_cut, member=NAME, incarnation=me, why="x", cause=ResetCause.FAILURE
    ),
    "ask for a cut": lambda tx, me: cuts.ask(
        tx, member=NAME, incarnation=me, epoch=tx.region().epoch, head=tx.region().head
    ),
    "reach": lambda tx, me: goals.reach(tx, "g", 0.0, member=NAME, incarnation=me, epoch=tx.region().epoch, reached=()),
    "topics gone": lambda tx, me: starts.topics_gone(tx, {"t": "id-t"}, member=NAME),
    "forget": lambda tx, me: starts.forget(tx, "t", by=NAME),
    "stop the region": lambda tx, me: epochs.halt(tx, "x", member=NAME),
    "look back": lambda tx, me: restored.check(tx, restored.Seen(99, 99, "x"), by=NAME),
    "strangers": lambda tx, me: alarms.strangers(tx, ["x"], by=NAME),
    "advance": lambda tx, me: advance.advance(tx),
}
"""What a member's threads call."""


def _rows(kit: Kit) -> list[object]:
    return kit.read(lambda reader, _: [reader.select(row) for row in ROWS])


def _cutting(kit: Kit) -> MemberPlane:
    """In the middle of a cut past its deadline: there is something to do for everybody who may do it."""
    kit.running()
    gate = MemberPlane(kit.plane, NAME, kit.live[NAME])
    kit.open()
    kit.now += 21.0
    return gate


@pytest.mark.parametrize("what", EVERYTHING)
def test_77_a_superseded_process_that_wakes_changes_nothing(kit: Kit, what: str) -> None:
    old = _cutting(kit)
    kit.do(lambda tx: tx.put(_another(tx)))
    before = _rows(kit)
    with pytest.raises(Superseded):
        old.do(lambda tx: EVERYTHING[what](tx, old.incarnation))
    assert _rows(kit) == before


def _another(tx: Tx) -> members.Member:
    row = tx.get(members.Member, NAME)
    assert row is not None
    return members.replace(row, incarnation="newer", launch=row.launch + 1)


@pytest.mark.parametrize("what", EVERYTHING)
def test_77_an_unregistered_process_changes_nothing(kit: Kit, what: str) -> None:
    kit.running()
    never = MemberPlane(kit.plane, "orders/7", "never")
    before = _rows(kit)
    with pytest.raises(Lost):
        never.do(lambda tx: EVERYTHING[what](tx, "never"))
    assert _rows(kit) == before


@pytest.mark.parametrize("what", [*EVERYTHING, "launch", "register", "leave", "fail", "observed"])
def test_77_a_process_of_a_deleted_region_changes_nothing_of_the_one_that_bears_its_name_now(
    kit: Kit, what: str
) -> None:
    """SPEC G6, G11: also not by registering, and not by what it remembers of the old one."""
    kit.running()
    old = MemberPlane(kit.plane, NAME, kit.live[NAME])
    kit.do(lambda tx: epochs.idle(tx, "test"))
    kit.do(life.delete)
    life.declare(kit.plane.store, Region(name="orders", uid="another", region_index=0))
    kit.do(lambda tx: life.start(tx, by="test"))
    before = _rows(kit)
    acts: dict[str, Callable[[], Any]] = {
        "launch": old.launch,
        "register": lambda: old.register(members.Registration(NAME, old.incarnation, 9, 0, "cluster", "group")),
        "leave": old.leave,
        "fail": lambda: old.fail("x"),
        "observed": lambda: [old.observed(replace(kit.row, epoch=epoch, version=99)) for epoch in (99, 98)],
    }
    with pytest.raises(Lost, match="made anew"):
        acts[what]() if what in acts else old.do(lambda tx: EVERYTHING[what](tx, old.incarnation))
    assert _rows(kit) == before


@pytest.mark.parametrize("what", ["topics gone", "forget", "stop the region", "look back"])
def test_77_what_was_found_out_for_an_older_epoch_changes_nothing(kit: Kit, what: str) -> None:
    kit.running()
    gate, epoch = MemberPlane(kit.plane, NAME, kit.live[NAME]), kit.row.epoch
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    before = _rows(kit)
    with pytest.raises(Stale):
        gate.do(lambda tx: EVERYTHING[what](tx, gate.incarnation), epoch=epoch)
    assert _rows(kit) == before


@pytest.mark.parametrize("what", EVERYTHING)
def test_g11_the_registered_process_passes(kit: Kit, what: str) -> None:
    gate = _cutting(kit)
    try:
        gate.do(lambda tx: EVERYTHING[what](tx, gate.incarnation), epoch=kit.row.epoch)
    except CrkafkaError as refused:
        assert not isinstance(refused, Stale | Superseded | Lost)


def test_g10_who_has_seen_more_than_sql_shows_stops_the_region_though_sql_does_not_know_it(kit: Kit) -> None:
    kit.running()
    forgotten = MemberPlane(kit.plane, "orders/7", "registered after the backup was made")
    row = kit.row
    forgotten.observed(row)
    forgotten.observed(row)
    assert kit.row.phase is Phase.RUNNING, "SQL shows all that it has seen"
    forgotten.observed(replace(row, epoch=row.epoch + 1, version=row.version + 3))
    forgotten.observed(row)
    assert (kit.row.phase, kit.row.went_back) == (Phase.STOPPED, True)
    assert f"saw epoch {row.epoch + 1} and version {row.version + 3}" in kit.row.stop_reason


def test_g10_who_saw_a_later_head_in_the_same_epoch_stops_the_region_though_sql_went_on_to_the_same_version(
    kit: Kit,
) -> None:
    """Its open segments alone told that the head was merged, and it drops them as it ends (found by seed 831)."""
    kit.running()
    gate, row = MemberPlane(kit.plane, NAME, kit.live[NAME]), kit.row
    gate.observed(replace(row, head=row.head + 1))
    with pytest.raises(
        WentBack,
        match=rf"saw checkpoint {row.head + 1} as the head of epoch {row.epoch}, now it shows checkpoint {row.head}\.",
    ):
        gate.do(lambda tx: members.renew(tx, NAME, gate.incarnation))
    assert (kit.row.phase, kit.row.went_back) == (Phase.STOPPED, True)


def test_g10_who_saw_a_cut_open_that_sql_never_opened_stops_the_region_though_sql_went_on_to_the_same_version(
    kit: Kit,
) -> None:
    """Its contribution would be refused, and it would go on behind the head (found by seed 170004787)."""
    kit.running()
    gate = MemberPlane(kit.plane, NAME, kit.live[NAME])
    for cut in (kit.cut(), kit.open()):  # merged, and open: SQL knows of both
        gate.observed(replace(kit.row, opened=cut))
        gate.do(lambda tx: members.renew(tx, NAME, gate.incarnation))
    gate.observed(replace(kit.row, opened=cut + 1))
    with pytest.raises(
        WentBack, match=rf"saw checkpoint {cut + 1} open, now it shows {cut} as the last that it opened"
    ):
        gate.do(lambda tx: members.renew(tx, NAME, gate.incarnation))
    assert (kit.row.phase, kit.row.went_back) == (Phase.STOPPED, True)


def test_g10_a_rewind_is_no_older_state(kit: Kit) -> None:
    kit.running()
    kit.cut()
    gate = MemberPlane(kit.plane, NAME, kit.live[NAME])
    gate.observed(kit.row)
    kit.do(lambda tx: resets.request(tx, by="me", target=0))
    gate.observed(kit.row)
    gate.do(lambda tx: members.renew(tx, NAME, gate.incarnation))
    assert kit.row.phase is Phase.RESETTING


@pytest.mark.parametrize("acts", [False, True])
@pytest.mark.parametrize("opened", [False, True])
def test_g10_who_saw_a_head_that_sql_never_merged_stops_the_region_though_sql_went_on_to_a_later_epoch(
    kit: Kit, opened: bool, acts: bool
) -> None:
    """A person asked for a reset as soon as the backup was in place: everybody would drop what alone told of the head (seed 10003544)."""
    kit.running()
    gate = MemberPlane(kit.plane, NAME, kit.live[NAME])
    if opened:
        kit.open()
    backup = rows_of(kit.plane.store, "orders")
    gate.observed(replace(kit.row, head=1))
    put(kit.plane.store, backup)
    kit.do(lambda tx: resets.request(tx, by="me"))
    if acts:
        with pytest.raises(WentBack, match="now it shows checkpoint 0, and never merged 1"):
            gate.do(lambda tx: members.renew(tx, NAME, gate.incarnation))
    else:
        gate.observed(kit.row)
    assert (kit.row.phase, kit.row.went_back) == (Phase.STOPPED, True)


def test_g10_a_failover_that_loses_what_a_member_has_just_written_stops_the_region_before_it_writes_again(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as its report: it would not be written again, and everybody would wait for it for ever (found by seed 578)."""
    kit.running()
    gate = MemberPlane(kit.plane, NAME, kit.live[NAME])
    replica = rows_of(kit.plane.store, "orders")
    gate.do(lambda tx: tx.set_region(settled_at=77.0))
    put(kit.plane.store, replica)
    with pytest.raises(WentBack, match="went back in time"):
        gate.do(lambda tx: members.renew(tx, NAME, gate.incarnation))
    assert (kit.row.phase, kit.row.went_back) == (Phase.STOPPED, True)
    assert "Was a backup restored?" in caplog.text


def test_g10_once_a_person_has_said_how_to_go_on_nobody_who_remembers_more_stops_the_region_again(kit: Kit) -> None:
    kit.running()
    gate = MemberPlane(kit.plane, NAME, kit.live[NAME])
    gate.observed(replace(kit.row, version=kit.row.version + 100))
    with pytest.raises(WentBack):
        gate.do(lambda tx: members.renew(tx, NAME, gate.incarnation))
    kit.do(lambda tx: restored.rewind(tx, restored.Seen(), by="me"))
    assert kit.row.version < 100
    gate.do(lambda tx: members.renew(tx, NAME, gate.incarnation))
    assert kit.row.phase is not Phase.STOPPED


def test_g10_a_process_that_a_restored_backup_does_not_know_is_lost_and_not_superseded(kit: Kit) -> None:
    """Its host starts it anew; one that was superseded it never would, and nobody would have its place."""
    kit.running()
    backup = rows_of(kit.plane.store, "orders")
    newer = MemberPlane(kit.plane, NAME, "newer")
    newer.register(members.Registration(NAME, "newer", newer.launch(), 0, "cluster", "group"))
    put(kit.plane.store, backup)
    with pytest.raises(Lost, match="launch 1 is registered: the control plane went back"):
        newer.do(lambda tx: members.renew(tx, NAME, "newer"))
    with pytest.raises(Lost):
        newer.check_registered()
    seen = kit.read(lambda r, region: member_plane.desired(r, region, roster.all_of(r), NAME, "newer", newer.launched))
    assert (seen.registered, seen.superseded) == (False, False)
