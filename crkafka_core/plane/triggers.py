"""When a cut is due: by period, by an operator's ask, as a person says (SPEC V1-V3)."""

from __future__ import annotations

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import Stale
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region
from crkafka_core.plane import events, roster

AFTER_RESUME = 1.0
"""Overdue after a reset: so many seconds after the resume (SPEC V1)."""


def ask(tx: Tx, *, member: str, incarnation: str, epoch: int, head: int) -> None:
    """A member has submitted its count; a late ask is void by its epoch and head (SPEC V2)."""
    roster.of(tx, member, incarnation)
    region = tx.region()
    if (region.epoch, region.head) != (epoch, head):
        raise Stale(f"{member} asked for a cut in epoch {epoch} from head {head}; the region is past it.")
    if (region.asked_epoch, region.asked_head) != (epoch, head):
        tx.set_region(asked_epoch=epoch, asked_head=head, asked_by=member)
        events.log(tx, events.ASKED, "trigger count reached", member=member)


def due_at(region: Region, *, period: float | None, counted: bool) -> float | None:
    """Database time at which the next cut is due, 0.0 for now, None for never; only a RUNNING region can be cut."""
    if region.phase is not Phase.RUNNING:
        return None
    if counted and (region.asked_epoch, region.asked_head) == (region.epoch, region.head):
        return 0.0
    if period is None:
        return None
    due = region.last_cut_at + period
    if due < region.resumed_at + AFTER_RESUME and region.resumed_at > region.last_cut_at:
        due = region.resumed_at + AFTER_RESUME
    return due


def cause(reader: Reader, region: Region, *, period: float | None, counted: bool) -> str:
    """Why a cut is due now; empty when none is."""
    at = due_at(region, period=period, counted=counted)
    if at is None or at > reader.now():
        return ""
    return f"asked by {region.asked_by}" if at == 0.0 else f"every {period:g} s"
