"""What the tests of the driver's seat share: a region on SQLite, its definitions, and a Dagster instance."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine
from sqlalchemy import event as sql_event

from checkpoints_db import initialise, open_store
from crkafka_core.config import RegionConfig
from crkafka_core.control import Tx
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from crkafka_core.region import Region
from dagster_project import RegionResource, consistent_region
from dagster_project.names import Names
from tests.dagster import reconstructed
from tests.rigs.configs import configured
from tests.rigs.hand_member import HandMember
from tests.rigs.landing import Landing


@dataclass
class Seat:
    """A region and its place in Dagster."""

    config: RegionConfig
    defs: dg.Definitions
    instance: dg.DagsterInstance
    region: Region
    cursor: str | None = field(default=None, kw_only=True)
    """Of the publishing sensor, as the daemon keeps it."""

    @property
    def names(self) -> Names:
        return Names(self.config.region)

    @property
    def resource(self) -> RegionResource:
        return RegionResource.of(self.config)

    def run(self, job: str, config: dict[str, Any] | None = None, **more: Any) -> dg.ExecuteInProcessResult:
        """Run a job of the region in this process."""
        ops = {"ops": {op: {"config": keys} for op, keys in (config or {}).items()}}
        found = self.defs.resolve_job_def(self.names.of(job))
        return found.execute_in_process(run_config=ops, instance=self.instance, **more)

    def launch(self, job: str, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        found = self.defs.resolve_job_def(request.job_name or self.names.of(job))
        return found.execute_in_process(run_config=request.run_config, tags=dict(request.tags), instance=self.instance)

    def retry(self, failed: str, job: str = "cut") -> dg.JobExecutionResult:
        return reconstructed.execute(self.config, job, self.instance, {}, retry_of=failed)

    def run_anew(
        self, job: str, config: dict[str, Any] | None = None, tags: dict[str, str] | None = None
    ) -> dg.JobExecutionResult:
        """Run a job so that it can be retried."""
        ops = {"ops": {op: {"config": keys} for op, keys in (config or {}).items()}}
        return reconstructed.execute(self.config, job, self.instance, ops, tags=tags)

    def run_again(self, run: str, job: str) -> dg.JobExecutionResult:
        old = self.instance.get_run_by_id(run)
        assert old is not None
        return reconstructed.execute(
            self.config, job, self.instance, dict(old.run_config), again=run, tags=dict(old.tags)
        )

    def tick(self, sensor: str, *, cursor: str | None = None) -> Any:
        """One evaluation of a sensor, resources and dynamic partitions included."""
        found = next(s for s in self.defs.get_repository_def().sensor_defs if s.name == self.names.of(sensor))
        with dg.build_sensor_context(
            instance_ref=self.instance.get_ref(), repository_def=self.defs.get_repository_def(), cursor=cursor
        ) as context:
            return found.evaluate_tick(context)

    def publish(self) -> int:
        """Tick the publishing sensor as the daemon does until there is nothing to do; the number of ticks that did something."""
        for ticks in range(1_000):
            result = self.tick("publish", cursor=self.cursor)
            self.cursor = result.cursor
            if not result.dynamic_partitions_requests:
                return ticks
            for request in result.dynamic_partitions_requests:
                if isinstance(request, dg.AddDynamicPartitionsRequest):
                    self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
                else:
                    for key in request.partition_keys:
                        self.instance.delete_dynamic_partition(request.partitions_def_name, key)
            for event in result.asset_events:
                self.instance.report_runless_asset_event(event)
        raise AssertionError("publishing does not come to an end")

    def partitions(self) -> list[str]:
        return list(self.instance.get_dynamic_partitions(self.names.partitions))


def shown(result: dg.ExecuteInProcessResult, op: str) -> dict[str, Any]:
    """The numbers that an op shows with its end."""
    (output,) = (e for e in result.all_events if e.is_successful_output and e.step_key == op)
    return {name: entry.value for name, entry in output.step_output_data.metadata.items()}


def failure(result: dg.ExecuteInProcessResult) -> str:
    event = next(e for e in result.all_events if e.is_step_failure)
    return str(event.event_specific_data.user_failure_data.description)


def merged_in_sql(landing: Landing, first: int, count: int) -> None:
    """So many checkpoints in SQL alone, each with a full archive."""
    archive = json.dumps({"orders": {str(p): [10**9, 10**9 + 5, 5] for p in range(64)}})

    def write(tx: Tx) -> None:
        now, last = tx.now(), first + count - 1
        own = {"rows": 5, "merged_at": now, "opened_at": now, "archive_json": archive}
        ids = range(first, last + 1)
        tx.add(*(Checkpoint(tx.region().name, i, i - 1, 1, CheckpointStatus.RETIRED, **own) for i in ids))
        tx.set_region(head=last, filling=last, opened=last)

    landing.do(write)


@pytest.fixture
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none here; a start asks it for the cluster's id, and for the commits of partitions that are known."""
    monkeypatch.setattr(KafkaAdmin, "cluster_id", lambda _: "cluster")
    monkeypatch.setattr(KafkaAdmin, "committed", lambda *_: {})


