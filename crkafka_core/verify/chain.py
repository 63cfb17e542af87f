"""Invariants that SQL alone can show: ranges chain, merges are whole and never change, epochs and ids only grow."""

from __future__ import annotations

from typing import NamedTuple

from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import ANY_GENERATION, Checkpoint, CheckpointStatus
from crkafka_core.model.segment import SegmentName
from crkafka_core.protocol.merge import broken_spans, digest
from crkafka_core.verify.history import KEPT, History, archived
from crkafka_core.verify.verdict import Findings


def by_sql(history: History, findings: Findings) -> None:
    """Check every invariant that rows of the control plane can break by themselves."""
    coverage(history, findings)
    determinism(history, findings)
    merges(history, findings)
    statuses(history, findings)
    monotonicity(history, findings)


def coverage(history: History, findings: Findings) -> None:
    """I1: along the line of descent, the ranges of each partition chain without overlap or hole."""
    region = history.region
    if region.head and region.head not in history.line:
        findings.add("I1", "the head is not a checkpoint of the control plane", region.head)
    parent = history.on_line[0].parent if history.on_line else 0
    if parent:
        findings.note(f"the archive begins at checkpoint {history.on_line[0].id}; what came before it is not known")
    whole, last = parent == 0, dict[TP, _Last]()
    for c in history.on_line:
        if c.parent != parent:
            findings.add("I1", f"its parent is {c.parent}, the line goes on from {parent}", c.id)
        parent = c.id
        ranges, archive = _ranges(history, c), c.status is CheckpointStatus.RETIRED
        for tp in sorted(last.keys() - ranges.keys()) if not archive else ():
            findings.add("I1", f"{tp} is on the line before it, and missing from it", c.id, tp)
        for tp, (topic_id, start, stop) in sorted(ranges.items()):
            before = last.get(tp)
            due = before.stop if before is not None and before.topic_id == topic_id else None
            if due is None and (before is not None or not archive):
                due = history.firsts.get((topic_id, tp))
                if due is None and not archive:
                    findings.add("I1", f"{tp} has no initial offset", c.id, tp)
            if stop < start:
                findings.add("I1", f"{tp} goes back from {start} to {stop}", c.id, tp, start)
            gaps = range(before.checkpoint if before is not None else 0, c.parent + 1)
            known = archive or whole or before is not None
            if known and due is not None and start != due and not history.gap(gaps, tp, start):
                what = "overlaps" if start < due else "leaves out records before"
                text = f"{tp} begins at {start} and {what} what its parent {c.parent} left at {due}"
                findings.add("I1", text, c.id, tp, min(start, due))
            last[tp] = _Last(c.id, topic_id, stop)


class _Last(NamedTuple):
    """The last checkpoint that names a partition, and where it left it: archives leave out a partition without records (SPEC T2)."""

    checkpoint: int
    topic_id: str
    stop: int


def _ranges(history: History, c: Checkpoint) -> dict[TP, tuple[str, int, int]]:
    """Partition → id of its topic and range."""
    if c.status is CheckpointStatus.RETIRED:
        return {tp: (topic_id, start, stop) for tp, topic_id, start, stop, _ in archived(c)}
    return {tp: (m.topic_id, m.from_offset, m.to_offset) for tp, m in history.merged.get(c.id, {}).items()}


def determinism(history: History, findings: Findings) -> None:
    """I7: each start from a checkpoint is where that checkpoint ends; each start from birth is the initial offset."""
    for c in history.kept:
        before = history.merged.get(c.parent) if c.parent else {}
        for tp, m in sorted(history.merged[c.id].items()) if before is not None else ():
            previous = before.get(tp) if before else None
            same = previous is not None and previous.topic_id == m.topic_id
            due = previous.to_offset if previous is not None and same else history.firsts.get((m.topic_id, tp))
            if due is not None and m.from_offset != due and not history.gap((c.parent,), tp, m.from_offset):
                text = f"{tp} began at {m.from_offset} after a reset to {c.parent}, which left it at {due}"
                findings.add("I7", text, c.id, tp, m.from_offset)
    for s in history.starts:
        tp, head = TP(s.topic, s.partition), history.merged.get(s.base)
        first, ended = history.firsts.get((s.topic_id, tp)), head[tp].to_offset if head and tp in head else None
        if s.reason == "head" and head is not None and ended != s.offset:
            text = f"epoch {s.epoch} starts {tp} at {s.offset} as the head's, which has {ended}"
            findings.add("I7", text, s.base, tp, s.offset)
        elif s.reason == "initial" and first != s.offset:
            text = f"epoch {s.epoch} starts {tp} at {s.offset} as its initial offset, which is {first}"
            findings.add("I7", text, s.base, tp, s.offset)


