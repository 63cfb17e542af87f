"""Time limits and counts of a region: values of one type with names, stored with the region in SQL."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from crkafka_core.model.region_rows import Region

MOST_MEMBERS = 10_000
"""Largest number of members of a region: each is a process and a client of Kafka."""


class Backoff(NamedTuple):
    """Seconds between retries: doubled at each failure in a row."""

    first: float
    longest: float

    def after(self, failures: int) -> float:
        """The pause after so many failures in a row; there may be thousands."""
        return min(self.first * 2.0 ** min(failures - 1, 60), self.longest) if failures > 0 else 0.0


@dataclass(frozen=True)
class Limits:
    """All in seconds, but for counts."""

    session_timeout: float = 45.0
    """Lease of a member (SPEC G3) and Kafka's session.timeout.ms."""
    isolation_timeout: float = 60.0
    """Time past its lease for which a member that cannot renew stays in the Kafka group (SPEC G4)."""
    start_grace: float = 10.0
    """Time since the latest first registration of a name for which a start waits for the wanted number (SPEC G8)."""
    settle_timeout: float = 135.0
    """Time after which an unsettled group raises an alarm (SPEC G8, X8)."""
    drain_timeout: float = 180.0
    """Deadline of a cut: drain and checkpoint (SPEC D4)."""
    handover_timeout: float = 5.0
    """Deadline of a handover, and of a cut that is open when one begins (SPEC X10)."""
    reset_timeout: float = 180.0
    """Time in a settled group after which a reset is attempted again (SPEC X7)."""
    stale_generation: float = 10.0
    """Time with an older generation than another member's after which a live member is lost (SPEC G4)."""
    unheld_timeout: float = 10.0
    """Time without a holder of a partition, in a stable group, after which a member forces a rebalance (SPEC G8)."""
    hold_max: float = 86_400.0
    """Time after which a held retirement is reported (SPEC T1)."""
    max_consecutive_resets: int = 5
    """Consecutive resets at which the region is STOPPED (SPEC X6)."""
    forced_budget: int = 20
    """Losses of one operator within `forced_window` at which the region is STOPPED (SPEC X6)."""
    forced_window: float = 600.0
    forced_without_cut: int = 10
    """Losses of one operator without a completed cut in between at which the region is STOPPED (SPEC X6)."""
    backoff_cap: float = 60.0
    """Longest wait before an attempt; the nth consecutive one waits 2**n (SPEC X6)."""
    backoff_base: float = 1.0
    """Factor of that wait; tests shorten it."""
    driver_lease: float = 30.0
    """Length of a driver's, writer's or reader's lease between renewals (SPEC A6, K6)."""
    retain: int = 20
    """Merged checkpoints whose segments are kept (SPEC T1)."""
    history: int = 20_000
    """Archived rows that are kept; 0 keeps all (SPEC T2)."""

    @property
    def renew_every(self) -> float:
        """Seconds between renewals of a member's lease: a third of it (SPEC G3)."""
        return self.session_timeout / 3


_KNOWN = frozenset(f.name for f in dataclasses.fields(Limits))
"""Limits that this program knows: a newer or older one may have stored others, which are ignored (docs/upgrading.md)."""


@lru_cache(maxsize=256)
def _parse(text: str) -> Limits:
    return Limits(**{name: value for name, value in json.loads(text).items() if name in _KNOWN})


def of(region: Region) -> Limits:
    """The limits of a region, as stored with it."""
    return _parse(region.limits_json)


def dump(limits: Limits) -> str:
    """The stored form: only values that differ from the defaults, so that an upgrade may change a default."""
    usual = dataclasses.asdict(Limits())
    return json.dumps({name: value for name, value in dataclasses.asdict(limits).items() if value != usual[name]})
