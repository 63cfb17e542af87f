"""What thirty days of a cut a minute leave in Dagster and in the control plane, written at once: for tests of what grows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable
from sqlalchemy import func, select, text

from checkpoints_db import initialise, open_store
from crkafka_core.control import Tx
from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from dagster_project import consistent_region
from dagster_project.names import Names, key_of
from dagster_project.sensors import observe
from dagster_project.testing.live import LiveDagster
from tests.rigs.landing import Landing

DAYS, PER_DAY, LOOKS, CHECKED = 30, 1_440, 288, 144
CUTS = DAYS * PER_DAY
HISTORY, CHUNK = 20_000, 5_000
EVENTS_OF_RUN = 25
NAMES = Names("orders")
BRONZE = NAMES.table("bronze")
ARCHIVE = json.dumps({"orders": {str(p): [10**9, 10**9 + 5, 5] for p in range(64)}})
DEFINITIONS = """
from crkafka_core.config import RegionConfig
from dagster_project import consistent_region

defs = consistent_region(RegionConfig.from_json({config!r}), host=False)
"""
Row = dict[str, Any]


def merge(landing: Landing, first: int, count: int) -> None:
    """So many checkpoints in SQL alone, each with a full archive."""

    def write(tx: Tx) -> None:
        now, region = tx.now(), tx.region().name
        tx.add(
            *(
                Checkpoint(
                    region,
                    i,
                    i - 1,
                    1,
                    CheckpointStatus.RETIRED,
                    rows=5,
                    merged_at=now,
                    opened_at=now,
                    archive_json=ARCHIVE,
                )
                for i in range(first, first + count)
            )
        )
        tx.set_region(head=first + count - 1, next_checkpoint=first + count)

    landing.region.plane.do(write)


@dataclass
class Month:
    """The region, and the folder that has its module."""

    folder: Path

    def __post_init__(self) -> None:
        url = f"sqlite:///{self.folder}/crkafka.db"
        initialise(url)
        table = {"name": "bronze", "format": "delta", "path": str(self.folder / "bronze")}
        self.landing = Landing(open_store(url), self.folder, control_plane=url, partitions=2, tables=[table])
        self.config = self.landing.config
        (self.folder / "months_definitions.py").write_text(DEFINITIONS.format(config=self.config.to_json()))

    def fill(self, home: Path) -> None:
        """The checkpoints, and what their publishing, observing, checking and cutting left in the instance."""
        merge(self.landing, 1, CUTS)
        defs = consistent_region(self.config, host=False)
        with dg.DagsterInstance.from_config(str(home)) as instance:
            for first in range(CUTS - HISTORY + 1, CUTS + 1, CHUNK):
                keys = [key_of(i) for i in range(first, min(first + CHUNK, CUTS + 1))]
                instance.add_dynamic_partitions(NAMES.partitions, keys)
            storage: Any = instance.event_log_storage
            for asset in (NAMES.records, BRONZE):
                template = _event(instance, dg.AssetMaterialization(asset, partition=key_of(1), metadata=_numbers()))
                _copy(storage, template, PER_DAY, partitioned=True)
            for asset in (NAMES.group, BRONZE):
                template = _event(instance, dg.AssetObservation(asset, metadata=_numbers()))
                _copy(storage, template, PER_DAY)
            for check in observe.CHECKS:
                _copy_outcomes(instance, dg.AssetCheckEvaluation(asset_key=NAMES.group, check_name=check, passed=True))
            for job, per_day in (("cut", PER_DAY), ("observe_group", LOOKS)):
                _copy_runs(instance, defs.resolve_job_def(NAMES.of(job)), per_day)

    def sizes(self, home: Path) -> dict[str, int]:
        """Rows of Dagster's tables, and bytes on disk."""
        with dg.DagsterInstance.from_config(str(home)) as instance:
            storage: Any = instance.event_log_storage
            counted: dict[str, int] = {}
            with storage.index_connection() as c:
                kinds = SqlEventLogStorageTable.c.dagster_event_type
                for what, kind in (
                    ("materializations", "ASSET_MATERIALIZATION"),
                    ("observations", "ASSET_OBSERVATION"),
                ):
                    counted[what] = c.scalar(select(func.count()).where(kinds == kind))
                counted["outcomes of checks"] = c.scalar(select(func.count()).select_from(AssetCheckExecutionsTable))
                counted["events"] = c.scalar(select(func.count()).select_from(SqlEventLogStorageTable))
            counted["runs"] = instance.get_runs_count()
        counted["bytes"] = sum(f.stat().st_size for f in home.rglob("*") if f.is_file())
        counted["files"] = sum(f.is_file() for f in home.rglob("*"))
        return counted

    def publish_one_more(self, dagster: LiveDagster) -> float:
        """Seconds until the daemon has published one more checkpoint."""
        key = key_of(CUTS + 1)
        merge(self.landing, CUTS + 1, 1)
        began = time.monotonic()
        dagster.until(lambda: dagster.partitions("orders", "records")[-1] == key, 60, "the next one is published")
        return time.monotonic() - began


