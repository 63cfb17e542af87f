"""What follows from a reset, by its cause: a table, and one function that decides between rest and stop (SPEC X6). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from crkafka_core.model.limits import Limits
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import ResetCause

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
class Record:
    """What SQL knows of the resets so far; the numbers of the budget include the one that is being decided about."""

    consecutive: int = 0
    """Counted ones in a row without a completed cut, before this one."""
    failing: int = 0
    """Uncounted ones in a row that backed off, before this one."""
    recent: int = 0
    """Budgeted ones of the same member within `forced_window`."""
    hindering: int = 0
    """Budgeted ones of the same member since the last completed cut that left none a chance."""


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


def decide(cause: ResetCause, text: str, member: str, record: Record, limits: Limits) -> Decision:
    """Whether the region comes to rest on its head and goes on, or stops until a person looks (SPEC X6)."""
    policy = POLICY[cause]
    consecutive = record.consecutive + policy.counts
    failing = record.failing + (policy.backs_off and not policy.counts)
    if over := _over_budget(policy, member, record, limits):
        return Decision(consecutive, failing, stop=f"{over}; the last time: {text}")
    if policy.counts and consecutive >= limits.max_consecutive_resets:
        return Decision(
            consecutive,
            failing,
            stop=f"{plural(consecutive, 'reset')} in a row without a completed cut; the last: {text}",
        )
    if not policy.backs_off:
        return Decision(consecutive, failing)
    wait = min(limits.backoff_base * 2 ** min(consecutive + failing, STEEPEST), limits.backoff_cap)
    return Decision(consecutive, failing, wait)


def _over_budget(policy: Policy, member: str, record: Record, limits: Limits) -> str:
    if not policy.budgeted:
        return ""
    often = ""
    if record.recent >= limits.forced_budget:
        often = f"{plural(record.recent, 'time')} in {limits.forced_window:.0f} s"
    elif record.hindering >= limits.forced_without_cut:
        often = f"{plural(record.hindering, 'time')} without a completed cut in between"
    return f"{member} made the region reset {often}" if often else ""
