"""Tables keep up: what a host feeds is published; else one run takes a bounded range of what waits, never one run each (SPEC A7)."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

import dagster as dg

from crkafka_core.config.sections import TableConfig
from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import checkpoints, epochs, hosts, life, tables
from dagster_project import partitions
from dagster_project.counted import Counted, count, how_far
from dagster_project.job_set import WRITES
from dagster_project.metadata import rows_told
from dagster_project.names import KEEPING_UP, RANGE_END, RANGE_START, Names, key_of
from dagster_project.resources import RegionResource
from dagster_project.sensors import publish
from dagster_project.sensors.cursor import Cursor
from dagster_project.sensors.shared import (
    SensorSetup,
    UnresolvedJob,
    attempt,
    lingering,
    on_its_way,
    read_or_skip,
    run_key,
    threads_of,
)

SETTLED_S = 60.0
"""Seconds after a commit within which the run that made it tells of it itself."""

PUBLISHED_S = 2.0
"""Seconds for which a tick waits for what the publishing sensor, evaluated beside it, is about to publish."""

Behind = tuple[str, list[int]]
"""Of a table that may be written: who writes it at this moment, and which checkpoints wait for it."""


def waiting(
    reader: Reader, region: Region, names: list[str], *, limit: int, alone: Collection[str] = ()
) -> dict[str, Behind]:
    """The tables that are behind, and that no host feeds; none feeds those that are left `alone`."""
    if region.phase is Phase.REWINDING or epochs.unfenced(reader):
        return {}
    behind: dict[str, Behind] = {}
    begins = hosts.beginning(reader)
    for name in names:
        if begins and name not in alone:
            continue  # that host's Spark may still start; it feeds tables before it starts members
        row = reader.get(Table, name)
        if row is None or row.acknowledged >= region.head or tables.feeder_of(reader, row):
            continue
        ids = checkpoints.filled(reader, above=row.acknowledged, oldest=limit)
        if ids:
            behind[name] = (tables.writer(reader, name), ids)
    return behind


@dataclass(frozen=True)
class Fed:
    """What was brought into a table since the sensor last told."""

    upto: int
    rows: dict[int, int | None]
    """Checkpoint → its rows in the table; None where no commit has told."""
    by: str
    about: dict[str, int | str]
    """How far the table is: what its page shows."""
    counted: Counted


@dataclass(frozen=True)
class TablesCursor(Cursor):
    """Per table, the checkpoint up to which its materializations were told."""

    uid: str = ""
    """Of the region: one of the same name may have followed it, whose checkpoints begin at 1 again (SPEC G6)."""
    told: dict[str, int] = field(default_factory=dict)
    counted: dict[str, Counted] = field(default_factory=dict)

    def of(self, region: Region) -> TablesCursor:
        """What is known of this region."""
        return self if self.uid in ("", region.uid) else TablesCursor()


def fed(
    reader: Reader,
    region: Region,
    names: list[str],
    cursor: TablesCursor,
    *,
    limit: int,
    history: int,
    keyed: Collection[str] = (),
) -> dict[str, Fed]:
    """Per table that a host brings forward: what it has acknowledged and was not told yet. `keyed`: those with one row for each key.

    Where no host does, what somebody has brought a while ago and has not told: a host that ended with a last cut, or a run that was
    killed. What has left the `history` that Dagster shows is not told any more.
    """
    brought: dict[str, Fed] = {}
    for name in names:
        row = reader.get(Table, name)
        if row is None:
            continue
        by = tables.feeder_of(reader, row)
        upto = row.acknowledged if by else tables.advanced(reader, row, by=reader.now() - SETTLED_S)
        told_upto = cursor.told.get(name, 0)
        if not by and upto <= told_upto:
            continue
        far = region.head - told_upto > history
        after = min(max(told_upto, _before(reader, history)) if far else told_upto, row.acknowledged)
        ids = checkpoints.filled(reader, above=after, upto=upto, oldest=limit) if upto else []
        upto = ids[-1] if len(ids) == limit else max(after, upto)
        counted = count(reader, row, cursor.counted.get(name))
        about = how_far(reader, row, counted, keyed=name in keyed)
        told = tables.rows_in(reader, row, ids)
        brought[name] = Fed(upto, {i: told.get(i) for i in ids}, by, about, counted)
    return brought


def _before(reader: Reader, history: int) -> int:
    """The checkpoint before the latest so many with rows."""
    shown = checkpoints.filled(reader, latest=history)
    return shown[0] - 1 if shown else 0


def materializations(
    instance: dg.DagsterInstance, names: Names, region: Region, new: Mapping[str, Fed]
) -> list[dg.AssetMaterialization]:
    """One for each checkpoint; none for those that a run has brought there, and told itself."""
    out = []
    for table, part in new.items():
        keys = [key_of(checkpoint) for checkpoint in part.rows]
        there = _materialized(instance, names.table(table), keys, since=region.created_at)
        out += [
            dg.AssetMaterialization(
                names.table(table),
                partition=key_of(checkpoint),
                metadata={**rows_told(rows), "kept_fresh_by": part.by or "a host that has ended", **part.about},
            )
            for checkpoint, rows in part.rows.items()
            if key_of(checkpoint) not in there
        ]
    return out


def _materialized(
    instance: dg.DagsterInstance, asset: dg.AssetKey, keys: list[str], *, since: float
) -> set[str | None]:
    """Which of these are, since the region was made; the others of a long history are not listed."""
    if not keys:
        return set()
    wanted = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=keys, after_timestamp=since)
    return {r.partition_key for r in instance.fetch_materializations(wanted, limit=10 * len(keys)).records}


def request(
    names: Names, region: Region, table: str, ids: list[int], attempt_: int, *, shown: bool = True
) -> dg.RunRequest:
    """One run for the whole range: of the asset's partitions, or past them where they are not `shown` any more."""
    key = run_key(region, f"table:{table}:{ids[0]}", attempt_, checkpoint=ids[-1])
    tags = {KEEPING_UP: f"{names.unique}/{table}", **names.tags}
    if not shown:
        config = {"ops": {"advance": {"config": {"table": table, "upto": ids[-1]}}}}
        return dg.RunRequest(run_key=key, job_name=names.of("advance_table"), run_config=config, tags=tags)
    return dg.RunRequest(
        run_key=key,
        job_name=names.of(WRITES),
        asset_selection=[names.table(table)],
        asset_check_keys=[],
        tags={RANGE_START: key_of(ids[0]), RANGE_END: key_of(ids[-1]), **tags},
    )