def merges(history: History, findings: Findings) -> None:
    """I4: each merged map is the union of what exactly the expected incarnations contributed. I8: no other one did. I5: it stays."""
    for c in history.kept:
        expected = {(e.member, e.incarnation) for e in history.fillers.get(c.id, ())}
        parts = history.contributions.get(c.id, [])
        contributors = {(p.member, p.incarnation) for p in parts}
        left_out = set(c.without)
        for name, incarnation in sorted(expected - contributors):
            if name not in left_out:
                findings.add("I4", f"{name} ({incarnation}) was expected and did not contribute", c.id)
        for name in sorted(left_out & {name for name, _ in contributors}):
            findings.add("I4", f"{name} contributed, and is said to be left out", c.id)
        _stamps(history, c, findings)
        if len(parts) != c.members:
            members = plural(c.members, "member was", "members were")
            findings.add("I4", f"{members} in the cut, {len(parts)} contributed", c.id)
        _union(history, c, findings)
        _spans(history, c, findings)
        if digest({tp: m.to_offset for tp, m in history.merged[c.id].items()}) != c.hash:
            findings.add("I5", "the hash of its merged map is not the one it was merged with", c.id)


def _stamps(history: History, c: Checkpoint, findings: Findings) -> None:
    """I8: each contribution is of exactly this cut, and by an incarnation that the cut expects."""
    expected = {(e.member, e.incarnation) for e in history.fillers.get(c.id, ())}
    holding = {o.member for o in history.contributed.get(c.id, ())}
    for p in history.contributions.get(c.id, ()):
        if (p.member, p.incarnation) not in expected:
            findings.add("I8", f"{p.member} ({p.incarnation}) contributed, and was not expected", c.id)
        any_generation = c.generation == ANY_GENERATION or p.member not in holding
        generation = p.generation if any_generation else c.generation
        if (p.epoch, p.base, p.generation) != (c.epoch, c.parent, generation):
            stamp = f"epoch {p.epoch}, head {p.base} and generation {p.generation}"
            text = f"{p.member} contributed from {stamp}; the cut is of {c.epoch}, {c.parent} and {c.generation}"
            findings.add("I8", text, c.id)
        rows = sum(s.rows for s in history.segments.get(c.id, ()) if s.member == p.member)
        if rows != p.rows:
            findings.add("I4", f"{p.member} contributed {plural(p.rows, 'row')}, its segments {rows}", c.id)


def _union(history: History, c: Checkpoint, findings: Findings) -> None:
    claimed: dict[TP, str] = {}
    parts: dict[TP, tuple[int, int, int]] = {}
    for o in history.contributed.get(c.id, ()):
        tp = TP(o.topic, o.partition)
        if tp in claimed:
            findings.add("I4", f"{tp} is claimed by {claimed[tp]} and by {o.member}", c.id, tp)
        claimed[tp], parts[tp] = o.member, (o.from_offset, o.to_offset, o.rows)
    merged = history.merged[c.id]
    fillers, left_out = history.fillers.get(c.id, ()), set(c.without)
    fixed = {tp for f in fillers if f.member not in left_out for tp in f.offsets}
    stays = {tp: at for f in fillers if f.member in left_out for tp, at in f.offsets.items()}
    for tp in sorted(fixed ^ parts.keys()):
        what = "was fixed for the cut, and nobody contributed it" if tp in fixed else "was contributed, and not fixed"
        findings.add("I4", f"{tp} {what}", c.id, tp)
    for tp, part in sorted(parts.items()):
        m = merged.get(tp)
        has = m and (m.from_offset, m.to_offset, m.rows)
        if m is None or has != part or m.member != claimed[tp]:
            findings.add("I4", f"{claimed[tp]} contributed {part} of {tp}; the merge has {has}", c.id, tp)
    before = history.merged.get(c.parent)
    for tp in sorted(merged.keys() - parts.keys()):
        m, old = merged[tp], before.get(tp) if before is not None else None
        as_before = before is None or m.to_offset == stays.get(tp, old and old.to_offset)
        if m.member or m.rows or m.from_offset != m.to_offset or not as_before:
            findings.add("I4", f"{tp} is merged, and nobody contributed it", c.id, tp)


