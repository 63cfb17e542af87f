"""Pause marks in SQL: what can never pause anything is refused, and each change is told and wakes who waits (SPEC P1, P2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crkafka_core.model.desired import Mark
from crkafka_core.model.errors import ConfigError, Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import MemberStatus
from crkafka_core.plane import pauses
from tests.plane.conftest import P0, P1, Kit

A, B = TP("t", 0), TP("u", 1)


@pytest.mark.parametrize(
    ("mark", "pauses_a", "pauses_b"),
    [
        (Mark("partition", "t[0]", ""), True, False),
        (Mark("topic", "u", ""), False, True),
        (Mark("pattern", "^[tx]$", ""), True, False),
        (Mark("member", "r/0", ""), True, True),
        (Mark("member", "r/1", ""), False, False),
        (Mark("topic", "t", "r/0"), True, False),
        (Mark("topic", "t", "r/1"), False, False),
    ],
)
def test_p1_a_mark_pauses_what_it_names_and_nothing_else(mark: Mark, pauses_a: bool, pauses_b: bool) -> None:
    assert (mark.pauses(A, "r/0"), mark.pauses(B, "r/0")) == (pauses_a, pauses_b)


@pytest.mark.parametrize(
    ("kind", "what", "member", "words"),
    [
        ("group", "x", "", "not on a 'group'"),
        ("partition", "t", "", "'t' is not a partition"),
        ("member", "orders/0", "orders/1", "counts for orders/0 alone"),
        ("pattern", "(", "", "is not a regular expression"),
        ("pattern", "é" * 501, "", "at most 500 letters"),
        ("topic", "a\0b", "", "none that no database keeps"),
        ("pattern", "\ud800", "", "none that no database keeps"),
    ],
)
def test_p1_a_mark_that_could_never_pause_anything_is_refused(
    kit: Kit, kind: str, what: str, member: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        kit.do(lambda tx: pauses.pause(tx, kind, what, member=member, by="me"))
    assert not kit.read(lambda reader, row: pauses.marks(reader))


def test_p1_brackets_are_no_pattern_where_a_topic_is_meant(kit: Kit) -> None:
    kit.do(lambda tx: pauses.pause(tx, "topic", "(", by="me"))
    assert kit.read(lambda reader, row: pauses.marks(reader)) == {Mark("topic", "(", "")}


def test_p2_each_change_of_a_mark_is_told_and_wakes_and_what_changes_nothing_does_not(kit: Kit) -> None:
    def versions(work: str) -> bool:
        before = kit.row.version
        act = {"pause": pauses.pause, "resume": pauses.resume}[work]
        kit.do(lambda tx: act(tx, "topic", "t", by="me"))
        return kit.row.version > before

    assert [versions(w) for w in ("pause", "pause", "resume", "resume")] == [True, False, True, False]
    assert [(e.kind, e.text, e.by) for e in kit.events("paused", "resumed mark")] == [
        ("paused", "topic t", "me"),
        ("resumed mark", "topic t", "me"),
    ]


def test_p1_nothing_is_paused_for_a_member_that_is_lost(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: tx.put(replace(kit.member(0), status=MemberStatus.LOST)))
    with pytest.raises(Refused, match="does not say now"):
        kit.do(lambda tx: pauses.pause(tx, "partition", "t[0]", member="orders/0", by="me"))


def test_p1_a_members_mark_on_a_partition_stays_while_the_member_keeps_it(kit: Kit) -> None:
    """Through a rebalance that leaves it there; gone for the member that loses it, also when it comes back later."""
    kit.running()
    kit.do(lambda tx: pauses.pause(tx, "partition", "t[0]", member="orders/0", by="me"))
    kit.do(lambda tx: pauses.pause(tx, "topic", "t", member="orders/1", by="me"))
    assert _paused(kit) == {P0, P1}
    kit.withdraw(0)
    kit.generation += 1
    kit.settle()
    assert _paused(kit) == {P0, P1}
    kit.withdraw(1)
    kit.generation += 1
    kit.settle({1: {P0}, 0: {P1}})
    assert _paused(kit) == {P0}, "orders/1 is paused for the topic, wherever it is; orders/0 has lost the partition"
    kit.withdraw(0)
    kit.generation += 1
    kit.settle()
    assert _paused(kit) == {P1}
    assert [e.by for e in kit.events("resumed mark")] == ["orders/0 lost the partition"]


def test_p1_a_members_mark_on_a_partition_is_gone_as_soon_as_another_reports_it(kit: Kit) -> None:
    """The member that lost it may be gone, and report nothing any more."""
    kit.running()
    kit.do(lambda tx: pauses.pause(tx, "partition", "t[0]", member="orders/0", by="me"))
    kit.generation += 1
    kit.resolve(1, {P0, P1})
    kit.report(1, {P0, P1})
    assert not kit.read(lambda reader, row: pauses.marks(reader))


@pytest.mark.parametrize("what", ["t[1]", "t[7]"])
def test_p1_what_a_member_does_not_hold_cannot_be_paused_for_it(kit: Kit, what: str) -> None:
    kit.running()
    with pytest.raises(Refused, match="does not hold"):
        kit.do(lambda tx: pauses.pause(tx, "partition", what, member="orders/0", by="me"))
    kit.withdraw(0)
    with pytest.raises(Refused, match="does not say"):
        kit.do(lambda tx: pauses.pause(tx, "partition", "t[0]", member="orders/0", by="me"))


def _paused(kit: Kit) -> set[TP]:
    return set(kit.read(lambda reader, row: pauses.paused_now(reader, (P0, P1))))
