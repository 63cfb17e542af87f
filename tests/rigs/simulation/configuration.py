"""The configuration of a simulated region, and what a person changes in it while it runs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from crkafka_core.config import RegionConfig
from crkafka_core.model.limits import Limits
from tests.rigs.simulation.fetched import ROW_BYTES
from tests.rigs.simulation.plan import Plan

LIMITS = Limits(
    session_timeout=5.0,
    isolation_timeout=3.0,
    start_grace=3.0,
    settle_timeout=15.0,
    drain_timeout=12.0,
    handover_timeout=1.5,
    reset_timeout=12.0,
    stale_generation=3.0,
    unheld_timeout=3.0,
    backoff_cap=2.0,
    backoff_base=0.1,
    driver_lease=4.0,
    retain=3,
)
"""Real proportions, on a shorter scale."""
ALARM_AT_LEAST = 3.0
"""The same of `alarms.AT_LEAST`: seconds without a merge that are no alarm, however short the period is."""


def configured(plan: Plan, **changes: Any) -> RegionConfig:
    """What the region's file says, and what a person changes in it."""
    trigger: dict[str, object] = {}
    if plan.period is not None:
        trigger["period"] = plan.period
    if plan.trigger_count:
        trigger["tuples"] = plan.trigger_count
    session = int(1000 * LIMITS.session_timeout)
    keys: dict[str, Any] = {
        "kafka": {"bootstrap.servers": "simulated:1", "group.id": "group", "session.timeout.ms": session},
        "topics": [f"t{i}" for i in range(len(plan.partitions))],
        "members": plan.members,
        "trigger": trigger,
        "drain": plan.drain,
        "commit": "drain" if plan.commit_at_drain else "consistent",
        "static_membership": plan.static,
        "data_loss": plan.data_loss,
        "segment_bytes": ROW_BYTES * (plan.segment_rows or 4096),
        "queue_bytes": ROW_BYTES * (plan.queue_rows or 4096),
        "start": {"new_partitions": "end" if plan.from_end else "beginning"},
    }
    if plan.member_epochs:
        keys["kafka"]["group.protocol"] = "consumer"
    keys |= {f.name: getattr(LIMITS, f.name) for f in fields(Limits) if f.name != "session_timeout"}
    return RegionConfig.of(
        base=Path("/simulated"),
        region="sim",
        control_plane="sqlite:////simulated/crkafka.db",
        storage="/simulated/segments",
        **keys | changes,
    )


def changes(plan: Plan, value: float) -> dict[str, Any]:
    """One of the changes that a person makes, and takes back again by another one."""
    some: list[dict[str, Any]] = [{"retain": 1}, {"commit": "consistent" if plan.commit_at_drain else "drain"}, {}]
    if plan.period is not None:
        some.append({"trigger": {"period": 0.5}})
    if len(plan.partitions) > 1:
        some += [{"topics": ["t0"]}, {"topics": ["t1"]}, {"topics": ["t0"]}]
    return some[int(value * len(some))]
