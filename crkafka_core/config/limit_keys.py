"""Keys for time limits and counts, one for each of `model.limits.Limits`; what is left out has that type's default."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import BaseModel, Field, StrictInt

from crkafka_core.config.quantity import Seconds
from crkafka_core.config.sections import STRICT
from crkafka_core.model.limits import Limits

DEFAULT = Limits()

MOST = 1_000_000_000
"""Whatever is counted: SQL takes it."""


class LimitKeys(BaseModel):
    """Mixed into the region's configuration."""

    model_config = STRICT

    retain: StrictInt = Field(DEFAULT.retain, ge=1, le=MOST)
    """Merged checkpoints that are kept whole; a reset can go back to them."""
    history: StrictInt = Field(DEFAULT.history, ge=0, le=MOST)
    """Archived checkpoints that replay can still address; 0 is for ever."""
    hold_max: Seconds = DEFAULT.hold_max
    """A table or reader that holds back retirement for longer is reported."""
    drain_timeout: Seconds = Field(DEFAULT.drain_timeout, gt=0)
    """Deadline of a cut."""
    reset_timeout: Seconds = Field(DEFAULT.reset_timeout, gt=0)
    """A reset that takes longer is tried again."""
    start_grace: Seconds = DEFAULT.start_grace
    """How long a start waits for the wanted number of members."""
    settle_timeout: Seconds | None = None
    """A group unsettled for longer is alarmed; three sessions by default."""
    isolation_timeout: Seconds = DEFAULT.isolation_timeout
    """A member that cannot reach SQL leaves the group so long after its lease."""
    stale_generation: Seconds = DEFAULT.stale_generation
    """A member with an older generation than another for so long is lost."""
    unheld_timeout: Seconds = DEFAULT.unheld_timeout
    """A partition nobody holds for so long makes one member force a rebalance."""
    max_consecutive_resets: StrictInt = Field(DEFAULT.max_consecutive_resets, ge=1, le=MOST)
    """Reached, the region stops and says why."""
    forced_budget: StrictInt = Field(DEFAULT.forced_budget, ge=1, le=MOST)
    """Forced resets and losses of one member within `forced_window`; then the region stops."""
    forced_window: Seconds = DEFAULT.forced_window
    """Window of `forced_budget`."""
    forced_without_cut: StrictInt = Field(DEFAULT.forced_without_cut, ge=1, le=MOST)
    """Forced resets and losses of one member without a completed cut; then the region stops."""
    backoff_base: Seconds = DEFAULT.backoff_base
    """The nth consecutive reset waits this times 2ⁿ."""
    backoff_cap: Seconds = DEFAULT.backoff_cap
    """At most."""
    driver_lease: Seconds = Field(DEFAULT.driver_lease, gt=0)
    """Lease of whoever drives a cut, writes a table or reads checkpoints."""

    def _limits(self, session_timeout: float) -> Limits:
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(Limits) if f.name != "session_timeout"}
        if values["settle_timeout"] is None:
            values["settle_timeout"] = 3 * session_timeout
        return Limits(session_timeout=session_timeout, **values)
