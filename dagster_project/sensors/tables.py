"""Tables keep up: what a host feeds is shown; else one run takes a bounded range of what waits, never one run each (SPEC A7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import dagster as dg

from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import of_template
from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import checkpoints, epochs, hosts, lateness, life, tables, templates
from crkafka_core.region.redeclared import declare_new
from dagster_project import partitions
from dagster_project.assets.tables import described
from dagster_project.metadata import Counted, count, how_far, rows_metadata
from dagster_project.names import KEEPING_UP, RANGE_END, RANGE_START, RESERVED, WRITES, Names, key_of
from dagster_project.resources import RegionResource
from dagster_project.sensors.shared import SensorSetup, on_its_way, run_key

SETTLED_S = 60.0
"""Seconds after a commit within which the run that made it tells of it itself."""


@dataclass(frozen=True)
class Behind:
    """A table that has not got all checkpoints."""

    lag: lateness.TableLag
    who: str
    """Who brings them, or what has to come first; empty where a run has to bring them."""
    ids: list[int]
    """The next checkpoints for that run."""

    @property
    def words(self) -> str:
        waits = f"{plural(self.lag.waiting, 'checkpoint waits', 'checkpoints wait')}, the first for {self.lag.seconds:.0f} s"
        return f"{self.lag.table.name}: {self.who}; {waits}"


def waiting(
    reader: Reader, region: Region, names: Collection[str], *, limit: int, alone: Collection[str] = ()
) -> list[Behind]:
    """The tables that are behind, by name; no host feeds those that are left `alone`."""
    rewinding = region.phase is Phase.REWINDING or bool(epochs.unfenced(reader))
    begins, behind = hosts.beginning(reader), []
    for lag in lateness.lags(reader, region) if names else ():
        name = lag.table.name
        if name not in names or not lag.waiting:
            continue
        who = f"{lag.writer} writes it" if lag.writer else f"{lag.feeder} feeds it" if lag.feeder else ""
        if rewinding:
            who = "tables follow a rewind first"
        elif begins and name not in alone:
            who = "its host is starting, and will feed it"  # before it starts members
        ids = [] if who else checkpoints.filled(reader, above=lag.table.acknowledged, oldest=limit)
        behind.append(Behind(lag, who, ids))
    return behind


@dataclass(frozen=True)
class Fed:
    """What was brought into a table since the sensor last showed it."""

    upto: int
    rows: dict[int, int | None]
    """Checkpoint → its rows in the table; None where no commit has counted them."""
    by: str
    about: dict[str, Any]
    """How far the table is; of one without a definition also what that would say."""
    counted: Counted


def fed(
    reader: Reader,
    region: Region,
    setup: SensorSetup,
    names: list[str],
    shown: Mapping[str, int],
    counted: Mapping[str, Counted],
) -> dict[str, Fed]:
    """Per table that a host brings forward: what it has acknowledged and was not shown yet.

    Where no host does, what was brought a while ago and not shown: by a host that ended with a last cut, or a run that was
    killed. What has left the history that Dagster shows is not shown any more.
    """
    settings, limit = setup.region.settings, setup.options.keep_up
    history, keyed = settings.ui_history, {t.name for t in settings.tables if t.keys}
    brought: dict[str, Fed] = {}
    for name in names:
        row = reader.get(Table, name)
        if row is None:
            continue
        by = tables.feeder_of(reader, row)
        upto = row.acknowledged if by else tables.advanced(reader, row, by=reader.now() - SETTLED_S)
        shown_upto = shown.get(name, 0)
        if not by and upto <= shown_upto:
            continue
        far = region.head - shown_upto > history
        after = min(max(shown_upto, _before(reader, history)) if far else shown_upto, row.acknowledged)
        ids = checkpoints.filled(reader, above=after, upto=upto, oldest=limit) if upto else []
        upto = ids[-1] if len(ids) == limit else max(after, upto)
        so_far = count(reader, row, counted.get(name))
        about = {**how_far(reader, row, so_far, keyed=name in keyed), **_undefined(row, setup)}
        rows = tables.rows_in(reader, row, ids)
        few = of_template(row.shape, row.output)
        shown_rows = {i: rows.get(i) for i in ids if rows.get(i) or not few}
        brought[name] = Fed(upto, shown_rows, by, about, so_far)
    return brought


def _undefined(table: Table, setup: SensorSetup) -> dict[str, Any]:
    """Metadata of a table without a definition: what its definition would have."""
    settings = setup.region.settings
    config = None if table.name in setup.tables else settings.table(table.name, table.shape, table.output)
    return {} if config is None else described(config, settings, setup.names, setup.known.topics)


def _before(reader: Reader, history: int) -> int:
    """The checkpoint before the latest so many with rows."""
    shown = checkpoints.filled(reader, latest=history)
    return shown[0] - 1 if shown else 0


def materializations(context: dg.SensorEvaluationContext, names: Names, seen: Seen) -> list[dg.AssetMaterialization]:
    """One for each checkpoint; none for those that a run has brought, and shown itself."""
    out = []
    for table, part in seen.new.items():
        keys = [key_of(checkpoint) for checkpoint in part.rows]
        if not keys:
            continue  # a quiet tick does not open Dagster's instance
        if table in RESERVED:
            context.log.info(f"table {table} has no asset: the region has another of that name")
            continue
        materialized = _materialized(context.instance, names.table(table), keys, since=seen.region.created_at)
        out += [
            dg.AssetMaterialization(
                names.table(table),
                partition=key_of(checkpoint),
                metadata={**rows_metadata(rows), "written_by": part.by or "a host that has ended", **part.about},
            )
            for checkpoint, rows in part.rows.items()
            if key_of(checkpoint) not in materialized
        ]
    return out


def _materialized(
    instance: dg.DagsterInstance, asset: dg.AssetKey, keys: list[str], *, since: float
) -> set[str | None]:
    """Which of these are, since the region was made; the others of a long history are not listed."""
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
                region.settings.check_place(table)
                region.plane.do(partial(_declare, table=table, here=region.settings.on_road(table)))
        declare_new(region.plane, region.settings, by="the Dagster sensor")
    except CrkafkaError as error:
        return str(error)
    return ""


def _declare(tx: Tx, *, table: TableConfig, here: bool) -> None:
    shape, output = table.shape or "", table.output or ""
    tables.declare(
        tx, table.name, table.format, table.path, shape=shape, output=output, here=here, by="the Dagster sensor"
    )


@dataclass(frozen=True)
class Seen:
    """What one tick reads of the tables."""

    region: Region
    now: float
    behind: list[Behind]
    new: dict[str, Fed]
    looked: bool
    """Whether any table was looked at."""


def look(
    reader: Reader,
    row: Region,
    setup: SensorSetup,
    shown: Mapping[str, int],
    counted: Mapping[str, Counted],
    *,
    some: bool,
) -> Seen:
    """Which tables are behind, and what hosts have brought since `shown`; not `some`: no table is looked at."""
    settings, limit = setup.region.settings, setup.options.keep_up
    of_topics = templates.of_topics(reader) if settings.templates else []
    names = [*(t.name for t in settings.tables), *(t.name for t in of_topics)] if some else []
    behind = waiting(reader, row, names, limit=limit, alone=settings.left_to_others)
    new = fed(reader, row, setup, names, shown, counted)
    return Seen(row, reader.now(), behind, new, looked=bool(names))


def requests_for(
    context: dg.SensorEvaluationContext,
    names: Names,
    seen: Seen,
    change: partitions.Change,
    attempt_: int,
    defined: Collection[str],
) -> tuple[list[dg.RunRequest], list[str]]:
    """One run for each table whose next checkpoints are published, or were and have left; what keeps the other tables.

    `defined`: tables with a definition. `change`: what this tick does about the partitions, which the daemon does before it launches runs.
    """
    requests: list[dg.RunRequest] = []
    reasons = [each.words for each in seen.behind if each.who]
    mine = [each for each in seen.behind if not each.who]
    shown = {name: part.rows for name, part in seen.new.items() if part.rows and name not in RESERVED}
    reasons += [f"{name}: {plural(len(rows), 'checkpoint')} shown" for name, rows in shown.items()]
    if not seen.behind and seen.looked:
        reasons.append("every table has all checkpoints")
    if not mine:  # a quiet tick does not open Dagster's instance
        return requests, reasons
    lowest = partitions.lowest(context.instance, names)
    wanted = sorted({key_of(i) for each in mine for i in each.ids})
    published = {*context.instance.get_existing_dynamic_partitions(names.partitions, wanted), *change.add} - {
        *change.remove
    }
    for each in mine:
        table = each.lag.table.name
        left = [i for i in each.ids if key_of(i) < lowest]
        ready = left or list(takewhile(lambda i: key_of(i) in published, each.ids))
        if not ready:
            reasons.append(f"{table}: checkpoint {each.ids[0]} is not published yet")
        elif on_its_way(context.instance, {KEEPING_UP: f"{names.unique}/{table}"}):
            reasons.append(f"{table}: a run is on its way")
        else:
            as_asset = not left and table in defined
            requests.append(request(names, seen.region, table, ready, attempt_, shown=as_asset))
    return requests, reasons
