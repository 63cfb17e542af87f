"""Where partitions start: head, initial offset, start position; one resolver for assignment and reset (SPEC S1-S4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import DataLoss, Stale
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Initial, MergedOffset, Region, Start, StartReason
from crkafka_core.plane import epochs, events, goals, roster
from crkafka_core.protocol import subscription


@dataclass(frozen=True)
class Resolved:
    """The answer of the resolver for a set of partitions."""

    epoch: int
    base: int
    offsets: Mapping[TP, int]
    reasons: Mapping[TP, StartReason]
    missing: frozenset[TP] = frozenset()
    """Neither in the head nor seen before: the caller must propose a start, by Kafka."""
    recreated: Mapping[TP, str] = field(default_factory=dict)
    """Partitions whose topic has another id than the one stored; the stored id (SPEC S4)."""
    born: bool = True
    left_off: Mapping[TP, tuple[int, int]] = field(default_factory=dict)
    """Where the head leaves off, and the leader epoch of the record before, where it is known: of what starts there, or behind a gap."""

    @property
    def leader_epochs(self) -> dict[TP, int]:
        """Of the record before each offset that is the head's, where it is known."""
        return {tp: epoch for tp, (_, epoch) in self.left_off.items() if self.reasons[tp] is StartReason.HEAD}


def merged(reader: Reader, checkpoint: int) -> dict[TP, MergedOffset]:
    """The merged map of a checkpoint, with what was carried forward."""
    rows = reader.select(MergedOffset, ("checkpoint", "=", checkpoint))
    return {TP(r.topic, r.partition): r for r in rows}


def initials(reader: Reader) -> list[Initial]:
    return reader.select(Initial)


def known(reader: Reader) -> dict[TP, Initial]:
    """The known partitions: initial offset stored, under the current subscription and topic id (SPEC C3)."""
    return {TP(i.topic, i.partition): i for i in initials(reader) if not i.forgotten}


def leaves_off(first: Mapping[TP, Initial], head: Mapping[TP, MergedOffset]) -> dict[TP, int]:
    """Per known partition (`first`), where the merge `head` leaves off, if it is of the same topic; else where it first was (SPEC S1)."""
    return {
        tp: head[tp].to_offset if tp in head and head[tp].topic_id == initial.topic_id else initial.offset
        for tp, initial in first.items()
    }


def line_offsets(
    reader: Reader, epoch: int, parent: int, first: Mapping[TP, Initial], head: Mapping[TP, MergedOffset]
) -> dict[TP, int]:
    """Per known partition (`first`), where a contribution to a child of `parent`, merged as `head`, must begin (SPEC C3). A gap counts in
    the epoch in which it was resolved: the next attempt resolves again, from the accepted gap."""
    due = leaves_off(first, head)
    for start in reader.select(Start, ("base", "=", parent), ("epoch", "=", epoch), ("reason", "=", StartReason.GAP)):
        tp = TP(start.topic, start.partition)
        if tp in due and first[tp].topic_id == start.topic_id:
            due[tp] = start.offset
    return due


def lookup(reader: Reader, region: Region, topic_ids: Mapping[TP, str]) -> Resolved:
    """What is stored about the starts of these partitions, from the head as it is now (SPEC S1)."""
    base = region.head
    stored = {
        TP(s.topic, s.partition): s for s in reader.select(Start, ("epoch", "=", region.epoch), ("base", "=", base))
    }
    head = merged(reader, base) if base else {}
    accepted = _accepted_gaps(reader, base)
    first = known(reader)
    left_off: dict[TP, tuple[int, int]] = {}
    offsets: dict[TP, int] = {}
    reasons: dict[TP, StartReason] = {}
    missing: set[TP] = set()
    recreated: dict[TP, str] = {}
    for tp, topic_id in topic_ids.items():
        start, initial = stored.get(tp), first.get(tp)
        if initial is not None and initial.topic_id != topic_id:
            recreated[tp] = initial.topic_id
        elif start is not None and start.topic_id == topic_id:
            offsets[tp], reasons[tp] = start.offset, start.reason
        elif tp in accepted and accepted[tp].topic_id == topic_id:
            offsets[tp], reasons[tp] = accepted[tp].offset, StartReason.GAP
        elif tp in head and head[tp].topic_id == topic_id:
            offsets[tp], reasons[tp] = head[tp].to_offset, StartReason.HEAD
        elif initial is not None:
            offsets[tp], reasons[tp] = initial.offset, StartReason.INITIAL
        else:
            missing.add(tp)
        # Also of a start that was resolved before.
        if reasons.get(tp) in (StartReason.HEAD, StartReason.GAP) and tp in head and head[tp].leader_epoch >= 0:
            left_off[tp] = head[tp].to_offset, head[tp].leader_epoch
    return Resolved(region.epoch, base, offsets, reasons, frozenset(missing), recreated, region.born, left_off)


