"""A Kafka with a topic under load, and regions of member processes that read it; what each submission took, by a hook in members."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.hosts.processes import ProcessHost
from crkafka_core.member.main import MemberProcess
from crkafka_core.protocol.signals import Stamp
from crkafka_core.region import Region
from crkafka_core.region.host import running
from crkafka_core.segments.batch import Batch
from crkafka_core.testing.generator import Generator

TOPIC = "load"


class Load:
    """One broker with the topic `load`."""

    def __init__(self, folder: Path, kafka: KafkaCluster, partitions: int) -> None:
        self.folder, self.kafka, self.partitions = folder, kafka, partitions
        self.generator = Generator(kafka.bootstrap)
        self._stream = contextlib.ExitStack()

    def flow(self, rate: float) -> None:
        """Records at a steady pace until the end."""
        self._stream.enter_context(self.generator.stream(TOPIC, per_second=rate, partitions=self.partitions))

    def close(self) -> None:
        """End what flows."""
        self._stream.close()

    @contextmanager
    def running(
        self, name: str, url: str = "", *, noted: bool = False, **keys: Any
    ) -> Iterator[tuple[Region, ProcessHost]]:
        """A region by this name with its members and the keeper of its tables, RUNNING. `noted`: members note their submissions."""
        url = url or f"sqlite:///{self.folder}/{name}.db"
        initialise(url)
        config = RegionConfig.parse(
            {
                "region": name,
                "control_plane": url,
                "storage": str(self.folder / name),
                "topics": [TOPIC],
                "members": 2,
                "trigger": {"manual": True},
                "kafka": {"bootstrap.servers": self.kafka.bootstrap, "group.id": name, "session.timeout.ms": 6000},
                **keys,
            }
        )
        notes = self.folder / f"{name}-submissions"
        notes.mkdir()
        hook = "bench.load:note_submissions" if noted else ""
        with Region.open(config) as region:
            region.init()
            region.start()
            logs = self.folder / f"{name}-logs"
            host = ProcessHost(config, region.plane, log=logs, hook=hook, hook_argument=str(notes))
            with running(region, host):
                region.await_running(timeout=60)
                yield region, host
                region.stop()


@contextmanager
def loaded(folder: Path, *, partitions: int, records: int = 0) -> Iterator[Load]:
    """A broker with so many records in the topic."""
    leash = Leash(folder / "kafka")
    try:
        kafka = KafkaCluster(folder / "kafka", leash=leash, full_speed=True).start()
        kafka.topics.create(TOPIC, partitions=partitions)
        load = Load(folder, kafka, partitions)
        if records:
            load.generator.bulk(TOPIC, records, partitions=partitions)
        with contextlib.closing(load):
            yield load
    finally:
        leash.release()


def note_submissions(folder: str, parts: MemberProcess) -> None:
    """A member's hook: a line `since end rows` for each batch; `since` is the end of the batch before it, or when an empty queue got it."""
    submitter, queue = parts.submitter, parts.submitter.queue
    write, put = submitter._write, queue.put
    file = (Path(folder) / f"{os.getpid()}.txt").open("w", buffering=1)
    since = time.monotonic()

    def noted(batch: Batch, stamp: Stamp) -> None:
        nonlocal since
        before = submitter.submitted
        write(batch, stamp)
        now = time.monotonic()
        file.write(f"{since} {now} {submitter.submitted - before}\n")
        since = now

    def filled(serial: int, batch: Batch) -> None:
        nonlocal since
        if not len(queue) and not submitter._holder:
            since = time.monotonic()
        put(serial, batch)

    submitter._write, queue.put = noted, filled  # type: ignore[method-assign]
