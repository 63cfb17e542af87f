"""What is stored of a member with each renewal of its lease (SPEC R6, D3)."""

from __future__ import annotations

import os

from crkafka_core.loop import Runtime
from crkafka_core.member.event_loop import EventLoop
from crkafka_core.member.resolver import Resolver
from crkafka_core.member.submitter import Submitter

_NAMED = 20
"""Partitions that give nothing and are named in the metrics, which are stored with each renewal of the lease."""


class Metrics:
    """Taken on the renewing thread."""

    def __init__(self, loop: EventLoop, submitter: Submitter, resolver: Resolver, runtime: Runtime) -> None:
        self._loop, self._submitter, self._resolver, self._runtime = loop, submitter, resolver, runtime
        self._counted = (0, runtime.now())
        """Tuples at the last time, and when it was."""

    def take(self) -> dict[str, object]:
        loop, submitter, ends = self._loop, self._submitter, self._resolver.ends
        held = loop.state.held or frozenset()
        nexts, now = submitter.nexts(), self._runtime.now()
        high = {tp: max(loop.high.get(tp, -1), ends.ends.get(tp, -1)) for tp in loop.high.keys() | ends.ends.keys()}
        partitions: dict[str, dict[str, list[int]]] = {}
        for tp in sorted(nexts.keys() & high.keys()):
            partitions.setdefault(tp.topic, {})[str(tp.partition)] = [nexts[tp], high[tp]]
        some = sorted(ends.stalled)[:_NAMED]
        before, since = self._counted
        self._counted = (submitter.submitted, now)
        return {
            "partitions": partitions,
            "lag": sum(max(0, end - at) for ps in partitions.values() for at, end in ps.values()),
            "tuplesPerSecond": round((submitter.submitted - before) / max(0.001, now - since), 1),
            "pid": os.getpid(),
            "nPartitionsAssigned": len(held),
            "nConsumedTopics": len({tp.topic for tp in held}),
            "submitted": submitter.submitted,
            "nPartitionRebalances": loop.rebalances,
            "drainTimeMillis": submitter.drain_ms,
            "drainTimeMillisMax": submitter.drain_ms_max,
            "cuts": loop.cuts,
            "pausesMillis": list(submitter.pauses),
            "retentionMargins": ends.margins,
            "stalled": {str(tp): round(ends.stalled[tp]) for tp in some},
            "stalledBecause": {str(tp): ends.reasons[tp] for tp in some if ends.reasons.get(tp)},
            "nStalled": len(ends.stalled),
            "kafkaAway": loop.troubles.away(),
            "recordsDropped": loop.dropped,
            "recordsUnreadable": loop.unreadable,
            "queueRecords": submitter.queue.records,
            "queueBytes": submitter.queue.bytes,
            "state": loop.state.client,
            "unavailable": self._resolver.unavailable,
        }
