"""When a merge is complete and right (SPEC C2, C3): sets are compared, never counts."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from crkafka_core.model.offsets import TP, pack_offsets
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import ContributedOffset, Contribution, Filler
from crkafka_core.model.segment import Span


def wrong_sets(fillers: Iterable[Filler], contributions: Iterable[Contribution]) -> tuple[set[str], set[str]]:
    """(members still missing, members that were not expected)."""
    wanted = {(e.member, e.incarnation) for e in fillers}
    given = {(c.member, c.incarnation) for c in contributions}
    return {name for name, _ in wanted - given}, {name for name, _ in given - wanted}


def broken_spans(offsets: Iterable[tuple[TP, int, int, int]], spans: Iterable[Span]) -> str:
    """Per partition the spans chain from `from` to `to` without a hole, and their rows add up; words if not."""
    chains: dict[TP, list[Span]] = {}
    for span in spans:
        chains.setdefault(span.tp, []).append(span)
    for tp, start, end, rows in offsets:
        at, counted = start, 0
        for span in sorted(chains.pop(tp, []), key=lambda s: s.first):
            if span.first != at or span.next < span.first:
                return f"{tp}: a segment begins at {span.first} where {at} was due"
            at, counted = span.next, counted + span.rows
        if at != end:
            return f"{tp}: the segments end at {at}, the contribution says {end}"
        if counted != rows:
            return f"{tp}: the segments have {plural(counted, 'row')}, the contribution says {rows}"
    if chains:
        return f"segments of partitions that were not contributed: {', '.join(map(str, sorted(chains)[:5]))}"
    return ""


def broken(
    fillers: Sequence[Filler],
    offsets: Sequence[ContributedOffset],
    parent: int,
    due: Collection[TP],
    known: Collection[TP],
) -> str:
    """What is wrong with a merge whose members are all there; empty when it is complete and right. Each partition goes on from where it was
    fixed when the number was handed out, after checkpoint `parent` (SPEC C8). Those that are `due` must be in it: all that are known, but
    in a handover none (SPEC X10)."""
    fixed = {f.member: f.offsets for f in fillers}
    claimed: dict[TP, str] = {}
    for o in offsets:
        tp = TP(o.topic, o.partition)
        if tp in claimed:
            return f"{tp} is contributed by {claimed[tp]} and by {o.member}"
        claimed[tp] = o.member
        begins = fixed.get(o.member, {}).get(tp)
        if begins is None:
            return f"{tp} is contributed by {o.member}, which does not fill it"
        if tp not in known:
            return f"{tp} has no stored start"
        if o.from_offset != begins:
            return f"{tp} begins at {o.from_offset}, but checkpoint {parent} left it at {begins}"
        if o.to_offset < o.from_offset:
            return f"{tp} goes back from {o.from_offset} to {o.to_offset}"
    uncovered = set(due) - claimed.keys()
    if uncovered:
        return f"nobody contributed {', '.join(map(str, sorted(uncovered)[:5]))}"
    return ""


def wrong_topic(member: str, read: Mapping[str, str], known: Mapping[str, str]) -> str:
    """Which topic has another id than is known, in words: its rows may be of two topics."""
    for topic, topic_id in read.items():
        if known.get(topic, topic_id) != topic_id:
            return f"{member} read topic {topic} with id {topic_id}; the group knows it as {known[topic]}"
    return ""


def digest(offsets: Mapping[TP, int]) -> str:
    """Hash of a merged map (invariant I5)."""
    return hashlib.sha256(pack_offsets(offsets).encode()).hexdigest()[:32]
