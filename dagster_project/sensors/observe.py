"""The group and the tables as people see them: observations with numbers, and checks that alerting hooks on (SPEC A4, X8, T1)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import dagster as dg

from crkafka_core.model import limits
from crkafka_core.model.phase import UNSETTLED, Phase
from crkafka_core.model.plural import plural
from crkafka_core.plane import alarms
from crkafka_core.plane.lateness import TableLag
from crkafka_core.plane.status import Status, status_of
from dagster_project import metadata
from dagster_project.assets import columns
from dagster_project.names import Names
from dagster_project.sensors.shared import Cursor, SensorSetup, read_or_skip

EVERY = 60.0
"""Seconds after which an unchanged group is observed again."""

UNCHANGED = 600.0
"""Seconds after which checks with the same outcome are evaluated again."""

CHECKS = {
    "region_runs": "The region has not stopped because of a failure.",
    "group_settles": "All members have their partitions and start offsets within `settle_timeout`.",
    "cuts_merge": "A checkpoint was merged within three periods of the trigger, or within a minute if that is longer.",
    "retirement_is_free": "Nothing has kept old checkpoints from being deleted for longer than `hold_max`.",
}

METRICS = {"lag": "lag", "queued_records": "queueRecords", "queued_bytes": "queueBytes", "records_read": "submitted"}
"""Name on the group's page → the members' metric, of which it is the sum."""

SEVERE = ("region_runs", "cuts_merge")

KEEPS_UP = "keeps_up"
"""The check of a table: no checkpoint has waited for it for too long, and nothing keeps it back."""


@dataclass(frozen=True)
class Outcome:
    """Of one check."""

    asset: dg.AssetKey
    check: str
    why: str
    """Why it fails; empty when it passes."""
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN
    note: str = ""
    """Beside a check that passes."""

    @property
    def _fields(self) -> dict[str, Any]:
        """What an evaluation and a result have in common."""
        what = {"asset_key": self.asset, "check_name": self.check, "severity": self.severity}
        return what | {"passed": not self.why, "description": self.why or self.note or None}

    @property
    def evaluation(self) -> dg.AssetCheckEvaluation:
        return dg.AssetCheckEvaluation(**self._fields)

    @property
    def result(self) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(**self._fields)


@dataclass(frozen=True)
class RegionView:
    """What a person wants to know of the region now."""

    now: float
    fingerprint: str
    values: dict[str, Any]
    tables: dict[str, dict[str, Any]]
    """Numbers of each table that the control plane knows."""
    outcomes: tuple[Outcome, ...]
    topics: dict[str, dict[str, Any]]
    """Numbers of each topic that members read."""

    @property
    def verdict(self) -> str:
        """Which checks fail: what makes an evaluation worth an event."""
        return json.dumps(sorted(f"{o.asset.to_user_string()}:{o.check}" for o in self.outcomes if o.why))


def view_of(status: Status, *, names: Names, declared: Sequence[str] = (), fresh: float = 3_600.0) -> RegionView:
    """`declared`: tables of the configuration; `fresh`: how long a checkpoint may wait for one."""
    region = status.region
    values: dict[str, Any] = {
        "phase": str(region.phase),
        "wanted": str(region.wanted),
        "epoch": region.epoch,
        "latest_checkpoint": region.head,
        "members": len(status.live),
        "members_wanted": region.members_wanted,
        "rebalances": sum(m.rebalances for m in status.live),
        "resets_in_a_row": region.consecutive,
        "generation": max((m.generation for m in status.live), default=-1),
        "waits_for": status.waits_for or "nothing",
    }
    for name, metric in METRICS.items():
        total = metadata.total([m.metrics for m in status.live], metric)
        if total is not None:
            values[name] = total
    lags = {lag.table.name: lag for lag in status.lags if lag.table.name in declared}
    tables = {name: _table(lag) for name, lag in lags.items()}
    keep_up = [Outcome(names.table(name), KEEPS_UP, _behind(name, lags.get(name), fresh)) for name in declared]
    changing = [values[k] for k in ("phase", "epoch", "latest_checkpoint", "members", "members_wanted")]
    fingerprint = json.dumps([*changing, [[n, t["latest_checkpoint"]] for n, t in tables.items()]])
    topics = {topic: {"topic": topic, "partitions": n, "lag": lag} for topic, (n, lag) in status.topics.items()}
    return RegionView(status.now, fingerprint, values, tables, (*_of_group(status, names), *keep_up), topics)


def _of_group(status: Status, names: Names) -> list[Outcome]:
    region, now, limit = status.region, status.now, limits.of(status.region)
    failed: dict[str, str] = {}
    if region.phase is Phase.STOPPED:
        failed["region_runs"] = f"Stopped: {region.stop_reason}. Remove the cause, then launch start_region."
    if region.phase in UNSETTLED and status.waits_for and now - region.phase_since > limit.settle_timeout:
        failed["group_settles"] = f"{region.phase} for {now - region.phase_since:.0f} s: {status.waits_for}."
    starting = _starting(status)
    if (why := status.no_merge) and not starting:
        failed["cuts_merge"] = f"{why[0].upper()}{why[1:]}."
    if status.held and status.held_since and now - status.held_since > limit.hold_max:
        failed["retirement_is_free"] = "; ".join(status.held)
    error, warn = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
    notes = {"cuts_merge": starting} if status.no_merge else {}
    return [
        Outcome(names.group, check, failed.get(check, ""), error if check in SEVERE else warn, notes.get(check, ""))
        for check in CHECKS
    ]


def _starting(status: Status) -> str:
    """Why no checkpoint can be there yet, since the region was started; empty once it takes longer than the alarms allow."""
    region, limit = status.region, limits.of(status.region)
    seconds, settling = status.now - region.phase_since, region.phase in UNSETTLED
    patience = limit.settle_timeout if settling else max(alarms.PERIODS * region.period, alarms.AT_LEAST)
    if region.epoch != region.started_epoch or region.last_cut_at > region.reset_at or seconds > patience:
        return ""
    return (
        f"The region is starting: {'; '.join(filter(None, (f'{region.phase} for {seconds:.0f} s', status.waits_for)))}."
    )


def _table(lag: TableLag) -> dict[str, Any]:
    """How far a table is; `waiting_seconds`: since the merge of the first checkpoint that it lacks."""
    return {
        "latest_checkpoint": lag.table.acknowledged,
        "checkpoints_behind": lag.waiting,
        "waiting_seconds": round(lag.seconds),
        "version": lag.table.version or "none",
        "commits": lag.table.commits,
    }


def _behind(name: str, lag: TableLag | None, fresh: float) -> str:
    """By `fresh` what waits may wait for longer, or less long, than until the region's alarm; what is stuck fails at once."""
    if lag is None:
        return f"The control plane does not know table {name}: launch start_region, which declares it."
    if why := lag.late if lag.stuck else lag.spoilt:
        return f"{why[0].upper()}{why[1:]}."
    if lag.seconds <= fresh:
        return ""
    return f"{plural(lag.waiting, 'checkpoint waits', 'checkpoints wait')} for table {name}, the first for {lag.seconds:.0f} s."