def _accepted_gaps(reader: Reader, base: int) -> dict[TP, Start]:
    """Gaps that were accepted from this head on, in whichever epoch: they hold until they are merged. Without that, a log that has
    grown past the head meanwhile would hide them (SPEC S4)."""
    gaps = reader.select(Start, ("base", "=", base), ("reason", "=", StartReason.GAP), order=("epoch",))
    return {TP(s.topic, s.partition): s for s in gaps}


@dataclass(frozen=True)
class Proposal:
    """Start of a partition that is new to the region, by the start position (SPEC S2, S3)."""

    topic_id: str
    offset: int
    position: str


@dataclass(frozen=True)
class Gap:
    """An offset that Kafka no longer holds, and the nearest that it does (SPEC S4)."""

    wanted: int
    available: int
    why: str


def gap(wanted: int, earliest: int, end: int) -> Gap | None:
    """What Kafka does not hold any more, or not yet, of a log from `earliest` to `end`; None when it does (SPEC S4)."""
    if wanted < earliest:
        return Gap(wanted, earliest, "retention or deletion passed the offset")
    if wanted > end:
        return Gap(wanted, end, "the log ends before the offset: it was truncated")
    return None


def regrown(wanted: int, cut: int, earliest: int = 0) -> Gap:
    """A log that was cut below the offset and has grown again, past it or not (SPEC S4)."""
    why = f"the log was cut at {cut} by the election of a leader that lacked records, and has grown again"
    return Gap(wanted, max(cut, earliest), why)


def resolve(
    tx: Tx,
    *,
    member: str,
    incarnation: str,
    epoch: int,
    base: int,
    topic_ids: Mapping[TP, str],
    proposals: Mapping[TP, Proposal],
    gaps: Mapping[TP, Gap] | None = None,
    accept_gaps: bool = False,
) -> Resolved | DataLoss:
    """Write where these partitions start, before a record of them is accepted; the first writer wins (SPEC S1). `proposals` may name more
    partitions than the member holds: at birth all that there are (SPEC S3)."""
    region = tx.region()
    roster.of(tx, member, incarnation)
    if region.epoch != epoch or region.head != base:
        current = f"region {region.name} is at {region.epoch} and {region.head}"
        raise Stale(f"Starts were asked for epoch {epoch} and head {base}; {current}.")
    _remember(tx, {tp: proposal.topic_id for tp, proposal in proposals.items()} | dict(topic_ids))
    region = _record_initials(tx, region, proposals, member)
    stored = lookup(tx, region, topic_ids)
    real = {tp: g for tp, g in (gaps or {}).items() if stored.offsets.get(tp) == g.wanted}
    lost, words = {} if accept_gaps else real, dict[str, str]()
    for tp in sorted({*stored.recreated, *lost}):
        if tp in lost:
            words[f"{tp}: {lost[tp].why}: wanted offset {lost[tp].wanted}, available from {lost[tp].available}"] = GAPS
        else:  # the whole topic is lost: it is reported once, not for each partition
            words[recreated(tp.topic, stored.recreated[tp], topic_ids[tp])] = FORGET
    if words:
        return _data_loss(tx, region, member, words)
    offsets, reasons = dict(stored.offsets), dict(stored.reasons)
    for tp, gap in real.items():
        offsets[tp], reasons[tp] = gap.available, StartReason.GAP
        events.log(tx, "gap", f"{tp}: {gap.why}: goes on at {gap.available} instead of {gap.wanted}", member=member)
    begun = ((tp, offset) for tp, offset in offsets.items() if tp in topic_ids)
    tx.put(*(Start(region.name, epoch, base, *tp, topic_ids[tp], o, reasons[tp], member) for tp, o in begun))
    return replace(stored, offsets=offsets, reasons=reasons)


