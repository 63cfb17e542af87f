"""A control plane that went back in time: what outside SQL names numbers that SQL never issued (SPEC G10)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import NotRunning, WentBack
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import Checkpoint, Region, Reset, ResetCause, Table
from crkafka_core.plane import epochs, events, halting

MARGIN = 1_000
"""Numbers of table commits are raised by so many: nobody outside SQL could name the last one."""
_CHUNK = 500
"""Ids in one query."""
HINT = (
    "Restore a newer backup, or `crkafka start --restored rewind`: it goes on from SQL's head, takes from the tables what came "
    "after it, and reads that from Kafka again, if Kafka still holds it. What the tables hold cannot be adopted."
)


@dataclass(frozen=True)
class Seen:
    """What commits in Kafka, segment paths and the mark of ownership name."""

    epoch: int = 0
    checkpoint: int = 0
    """The highest, and the highest checkpoint."""
    where: str = ""
    parents: frozenset[int] = frozenset()
    """The checkpoints from which segments say that they were begun."""


def check(tx: Tx, seen: Seen, *, by: str) -> Region | WentBack:
    """The region, if SQL has issued all that was seen; else it is stopped before anything is written or deleted."""
    region = tx.region()
    reason = beyond(tx, region, seen)
    if not reason:
        return region
    reason = f"The control plane of region {region.name} is older than what was seen: {reason}. Was a backup restored?"
    notice(tx, reason, by=by)
    return WentBack(reason, hint=HINT)


def beyond(reader: Reader, region: Region, seen: Seen) -> str:
    """What was seen that SQL never issued, in words."""
    if seen.epoch > region.epoch or seen.checkpoint >= region.next_checkpoint:
        return (
            f"{seen.where} names epoch {seen.epoch} and checkpoint {seen.checkpoint}, SQL is at {region.epoch} and has issued "
            f"{region.next_checkpoint - 1}"
        )
    parents = sorted(seen.parents)
    for at in range(0, len(parents), _CHUNK):
        never = reader.select(Checkpoint, ("id", "in", parents[at : at + _CHUNK]), ("merged_at", "=", 0.0))
        if never:
            return f"segments were begun from checkpoint {never[0].id}, which SQL has {never[0].status.lower()} and never merged"
    return ""


def notice(tx: Tx, reason: str, *, by: str) -> None:
    """Stop the region, and let nothing be deleted until a person has said how to go on (SPEC T3).

    This is the reason that counts, also where it was stopped or idle before.
    """
    halting.halt(tx, reason, member=by)
    tx.set_region(went_back=True, stop_reason=events.kept(reason))


def refuse(region: Region) -> None:
    """Raises what a person hears who wants something else than to say how to go on."""
    if region.went_back:
        why = region.stop_reason or f"The control plane of region {region.name} went back in time."
        raise WentBack(why, hint=HINT)


def went_on(reader: Reader, *, after: int) -> bool:
    """Whether a person has said how to go on, in an epoch after this one."""
    return reader.count(Reset, ("cause", "=", ResetCause.RESTORED), ("epoch", ">", after)) > 0


def same(tx: Tx, looked: Region) -> None:
    """What a look found still counts: the control plane was not replaced by an older one since (SPEC G10, T3).

    One that was, and then went on to the same version, lacks what had been merged or opened by then.
    """
    region = tx.region()
    refuse(region)
    found = Seen(looked.epoch, looked.next_checkpoint - 1, parents=frozenset({looked.head}))
    if region.uid != looked.uid or region.version < looked.version or beyond(tx, region, found):
        raise WentBack(
            f"The control plane of region {region.name} was replaced by another state of it meanwhile.", hint=HINT
        )


def trust(tx: Tx, seen: Seen, *, by: str) -> Region | WentBack:
    """As `check`, when a person starts the region: if there is nothing to fear any more, files may be deleted again."""
    checked = check(tx, seen, by=by)
    return tx.set_region(went_back=False) if isinstance(checked, Region) and checked.went_back else checked


def rewind(tx: Tx, seen: Seen, *, by: str) -> Region:
    """Go on from SQL's head: counters above everything seen, and every declared table owes a fence (SPEC G10, X4)."""
    region = tx.region()
    if region.phase not in (Phase.STOPPED, Phase.IDLE):
        raise NotRunning(
            f"Region {region.name} is {region.phase}; what a backup lost is mended while it is stopped.",
            hint="`crkafka stop` first.",
        )
    epoch = max(region.epoch, seen.epoch) + 1
    tx.delete(Checkpoint, ("id", "in", sorted(seen.parents)), ("merged_at", "=", 0.0))
    # The newer self had merged what was open here: its segments name it, and no other checkpoint will ever have its number.
    tx.set_region(next_checkpoint=max(region.next_checkpoint, seen.checkpoint + 1), wanted=Wanted.RUN, went_back=False)
    for table in tx.select(Table):
        tx.put(replace(table, rewind_epoch=epoch, commits=table.commits + MARGIN))
    events.log(
        tx,
        "restored",
        f"went on from head {region.head} after the control plane went back",
        by=by,
        checkpoint=region.head,
    )
    text = f"back to {epochs.place(region.head)}, as asked by {by}: the control plane went back"
    return epochs.begin_anew(tx, ResetCause.RESTORED, text, by=by, above=seen.epoch)
