"""Metrics of a region and its members in Prometheus' text format, read from SQL, with histograms of merges and of commits to tables
(SPEC R6, D3, X8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.plane.lateness import Landed, TableLag, landed
from crkafka_core.plane.status import Status, status_of
from crkafka_core.region.region import Region

SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of buckets in seconds, for durations that are usually milliseconds."""
LONG = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""Upper bounds of buckets for tables, some of which wait for Spark."""

GAUGES: dict[str, tuple[str, str, float]] = {
    "nPartitionsAssigned": ("partitions_assigned", "Partitions that the member holds.", 1),
    "nConsumedTopics": ("topics_consumed", "Topics of those partitions.", 1),
    "drainTimeMillis": ("drain_seconds", "How long the last drain took.", 0.001),
    "drainTimeMillisMax": ("drain_max_seconds", "How long the longest drain took.", 0.001),
    "queueRecords": ("queue_records", "Records in the message queue.", 1),
    "queueBytes": ("queue_bytes", "Bytes in the message queue.", 1),
    "lag": ("lag_records", "Offsets between what is submitted and the high watermarks of the held partitions.", 1),
}
"""Key of a member's report → name and text of the metric, and the factor to seconds, bytes or records."""
COUNTERS = {
    "nPartitionRebalances": ("partition_rebalances", "Rebalances that the process has seen."),
    "submitted": ("tuples_submitted", "Tuples that the process has submitted."),
    "cuts": ("cuts_merged", "Merged cuts that the process took part in."),
}
_OF_TABLES: tuple[tuple[str, str, Callable[[TableLag], float]], ...] = (
    (
        "checkpoints_behind",
        "Merged checkpoints with rows that the table has not acknowledged.",
        lambda lag: lag.waiting,
    ),
    ("behind_seconds", "How long the first of them has waited.", lambda lag: lag.seconds),
    ("late", "1 when the table is late.", lambda lag: bool(lag.late)),
    ("bad_records", "Records of the table that could not be decoded.", lambda lag: lag.bad),
    ("spoilt", "1 when too many of the latest records could not be decoded.", lambda lag: bool(lag.spoilt)),
)


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
            status, new = self._region.plane.read(
                lambda reader, row: (status_of(reader, row), landed(reader, row, self._last))
            )
            self._last = new
            for checkpoint in new.merged:
                self._pause.observe(checkpoint.drain_ms / 1000)
                self._merge.observe(max(0.0, checkpoint.merged_at - checkpoint.opened_at))
            for table, waited in new.waited.items():
                fresh = self._fresh.labels(self._name, table)  # also a table without commits has its series
                for seconds in waited:
                    fresh.observe(seconds)
            return status

    def families(self) -> Iterator[Metric]:
        for histogram in self._all:
            for family in histogram.collect():
                # Creation times of the histograms are no metrics of the region.
                family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
                yield family


class _Collector:
    def __init__(self, status: Status, timings: Timings) -> None:
        self._status, self._timings = status, timings

    def collect(self) -> Iterator[Metric]:
        s, r = self._status, self._status.region
        yield self._gauge("build_info", "1, with the version that runs.", "version", [(version("crkafka"), 1)])
        phases = [(str(phase), phase is r.phase) for phase in Phase]
        yield self._gauge("region_phase", "1 for the phase that the region is in.", "phase", phases)
        missed = "1 when the last stop came about without the promised last cut."
        wanted = 0 if r.phase is Phase.IDLE else r.members_wanted
        for name, text, value in (
            ("epoch", "Raised by every reset and abort.", r.epoch),
            ("head", "The latest merged checkpoint.", r.head),
            ("consecutive_resets", "Resets in a row without a completed cut.", r.consecutive),
            ("handover", "1 while a rebalance or a loss merges first what is submitted.", bool(r.handover_json)),
            ("last_cut_timestamp_seconds", "When the last cut was completed, by the database's clock.", r.last_cut_at),
            ("stopped", "1 when the region has stopped itself, and waits for a person.", r.phase is Phase.STOPPED),
            ("last_cut_missed", missed, bool(s.last_cut_missed)),
            ("alarmed", "1 for an alarm: stopped, no merge for three periods, not settled.", bool(s.alarm)),
            ("no_merge", "1 when no checkpoint was merged for three periods of the trigger.", bool(s.no_merge)),
            ("members_wanted", "Wanted number of members; 0 for an idle region.", wanted),
            ("members_live", "Members that hold a lease.", len(s.live)),
            ("unfenced_tables", "Declared tables without the fence of the latest rewind.", len(s.unfenced)),
        ):
            gauge = GaugeMetricFamily(f"crkafka_region_{name}", text, labels=["region"])
            gauge.add_metric([r.name], float(value))
            yield gauge
        for name, text, of_table in _OF_TABLES:
            yield self._gauge(f"table_{name}", text, "table", [(lag.table.name, of_table(lag)) for lag in s.lags])
        yield from self._of_members()
        yield from self._timings.families()

    def _of_members(self) -> Iterator[Metric]:
        live = self._status.live
        for key, (name, text, factor) in GAUGES.items():
            values = [(m.name, float(m.metrics.get(key, 0)) * factor) for m in live]
            yield self._gauge(f"member_{name}", text, "member", values)
        for key, (name, text) in COUNTERS.items():
            counter = CounterMetricFamily(f"crkafka_member_{name}", text, labels=["region", "member"])
            yield self._filled(counter, [(m.name, m.metrics.get(key, 0)) for m in live])
        text = "Offsets between what is submitted and the high watermarks of the topic's partitions."
        lags = [(topic, records) for topic, (_, records) in self._status.topics.items()]
        yield self._gauge("topic_lag_records", text, "topic", lags)
        margins: dict[str, int] = {}
        for m in live:
            for topic, left in (m.metrics.get("retentionMargins") or {}).items():
                margins[topic] = min(left, margins.get(topic, left))
        text = "Offsets between what retention has deleted and the position of the topic's nearest partition."
        yield self._gauge("topic_retention_margin_records", text, "topic", margins.items())

    def _gauge(self, name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
        """A value for each of the region's parts, such as its tables."""
        return self._filled(GaugeMetricFamily(f"crkafka_{name}", text, labels=["region", label]), values)

    def _filled(self, family: GaugeMetricFamily | CounterMetricFamily, values: Iterable[tuple[str, float]]) -> Metric:
        for part, value in values:
            family.add_metric([self._status.region.name, part], float(value))
        return family


_TIMINGS: WeakKeyDictionary[Region, Timings] = WeakKeyDictionary()
"""Timings of each region of this process."""


def prometheus(region: Region) -> str:
    """The region as it is now; for a scrape target or a text file collector. Histograms begin at the first call for this object."""
    timings = _TIMINGS.setdefault(region, Timings(region))
    return exposed(region.config.region, timings.status, timings)


def exposed(name: str, status: Callable[[], Status], timings: Timings) -> str:
    """The samples of a region's status; a control plane that is away is a sample too, and no error."""
    registry = CollectorRegistry()
    up = Gauge(
        "crkafka_control_plane_up", "1 when the control plane answered this question.", ["region"], registry=registry
    )
    try:
        registry.register(_Collector(status(), timings))
        up.labels(name).set(1)
    except ServiceUnavailable:
        up.labels(name).set(0)
    return generate_latest(registry).decode()