def _numbers() -> dict[str, Any]:
    """About as much as a checkpoint's partition shows."""
    return dict.fromkeys(
        ("rows", "bytes", "segments", "members", "drain_ms", "cut_ms", "resets", "epoch", "parent"), 1000000
    )


def _ago(number: int, per_day: int) -> datetime:
    """When the one of this number was, of so many a day that end now."""
    return datetime.now(UTC).replace(tzinfo=None) - timedelta(days=DAYS - number / per_day)


def _event(instance: dg.DagsterInstance, event: Any) -> Row:
    """An event as Dagster stores it; it is gone afterwards."""
    storage: Any = instance.event_log_storage
    instance.report_runless_asset_event(event)
    table, row = SqlEventLogStorageTable, None
    for connect in _places(storage):
        with connect() as c:
            row = c.execute(select(table).order_by(table.c.id.desc()).limit(1)).mappings().one()
            c.execute(table.delete().where(table.c.id == row["id"]))
    return {k: v for k, v in dict(row or {}).items() if k != "id"}


def _insert(connect: Any, table: Any, rows: Iterator[Row]) -> None:
    while page := list(islice(rows, 2_000)):
        with connect() as c:
            c.execute(table.insert(), page)


def _copy(storage: Any, template: Row, per_day: int, *, partitioned: bool = False) -> None:
    """As many as come in thirty days, each with its time and partition, in both places in which SQLite has them."""

    def rows() -> Iterator[Row]:
        for number in range(1, DAYS * per_day + 1):
            own: Row = {"timestamp": _ago(number, per_day)}
            if partitioned:
                own |= {"partition": key_of(number), "event": template["event"].replace(key_of(1), key_of(number))}
            yield template | own

    for connect in _places(storage):
        _insert(connect, SqlEventLogStorageTable, rows())


def _copy_outcomes(instance: dg.DagsterInstance, outcome: dg.AssetCheckEvaluation) -> None:
    """Evaluations of a check each ten minutes, with what the pages read of them."""
    storage: Any = instance.event_log_storage
    instance.report_runless_asset_event(outcome)
    checks, events = AssetCheckExecutionsTable, SqlEventLogStorageTable
    with storage.index_connection() as c:
        row = dict(c.execute(select(checks).order_by(checks.c.id.desc()).limit(1)).mappings().one())
        event = dict(
            c.execute(select(events).where(events.c.id == row["evaluation_event_storage_id"])).mappings().one()
        )
        top = int(c.scalar(select(func.max(events.c.id))) or 0)
    times = [_ago(number, CHECKED) for number in range(1, DAYS * CHECKED + 1)]
    told: Sequence[Row] = [event | {"id": top + n, "timestamp": at} for n, at in enumerate(times, 1)]
    _insert(storage.index_connection, events, iter(told))
    for connect in _places(storage)[1:]:
        _insert(connect, events, ({k: v for k, v in e.items() if k != "id"} for e in told))
    own = {k: v for k, v in row.items() if k != "id"}
    rows = [own | {"evaluation_event_timestamp": e["timestamp"], "evaluation_event_storage_id": e["id"]} for e in told]
    _insert(storage.index_connection, checks, iter(rows))
    _go_on(storage.index_connection, events, storage)


