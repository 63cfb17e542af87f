"""What a member's process touches besides SQL: Kafka, storage, time, its own end. A simulation gives its own (STYLE)."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Mapping

from crkafka_core.config import RegionConfig
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.consumer import GroupConsumer, depart, nudge
from crkafka_core.kafka.edge import Admin, Consumer
from crkafka_core.loop import THREADS, Runtime
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import SegmentWriter, Writer

_COLLECT_EVERY = 100_000
"""Objects between two looks for garbage. Messages count, though none is part of a cycle: the usual 700 cost a tenth of the speed."""
_KEPT = 64 << 20
"""Bytes of freed memory that stay ours. Given back to the system and asked for again, each page is cleared again."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # <malloc.h> of glibc


class Edges:
    """Kafka, the configured storage, threads of this process. Made new for each member; a simulation overrides all of it."""

    runtime: Runtime = THREADS

    def admin(self, kafka: Mapping[str, str], client_id: str) -> Admin:
        return KafkaAdmin(kafka, client_id=client_id)

    def consumer(self, properties: Mapping[str, str]) -> Consumer:
        return GroupConsumer(properties)

    def storage(self, config: RegionConfig) -> Storage:
        return Storage.of(config)

    def writer(self, storage: Storage, path: str) -> Writer:
        return SegmentWriter(storage, path)

    def settle(self) -> None:
        """Once, before the loops start: batches of half a megabyte come and go, a hundred times a second (docs/speed.md, row 7). Without
        glibc only the garbage collector is set."""
        gc.freeze()
        gc.set_threshold(_COLLECT_EVERY)
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, 1)
            mallopt(_M_MMAP_THRESHOLD, _KEPT // 2)
            mallopt(_M_TRIM_THRESHOLD, _KEPT)

    def nudge(self, properties: Mapping[str, str], config: RegionConfig) -> None:
        """Make the group rebalance, without waiting for it: the member that asks for a rebalance has to poll for it."""
        join = (properties, config.topics or (), config.pattern)
        threading.Thread(target=nudge, args=join, name="nudge", daemon=True).start()

    def depart(self, properties: Mapping[str, str], config: RegionConfig) -> None:
        """Leave the group for good, also as a static member."""
        depart(properties, config.topics or (), config.pattern)

    def end_process(self, code: int) -> None:
        """At once."""
        os._exit(code)
