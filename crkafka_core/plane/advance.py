"""What anyone may do who finds the condition true: merge, abort past the deadline, resume, start the next attempt (SPEC G7)."""

from __future__ import annotations

from collections.abc import Sequence

from crkafka_core.control import Reader, Tx
from crkafka_core.model import limits
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Member, Region, ResetCause
from crkafka_core.plane import alarms, clock, cuts, epochs, events, life, members, merging, resets, roster, settling
from crkafka_core.plane.events import NO_MERGE, raised


def due(reader: Reader, region: Region, there: Sequence[Member] | None = None) -> bool:
    """Whether a look under the lock is worth it; cheap, so that a quiet region costs nothing. `there`: live members, if they are read."""
    if clock.stepped_back(reader, region):
        return True
    if alarms.no_merge(reader, region) and raised(reader, region, NO_MERGE) is None:
        return True
    match region.phase:
        case Phase.BIRTH | Phase.RESETTING | Phase.REWINDING:
            return True
        case Phase.CUTTING:  # the last contribution merges: what is left to do is to abort past the deadline
            row = reader.get(Checkpoint, region.open_cut)
            if row is None or reader.now() > row.deadline:
                return True
        case Phase.RUNNING:
            if region.stopping:
                return True
        case _:
            return False
    there = roster.live(reader) if there is None else there
    return bool(members.behind(region, there)) or any(m.stale_since for m in there)


def advance(tx: Tx) -> Phase:
    """Do what is due; the phase after it. Any process may call it at any time."""
    clock.begin_waits_anew(tx)
    alarms.watch_merges(tx)
    region = tx.region()
    limit = limits.of(region)
    if region.phase in (Phase.BIRTH, Phase.RUNNING, Phase.CUTTING, Phase.RESETTING):
        members.watch_generations(tx, limit.stale_generation, max(limit.stale_generation, limit.session_timeout))
        region = tx.region()
    if region.phase is Phase.CUTTING:
        merging.finish(tx)
    elif region.phase is Phase.REWINDING:
        epochs.after_fence(tx)
    before = tx.region().phase
    if before in (Phase.BIRTH, Phase.RESETTING):
        _resume(tx, tx.region())
    if tx.region().stopping and tx.region().phase is before:  # one step at a time: each phase is seen (SPEC G9)
        life.last_cut(tx)
    return tx.region().phase


def _resume(tx: Tx, region: Region) -> None:
    """RUNNING again, once the group is settled, at the epoch and the head, and the back-off is over."""
    limit, now = limits.of(region), tx.now()
    reason = settling.unready(tx, region)
    if not reason and now >= region.not_before:
        tx.set_region(
            phase=Phase.RUNNING,
            phase_since=now,
            resumed_at=now,
            settled_at=now,
            wait_for_wanted=False,
            last_cut_at=region.last_cut_at or now,
        )
        cuts.begin_fill(tx)
        text, evidence = f"from head {region.head}: {region.reset_cause}", {"seconds": round(now - region.reset_at, 3)}
        events.log(tx, "resumed", text, checkpoint=region.head, data=evidence)
        return
    if settling.unsettled(tx, region):
        alarms.unsettled(tx)
        if region.settled_at:
            tx.set_region(settled_at=0.0)
    elif not region.settled_at:
        tx.set_region(settled_at=now)
    elif now - region.settled_at > limit.reset_timeout and now >= region.not_before:
        held_up = settling.held_up(tx)
        cause = f"the reset took longer than {limit.reset_timeout:.0f} s: {held_up or reason}"
        resets.begin(tx, ResetCause.UNAVAILABLE if held_up else ResetCause.STUCK, cause, by="reset timeout")
