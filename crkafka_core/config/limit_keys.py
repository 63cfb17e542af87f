"""Keys of the configuration for time limits and counts, one for each of `model.limits.Limits`, with its default."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import BaseModel, Field, StrictInt

from crkafka_core.config.quantity import Seconds
from crkafka_core.config.typed import STRICT
from crkafka_core.model.limits import Limits

DEFAULT = Limits()
MOST = 1_000_000_000
"""Largest count, which fits SQL."""


class LimitKeys(BaseModel):
    """Base of the region's configuration with these keys."""

    model_config = STRICT

    retain: StrictInt = Field(DEFAULT.retain, ge=1, le=MOST)
    """Merged checkpoints whose segments are kept; a reset can go back to them."""
    history: StrictInt = Field(DEFAULT.history, ge=0, le=MOST)
    """Archived checkpoints that replay can still address; 0 keeps all."""
    hold_max: Seconds = DEFAULT.hold_max
    """A table or reader that holds back retirement for longer is reported."""
    drain_timeout: Seconds = Field(DEFAULT.drain_timeout, gt=0)
    """Deadline of a cut."""
    handover_timeout: Seconds = Field(DEFAULT.handover_timeout, gt=0)
    """Deadline of a handover: who has not contributed by then is left out, and its records are read again."""
    reset_timeout: Seconds = Field(DEFAULT.reset_timeout, gt=0)
    """A reset that takes longer is tried again."""
    start_grace: Seconds = DEFAULT.start_grace
    """Time for which a start waits for the wanted number of members."""
    settle_timeout: Seconds | None = None
    """A group that is unsettled for longer raises an alarm; by default three sessions."""
    isolation_timeout: Seconds = DEFAULT.isolation_timeout
    """Time after its lease at which a member that cannot reach SQL leaves the group."""
    stale_generation: Seconds = DEFAULT.stale_generation
    """Time with an older generation than another's after which a member is lost."""
    unheld_timeout: Seconds = DEFAULT.unheld_timeout
    """Time without a holder of a partition after which a member forces a rebalance."""
    max_consecutive_resets: StrictInt = Field(DEFAULT.max_consecutive_resets, ge=1, le=MOST)
    """Resets in a row at which the region stops."""
    forced_budget: StrictInt = Field(DEFAULT.forced_budget, ge=1, le=MOST)
    """Losses of one member within `forced_window` at which the region stops."""
    forced_window: Seconds = DEFAULT.forced_window
    """Window of `forced_budget`."""
    forced_without_cut: StrictInt = Field(DEFAULT.forced_without_cut, ge=1, le=MOST)
    """Losses of one member without a completed cut in between at which the region stops."""
    backoff_base: Seconds = DEFAULT.backoff_base
    """The nth consecutive reset waits this times 2ⁿ."""
    backoff_cap: Seconds = DEFAULT.backoff_cap
    """Longest wait before a reset."""
    driver_lease: Seconds = Field(DEFAULT.driver_lease, gt=0)
    """Length of the lease of a driver of cuts, a writer of a table or a reader of checkpoints."""

    def _limits(self, session_timeout: float) -> Limits:
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(Limits) if f.name != "session_timeout"}
        if values["settle_timeout"] is None:
            values["settle_timeout"] = 3 * session_timeout
        return Limits(session_timeout=session_timeout, **values)
