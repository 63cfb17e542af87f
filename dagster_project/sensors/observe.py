"""The group as people see it: observations with numbers, and checks that alerting hooks on (SPEC A4, X8, T1)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.phase import UNSETTLED, Phase
from crkafka_core.model.rows import Member, MemberStatus, Region
from crkafka_core.plane import cuts, limits, retire
from dagster_project import metadata
from dagster_project.names import Names
from dagster_project.sensors.asking import Made, asked

EVERY = 60.0
"""Seconds after which an unchanged group is observed again."""

CHECKS = {
    "region_runs": "The region has not stopped itself.",
    "group_settles": "A group that is to run has come to rest within its time.",
    "retirement_is_free": "Nobody has held back retirement for too long.",
}


@dataclass(frozen=True)
class View:
    """What a person wants to know of the group now."""

    now: float
    fingerprint: str
    values: dict[str, Any]
    failed: dict[str, str]
    """Check → why it fails."""


def look(reader: Reader, region: Region) -> View:
    now, limit = reader.now(), limits.of(region)
    there = [m for m in reader.select(Member, ("region", "=", region.name)) if m.status is MemberStatus.LIVE]
    metrics = [json.loads(m.metrics_json) for m in there]
    waits = "" if region.phase in (Phase.IDLE, Phase.STOPPED) else cuts.unready(reader, region)
    values: dict[str, Any] = {
        "phase": str(region.phase),
        "wanted": str(region.wanted),
        "epoch": region.epoch,
        "head": region.head,
        "members": len(there),
        "members_wanted": region.members_wanted,
        "rebalances": sum(m.rebalances for m in there),
        "resets_in_a_row": region.consecutive,
        "generation": max((m.generation for m in there), default=-1),
        "waits_for": waits or "nothing",
    }
    for name in ("lag", "queueRecords", "queueBytes", "submitted"):
        found = metadata.total(metrics, name)
        if found is not None:
            values[name] = found
    failed: dict[str, str] = {}
    if region.phase is Phase.STOPPED:
        failed["region_runs"] = f"Stopped: {region.stop_reason}. Mend it, then run start_region."
    if region.phase in UNSETTLED and waits and now - region.phase_since > limit.settle_timeout:
        failed["group_settles"] = f"{region.phase} for {now - region.phase_since:.0f} s: {waits}."
    held = retire.plan(reader, region)
    if held.held and held.held_since and now - held.held_since > limit.hold_max:
        failed["retirement_is_free"] = "; ".join(held.held)
    fingerprint = json.dumps(
        [values[k] for k in ("phase", "epoch", "head", "members", "members_wanted")] + sorted(failed)
    )
    return View(now, fingerprint, values, failed)


def events(names: Names, view: View) -> list[dg.AssetObservation | dg.AssetCheckEvaluation]:
    """The observation and the outcome of each check."""
    found: list[dg.AssetObservation | dg.AssetCheckEvaluation] = [
        dg.AssetObservation(names.group, metadata=view.values)
    ]
    for check in CHECKS:
        why = view.failed.get(check, "")
        found.append(
            dg.AssetCheckEvaluation(
                asset_key=names.group,
                check_name=check,
                passed=not why,
                description=why or None,
                severity=dg.AssetCheckSeverity.ERROR if check == "region_runs" else dg.AssetCheckSeverity.WARN,
                metadata={"phase": view.values["phase"]},
            )
        )
    return found


def sensor(made: Made) -> dg.SensorDefinition:
    @dg.sensor(
        name=made.names.of("observe"),
        minimum_interval_seconds=5,
        default_status=made.status,
        required_resource_keys=made.resources,
        description="Observes the group, when something changed and once a minute, and evaluates its checks.",
    )
    def observe(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        view = asked(made.region(context), look)
        if isinstance(view, dg.SkipReason):
            return view
        at, fingerprint = _cursor(context.cursor)
        if fingerprint == view.fingerprint and view.now - at < EVERY:
            return dg.SkipReason(f"{view.values['phase']}: nothing new")
        return dg.SensorResult(
            asset_events=events(made.names, view),
            cursor=json.dumps([view.now, view.fingerprint]),
            skip_reason=dg.SkipReason(f"{view.values['phase']}, {view.values['members']} members"),
        )

    return observe


def _cursor(text: str | None) -> tuple[float, str]:
    """What was last observed; a cursor that cannot be read only costs one observation more."""
    try:
        at, fingerprint = json.loads(text or "")
        return float(at), str(fingerprint)
    except (ValueError, TypeError):
        return 0.0, ""
