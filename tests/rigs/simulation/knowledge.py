"""What a simulated schedule's judge knows: of SQL, of processes, and of states of SQL that a backup has replaced."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from crkafka_core.control import Reader, Store
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import (
    Filler,
    Initial,
    PauseMark,
    Region,
)
from crkafka_core.model.segment import SegmentName
from tests.rigs.seen import Remembered
from tests.rigs.simulation.broker import Broker, Record
from tests.rigs.simulation.storage import Disk


class Knowledge:
    """What is true of the region, as seen from outside."""

    def __init__(self, store: Store, name: str, broker: Broker, disk: Disk) -> None:
        self.store, self.name, self.broker, self.disk = store, name, broker, disk
        with store.read(name) as reader:
            self.row: Region = reader.region()
        self._watch_processes()
        self.merged: dict[int, dict[TP, int]] = {0: {}}
        self.landed: dict[int, list[Record]] = {}
        self.led: dict[int, set[TP]] = {}
        """Partitions of which a checkpoint tells the leader epoch."""
        self.logs: dict[int, dict[TP, frozenset[bool]]] = {0: {}}
        """Whether what a checkpoint merged of a partition is of its log before it was cut, and after."""
        self.seen = Remembered()
        self.segments: dict[int, list[str]] = {}
        """Of each checkpoint that was ever merged."""
        self.parents: dict[int, int] = {}
        self.fixed: set[tuple[str, str]] = set()
        self.covers: set[TP] = set()
        """Partitions of which the open cut fixed who contributes them."""
        self.contributed = 0
        """Members whose contribution to the open cut is stored."""
        self.handovers = self.left_out = 0
        """Merges of handovers; members that some merge went without."""
        self.ids: dict[int, dict[TP, str]] = {0: {}}
        """Of which topic a checkpoint's offset is."""
        self.initial: dict[TP, dict[str, int]] = {}
        """By the topic's id: one that was made anew has another beginning."""
        self.initials: list[Initial] = []
        """The rows that were compared last."""
        self.known: set[TP] = set()
        """Those of topics that the region reads."""
        self.ran: dict[tuple[int, int], dict[int, frozenset[PauseMark]]] = {}
        """(epoch, number) that was being filled while the region was RUNNING → from which head → what was paused when it first was."""
        self.fills: dict[tuple[int, int], set[tuple[str, TP]]] = {}
        """(epoch, number) → incarnations, and of which partitions each was to fill it."""
        self.cuts = 0
        self.retired: set[int] = set()
        self.failures = 0
        """In a row, as SPEC X6 counts them."""
        self.proved = 0
        """The epoch of the last cut that was completed."""
        self.stops: list[str] = []
        self.lost: list[tuple[dict[int, dict[TP, int]], dict[TP, dict[str, int]]]] = []
        """What was merged, and the initial offsets, in states of SQL that a backup has replaced."""
        self.precious: set[str] = set()
        """Segments that such a state named beyond the backup: nobody may delete them before a person has said how to go on."""
        self.deleted: set[str] = set()
        """Segments that no newer state needed any more when a backup was put in place: gone, or about to be deleted."""

    def _watch_processes(self) -> None:
        """What processes and a person have done so far."""
        self.launches: dict[str, int] = {}
        """Of each member, as last seen in a settled group."""
        self.highest: dict[TP, int] = {}
        """Per partition, the offset after the last tuple that anybody ever submitted."""
        self.reached: dict[TP, tuple[int, int]] = {}
        """Per partition, the epoch of the last tuple that was submitted, and the offset after it."""
        self.wrote: set[tuple[str, int, int]] = set()
        """(incarnation, epoch, number) to which tuples were submitted."""
        self.drained: set[tuple[str, int, int]] = set()
        """(incarnation, epoch, number) of segments that were closed for a cut."""
        self.gaps: dict[tuple[int, int, TP], int] = {}
        """(epoch, base, partition) → where it starts instead, since Kafka has lost what is before."""
        self.declared: set[tuple[str, int]] = set()
        """(table, epoch) of those that were declared again, and take a fence for that."""
        self.skips: set[tuple[TP, int, int]] = set()
        """(partition, from, to) of what a person has given up."""
        self.forgotten: list[TP] = []
        """Each time that one's topic was."""
        self.given_up: dict[tuple[int, TP], tuple[int, int]] = {}
        """(head, partition) → from which epoch on, and where whoever starts under that head starts at the earliest."""
        self.lost_epoch = 0
        """Up to here an epoch may be of a state of SQL that a backup has replaced."""
        self.starts = 0
        """How often anybody who holds partitions was placed anew, at the head."""

    def went_back(self, knew: Mapping[str, Any], newer: set[str]) -> None:
        """SQL is what it was when this was known of it (SPEC G10); until then it named these segments.

        What the newer state had retired may still be deleted: its retirement is over for SQL, and its files are not yet gone.
        """
        lost = self.parents.keys() - knew["parents"].keys()
        named = {path for cut in knew["parents"] for path in self.segments[cut]}
        self.precious &= self.disk.keys() - named
        row: Region = knew["row"]
        names = [name for path in self.disk if (name := SegmentName.parse(path)) is not None]
        if any(
            name.epoch > row.epoch or name.number > row.filling for name in names
        ):  # else nothing outside SQL tells it
            self.precious |= {path for cut in lost for path in self.segments.get(cut, ())} & newer & self.disk.keys()
        self.deleted |= {path for paths in self.segments.values() for path in paths} - (newer & self.disk.keys())
        self.given_up.clear()
        self.lost_epoch = max(self.lost_epoch, self.row.epoch)
        # Marks that were taken away may be back.
        self.ran = {at: dict.fromkeys(heads, frozenset()) for at, heads in self.ran.items()}
        self.lost.append((self.merged, self.initial))
        for what, value in knew.items():
            setattr(self, what, value)

    def ways_to_begin(self, base: int, tp: TP) -> set[int]:
        """Where whoever starts under this head may begin; who has not noticed yet that SQL went back starts under a lost one."""
        offsets: set[int] = set()
        for merged, initial in self._known():
            if base in merged:
                first = initial.get(tp, {})
                if tp in merged[base]:
                    offsets.add(merged[base][tp])
                if tp not in merged[base] or len(first) > 1:  # made anew: its rows tell of which topic they are
                    offsets |= set(first.values())
        return offsets

    def may_begin(self, base: int, tp: TP, offset: int, due: int) -> bool:
        """Where it is due, or after a gap that Kafka or a person has made."""
        read = self._behind_skips(tp, offset, due)
        # The log may be cut in the middle of what a person has given up.
        return self.broker.may_begin(tp, offset, read) or self._at_the_cut(
            base, tp, offset, self._behind_skips(tp, sys.maxsize, due)
        )

    def _behind_skips(self, tp: TP, offset: int, due: int) -> int:
        """Where it is due if nobody reads what a person has given up before this offset."""
        kept = self.broker.kept_from(tp)
        while ends := [
            end for at, first, end in self.skips if at == tp and first <= max(due, kept) and due < end <= offset
        ]:
            due = max(ends)
        return due

    def _at_the_cut(self, base: int, tp: TP, offset: int, due: int) -> bool:
        """Where the log was cut below what is due; where no leader's epoch tells that, at its end."""
        cut = self.broker.cuts[tp][0] if tp in self.broker.cuts else due
        has_epoch = tp in self.led.get(base, ())
        return cut <= offset < due and (offset <= max(cut, self.broker.kept_from(tp)) or not has_epoch)

    def _known(self) -> list[tuple[dict[int, dict[TP, int]], dict[TP, dict[str, int]]]]:
        return [(self.merged, self.initial), *self.lost]

    def _runs(self, reader: Reader, row: Region) -> None:
        at = row.epoch, row.filling
        self.ran.setdefault(at, {}).setdefault(row.head, frozenset(reader.select(PauseMark)))
        fillers = reader.select(Filler, ("checkpoint", "=", row.filling))
        self.fills.setdefault(at, set()).update((f.incarnation, tp) for f in fillers for tp in f.offsets)

    def next_of(self, tp: TP) -> int:
        """Where the head leaves off of the topic that is there now."""
        same = self.ids[self.row.head].get(tp) == self.broker.ids[tp.topic]
        return self.merged[self.row.head][tp] if same else 0

    def line(self) -> list[int]:
        ids, at = [], self.row.head
        while at:
            ids.append(at)
            at = self.parents[at]
        return ids[::-1]
