"""Histograms of the durations of merges and of commits to tables, updated at each read of the region (SPEC X8)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from prometheus_client import Histogram
from prometheus_client.core import Metric

from crkafka_core.plane.lateness import Landed, landed
from crkafka_core.plane.status import Status, status_of
from crkafka_core.region.region import Region

SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of buckets in seconds, for durations that are usually milliseconds."""
LONG = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""Upper bounds of buckets for tables, some of which wait for Spark."""


class Timings:
    """Histograms of one region, which begin at zero with the process, like Prometheus counters."""

    def __init__(self, region: Region) -> None:
        self._region, self._name = region, region.config.region
        self._last: Landed | None = None
        self._turn = threading.Lock()

        def histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"crkafka_{name}_seconds", text, ["region", *labels], buckets=bounds, registry=None)

        drained = "How long members stood still for a checkpoint: its longest drain."
        committed = "From the merge of a checkpoint to the commit that brought it into the table."
        pause = histogram("region_pause", drained, SHORT)
        merge = histogram("region_merge", "From the opening of a cut to its merge.", SHORT)
        self._fresh = histogram("table_freshness", committed, LONG, "table")
        self._all = (pause, merge, self._fresh)
        self._pause, self._merge = pause.labels(self._name), merge.labels(self._name)

    def status(self) -> Status:
        """The region's status; counts what has landed since the last call."""
        with self._turn:
            return self._look()

    def _look(self) -> Status:
        status, new = self._region.plane.read(
            lambda reader, row: (status_of(reader, row), landed(reader, row, self._last))
        )
        self._last = new
        for checkpoint in new.merged:
            self._pause.observe(checkpoint.drain_ms / 1000)
            self._merge.observe(max(0.0, checkpoint.merged_at - checkpoint.opened_at))
        for table, waited in new.waited.items():
            fresh = self._fresh.labels(self._name, table)
            for seconds in waited:
                fresh.observe(seconds)
        return status

    def families(self) -> Iterator[Metric]:
        for histogram in self._all:
            for family in histogram.collect():
                # Creation times of the histograms are no metrics of the region.
                family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
                yield family