def declare(region: RegionResource) -> str:
    """Declare tables that the configuration has got since the region was made; why that was refused, or nothing."""
    try:
        known = region.read(lambda reader, row: {t.name for t in life.tables_of(reader)})
        for table in region.settings.tables:
            if table.name not in known:
                region.plane.do(partial(_declare, table=table))
    except CrkafkaError as error:
        return str(error)
    return ""


def _declare(tx: Tx, *, table: TableConfig) -> None:
    shape, output = table.shape or "", table.output or ""
    tables.declare(tx, table.name, table.format, table.path, shape=shape, output=output, by="the Dagster sensor")


@dataclass(frozen=True)
class Seen:
    """What one tick reads of the control plane."""

    region: Region
    now: float
    behind: dict[str, Behind]
    new: dict[str, Fed]
    cursor: TablesCursor

    @property
    def after(self) -> str:
        """The next tick's cursor, once what is new was told."""
        told = {name: part.upto for name, part in self.new.items()}
        counted = {name: part.counted for name, part in self.new.items()}
        known = self.cursor
        return str(TablesCursor(self.region.uid, {**known.told, **told}, {**known.counted, **counted}))


def look(reader: Reader, row: Region, setup: SensorSetup, declared: list[str], cursor: TablesCursor) -> Seen:
    """Which tables are behind, and what hosts have brought."""
    settings, limit = setup.region.settings, setup.options.keep_up
    keyed = {t.name for t in settings.tables if t.keys}
    history, known = settings.ui_history, cursor.of(row)
    behind = waiting(reader, row, declared, limit=limit, alone=settings.left_to_others)
    new = fed(reader, row, declared, known, limit=limit, history=history, keyed=keyed)
    return Seen(row, reader.now(), behind, new, known)


