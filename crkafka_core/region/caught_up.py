"""Consumes until caught up: a bounded run to the end offsets at its start, ended by a cut (SPEC V3)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from crkafka_core.control import Reader
from crkafka_core.model.errors import Refused, RegionStopped, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint
from crkafka_core.model.rows import Region as Row
from crkafka_core.plane import cuts, goals, hosts, leases, pauses, starts
from crkafka_core.region import waiting
from crkafka_core.region.region import Region


@dataclass(frozen=True)
class CaughtUp:
    checkpoint: Checkpoint
    partitions: int
    left_out: tuple[TP, ...]
    """Paused partitions, which it did not wait for."""


def consume(region: Region, *, token: str = "", progress: Callable[[str], None] = lambda _: None) -> CaughtUp:
    """Let a running region consume to the present end offsets, then cut. A repeated call with the same token goes on."""

    def all_and_paused(reader: Reader, _: Row) -> tuple[list[TP], tuple[TP, ...]]:
        known = sorted(starts.known(reader))
        return known, tuple(sorted(pauses.paused_now(reader, known)))

    token = token or uuid.uuid4().hex
    region.await_running(progress=progress)
    known, left_out = region.plane.read(all_and_paused)
    if left_out:
        progress(f"paused, and not waited for: {', '.join(map(str, left_out))}")
    waited_for = [tp for tp in known if tp not in left_out]
    uncommitted = str(region.config.kafka.get("isolation.level")) == "read_uncommitted"
    watermarks = region.admin().watermarks(waited_for, "read_uncommitted" if uncommitted else "read_committed")
    ends = {tp: end for tp, (_, end) in watermarks.items()}
    stored = region.plane.do(lambda tx: goals.aim(tx, token, ends))
    over = True
    try:
        cut = _cut_at_the_ends(region, token, len(stored), progress)
    except ServiceUnavailable:
        over = False  # a repeated call with this token uses these ends
        raise
    finally:
        if over:
            region.plane.do(lambda tx: goals.drop(tx, token))
    return CaughtUp(cut, len(stored), left_out)


def _cut_at_the_ends(region: Region, token: str, total: int, progress: Callable[[str], None]) -> Checkpoint:
    """The cut in the epoch in which the ends were reached, of all members; a reset in between invalidates the reports of members. Without a
    driver it also opens the cuts that members ask for: until then they submit no more (SPEC V2)."""
    attempt = 1
    while True:
        due = _await_due(region, token, total, progress)
        mine = f"{token}-{attempt}" if due.reached else f"{token}-asked-{due.epoch}-{due.head}"
        try:
            cut = region.cut(cause=due.cause, token=mine, progress=progress)
        except ServiceUnavailable:
            raise
        except Refused as refused:
            progress(str(refused))
            region.await_running(progress=progress)
            region.runtime.sleep(waiting.TICK)
        else:
            if due.reached and cut.epoch == due.epoch and not cut.without:
                return cut
        attempt += due.reached


def still_to_reach(reader: Reader, row: Row, token: str) -> frozenset[TP]:
    """Partitions that the run waits for, without forgotten topics, and without those that are paused, or whose member is."""
    left = goals.missing(reader, row.epoch, token)
    if left:
        left &= starts.known(reader).keys()
    return left - pauses.paused_now(reader, left)


class _Due(NamedTuple):
    """A cut for the run to open; the last one if all ends are `reached`."""

    epoch: int
    head: int
    cause: str
    reached: bool


def _await_due(region: Region, token: str, total: int, progress: Callable[[str], None]) -> _Due:
    """Wait until all ends are reached, or a member asks for a cut without a driver to open it."""
    counted = region.config.trigger.operator_driven

    def answer(reader: Reader, row: Row) -> _Due | str:
        if row.phase in (Phase.STOPPED, Phase.IDLE):
            text = f"Region {row.name} is {row.phase.lower()}: {row.stop_reason or 'no members are wanted'}."
            raise RegionStopped(text)
        left = still_to_reach(reader, row, token)
        if not left and row.phase is Phase.RUNNING:
            return _Due(row.epoch, row.head, "caught up", reached=True)
        asked = cuts.why_due(reader, row, period=None, counted=counted)
        if asked and not leases.held(reader, leases.DRIVER):
            return _Due(row.epoch, row.head, asked, reached=False)
        caught_up = f"{total - len(left)} of {plural(total, 'partition')} caught up"
        return "; ".join(filter(None, (caught_up, hosts.missing(reader, row))))

    return waiting.until(region.plane, answer, progress)
