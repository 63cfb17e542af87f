"""A control plane that went back in time: what outside SQL names numbers that SQL never issued (SPEC G10)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crkafka_core.control import Tx
from crkafka_core.model.errors import NotRunning, WentBack
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import events, resets

MARGIN = 1_000
"""Numbers of table commits are raised by so many: nobody outside SQL could name the last one."""


@dataclass(frozen=True)
class Seen:
    """The highest numbers that commits in Kafka and segment paths name."""

    epoch: int = 0
    checkpoint: int = 0
    where: str = ""

    def beyond(self, region: Region) -> bool:
        """Whether SQL never issued them."""
        return self.epoch > region.epoch or self.checkpoint >= region.next_checkpoint


def stop(tx: Tx, seen: Seen, *, by: str) -> WentBack | None:
    """Stop the region before anything is written or deleted, with the choice named; None when there is nothing to fear."""
    region = tx.region()
    if not seen.beyond(region):
        return None
    reason = (
        f"The control plane of region {region.name} is older than what was seen: {seen.where} names epoch {seen.epoch} and checkpoint "
        f"{seen.checkpoint}, SQL is at {region.epoch} and has issued {region.next_checkpoint - 1}. Was a backup restored?"
    )
    resets.stop(tx, reason, member=by)
    return WentBack(
        reason,
        hint="Restore a newer backup, or `crkafka start --restored rewind`: it goes on from SQL's head, takes from the tables what came "
        "after it, and reads that from Kafka again, if Kafka still holds it. What the tables hold cannot be adopted.",
    )


def rewind(tx: Tx, seen: Seen, *, by: str) -> Region:
    """Go on from SQL's head: counters above everything seen, and every declared table owes a fence (SPEC G10, X4)."""
    region = tx.region()
    if region.phase not in (Phase.STOPPED, Phase.IDLE):
        raise NotRunning(
            f"Region {region.name} is {region.phase}; what a backup lost is mended while it is stopped.",
            hint="`crkafka stop` first.",
        )
    epoch = max(region.epoch, seen.epoch) + 1
    tx.set_region(
        epoch=epoch,
        next_checkpoint=max(region.next_checkpoint, seen.checkpoint + 1),
        wanted=Wanted.RUN,
        consecutive=0,
        failing=0,
    )
    for table in tx.select(Table, ("region", "=", region.name)):
        tx.put(replace(table, rewind_epoch=epoch, commits=table.commits + MARGIN))
    events.log(
        tx,
        "restored",
        f"went on from head {region.head} after the control plane went back",
        by=by,
        checkpoint=region.head,
    )
    resets.rest(tx, f"the control plane went back; rewound by {by}")
    events.log(tx, "start", by=by)
    return tx.region()
