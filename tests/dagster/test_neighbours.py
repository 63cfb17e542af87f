"""Regions beside other people's assets and sensors, on instances that are not made for them: nothing else slows (SPEC A5)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkpoints_db import initialise, open_store
from crkafka_core.plane import leases
from dagster_project.names import key_of
from tests.rigs.driven_dagster import DrivenDagster
from tests.rigs.landing import Landing

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.timeout(600)]


PROJECT = '''
"""A project with assets and a sensor of its own, beside which regions are put as docs/dagster.md says."""

import os
import time
from pathlib import Path

import dagster as dg

from crkafka_core.config import RegionConfig
from dagster_project import consistent_region
from dagster_project.names import Names
from dagster_project.partitions import definition

TICKS, BROUGHT = Path({ticks!r}), Path({brought!r})


@dg.asset
def theirs():
    """Knows nothing of regions."""


@dg.sensor(target=[theirs], minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING)
def their_sensor(context):
    with TICKS.open("a") as file:
        print(time.time(), file=file, flush=True)
    return dg.SkipReason("nothing to do")



@dg.asset(partitions_def=definition(Names("r0")), deps=[Names("r0").records], automation_condition=dg.AutomationCondition.eager())
def follower():
    """Materializes by itself when a checkpoint is published."""


follows = dg.AutomationConditionSensorDefinition(
    "follows", target=[follower], minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING
)
last = Names("r1")


@dg.asset(partitions_def=definition(last), deps=[last.records], backfill_policy=dg.BackfillPolicy.single_run())
def resident(context: dg.AssetExecutionContext) -> None:
    """Is brought each checkpoint by the run `follow_merges`."""
    with BROUGHT.open("a") as file:
        file.writelines(f"{{key}} {{time.time()}} {{os.getpid()}}\\n" for key in context.partition_keys)


defs = dg.Definitions.merge(
    dg.Definitions(assets=[theirs, follower, resident], sensors=[their_sensor, follows], executor=dg.in_process_executor),
    *[
        consistent_region(RegionConfig.from_json(text), host=False, follow=follow)
        for text, follow in zip({regions!r}, ((), ["resident"]), strict=True)
    ],
)
'''

MATERIALIZE = """mutation L($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
FOLLOWED = """{ assetOrError(assetKey: {path: ["follower"]}) { ... on Asset { assetMaterializations(limit: 20) { partition } } } }"""


@dataclass
class Neighbourhood:
    """A Dagster with somebody's project, and regions without members, into which the test lands checkpoints."""

    dagster: DrivenDagster
    landings: list[Landing]
    ticks: Path
    resident: Path

    def brought(self) -> dict[str, tuple[float, int]]:
        """Checkpoints that the asset `resident` has got: when its step began for each, and in which process."""
        lines = self.resident.read_text().splitlines() if self.resident.exists() else []
        return {key: (float(at), int(pid)) for key, at, pid in map(str.split, lines)}

    def materialize_theirs(self) -> str:
        """A run of the neighbours' asset, as the UI launches it."""
        selector = {
            "repositoryLocationName": "crkafka",
            "repositoryName": "__repository__",
            "jobName": "__ASSET_JOB",
            "assetSelection": [{"path": ["theirs"]}],
        }
        launched = self.dagster.ask(MATERIALIZE, p={"selector": selector, "runConfigData": {}})["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def await_published(self, patience: float = 120.0) -> None:
        for landing in self.landings:
            filled = [key_of(n) for n in landing.offsets if n]
            name = landing.config.region
            self.dagster.until(
                lambda n=name, f=filled: self.dagster.partitions(n, "records") == f, patience, f"{name} is published"
            )


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbourhood]:
    """Two regions on an instance as Dagster makes it; the run `follow_merges` brings an asset what the second merges."""
    folder = tmp_path_factory.mktemp("stock")
    initialise(url := f"sqlite:///{folder}/crkafka.db")
    with closing(open_store(url)) as store:
        landings = [Landing(store, folder, name=f"r{i}", control_plane=url, partitions=1) for i in range(2)]
        ticks, brought = folder / "ticks", folder / "brought"
        configs = [one.config.to_json() for one in landings]
        module = PROJECT.format(ticks=str(ticks), brought=str(brought), regions=configs)
        (folder / "neighbours_project.py").write_text(module)
        with DrivenDagster(folder, "neighbours_project") as dagster:
            yield Neighbourhood(dagster, landings, ticks, brought)


@pytest.mark.soak
def test_two_regions_on_a_stock_instance_are_published_and_wake_a_users_asset_beside_others_work(
    stock: Neighbourhood,
) -> None:
    """The queue, one thread for all sensors, Dagster's own launcher. The automation sensor of the project has to be on."""
    for landing in stock.landings:
        landing.land(2)
    stock.await_published()
    run = stock.materialize_theirs()
    for landing in stock.landings:
        landing.land(1)
    stock.await_published()

    def followed() -> set[str]:
        found = stock.dagster.ask(FOLLOWED)["assetOrError"].get("assetMaterializations", [])
        return {m["partition"] for m in found}

    stock.dagster.until(lambda: key_of(2) in followed(), 180, "the user's asset has followed")
    assert stock.dagster.finished(run, 120) == "SUCCESS"
    assert len(stock.ticks.read_text().split()) >= 3
    assert "Traceback" not in stock.dagster.log.read_text()


@pytest.mark.soak
def test_an_asset_that_follows_is_brought_each_checkpoint_by_one_process_before_the_daemon_could_start_a_run(
    stock: Neighbourhood,
) -> None:
    """The sensor `follow` starts the resident run by the instance's own queue and launcher; another process merges."""
    landing = stock.landings[1]

    def lands_and_is_brought() -> bool:
        landing.land(1)
        return bool(stock.brought())

    def resident() -> bool:
        return bool(landing.read(lambda reader, _: leases.held(reader, "follower")))

    stock.dagster.until(resident, 120, "the run that follows the merges is there")
    stock.dagster.until(lands_and_is_brought, 60, "it follows what comes")
    late = []
    for _ in range(5):
        key, landed = key_of(landing.land(1)), time.time()
        stock.dagster.until(lambda key=key: key in stock.brought(), 60, f"{key} is brought")
        late.append(stock.brought()[key][0] - landed)
    print(f"merged, and the step began after {[round(one, 2) for one in late]} s")
    assert statistics.median(late) < 5, "sensors, queue and launcher take some 10 s"
    assert len({process for _, process in stock.brought().values()}) == 1
    stock.await_published()
    assert "Traceback" not in stock.dagster.log.read_text()
