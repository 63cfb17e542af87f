"""What happened is told: each change that a person may ask about leaves its event, with who and which (SPEC X8, R6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crkafka_core.model.errors import Refused, Stale
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import ContributedOffset
from crkafka_core.plane import alarms, epochs, events, life, members, resets, starts
from tests.plane.conftest import P0, P1, Kit

Told = list[tuple[str, int, str]]


def told(kit: Kit, after: int = 0) -> Told:
    """(kind, checkpoint, member) of what was told since."""
    return [(e.kind, e.checkpoint, e.member) for e in kit.read(lambda r, row: events.since(r, after))]


def seen(kit: Kit) -> int:
    return kit.row.next_event - 1


def test_x8_the_start_of_a_region_is_told(kit: Kit) -> None:
    kit.running()
    assert told(kit) == [
        ("made", 0, ""),
        ("start", 0, ""),
        ("registered", 0, "orders/0"),
        ("registered", 0, "orders/1"),
        ("birth", 0, "orders/0"),
        ("assigned", 0, "orders/0"),
        ("assigned", 0, "orders/1"),
        ("resumed", 0, ""),
    ]


def test_x8_cuts_aborts_rewinds_and_stops_are_told(kit: Kit) -> None:
    kit.running()
    at = seen(kit)
    first = kit.cut()
    opened = kit.open()
    with pytest.raises(Refused):
        kit.contribute(opened, 0, held={P1})
    kit.now += 10.0  # its back-off
    kit.settle()
    kit.do(lambda tx: resets.request(tx, cause="a person", by="me", target=0))
    kit.settle()
    kit.do(lambda tx: epochs.halt(tx, "why"))
    kit.do(lambda tx: life.start(tx, by="me"))
    kit.do(lambda tx: life.scale(tx, 3, by="me"))
    kit.do(lambda tx: life.scale(tx, 3, by="me"))
    kit.do(lambda tx: life.stop(tx, token="s", by="me"))
    assert told(kit, at) == [
        ("cut opened", first, ""),
        ("merged", first, ""),
        ("cut opened", opened, ""),
        ("contribution refused", opened, "orders/0"),
        ("abort", opened, "orders/0"),
        ("reset", first, "orders/0"),
        ("resumed", first, ""),
        ("rewind", 0, ""),
        ("reset", 0, ""),
        ("resumed", 0, ""),
        ("reset", 0, ""),
        ("stopped", 0, ""),
        ("start", 0, ""),
        ("scale", 0, ""),
        ("stop", 0, ""),
        ("idle", 0, ""),
    ]


def test_x8_what_members_do_and_what_becomes_of_them_is_told(kit: Kit) -> None:
    kit.running()
    at = seen(kit)
    kit.rebalance(0), kit.rebalance(0)
    kit.settle()
    kit.report(0, {P0})
    kit.do(lambda tx: members.leave(tx, "orders/1", "no such"))
    kit.do(lambda tx: members.leave(tx, "orders/1", kit.live["orders/1"]))
    kit.do(lambda tx: members.leave(tx, "orders/1", kit.live["orders/1"]))
    zero = kit.member(0)
    with pytest.raises(Stale):
        kit.do(
            lambda tx: members.lose(tx, zero.name, zero.incarnation, renewals=zero.renewals + 1, by="x", why="silent")
        )
    kit.do(lambda tx: members.lose(tx, zero.name, zero.incarnation, renewals=zero.renewals, by="x", why="silent"))
    kit.do(lambda tx: members.lose(tx, zero.name, zero.incarnation, renewals=zero.renewals, by="x", why="silent"))
    assert told(kit, at) == [
        ("revoked", 0, "orders/0"),
        ("handover", 1, ""),
        ("reset", 0, ""),
        ("assigned", 0, "orders/0"),
        ("resumed", 0, ""),
        ("left", 0, "orders/1"),
        ("handover", 2, "orders/1"),
        ("lost", 0, "orders/0"),
        ("abort", 2, "orders/0"),
        ("reset", 0, "orders/0"),
    ]


def _moved(o: ContributedOffset) -> ContributedOffset:
    return replace(o, from_offset=o.from_offset + 1)


def test_x8_the_rest_is_told_too(kit: Kit) -> None:
    kit.running()
    kit.cut()
    kit.cut()
    at = seen(kit)
    kit.do(lambda tx: starts.forget(tx, "t", by="me"))
    kit.do(lambda tx: alarms.stalled(tx, {P0: 61.0}, {}, by="me"))
    kinds = [kind for kind, _, _ in told(kit, at)]
    assert kinds == ["topic forgotten", "stalled"]
    assert kit.events("stalled")[0].text == "t[0] has given nothing for 61 s: Kafka has records behind where it stands"


@pytest.mark.parametrize(("number", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (2000, "2,000 rows")])
def test_a_number_stands_with_its_noun_as_people_write_it(number: int, said: str) -> None:
    assert plural(number, "row") == said
    assert plural(number, "row is", "rows are") == said + (" is" if number == 1 else " are")
