"""Numbers of checkpoints: handed out before their first row, and those whose rows belong nowhere any more (SPEC C8)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.offsets import TP, pack_offsets
from crkafka_core.model.rows import DeadNumbers, Filler


def hand_out(tx: Tx, fillers: Iterable[Filler]) -> None:
    """Hand out the next number, with the members that fill it, whatever number they filled before."""
    number = tx.region().filling + 1
    tx.add(*(replace(f, checkpoint=number) for f in fillers))
    tx.set_region(filling=number)


def hand_on(tx: Tx, fillers: Iterable[Filler], offsets: Mapping[str, Mapping[TP, int]]) -> None:
    """Hand out the next number to the same members; `offsets`: member → first offset of each of its partitions."""
    hand_out(tx, (replace(f, offsets_json=pack_offsets(offsets[f.member])) for f in fillers))


def begin(tx: Tx, offsets: Mapping[str, Mapping[TP, int]]) -> None:
    """Set the first offsets of the number that was handed out with a mark, as the mark's merge has them (SPEC D5). A member that is not in
    the merge stops filling it: its rows would follow ones that count nowhere (SPEC X10)."""
    for f in tx.select(Filler, ("checkpoint", "=", tx.region().filling)):
        if f.member in offsets:
            tx.put(replace(f, offsets_json=pack_offsets(offsets[f.member])))
        else:
            tx.delete(Filler, ("checkpoint", "=", f.checkpoint), ("member", "=", f.member))


def leave_out(tx: Tx, live: Collection[str], known: Collection[TP]) -> None:
    """Wait for no incarnation that left and fills no known partition. A partition that is still known goes to another member, whose report
    makes a reset. Of one that was carried forward, the rows since the last merge count nowhere (SPEC S4, C3)."""
    region = tx.region()
    if region.filling > region.opened:
        for row in tx.select(Filler, ("checkpoint", "=", region.filling)):
            if row.incarnation not in live and row.offsets.keys().isdisjoint(known):
                tx.delete(Filler, ("checkpoint", "=", row.checkpoint), ("member", "=", row.member))


def leave_behind(tx: Tx) -> None:
    """Drop the fillers of the last number, unless its cut was opened: it becomes no checkpoint."""
    region = tx.region()
    if region.filling > region.opened:
        tx.delete(Filler, ("checkpoint", "=", region.filling))


def bury(tx: Tx, after: int) -> None:
    """Declare all numbers after this checkpoint dead that were handed out, or seen, by now. Intervals inside this one go."""
    region = tx.region()
    tx.delete(DeadNumbers, ("after", ">=", after))
    tx.put(DeadNumbers(region.name, region.filling, after))


@dataclass(frozen=True)
class Dead:
    """Intervals of dead numbers, apart and in order: (after, upto]."""

    intervals: tuple[tuple[int, int], ...] = ()

    def belongs(self, number: int, acknowledged: int) -> bool:
        """Whether rows of this number belong into a table that has acknowledged up to `acknowledged`."""
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
