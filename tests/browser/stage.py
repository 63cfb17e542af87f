"""A stage for the browser: a region on real Kafka with its members and a producer, beneath a real `dagster dev`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.hosts.processes import ProcessHost
from crkafka_core.model.errors import Refused
from crkafka_core.region import Region
from crkafka_core.testing.generator import Generator
from tests.rigs.driven_dagster import DrivenDagster
from tests.rigs.forked import ForkedProcess

DEFINITIONS = """
import dagster as dg

from dagster_project import consistent_region
from dagster_project.names import Names, key_of
from dagster_project.partitions import definition


@dg.asset(
    partitions_def=definition(Names("orders")), deps=[Names("orders").records], backfill_policy=dg.BackfillPolicy.single_run(),
    group_name="orders", required_resource_keys={{"orders"}},
)
def mine(context) -> None:
    for checkpoint in context.resources.orders.checkpoints(context):
        context.add_asset_metadata({{"checkpoint": checkpoint}}, partition_key=key_of(checkpoint))


of_user = dg.Definitions(assets=[mine], executor=dg.in_process_executor)
defs = dg.Definitions.merge(of_user, consistent_region({config!r}))
del of_user  # a module has one only
"""


@dataclass
class Stage:
    config: RegionConfig
    region: Region
    dagster: DrivenDagster
    host: ProcessHost

    def keys(self, asset: str = "records") -> list[str]:
        """The partitions of an asset, as Dagster tells."""
        query = """query A($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) {
          ... on AssetNode { partitionKeysByDimension { partitionKeys } } } }"""
        found = self.dagster.ask(query, k={"path": [self.config.region, asset]})
        return list(found["assetNodeOrError"]["partitionKeysByDimension"][0]["partitionKeys"])

    def cut(self, times: int) -> None:
        """Checkpoints by hand: behind each that is due Dagster starts a process, for three seconds of a core."""
        end = time.monotonic() + 60
        while times:
            time.sleep(0.5)  # something new is there
            try:
                times -= self.region.cut().rows > 0
            except Refused:
                assert time.monotonic() < end


@contextmanager
def staged(folder: Path, bootstrap: str, topic: str) -> Iterator[Stage]:
    """Everything up; everything down afterwards."""
    url = f"sqlite:///{folder}/crkafka.db"
    initialise(url)
    file = folder / "orders.yaml"
    file.write_text(
        f"region: orders\ncontrol_plane: {url}\nstorage: {folder}/segments\n"
        f"kafka: {{bootstrap.servers: '{bootstrap}', group.id: {topic}-group}}\n"
        f"topics: [{topic}]\nmembers: 2\ntrigger: {{period: 15s}}\n"
    )
    (folder / "stage_definitions.py").write_text(DEFINITIONS.format(config=str(file)))
    config = RegionConfig.load(file)
    with Region.open(config) as region, Generator(bootstrap).stream(topic, per_second=80, partitions=2):
        region.init()
        region.start(by="test")
        host = ProcessHost(config, region.plane, log=folder / "members", launch=ForkedProcess)
        host.begin()
        try:
            region.await_running(timeout=90)
            with DrivenDagster(folder, "stage_definitions") as dagster:
                yield Stage(config, region, dagster, host)
        finally:
            region.stop(wait=False)
            end = time.monotonic() + 30
            while time.monotonic() < end and host.pids():
                time.sleep(0.2)
            host.end()