@dataclass(frozen=True)
class ObserveCursor(Cursor):
    """What was observed last; a cursor that cannot be read costs one observation more."""

    observed: float = 0.0
    fingerprint: str = ""
    checked: float = 0.0
    verdict: str = ""
    topics: int = 0
    """Which topics have been observed at least once, as a checksum."""


def events(
    names: Names, view: RegionView, cursor: ObserveCursor, observed: Callable[[dg.AssetKey], bool]
) -> tuple[list[dg.AssetObservation | dg.AssetCheckEvaluation], ObserveCursor]:
    """What is worth an event now, and the cursor after it."""
    news: list[dg.AssetObservation | dg.AssetCheckEvaluation] = []
    if cursor.fingerprint != view.fingerprint or not 0 <= view.now - cursor.observed < EVERY:
        news.append(dg.AssetObservation(names.group, metadata=view.values))
        news += [dg.AssetObservation(names.table(name), metadata=values) for name, values in view.tables.items()]
        cursor = dataclasses.replace(cursor, observed=view.now, fingerprint=view.fingerprint)
    if view.topics and cursor.topics != (topics := crc32("\n".join(sorted(view.topics)).encode())):
        # A new topic of a pattern is in no definitions yet: its first observation makes its asset.
        new = {names.topic(topic): values for topic, values in view.topics.items() if not observed(names.topic(topic))}
        news += [dg.AssetObservation(key, metadata={**values, **columns.of_topic()}) for key, values in new.items()]
        cursor = dataclasses.replace(cursor, topics=topics)
    if cursor.verdict != view.verdict or not 0 <= view.now - cursor.checked < UNCHANGED:
        news += [outcome.evaluation for outcome in view.outcomes]
        cursor = dataclasses.replace(cursor, checked=view.now, verdict=view.verdict)
    return news, cursor


def sensor(setup: SensorSetup) -> dg.SensorDefinition:
    names = setup.names

    @dg.sensor(
        name=names.of("observe"),
        minimum_interval_seconds=setup.every(5),
        default_status=setup.status,
        asset_selection=dg.AssetSelection.assets(
            names.group
        ),  # it launches nothing: the asset's page names its automation
        description="Records the state of the group and of the tables after each change and once a minute, and evaluates their checks. "
        "Reads SQL only.",
    )
    def observe(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        status = read_or_skip(setup.region, status_of)
        if isinstance(status, dg.SkipReason):
            return status
        view = view_of(status, names=names, declared=setup.tables, fresh=setup.options.fresh)
        news, cursor = events(
            names, view, ObserveCursor.parse(context.cursor), lambda key: context.instance.has_asset_key(key)
        )
        new = view.topics.keys() - {*setup.known.topics}
        reload = f"; {plural(len(new), 'new topic')}: reload the code location for full definitions" if new else ""
        if not news:
            return dg.SkipReason(f"{view.values['phase']}: nothing new{reload}")
        text = f"{view.values['phase']}, {plural(view.values['members'], 'member')}{reload}"
        return dg.SensorResult(asset_events=news, cursor=str(cursor), skip_reason=dg.SkipReason(text))

    return observe
