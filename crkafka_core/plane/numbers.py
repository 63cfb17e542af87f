"""Numbers of checkpoints: handed out before their first row, and those whose rows belong nowhere any more (SPEC C8)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from crkafka_core.control import Reader, Tx
from crkafka_core.model.offsets import TP, pack_offsets
from crkafka_core.model.rows import DeadNumbers, Filler


def hand_out(tx: Tx, fillers: Mapping[tuple[str, str], Mapping[TP, int]]) -> None:
    """The next number, with who fills it: (member, incarnation) → where each of its partitions begins."""
    region = tx.region()
    number = region.filling + 1
    tx.add(*(Filler(region.name, number, *who, pack_offsets(offsets)) for who, offsets in fillers.items()))
    tx.set_region(filling=number)


def leave_out(tx: Tx, member: str) -> None:
    """Who leaves and fills nothing is not waited for; what else it fills is another's to read, who makes a reset by that."""
    region = tx.region()
    row = tx.get(Filler, region.filling, member) if region.filling > region.opened else None
    if row is not None and not row.offsets:
        tx.delete(Filler, ("checkpoint", "=", row.checkpoint), ("member", "=", member))


def leave_behind(tx: Tx) -> None:
    """Nobody fills the last number any more; if its cut was never opened, it stays behind for ever."""
    region = tx.region()
    if region.filling > region.opened:
        tx.delete(Filler, ("checkpoint", "=", region.filling))


def bury(tx: Tx, after: int) -> None:
    """All numbers after this checkpoint that were handed out, or seen, by now: no row of them belongs anywhere."""
    region = tx.region()
    tx.put(DeadNumbers(region.name, region.filling, after))


@dataclass(frozen=True)
class Dead:
    """Intervals of dead numbers, apart and in order: (after, upto]."""

    intervals: tuple[tuple[int, int], ...] = ()

    def belongs(self, number: int, acknowledged: int) -> bool:
        """Whether rows of this number belong into a table that has acknowledged so much."""
        at = bisect_left(self.intervals, number, key=lambda interval: interval[1])
        dead = at < len(self.intervals) and self.intervals[at][0] < number
        return 0 < number <= acknowledged and not dead


def dead(reader: Reader) -> Dead:
    """Those of the region."""
    apart: list[tuple[int, int]] = []
    for after, upto in sorted((row.after, row.upto) for row in reader.select(DeadNumbers)):
        if apart and after <= apart[-1][1]:
            after, upto = apart[-1][0], max(upto, apart.pop()[1])
        apart.append((after, upto))
    return Dead(tuple(apart))