def _copy_runs(instance: dg.DagsterInstance, job: dg.JobDefinition, per_day: int) -> None:
    """Runs that have succeeded, with their events; on SQLite those of one day with the database that it has of each."""
    storage, events = instance.run_storage, instance.event_log_storage
    run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags={"crkafka/region": "orders"})
    with storage.connect() as c:  # type: ignore[attr-defined]
        row = dict(c.execute(select(RunsTable).where(RunsTable.c.run_id == run.run_id)).mappings().one())
        tags = [dict(t) for t in c.execute(select(RunTagsTable).where(RunTagsTable.c.run_id == run.run_id)).mappings()]
        top = int(c.scalar(select(func.max(RunsTable.c.id))) or 0)

    def name(number: int) -> str:
        return f"{run.run_id[:-12]}{number:012d}"

    def runs() -> Iterator[Row]:
        for number in range(1, DAYS * per_day + 1):
            at = _ago(number, per_day)
            body = row["run_body"].replace(run.run_id, name(number))
            times = {
                "create_timestamp": at,
                "update_timestamp": at,
                "start_time": at.timestamp(),
                "end_time": at.timestamp(),
            }
            yield row | {"id": top + number, "run_id": name(number), "run_body": body, **times}

    def tagged() -> Iterator[Row]:
        for number in range(1, DAYS * per_day + 1):
            yield from ({k: v for k, v in t.items() if k != "id"} | {"run_id": name(number)} for t in tags)

    _insert(storage.connect, RunsTable, runs())  # type: ignore[attr-defined]
    _insert(storage.connect, RunTagsTable, tagged())  # type: ignore[attr-defined]
    _go_on(storage.connect, RunsTable, events)  # type: ignore[attr-defined]
    if isinstance(events, SqliteEventLogStorage):
        events.get_logs_for_run(run.run_id)  # makes its database
        shard = Path(events.path_for_shard(run.run_id))
        content = shard.read_bytes()
        for number in range(1, per_day + 1):
            shard.with_name(f"{name(number)}.db").write_bytes(content)
        return
    event: Row = {"event": "{}" * 150, "dagster_event_type": "STEP_OUTPUT", "timestamp": _ago(1, per_day)}
    names = (name(number) for number in range(1, DAYS * per_day + 1))
    told = (event | {"run_id": n} for n in names for _ in range(EVENTS_OF_RUN))
    _insert(events.index_connection, SqlEventLogStorageTable, told)  # type: ignore[attr-defined]


def _go_on(connect: Any, table: Any, events: Any) -> None:
    """PostgreSQL numbers on behind the ids that were given here, as SQLite does by itself."""
    if not isinstance(events, SqliteEventLogStorage):
        with connect() as c:
            c.execute(text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id)) FROM {table.name}"))


def _places(storage: Any) -> list[Any]:
    """Where events of no run are: SQLite has each twice."""
    copies = [lambda: storage.run_connection("")] if isinstance(storage, SqliteEventLogStorage) else []
    return [storage.index_connection, *copies]


PAGES = {
    "the asset's page": """{ assetNodeOrError(assetKey: {path: ["orders", "records"]}) { ... on AssetNode {
      partitionStats { numMaterialized numPartitions } partitionKeysByDimension { partitionKeys }
      assetMaterializations(limit: 100) { partition timestamp metadataEntries { label } }
      assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions } } } } }""",
    "the table's page": """{ assetNodeOrError(assetKey: {path: ["orders", "bronze"]}) { ... on AssetNode {
      partitionStats { numMaterialized } assetMaterializations(limit: 100) { partition }
      assetObservations(limit: 100) { timestamp } } } }""",
    "the group's page": """{ assetNodeOrError(assetKey: {path: ["orders", "group"]}) { ... on AssetNode {
      assetObservations(limit: 100) { timestamp }
      assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } } } } }""",
    "the runs": "{ runsOrError(filter: {}, limit: 30) { ... on Runs { results { runId tags { key value } } count } } }",
    "the runs of a job": """{ runsOrError(filter: {pipelineName: "orders_cut"}, limit: 30) {
      ... on Runs { results { runId } count } } }""",
}
"""What pages ask for."""


def pages(dagster: LiveDagster) -> dict[str, float]:
    """Seconds that each takes, the least of three."""

    def once(query: str) -> float:
        began = time.monotonic()
        dagster.ask(query)
        return time.monotonic() - began

    return {page: min(once(query) for _ in range(3)) for page, query in PAGES.items()}
