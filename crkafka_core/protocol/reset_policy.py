"""What follows from a reset, by its cause: a table, and one function that decides between rest and stop (SPEC X6). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crkafka_core.model import limits
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region, Reset, ResetCause

CHANCE = 10.0
"""Seconds of running within which a cut that is due comes: a reset after fewer of them left none a chance."""
STEEPEST = 30
"""Doublings of the back-off after which any cap is reached: failures may go on for days."""


@dataclass(frozen=True)
class Policy:
    """What a cause means."""

    counts: bool = False
    """Towards `max_consecutive_resets`."""
    backs_off: bool = False
    """The next attempt waits, longer each time."""
    budgeted: bool = False
    """Counts against the member that caused it: so many in a time, so many without a completed cut."""
    leaves_stopped: bool = False
    """Leads out of STOPPED: only what a person asks for."""


POLICY: dict[ResetCause, Policy] = {
    ResetCause.PERSON: Policy(leaves_stopped=True),
    ResetCause.START: Policy(leaves_stopped=True),
    ResetCause.RESTORED: Policy(leaves_stopped=True),
    ResetCause.STOP: Policy(),
    ResetCause.JOIN: Policy(),
    ResetCause.REBALANCE: Policy(),
    ResetCause.LOST: Policy(budgeted=True),
    ResetCause.LEFT: Policy(),
    ResetCause.FAILURE: Policy(counts=True, backs_off=True),
    ResetCause.MISMATCH: Policy(counts=True, backs_off=True),
    ResetCause.STUCK: Policy(counts=True, backs_off=True),
    ResetCause.UNAVAILABLE: Policy(backs_off=True),
    ResetCause.OFFSET_GONE: Policy(backs_off=True),
    ResetCause.LATE: Policy(backs_off=True),
}

BUDGETED = frozenset(cause for cause, policy in POLICY.items() if policy.budgeted)
COUNTED = frozenset(cause for cause, policy in POLICY.items() if policy.counts)


@dataclass(frozen=True)
class Decision:
    """What becomes of the region: rest, after a wait, or a stop."""

    consecutive: int
    failing: int
    wait: float = 0.0
    stop: str = ""
    """Why the region stops; empty when it rests and goes on."""


def hindered(cut: int, ran: float) -> bool:
    """Whether a reset kept a cut away: `cut` was open, and is aborted or lacks a member, or the region had just come to run."""
    return bool(cut) or ran < CHANCE


def decide(cause: ResetCause, text: str, member: str, region: Region, mine: Sequence[Reset], now: float) -> Decision:
    """Whether the region comes to rest on its head and goes on, or stops until a person looks (SPEC X6). `mine`: the budgeted resets of the
    member since the last start, this one among them."""
    policy, limit = POLICY[cause], limits.of(region)
    consecutive = region.consecutive + policy.counts
    failing = region.failing + (policy.backs_off and not policy.counts)
    recent = sum(now - limit.forced_window <= r.at <= now for r in mine)
    hindering = sum(hindered(r.aborted or r.lacking, r.ran) for r in mine if r.epoch > region.proven_epoch)
    often = stop = ""
    if recent >= limit.forced_budget:
        often = f"{plural(recent, 'time')} in {limit.forced_window:.0f} s"
    elif hindering >= limit.forced_without_cut:
        often = f"{plural(hindering, 'time')} without a completed cut in between"
    if policy.budgeted and often:
        stop = f"{member} made the region reset {often}; the last time: {text}"
    elif policy.counts and consecutive >= limit.max_consecutive_resets:
        stop = f"{plural(consecutive, 'reset')} in a row without a completed cut; the last: {text}"
    if stop or not policy.backs_off:
        return Decision(consecutive, failing, stop=stop)
    wait = min(limit.backoff_base * 2 ** min(consecutive + failing, STEEPEST), limit.backoff_cap)
    return Decision(consecutive, failing, wait)
