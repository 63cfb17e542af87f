"""Resets: who may ask for one, by whose doing it came, and whether the region rests or stops (SPEC X1-X7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from crkafka_core.control import Cond, Reader, Tx
from crkafka_core.model import limits
from crkafka_core.model.errors import DataLoss, NoSuchCheckpoint, NotRunning, Refused, RegionStopped, Stale
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.plural import listed
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    MergedOffset,
    Region,
    Reset,
    ResetCause,
    Start,
    StartReason,
)
from crkafka_core.plane import checkpoints, epochs, events, reading, restored, starts
from crkafka_core.protocol import reset_policy, subscription
from crkafka_core.protocol.reset_policy import BUDGETED, COUNTED, POLICY


def request(
    tx: Tx, *, by: str, cause: str = "", target: int | None = None, token: str = "", give_up: Collection[str] = ()
) -> int:
    """A reset that a person asks for; the new epoch (SPEC X3-X5). `cause` is in the person's words, if there are any. `target` is a merged
    checkpoint of the head's line, 0 for initial state, or None for the head. `give_up`: forgotten topics whose rows may be lost by it. The
    same `token` finds its own reset again (SPEC A1)."""
    region = tx.region()
    if (done := of_token(tx, token)) is not None:
        return done.epoch
    restored.refuse(region)
    if target is not None:
        check_target(tx, region, target, give_up)
    if region.phase is Phase.IDLE and (target is None or target == region.head):
        why = f"Region {region.name} is idle: there is nothing to reset."
        raise NotRunning(why, hint="Name a target, or start it.")
    to = epochs.place(region.head if target is None else target)
    text = f"back to {to}, as asked by {by}" + (f": {cause}" if cause else "")
    if given_up := sorted(set(give_up)):
        text += f"; rows of {', '.join(given_up)} may be lost by it"
    if region.phase is Phase.STOPPED:  # a person leaves STOPPED: counts and budgets restart, as with `start`
        tx.set_region(consecutive=0, failing=0, started_epoch=region.epoch + 1, proven_epoch=region.epoch + 1)
        events.log(tx, "start", text, by=by)
    begin(tx, ResetCause.PERSON, text, by=by, target=target, token=token)
    return tx.region().epoch


def after(reader: Reader, at: float = 0.0) -> list[Reset]:
    """All epochs that were begun at this time or later, oldest first."""
    return reader.select(Reset, ("at", ">=", at), order=("epoch",))


def of_token(reader: Reader, token: str) -> Reset | None:
    """The reset that was asked for with this token."""
    asked = reader.select(Reset, ("token", "=", token), limit=1) if token else []
    return asked[0] if asked else None


def failed(tx: Tx, cause: ResetCause, text: str, *, member: str, epoch: int) -> int:
    """A reset that a member's failure in `epoch` asks for; the new epoch. It is known by its epoch, so it is asked for once."""
    region = tx.region()
    if region.epoch != epoch:
        raise Stale(f"The failure was seen in epoch {epoch}; region {region.name} is at {region.epoch} and past it.")
    if region.phase is Phase.STOPPED:
        why = f"Region {region.name} is stopped: {region.stop_reason}"
        raise RegionStopped(why, hint="`crkafka start` after mending it.")
    if region.phase is Phase.IDLE:
        raise NotRunning(f"Region {region.name} is idle: there is nothing to reset.", hint="Start it.")
    begin(tx, cause, text, by=member, member=member)
    return tx.region().epoch


def check_target(reader: Reader, region: Region, target: int, give_up: Collection[str] = ()) -> None:
    """A target is initial state, or a merged checkpoint of the head's line that is not retired; what is superseded is read again."""
    if target == region.head:
        return
    row = reader.get(Checkpoint, target) if target else None
    merged = row is not None and row.status is CheckpointStatus.MERGED
    if target and not (merged and target in reader.line(region.head, after=target - 1)):
        kept = checkpoints.ids_with(reader, CheckpointStatus.MERGED)
        what = "unknown" if row is None else row.status.lower()
        why = f"Checkpoint {target} of region {region.name} is {what}: the region cannot go back to it."
        raise NoSuchCheckpoint(why, hint=f"It can go back to {listed(kept) + ' or ' if kept else ''}initial state (0).")
    lost = [topic for topic in _unread_topics(reader, region, target) if topic not in give_up]
    if lost:
        given_up, to = " ".join(f"--give-up {topic}" for topic in lost), target or "initial"
        raise DataLoss(
            f"Region {region.name} cannot go back to {epochs.place(target)}: rows of {', '.join(lost)} would be superseded, and "
            "not read again: it has forgotten that topic, or does not read it any more.",
            hint=f"If they may be lost: `crkafka reset --to {to} {given_up}`, in Dagster `give_up: [{', '.join(lost)}]`. A topic that "
            "Kafka still has can be named in the configuration again; once members read it, it is no longer in the way.",
        )


