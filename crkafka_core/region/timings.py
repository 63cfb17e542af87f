"""Histograms of the durations of merges and of commits to tables, updated at each read of the region (SPEC X8)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily

from crkafka_core.plane.lateness import Landed, landed
from crkafka_core.plane.status import Status, status_of
from crkafka_core.region.region import Region

SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of buckets in seconds, for durations that are usually milliseconds."""
LONG = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""Upper bounds of buckets for tables, some of which wait for Spark."""


class Histogram:
    """Number of durations by bucket, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self._total = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._total += seconds

    def add_to(self, family: HistogramMetricFamily, *labels: str) -> None:
        names = [*map(str, self._bounds), "+Inf"]
        family.add_metric(labels, list(zip(names, accumulate(self._counts), strict=True)), self._total)


class Timings:
    """Histograms of one region, which begin at zero with the process, like Prometheus counters."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._last: Landed | None = None
        self._pause, self._merge = Histogram(SHORT), Histogram(SHORT)
        self._fresh: dict[str, Histogram] = defaultdict(lambda: Histogram(LONG))
        self._turn = threading.Lock()

    def status(self) -> Status:
        """The region's status; counts what has landed since the last call."""
        with self._turn:
            return self._look()

    def _look(self) -> Status:
        trigger = self._region.config.trigger
        status, new = self._region.plane.read(
            lambda reader, row: (status_of(reader, row, trigger), landed(reader, row, self._last))
        )
        self._last = new
        for checkpoint in new.merged:
            self._pause.observe(checkpoint.drain_ms / 1000)
            self._merge.observe(max(0.0, checkpoint.merged_at - checkpoint.opened_at))
        for table, waited in new.waited.items():
            histogram = self._fresh[table]
            for seconds in waited:
                histogram.observe(seconds)
        return status

    def families(self) -> Iterator[HistogramMetricFamily]:
        name = self._region.config.region
        for what, text, histogram in (
            ("pause", "How long members stood still for a checkpoint: its longest drain.", self._pause),
            ("merge", "From the opening of a cut to its merge.", self._merge),
        ):
            family = HistogramMetricFamily(f"crkafka_region_{what}_seconds", text, labels=["region"])
            histogram.add_to(family, name)
            yield family
        fresh = HistogramMetricFamily(
            "crkafka_table_freshness_seconds",
            "From the merge of a checkpoint to the commit that brought it into the table.",
            labels=["region", "table"],
        )
        for table, histogram in list(self._fresh.items()):
            histogram.add_to(fresh, name, table)
        yield fresh