def _spans(history: History, c: Checkpoint, findings: Findings) -> None:
    """The named segments chain over exactly the merged ranges, and were written by contributing members, in this epoch."""
    segments = history.segments.get(c.id, [])
    contributors = {(p.member, p.incarnation) for p in history.contributions.get(c.id, ())}
    offsets = [(tp, m.from_offset, m.to_offset, m.rows) for tp, m in history.merged[c.id].items()]
    if hole := broken_spans(offsets, [span for s in segments for span in s.spans]):
        findings.add("I1", f"the segments do not chain: {hole}", c.id)
    rows = sum(s.rows for s in segments)
    if rows != c.rows or sum(m.rows for m in history.merged[c.id].values()) != c.rows:
        findings.add("I2", f"it says {plural(c.rows, 'row')}, its segments {rows}", c.id)
    for s in segments:
        name = SegmentName.parse(s.path)
        if (s.member, s.incarnation) not in contributors or s.epoch != c.epoch:
            who = f"{s.member} ({s.incarnation}, epoch {s.epoch})"
            findings.add("I8", f"{who} wrote a segment of it and did not contribute", c.id, path=s.path)
        if name is None or (name.uid, name.epoch, name.number) != (history.region.uid, c.epoch, c.id):
            text = f"a segment of it is not of epoch {c.epoch}, or of another checkpoint"
            findings.add("I8", text, c.id, path=s.path)


def statuses(history: History, findings: Findings) -> None:
    """I9: an ended checkpoint keeps only its row. I13: each segment belongs to a known checkpoint. I8: at most one cut is open."""
    region = history.region
    if bool(region.open_cut) != (region.phase is Phase.CUTTING):
        findings.add("G9", f"the region is {region.phase}, with cut {region.open_cut} open")
    for c in history.checkpoints.values():
        if c.status is CheckpointStatus.OPEN:
            if c.id != region.open_cut:
                findings.add("I8", f"it is open, and the region has {region.open_cut} open", c.id)
            _stamps(history, c, findings)
        elif c.status not in KEPT:
            for what in history.left_of(c.id):
                findings.add("I9", f"it is {c.status.lower()}, and its {what} are left", c.id)
        if c.status is CheckpointStatus.RETIRED and (kept := sum(rows for *_, rows in archived(c))) != c.rows:
            findings.add("I9", f"its archive has {plural(kept, 'row')}, it merged {c.rows}", c.id)
    for checkpoint in sorted(history.segments.keys() - history.checkpoints.keys()):
        path = history.segments[checkpoint][0].path
        findings.add("I13", "segments are named of a checkpoint that is unknown", checkpoint, path=path)
    for c in history.on_line:
        if c.status not in (CheckpointStatus.MERGED, CheckpointStatus.RETIRED):
            findings.add("I1", f"it is on the line, and {c.status.lower()}", c.id)


def monotonicity(history: History, findings: Findings) -> None:
    """I6: ids and epochs only grow; the head goes back only by a recorded reset, which raises the epoch."""
    region = history.region
    newest = max(history.checkpoints, default=0)
    if not newest <= region.opened <= region.filling:
        text = f"checkpoint {newest} is there; {region.opened} is the last that was opened, {region.filling} the last handed out"
        findings.add("I6", text, newest)
    before: Checkpoint | None = None
    for c in history.heads:
        if before is not None and c.epoch < before.epoch:
            findings.add("I6", f"it is of epoch {c.epoch}, and checkpoint {before.id} of {before.epoch}", c.id)
        head = history.head_in(c.epoch, before)
        parent_is_kept = not c.parent or c.parent in history.checkpoints  # else what led here is forgotten
        if head is not None and c.parent != head and parent_is_kept:
            text = f"its parent is {c.parent}, and the head was {head}: no reset says how it went back"
            findings.add("I6", text, c.id)
        before = c
    head = history.head_in(region.epoch, before)
    if head is not None and head != region.head:
        findings.add("I6", f"the head is {region.head}; the last that is recorded is {head}", region.head)