QUIET = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
"""Each step's log would be followed by two processes of its own."""
OVERRIDES = {"compute_logs": QUIET, "sensors": {"use_threads": True}}


def opened(home: Path, **more: Any) -> AbstractContextManager[dg.DagsterInstance]:
    """An instance with all events in one database: one for each run is a quarter of what a run takes."""
    events = {
        "module": "dagster._core.storage.event_log",
        "class": "ConsolidatedSqliteEventLogStorage",
        "config": {"base_dir": str(home / "history")},
    }
    return dg.instance_for_test(overrides={**OVERRIDES, "event_log_storage": events, **more}, temp_dir=str(home))


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """Each event of a run is a transaction."""

    def hurry(connection: Any, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    sql_event.listen(Engine, "connect", hurry)
    yield
    sql_event.remove(Engine, "connect", hurry)


@pytest.fixture(scope="session", autouse=True)
def _migrations_are_read_once() -> Iterator[None]:
    """Alembic reads the files of all of Dagster's migrations each time that a storage is opened, and for each run."""
    known: dict[str | None, ScriptDirectory] = {}
    real = ScriptDirectory.from_config

    def read(config: Config) -> ScriptDirectory:
        location = config.get_main_option("script_location")
        if location not in known:
            known[location] = real(config)
        return known[location]

    with patch.object(ScriptDirectory, "from_config", read):
        yield


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an instance is before anybody uses it: its databases, which take Dagster four times as long to make as to open."""
    folder = tmp_path_factory.mktemp("dagster_home")
    with opened(folder) as made:
        made.get_runs(limit=1), made.get_dynamic_partitions("none"), made.all_instigator_state()
    return folder


@pytest.fixture
def storage() -> dict[str, Any]:
    """Where Dagster keeps what it knows, if not in SQLite: a section of its settings."""
    return {}


@pytest.fixture
def instance(empty_home: Path, tmp_path: Path, storage: dict[str, Any]) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "dagster_home"
    shutil.copytree(empty_home, home)
    with opened(home, **storage) as made:
        yield made


@pytest.fixture
def keys() -> dict[str, Any]:
    """Keys of the region's configuration that a module wants otherwise."""
    return {}


@pytest.fixture
def seat(tmp_path: Path, instance: dg.DagsterInstance, keys: dict[str, Any], no_broker: None) -> Iterator[Seat]:
    """A region that is made and started, without members."""
    kafka = {"bootstrap.servers": "localhost:1", "group.id": "orders"}
    usual = {"kafka": kafka, "members": 1, "trigger": {"manual": True}, "driver_lease": 3}
    config = configured(tmp_path, **{**usual, **keys})
    initialise(config.control_plane)
    with Region.open(config) as region:
        region.init()
        yield Seat(config, consistent_region(config), instance, region)


@pytest.fixture
def member(seat: Seat) -> Iterator[HandMember]:
    """A running member; the region runs."""
    seat.region.start(by="test")
    with HandMember(seat.config, seat.region.plane) as made:
        seat.region.await_running(timeout=20)
        yield made
    assert made.errors == []


@pytest.fixture
def tables() -> list[dict[str, Any]]:
    """Declared tables of the landed region."""
    return []


@dataclass
class LandedSeat(Seat):
    """A region without members, into which a test lands checkpoints."""

    landing: Landing


@pytest.fixture
def landed(
    tmp_path: Path, instance: dg.DagsterInstance, tables: list[dict[str, Any]], keys: dict[str, Any], no_broker: None
) -> Iterator[LandedSeat]:
    url = f"sqlite:///{tmp_path}/crkafka.db"
    initialise(url)
    store = open_store(url)
    landing = Landing(store, tmp_path, control_plane=url, partitions=2, tables=tables, **keys)
    with Region.open(landing.config) as region:
        yield LandedSeat(landing.config, consistent_region(landing.config), instance, region, landing)
    store.close()
