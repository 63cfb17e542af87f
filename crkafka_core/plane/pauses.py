"""Pause marks: of the region, which follow a partition to its holder (SPEC P2), and of one member (SPEC P1)."""

from __future__ import annotations

import re
from collections.abc import Collection

from crkafka_core.control import Reader, Tx
from crkafka_core.model.desired import Mark
from crkafka_core.model.errors import ConfigError, Refused
from crkafka_core.model.offsets import TP, unpack
from crkafka_core.model.rows import Member, MemberStatus, PauseMark
from crkafka_core.plane import events, roster

KINDS = ("partition", "topic", "pattern", "member")
LONGEST = 500
"""Letters that a database keeps in a key, whichever they are."""


def pause(tx: Tx, kind: str, what: str, *, by: str, member: str = "") -> None:
    """Pause what the mark names, also what does not exist yet; with `member`, only where that member holds it. A member's mark on a
    partition is one on what it holds: it is gone as soon as the member has lost the partition."""
    check(kind, what, member)
    region = tx.region()
    if member and kind == "partition":
        row = tx.get(Member, member)
        if row is None or row.status is not MemberStatus.LIVE or not row.assignment_json:
            hint = "Wait until the group is settled, or pause the partition for whoever holds it."
            raise Refused(f"{member} does not say now what it holds, so nothing of it can be paused.", hint=hint)
        if what not in {str(tp) for tp in unpack(row.assignment_json)}:
            hint = "Pause the partition for whoever holds it, without naming a member."
            raise Refused(f"{member} does not hold {what}.", hint=hint)
    if tx.get(PauseMark, kind, what, member) is None:
        tx.put(PauseMark(region.name, kind, what, member, by, tx.now()))
        events.log(tx, "paused", f"{kind} {what}", member=member, by=by)


def resume(tx: Tx, kind: str, what: str, *, by: str, member: str = "") -> bool:
    """Take the mark away; whether it was there."""
    gone = tx.delete(PauseMark, ("kind", "=", kind), ("what", "=", what), ("member", "=", member))
    if gone:
        events.log(tx, "resumed mark", f"{kind} {what}", member=member, by=by)
    return bool(gone)


def check(kind: str, what: str, member: str = "") -> None:
    """A mark that could never pause anything is refused."""
    if kind not in KINDS:
        raise ConfigError(f"A pause mark is on a {', '.join(KINDS)}, not on a {kind!r}.")
    if len(what) > LONGEST or re.search("[\0\ud800-\udfff]", what):
        why = f"What is paused has at most {LONGEST} letters, and none that no database keeps: {what[:40]!r}…."
        raise ConfigError(why, hint="Several shorter patterns do the same.")
    if kind == "partition" and not re.fullmatch(r".+\[(0|[1-9][0-9]*)\]", what):
        raise ConfigError(f"{what!r} is not a partition.", hint="Write it as topic[3].")
    if kind == "member" and member:
        raise ConfigError(f"A mark on {what} counts for {what} alone already.", hint="Leave out the second member.")
    if kind == "pattern":
        try:
            re.compile(what)
        except re.error as e:
            raise ConfigError(f"The pattern {what!r} is not a regular expression: {e}.") from e


def follow(tx: Tx, member: str, held: Collection[TP]) -> None:
    """A member's marks on partitions end with its hold on them: when it reports without one, or another reports it (SPEC P1)."""
    here = {str(tp) for tp in held}
    for mark in tx.select(PauseMark, ("kind", "=", "partition"), ("member", "!=", "")):
        if (mark.what in here) is not (mark.member == member):
            resume(tx, mark.kind, mark.what, member=mark.member, by=f"{mark.member} lost the partition")


def all_of(reader: Reader) -> list[PauseMark]:
    return reader.select(PauseMark)


def marks(reader: Reader) -> frozenset[Mark]:
    """All marks, as members read them."""
    return frozenset(Mark(m.kind, m.what, m.member) for m in all_of(reader))


def paused_now(reader: Reader, tps: Collection[TP]) -> frozenset[TP]:
    """Those of the partitions that a mark pauses where they are now."""
    here = marks(reader)
    holders = roster.holders(reader) if here else {}
    return frozenset(tp for tp in tps if any(mark.pauses(tp, holders.get(tp, "")) for mark in here))


def in_words(mark: PauseMark) -> str:
    return f"{mark.kind} {mark.what}{f' of {mark.member}' if mark.member else ''}"
