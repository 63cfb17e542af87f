"""Metrics of a region and its members in Prometheus' text format, read from SQL (SPEC R6, D3, X8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.plane.status import Status
from crkafka_core.region.region import Region
from crkafka_core.region.timings import Timings

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


_TIMINGS: WeakKeyDictionary[Region, Timings] = WeakKeyDictionary()
"""Timings of each region of this process."""


class _Collector:
    def __init__(self, status: Status, timings: Timings) -> None:
        self._status, self._timings = status, timings

    def collect(self) -> Iterator[Metric]:
        r = self._status.region
        build = GaugeMetricFamily("crkafka_build_info", "1, with the version that runs.", labels=["region", "version"])
        build.add_metric([r.name, version("crkafka")], 1.0)
        yield build
        phase = GaugeMetricFamily(
            "crkafka_region_phase", "1 for the phase that the region is in.", labels=["region", "phase"]
        )
        for p in Phase:
            phase.add_metric([r.name, p], float(p is r.phase))
        yield phase
        yield from self._of_region()
        yield from self._of_tables()
        yield from self._of_members()
        yield from self._of_topics()
        yield from self._timings.families()

    def _of_region(self) -> Iterator[Metric]:
        s, r = self._status, self._status.region
        for name, text, value in (
            ("epoch", "Raised by every reset and abort.", r.epoch),
            ("head", "The latest merged checkpoint.", r.head),
            ("consecutive_resets", "Resets in a row without a completed cut.", r.consecutive),
            ("handover", "1 while a rebalance or a loss merges first what is submitted.", bool(r.handover_json)),
            ("last_cut_timestamp_seconds", "When the last cut was completed, by the database's clock.", r.last_cut_at),
            ("stopped", "1 when the region has stopped itself, and waits for a person.", r.phase is Phase.STOPPED),
            (
                "last_cut_missed",
                "1 when the last stop came about without the promised last cut.",
                bool(s.last_cut_missed),
            ),
            ("alarmed", "1 for an alarm: stopped, no merge for three periods, not settled.", bool(s.alarm)),
            ("no_merge", "1 when no checkpoint was merged for three periods of the trigger.", bool(s.no_merge)),
            (
                "members_wanted",
                "Wanted number of members; 0 for an idle region.",
                0 if r.phase is Phase.IDLE else r.members_wanted,
            ),
            ("members_live", "Members that hold a lease.", len(s.live)),
            ("unfenced_tables", "Declared tables without the fence of the latest rewind.", len(s.unfenced)),
        ):
            gauge = GaugeMetricFamily(f"crkafka_region_{name}", text, labels=["region"])
            gauge.add_metric([r.name], float(value))
            yield gauge

    def _of_tables(self) -> Iterator[Metric]:
        behind = GaugeMetricFamily(
            "crkafka_table_checkpoints_behind",
            "Merged checkpoints with rows that the table has not acknowledged.",
            labels=["region", "table"],
        )
        seconds = GaugeMetricFamily(
            "crkafka_table_behind_seconds", "How long the first of them has waited.", labels=["region", "table"]
        )
        late = GaugeMetricFamily("crkafka_table_late", "1 when the table is late.", labels=["region", "table"])
        bad = GaugeMetricFamily(
            "crkafka_table_bad_records", "Records of the table that could not be decoded.", labels=["region", "table"]
        )
        spoilt = GaugeMetricFamily(
            "crkafka_table_spoilt",
            "1 when too many of the latest records could not be decoded.",
            labels=["region", "table"],
        )
        for lag in self._status.lags:
            labels = [self._status.region.name, lag.table.name]
            behind.add_metric(labels, float(lag.waiting))
            seconds.add_metric(labels, lag.seconds)
            late.add_metric(labels, float(bool(lag.late)))
            bad.add_metric(labels, float(lag.bad))
            spoilt.add_metric(labels, float(bool(lag.spoilt)))
        yield from (behind, seconds, late, bad, spoilt)

    def _of_members(self) -> Iterator[Metric]:
        region = self._status.region.name
        for key, (name, text, factor) in GAUGES.items():
            gauge = GaugeMetricFamily(f"crkafka_member_{name}", text, labels=["region", "member"])
            for m in self._status.live:
                gauge.add_metric([region, m.name], float(m.metrics.get(key, 0)) * factor)
            yield gauge
        for key, (name, text) in COUNTERS.items():
            counter = CounterMetricFamily(f"crkafka_member_{name}", text, labels=["region", "member"])
            for m in self._status.live:
                counter.add_metric([region, m.name], float(m.metrics.get(key, 0)))
            yield counter

    def _of_topics(self) -> Iterator[Metric]:
        region = self._status.region.name
        lag = GaugeMetricFamily(
            "crkafka_topic_lag_records",
            "Offsets between what is submitted and the high watermarks of the topic's partitions.",
            labels=["region", "topic"],
        )
        for topic, (_, records) in self._status.topics.items():
            lag.add_metric([region, topic], float(records))
        margin = GaugeMetricFamily(
            "crkafka_topic_retention_margin_records",
            "Offsets between what retention has deleted and the position of the topic's nearest partition.",
            labels=["region", "topic"],
        )
        margins: dict[str, int] = {}
        for m in self._status.live:
            for topic, left in (m.metrics.get("retentionMargins") or {}).items():
                margins[topic] = min(left, margins.get(topic, left))
        for topic, left in margins.items():
            margin.add_metric([region, topic], float(left))
        yield from (lag, margin)


def prometheus(region: Region) -> str:
    """The region as it is now; for a scrape target or a text file collector. Histograms begin at the first call for this object."""
    timings = _TIMINGS.setdefault(region, Timings(region))
    return exposed(region.config.region, timings.status, timings)


def exposed(name: str, status: Callable[[], Status], timings: Timings) -> str:
    """What a region's status gives to Prometheus; that the control plane is away is a metric, and no error."""
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