def _remember(tx: Tx, topic_ids: Mapping[TP, str]) -> None:
    """A topic that was unsubscribed and is read again goes on at the offset that was carried forward (SPEC S4). Also where a member of an
    older configuration reads it, or what that proposes would take the place of where it began."""
    back = [i for i in initials(tx) if i.forgotten and topic_ids.get(TP(i.topic, i.partition)) == i.topic_id]
    if back:
        tx.put(*(replace(i, forgotten=False) for i in back))
        text = plural(len(back), "partition goes on where it was", "partitions go on where they were")
        events.log(tx, "topic back", f"{text} left")
        note_unread(tx)


def note_unread(tx: Tx) -> Region:
    """Note the known topics that the configuration does not read: they go when no member reads them (SPEC S4). It was changed since they
    became known, or a member of an older one has found them."""
    region = tx.region()
    topics = sorted({i.topic for i in known(tx).values()})
    unread = [topic for topic in topics if not subscription.reads(region.subscription_json, topic)]
    text = json.dumps(unread, ensure_ascii=False)
    return region if text == region.dropped_json else tx.set_region(dropped_json=text)


def _record_initials(tx: Tx, region: Region, proposals: Mapping[TP, Proposal], member: str) -> Region:
    """Record the initial offsets of new partitions; the first ones are the region's birth (SPEC S2, S3)."""
    first = known(tx)
    fresh = [
        Initial(region.name, p.topic_id, tp.partition, tp.topic, p.offset, p.position, tx.now())
        for tp, p in proposals.items()
        if tp not in first
    ]
    if fresh:
        tx.add(*fresh)
        kind = "partitions found" if region.born else "birth"
        evidence = {str(TP(i.topic, i.partition)): i.offset for i in fresh[:50]}
        events.log(tx, kind, f"{plural(len(fresh), 'initial offset')} recorded", member=member, data=evidence)
        region = note_unread(tx)
    return tx.set_region(born=True) if proposals and not region.born else region


FORGET = "`crkafka forget TOPIC` carries its offsets forward, and a new topic of that name starts by its own id; then `crkafka start`."
GAPS = (
    "Set `data_loss: gap` to go on at what is there and record the gap, or reset to a checkpoint that Kafka still holds; then "
    "`crkafka start`."
)


def recreated(topic: str, old: str, new: str) -> str:
    return f"topic {topic} was made anew: the region knows it with the id {old}, and it has the id {new} now"


def deleted(topic: str, topic_id: str) -> str:
    return f"topic {topic} with id {topic_id} was deleted"


def _data_loss(tx: Tx, region: Region, member: str, words: Mapping[str, str]) -> DataLoss:
    """Stop the region, with what to do as part of the reason; `words`: what is lost → remedy (SPEC S4, X8)."""
    text = f"Data loss in region {region.name}: {'; '.join(list(words)[:5])}."
    hint = " ".join(remedy for remedy in (FORGET, GAPS) if remedy in words.values())
    if region.phase is not Phase.IDLE:  # it is not to run: the next start finds the same
        epochs.halt(tx, f"{text} {hint}", member=member)
    return DataLoss(text, hint=hint)


def topics_gone(tx: Tx, gone: Mapping[str, str], *, member: str) -> DataLoss | None:
    """Known topics that Kafka no longer has, with the id they had: the region stops until a person forgets them (SPEC S4). `member` reads
    them. One that the configuration does not read any more is carried forward at once: no member can hold it."""
    region = tx.region()
    lost = sorted({(i.topic, i.topic_id) for i in known(tx).values() if gone.get(i.topic) == i.topic_id})
    words = {deleted(*each): FORGET for each in lost if subscription.reads(region.subscription_json, each[0])}
    for topic, _ in lost:
        if not subscription.reads(region.subscription_json, topic):
            forget(tx, topic, by="the change of configuration, and Kafka has deleted it")
    return _data_loss(tx, region, member, words) if words else None


def forget(tx: Tx, topic: str, *, by: str) -> int:
    """A deleted, recreated or unsubscribed topic: its offsets are carried forward and it is no longer known (SPEC S4)."""
    rows = [i for i in initials(tx) if i.topic == topic and not i.forgotten]
    if rows:
        tx.put(*(replace(i, forgotten=True) for i in rows))
        goals.leave_out(tx, topic)
        text = f"{topic}: {plural(len(rows), 'partition is', 'partitions are')} carried forward"
        events.log(tx, "topic forgotten", text, by=by)
    return len(rows)
