"""Numbers of checkpoints: handed out before their first row, and those whose rows belong nowhere any more (SPEC C8)."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.offsets import TP, pack_offsets
from crkafka_core.model.rows import DeadNumbers, Filler


def hand_out(
    tx: Tx, fillers: Mapping[tuple[str, str], Mapping[TP, int]], topic_ids: Mapping[tuple[str, str], Mapping[str, str]]
) -> None:
    """The next number, with who fills it: (member, incarnation) → where each of its partitions begins, and the ids of their topics."""
    region = tx.region()
    number = region.filling + 1
    tx.add(
        *(
            Filler(region.name, number, *who, pack_offsets(offsets), json.dumps(topic_ids[who], ensure_ascii=False))
            for who, offsets in fillers.items()
        )
    )
    tx.set_region(filling=number)


def hand_on(tx: Tx, fillers: Iterable[Filler], offsets: Mapping[str, Mapping[TP, int]]) -> None:
    """The next number, with the same members of the same topics: member → where each of its partitions begins."""
    same = {(f.member, f.incarnation): f for f in fillers}
    hand_out(tx, {who: offsets[f.member] for who, f in same.items()}, {who: f.topic_ids for who, f in same.items()})


def begin(tx: Tx, offsets: Mapping[str, Mapping[TP, int]]) -> None:
    """From where each member fills the number that was handed out with a mark: the merge of the mark says it (SPEC D5).

    A member that is not in the merge fills it no more: its rows would follow ones that count nowhere (SPEC X10).
    """
    for f in tx.select(Filler, ("checkpoint", "=", tx.region().filling)):
        if f.member in offsets:
            tx.put(replace(f, offsets_json=pack_offsets(offsets[f.member])))
        else:
            tx.delete(Filler, ("checkpoint", "=", f.checkpoint), ("member", "=", f.member))


def leave_out(tx: Tx, live: Collection[str], known: Collection[TP]) -> None:
    """No cut waits for an incarnation that left, where no known partition is its own to fill.

    A partition that is still known goes to another member, whose report makes a reset. One that was carried forward is nobody's:
    its rows since the last merge count nowhere (SPEC S4, C3).
    """
    region = tx.region()
    if region.filling > region.opened:
        for row in tx.select(Filler, ("checkpoint", "=", region.filling)):
            if row.incarnation not in live and row.offsets.keys().isdisjoint(known):
                tx.delete(Filler, ("checkpoint", "=", row.checkpoint), ("member", "=", row.member))


def leave_behind(tx: Tx) -> None:
    """Nobody fills the last number any more; if its cut was never opened, it stays behind for ever."""
    region = tx.region()
    if region.filling > region.opened:
        tx.delete(Filler, ("checkpoint", "=", region.filling))


def bury(tx: Tx, after: int) -> None:
    """All numbers after this checkpoint that were handed out, or seen, by now: no row of them belongs anywhere.

    Intervals that lie in this one go, so that rewinds one behind the other leave one row.
    """
    region = tx.region()
    tx.delete(DeadNumbers, ("after", ">=", after))
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
