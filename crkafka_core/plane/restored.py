"""A control plane that went back in time: what outside SQL names numbers that SQL never issued (SPEC G10)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import NotRunning, WentBack
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import Checkpoint, Region, Reset, ResetCause, Table
from crkafka_core.plane import epochs, events, numbers

MARGIN = 1_000
"""Numbers, of checkpoints and of table commits, are raised by so many more: what names the last one may be lost."""
_CHUNK = 500
HINT = (
    "Restore a newer backup, or `crkafka start --restored rewind`: it goes on from SQL's head, takes from the tables what came "
    "after it, and reads that from Kafka again, if Kafka still holds it. What the tables hold cannot be adopted."
)


@dataclass(frozen=True)
class Seen:
    """What commits in Kafka, segment paths and the mark of ownership name."""

    epoch: int = 0
    checkpoint: int = 0
    """The highest, and the highest checkpoint whose cut must have been opened: a commit or the mark names it."""
    where: str = ""
    numbers: frozenset[tuple[int, int]] = frozenset()
    """(epoch, number) of segments."""

    @property
    def highest(self) -> int:
        """Of all numbers."""
        return max([self.checkpoint, *(number for _, number in self.numbers)])


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
    if seen.epoch > region.epoch or seen.checkpoint > region.opened:
        return (
            f"{seen.where} names epoch {seen.epoch} and checkpoint {seen.checkpoint}, SQL is at {region.epoch} and has opened "
            f"{region.opened}"
        )
    by_epoch: dict[int, list[int]] = {}
    for epoch, number in seen.numbers:
        by_epoch.setdefault(epoch, []).append(number)
    # The last numbers before these epochs and at their ends, as far as SQL remembers when they began.
    went_on = reader.select(Reset, ("cause", "=", ResetCause.RESTORED), order=("epoch",), desc=True, limit=1)
    since = went_on[0].epoch if went_on else 0  # what is before may be a newer state's, and was decided about
    asked = sorted({at for epoch in by_epoch for at in (epoch, epoch + 1) if epoch >= since})
    chunks = (asked[at : at + _CHUNK] for at in range(0, len(asked), _CHUNK))
    before = {row.epoch: row.filling for chunk in chunks for row in reader.select(Reset, ("epoch", "in", chunk))}
    ends = {epoch - 1: number for epoch, number in before.items()} | {region.epoch: region.filling}
    for epoch, filled in sorted(by_epoch.items()):
        first, last = (f"a segment of epoch {epoch} is of checkpoint {number}" for number in (min(filled), max(filled)))
        if epoch in ends and max(filled) > ends[epoch]:
            return f"{last}, and SQL has handed out {ends[epoch]} by its end"
        if epoch in before and min(filled) <= before[epoch]:
            return f"{first}, which SQL has handed out in an earlier one"
    return ""


def lacks(reader: Reader, region: Region, *, epoch: int, opened: int, head: int) -> bool:
    """Whether SQL never opened, or never merged, what was seen opened and merged in this epoch: it went back, and on since (SPEC G10)."""
    after = reader.get(Reset, epoch + 1)
    row = reader.get(Checkpoint, head)
    last = region.opened if after is None else after.opened
    return max(opened, head) > last or (row is not None and not row.merged_at)


def notice(tx: Tx, reason: str, *, by: str) -> None:
    """Stop the region, and delete nothing until a person decides how to go on (SPEC T3). This is the reason that counts, also where it was
    stopped or idle before."""
    epochs.halt(tx, reason, member=by)
    tx.set_region(went_back=True, stop_reason=events.kept(reason))


def refuse(region: Region) -> None:
    if region.went_back:
        why = region.stop_reason or f"The control plane of region {region.name} went back in time."
        raise WentBack(why, hint=HINT)


def went_on(reader: Reader, *, after: int) -> bool:
    """Whether a person has decided how to go on, in an epoch after this one."""
    return reader.count(Reset, ("cause", "=", ResetCause.RESTORED), ("epoch", ">", after)) > 0


def same(tx: Tx, looked: Region) -> None:
    """What a look found still counts: the control plane was not replaced by an older one since (SPEC G10, T3). One that was, and then went
    on to the same version, lacks what had been merged or opened by then."""
    region = tx.region()
    refuse(region)
    lost = lacks(tx, region, epoch=looked.epoch, opened=looked.opened, head=looked.head)
    if region.uid != looked.uid or region.version < looked.version or region.epoch < looked.epoch or lost:
        why = f"The control plane of region {region.name} was replaced by another state of it meanwhile."
        raise WentBack(why, hint=HINT)


def trust(tx: Tx, seen: Seen, *, by: str) -> Region | WentBack:
    """As `check`, when a person starts the region: if there is nothing to fear any more, files may be deleted again. What another state may
    have filled after the head is dead from then on: no process outside SQL needs to name it (SPEC C8)."""
    checked = check(tx, seen, by=by)
    if isinstance(checked, Region) and checked.went_back:
        _count_above(tx, seen)
        numbers.bury(tx, checked.head)
        return tx.set_region(went_back=False)
    return checked


def _count_above(tx: Tx, seen: Seen) -> None:
    """The next number is above all that was handed out or seen."""
    above = max(tx.region().filling, seen.highest) + MARGIN
    tx.set_region(filling=above, opened=above)


def rewind(tx: Tx, seen: Seen, *, by: str, initial: bool = False) -> Region:
    """Go on from SQL's head, or from initial state: counters above all that was seen; each declared table needs a fence (SPEC G10, X4).
    What the newer state has merged after that belongs nowhere: those numbers are dead (SPEC C8)."""
    region = tx.region()
    if region.phase not in (Phase.STOPPED, Phase.IDLE):
        why = f"Region {region.name} is {region.phase}; what a backup lost is mended while it is stopped."
        raise NotRunning(why, hint="`crkafka stop` first.")
    epoch = max(region.epoch, seen.epoch) + 1
    _count_above(tx, seen)
    tx.set_region(wanted=Wanted.RUN, went_back=False)
    if initial:
        epochs.rewind(tx, 0, f"the control plane went back, and {by} goes on from initial state")
    else:
        numbers.bury(tx, region.head)
    for table in tx.select(Table):
        fenced = min(table.fenced_epoch, epoch - 1)  # the newer state may have written where SQL never permitted it
        tx.put(replace(table, rewind_epoch=epoch, fenced_epoch=fenced, commits=table.commits + MARGIN))
    head = tx.region().head
    events.log(tx, "restored", f"went on from head {head} after the control plane went back", by=by, checkpoint=head)
    text = f"back to {epochs.place(tx.region().head)}, as asked by {by}: the control plane went back"
    return epochs.start_over(tx, ResetCause.RESTORED, text, by=by, above=seen.epoch)
