"""Metrics of a region and its members in Prometheus' text format, read from SQL (SPEC R6, D3, X8)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from crkafka_core.model.phase import Phase
from crkafka_core.region.region import Region
from crkafka_core.region.status import Status

GAUGES = {
    "nPartitionsAssigned": ("partitions_assigned", "Partitions that the member holds."),
    "nConsumedTopics": ("topics_consumed", "Topics of those partitions."),
    "drainTimeMillis": ("drain_time_millis", "Last drain, in milliseconds."),
    "drainTimeMillisMax": ("drain_time_millis_max", "Longest drain, in milliseconds."),
    "queueRecords": ("queue_records", "Records in the message queue."),
    "lag": ("lag", "Offsets between what is submitted and the high watermarks of the held partitions."),
    "tuplesPerSecond": ("tuples_per_second", "Throughput since the renewal of the lease before."),
    "queueBytes": ("queue_bytes", "Bytes in the message queue."),
}
COUNTERS = {
    "nPartitionRebalances": ("partition_rebalances", "Rebalances that the process has seen."),
    "submitted": ("tuples_submitted", "Tuples that the process has submitted."),
    "cuts": ("cuts_merged", "Merged cuts that the process took part in."),
}


class _Collector:
    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        s = self._status
        phase = GaugeMetricFamily(
            "crkafka_region_phase", "1 for the phase that the region is in.", labels=["region", "phase"]
        )
        for p in Phase:
            phase.add_metric([s.name, p], float(p is s.phase))
        yield phase
        for name, text, value in (
            ("epoch", "Raised by every reset and abort.", s.epoch),
            ("head", "The latest merged checkpoint.", s.head),
            ("consecutive_resets", "Resets in a row without a completed cut.", s.consecutive_resets),
            (
                "seconds_since_last_cut",
                "Since the last completed cut.",
                s.now - s.last_cut_at if s.last_cut_at else 0.0,
            ),
            ("members_wanted", "Members that are wanted.", s.members_wanted),
            ("members_live", "Members that hold a lease.", sum(m.status == "LIVE" for m in s.members)),
            ("unfenced_tables", "Declared tables that owe a fence.", len(s.unfenced)),
        ):
            gauge = GaugeMetricFamily(f"crkafka_region_{name}", text, labels=["region"])
            gauge.add_metric([s.name], float(value))
            yield gauge
        yield from self._of_members()

    def _of_members(self) -> Iterator[Metric]:
        live = [m for m in self._status.members if m.status == "LIVE"]
        for key, (name, text) in GAUGES.items():
            gauge = GaugeMetricFamily(f"crkafka_member_{name}", text, labels=["region", "member"])
            for m in live:
                gauge.add_metric([self._status.name, m.name], float(m.metrics.get(key, 0)))
            yield gauge
        for key, (name, text) in COUNTERS.items():
            counter = CounterMetricFamily(f"crkafka_member_{name}", text, labels=["region", "member"])
            for m in live:
                counter.add_metric([self._status.name, m.name], float(m.metrics.get(key, 0)))
            yield counter


def prometheus(region: Region) -> str:
    """The region as it is now; for a scrape target or a text file collector."""
    registry = CollectorRegistry()
    registry.register(_Collector(region.status()))
    return generate_latest(registry).decode()