def _unread_topics(reader: Reader, region: Region, target: int) -> list[str]:
    """Topics that are forgotten, or no longer subscribed, of which checkpoints after the target have rows."""
    wanted = region.subscription_json
    gone = [i for i in starts.initials(reader) if i.forgotten or not subscription.reads(wanted, i.topic)]
    if not gone:
        return []
    line, ids = set(reader.line(region.head, after=target)), sorted({i.topic_id for i in gone})
    behind = reader.select(MergedOffset, ("checkpoint", ">", target), ("rows", ">", 0), ("topic_id", "in", ids))
    lost = {o.topic for o in behind if o.checkpoint in line}
    if (
        not target
    ):  # also what retired checkpoints have; where archives do not reach back to birth, what was known by then
        retired = [c for c in reader.select(Checkpoint, ("status", "=", CheckpointStatus.RETIRED)) if c.id in line]
        lost |= {r.topic for c in retired for r in reading.archived(region, c) if r.topic_id in ids}
        oldest = min(retired, key=lambda c: c.id, default=None)
        if oldest is not None and oldest.parent:
            lost |= {i.topic for i in gone if i.at <= oldest.merged_at}
    return sorted(lost)


def begin(
    tx: Tx, cause: ResetCause, text: str, *, member: str = "", by: str = "", target: int | None = None, token: str = ""
) -> None:
    """Raise the epoch and make everybody come to rest on the head, or stop; an open cut is aborted by it (SPEC D4). `member` is who caused
    it; `by`, who asked for it or reported it."""
    text = events.kept(text)
    if target is not None and target != tx.region().head:
        epochs.rewind(tx, target, text)
    region = epochs.raise_epoch(tx, cause, text, by=by or member, member=member, token=token)
    if region.phase is Phase.IDLE:
        return
    if region.phase is Phase.STOPPED and (region.wanted is Wanted.STOP or not POLICY[cause].leaves_stopped):
        return
    limit = limits.of(region)
    caused: list[Cond] = [("member", "=", member), ("epoch", ">", region.started_epoch), ("cause", "in", BUDGETED)]
    most = limit.forced_budget + limit.forced_without_cut
    mine = tx.select(Reset, *caused, order=("epoch",), desc=True, limit=most)
    decided = reset_policy.decide(cause, text, member, region, mine, tx.now())
    region = tx.set_region(consecutive=decided.consecutive, failing=decided.failing)
    if not decided.stop:
        epochs.rest(tx, text, decided.wait)
        return
    if POLICY[cause].counts:  # the member that caused most of the counted resets in a row; of several the first by name
        since: list[Cond] = [("epoch", ">", region.proven_epoch), ("cause", "in", COUNTED)]
        rows = tx.select(Reset, *since, order=("epoch",), desc=True, limit=region.consecutive)
        names = Counter(r.member for r in rows if r.member)
        member = min(names, key=lambda name: (-names[name], name)) if names else member
    epochs.halt(tx, decided.stop, member=member)


def skip(tx: Tx, tp: TP, first: int, last: int, *, by: str, token: str = "") -> int:
    """Pass over these offsets, both ends included, and reset; the offset at which the partition goes on. The head must stand there: what
    comes before them has landed, and is not given up by mistake. The same `token` finds its own skip again, after an unknown outcome."""
    region = tx.region()
    if of_token(tx, token) is not None:
        return last + 1
    known = starts.known(tx).get(tp)
    if known is None:
        raise Refused(f"Region {region.name} knows no partition {tp}.", hint="`crkafka show` lists what members hold.")
    stands = starts.lookup(tx, region, {tp: known.topic_id}).offsets[tp]
    if not first <= stands <= last:
        why = f"{tp} stands at offset {stands} of the head: {first} to {last} are not what comes next."
        lands = "`crkafka cut` lands what can be read before them."
        raise Refused(why, hint=lands if stands < first else "They are behind already.")
    tx.put(Start(region.name, region.epoch, region.head, *tp, known.topic_id, last + 1, StartReason.GAP))
    events.log(tx, "skip", f"{tp}: offsets {stands} to {last} are passed over", by=by)
    request(tx, cause=f"skip {tp}@{stands}-{last}", by=by, token=token)
    return last + 1
