"""How a region comes to its end, for now: STOPPED for a reason, or IDLE because nobody wants it to run (SPEC G9, X6)."""

from __future__ import annotations

from crkafka_core.control import Tx
from crkafka_core.model.phase import UNSETTLED, Phase
from crkafka_core.model.rows import ResetCause
from crkafka_core.plane import alarm_rows, epochs, events


def halt(tx: Tx, reason: str, *, member: str = "") -> None:
    """STOPPED: members stay in the group, paused; only a person leaves it (SPEC X6, X8). One who wants it stopped gets it idle."""
    region, reason = tx.region(), events.kept(reason)
    if region.phase is Phase.STOPPED:
        return
    if region.stopping:
        without_last_cut(tx, reason)
        return
    if region.phase not in UNSETTLED and region.phase is not Phase.IDLE:
        epochs.raise_epoch(tx, ResetCause.STOP, reason, by=member, member=member)
    tx.set_region(
        phase=Phase.STOPPED,
        phase_since=tx.now(),
        stop_reason=reason,
        stop_member=member,
        settled_at=0.0,
        stopping=False,
    )
    events.log(tx, "stopped", reason, member=member)


def idle(tx: Tx, why: str) -> None:
    """No members are wanted any more: they leave cleanly (SPEC G9)."""
    region = tx.region()
    if region.phase is Phase.CUTTING:
        epochs.raise_epoch(tx, ResetCause.STOP, why)
    tx.set_region(
        phase=Phase.IDLE, phase_since=tx.now(), stopping=False, settled_at=0.0, stop_reason="", stop_member=""
    )
    events.log(tx, "idle", why)


def without_last_cut(tx: Tx, why: str) -> None:
    """A stop that gives up the last cut it promised."""
    alarm_rows.no_last_cut(tx, why)
    idle(tx, f"stopped without a last cut: {why}")
