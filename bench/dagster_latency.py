"""Row 6, in a real `dagster dev` on an instance as Dagster makes it: a cut is due → it is opened, and merged → an asset's step begins."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from bench.figure import Figure
from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from crkafka_core.region import Region
from dagster_project.testing.live import LiveDagster
from tests.rigs.hand_member import HandMember

PERIOD = 6.0
CUTS = 20
DEFINITIONS = """
import time
from pathlib import Path

import dagster as dg

from dagster_project import consistent_region
from dagster_project.names import Names
from dagster_project.partitions import definition

names = Names("orders")


@dg.asset(partitions_def=definition(names), deps=[names.records], backfill_policy=dg.BackfillPolicy.single_run())
def after(context: dg.AssetExecutionContext) -> None:
    began = time.time()
    with Path({begun!r}).open("a") as file:
        file.writelines(f"{{int(key)}} {{began}}\\n" for key in context.partition_keys)


defs = dg.Definitions.merge(
    dg.Definitions(assets=[after]), consistent_region({region!r}, host=False, follow=["after"])
)
"""
WARM_UP = 2
"""The first falls due while Dagster starts."""


def figures(rows: Sequence[int]) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="crk-bench-") as folder:
        opened, begun = measure(Path(folder))
    for what, late, bound in (("cut due → it is opened", opened, 1.0), ("merged → an asset's step begins", begun, 2.0)):
        note = f"{len(late)} cuts, max {max(late):.2f} s"
        name = f"Dagster, stock instance: {what}, p50"
        yield Figure(6, name, statistics.median(late), "s", bound, at_least=False, note=note)


def measure(folder: Path, *, cuts: int = CUTS, period: float = PERIOD) -> tuple[list[float], list[float]]:
    """Of each cut after the warm-up: seconds from due to opened, and from merged until the step of an asset begins that follows."""
    url, begun = f"sqlite:///{folder}/crkafka.db", folder / "begun"
    initialise(url)
    (folder / "orders.yaml").write_text(
        f"region: orders\ncontrol_plane: {url}\nstorage: {folder}/segments\nkafka: {{bootstrap.servers: 'localhost:1', group.id: orders}}\n"
        f"topics: [orders]\nmembers: 1\ntrigger: {{period: {period}}}\n"
    )
    (folder / "bench_definitions.py").write_text(
        DEFINITIONS.format(begun=str(begun), region=str(folder / "orders.yaml"))
    )
    config = RegionConfig.load(folder / "orders.yaml")

    def brought() -> dict[int, float]:
        """When the step began that brought each checkpoint."""
        lines = begun.read_text().splitlines() if begun.exists() else []
        return {int(checkpoint): float(at) for checkpoint, at in map(str.split, lines)}

    with Region.open(config) as region:
        region.init()
        region.start(by="bench")
        with HandMember(config, region.plane):
            region.await_running(timeout=30)
            with LiveDagster(folder, "bench_definitions", settings=None) as dagster:
                dagster.until(brought, 120, "the asset follows")
                first = max(brought())
                enough = (cuts + WARM_UP) * (period + 15) + 60
                dagster.until(lambda: len([i for i in brought() if i > first]) >= cuts, enough, "the cuts are done")
            rows, at = merged(region), brought()
    late = [now.opened_at - (before.merged_at + period) for before, now in pairwise(rows)][WARM_UP - 1 :]
    return late, [at[row.id] - row.merged_at for row in rows if row.id > first and row.id in at]


def merged(region: Region) -> list[Checkpoint]:
    return region.plane.read(
        lambda reader, row: reader.select(Checkpoint, ("status", "=", CheckpointStatus.MERGED), order=("id",))
    )


if __name__ == "__main__":
    began = time.monotonic()
    for figure in figures([6]):
        print(figure)
    print(f"{time.monotonic() - began:.0f} s in all")