def sensor(
    setup: SensorSetup, job: UnresolvedJob, past_partitions: dg.JobDefinition, declared: list[str]
) -> dg.SensorDefinition:
    """`past_partitions`: the job for what has left them."""
    names = setup.names

    @dg.sensor(
        name=names.of("tables"),
        jobs=[job, past_partitions],
        minimum_interval_seconds=setup.every(1),
        default_status=setup.status,
        description="Tells what a host has brought into tables; launches one run for what a table has not got yet, a range at a time.",
    )
    def keep_up(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if refused := declare(setup.region):
            return dg.SkipReason(refused)
        cursor = TablesCursor.parse(context.cursor)
        seen = read_or_skip(setup.region, lambda reader, row: look(reader, row, setup, declared, cursor))
        if isinstance(seen, dg.SkipReason):
            return seen
        some = any(part.rows for part in seen.new.values())
        events = materializations(context.instance, names, seen.region, seen.new) if some else []
        lowest = partitions.lowest(context.instance, names) if seen.behind else ""
        there, own = published(context, setup, seen, lowest)
        # The attempt goes on with time, whatever is cut meanwhile, so that what a failed run left is asked for again.
        number = attempt(seen.now, seen.region.created_at)
        requests, reasons = requests_for(context, names, seen.region, seen.behind, there, lowest, number)
        told = _told(seen.new) if events else []
        return dg.SensorResult(
            run_requests=requests,
            asset_events=[*(own.events if own else ()), *events],
            dynamic_partitions_requests=own.requests(names) if own else [],
            cursor=seen.after,
            skip_reason=None
            if requests
            else dg.SkipReason("; ".join([*told, *reasons]) or "every table has all checkpoints"),
        )

    return keep_up


def requests_for(
    context: dg.SensorEvaluationContext,
    names: Names,
    region: Region,
    behind: Mapping[str, Behind],
    there: Collection[str],
    lowest: str,
    attempt_: int,
) -> tuple[list[dg.RunRequest], list[str]]:
    """One run for each table whose next checkpoints are published, or were and have left; why the other tables get none."""
    requests: list[dg.RunRequest] = []
    reasons: list[str] = []
    for table, (writer, ids) in behind.items():
        left = [i for i in ids if key_of(i) < lowest]
        ready = left or _prefix(ids, there)
        if not ready:
            reasons.append(f"{table}: checkpoint {ids[0]} is not published yet")
        elif writer:
            reasons.append(f"{table}: {writer} writes it")
        elif on_its_way(context.instance, {KEEPING_UP: f"{names.unique}/{table}"}):
            reasons.append(f"{table}: a run is on its way")
        else:
            requests.append(request(names, region, table, ready, attempt_, shown=not left))
    return requests, reasons


def published(
    context: dg.SensorEvaluationContext, setup: SensorSetup, seen: Seen, lowest: str
) -> tuple[set[str], publish.Tick | None]:
    """Which of these checkpoints have partitions, and what this tick itself publishes: with the daemon's next loop a run starts 5 s later.

    Where sensors have threads, the publishing sensor is evaluated at the same time: it is waited for. Where all share one thread, it
    may be evaluated later, so that nobody else publishes at this moment.
    """
    behind = seen.behind
    if not behind:
        return set(), None  # a quiet tick does not open Dagster's instance
    wanted = sorted({key_of(i) for _, ids in behind.values() for i in ids})
    first = {key for writer, ids in behind.values() if not writer and (key := key_of(ids[0])) >= lowest}
    threads = threads_of(context)
    with lingering(threads, PUBLISHED_S) as seconds:
        end = time.monotonic() + seconds
        while True:
            there = set(context.instance.get_existing_dynamic_partitions(setup.names.partitions, wanted))
            if first <= there or time.monotonic() >= end:
                break
            time.sleep(0.1)
    if threads or first <= there:
        return there, None
    own = publish.appended(context, setup, seen.region, seen.now)
    return (there, None) if own is None else (there | set(own.change.add), own)


def _told(new: Mapping[str, Fed]) -> list[str]:
    return [f"{name}: {plural(len(part.rows), 'checkpoint')} materialized" for name, part in new.items() if part.rows]


def _prefix(ids: list[int], there: Collection[str]) -> list[int]:
    published = []
    for checkpoint in ids:
        if key_of(checkpoint) not in there:
            break
        published.append(checkpoint)
    return published
