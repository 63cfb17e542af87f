"""Row 6: from the moment a cut is due until it is opened, in a real `dagster dev` on an instance as Dagster makes it."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
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
CUTS = 15
WARM_UP = 2
"""The first falls due while Dagster starts."""


def figures(rows: Sequence[int]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="crk-bench-") as folder:
        late = measure(Path(folder))
    late.sort()
    note = f"{len(late)} cuts, max {late[-1]:.2f} s"
    return [
        Figure(
            6,
            "Dagster, stock instance: cut due → it is opened, p50",
            statistics.median(late),
            "s",
            1.0,
            at_least=False,
            note=note,
        )
    ]


def measure(folder: Path, *, cuts: int = CUTS, period: float = PERIOD) -> list[float]:
    """Seconds from due to opened, of each cut after the warm-up."""
    url = f"sqlite:///{folder}/crkafka.db"
    initialise(url)
    (folder / "orders.yaml").write_text(
        f"region: orders\ncontrol_plane: {url}\nstorage: {folder}/segments\nkafka: {{bootstrap.servers: 'localhost:1', group.id: orders}}\n"
        f"topics: [orders]\nmembers: 1\ntrigger: {{period: {period}}}\n"
    )
    (folder / "bench_definitions.py").write_text(
        f"from dagster_project import consistent_region\n\ndefs = consistent_region({str(folder / 'orders.yaml')!r}, host=False)\n"
    )
    config = RegionConfig.load(folder / "orders.yaml")
    with Region.open(config) as region:
        region.init()
        region.start(by="bench")
        with HandMember(config, region.plane):
            region.await_running(timeout=30)
            with LiveDagster(folder, "bench_definitions", settings=None) as dagster:
                dagster.until(
                    lambda: len(merged(region)) >= cuts + WARM_UP,
                    (cuts + WARM_UP) * (period + 15) + 60,
                    "the cuts are done",
                )
            found = merged(region)
    return [now.opened_at - (before.merged_at + period) for before, now in pairwise(found)][WARM_UP - 1 :]


def merged(region: Region) -> list[Checkpoint]:
    return region.plane.read(
        lambda reader, row: reader.select(Checkpoint, ("status", "=", CheckpointStatus.MERGED), order=("id",))
    )


if __name__ == "__main__":
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crk-bench-") as made:
        for seconds in measure(Path(made), cuts=6):
            print(f"{seconds:.2f}")
    print(f"{time.monotonic() - began:.0f} s in all")
