"""Faults on real processes, drawn from a seed: members, drivers, brokers, database, network, disk, and what people ask for."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from typing import Literal, Protocol

import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from crkafka_core.dev.postgres import Postgres
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Lease, MergedOffset
from crkafka_core.plane import reading
from crkafka_core.tables import adopt
from crkafka_core.testing import failpoints as fp
from crkafka_core.testing.proxy import KafkaProxy
from crkafka_core.testing.pytest_services import unique
from crkafka_core.testing.scenario import Scenario

MEMBERS = 3
MOST_MEMBERS = 4
MOST_PARTITIONS = 12
MOST_TOPICS = 4
RATE = 300.0
RECENT = 20
"""Checkpoints that a person may go back by."""
DRIVER = """
import sys
from crkafka_core.config import RegionConfig
from crkafka_core.region import Region
from crkafka_core.region.driver import Driver
from crkafka_core.region.feeder import Feeder
region = Region.open(RegionConfig.from_json(sys.stdin.read()))
region.runtime.start(Feeder(region))
Driver(region, retire_every=10.0).run()
"""
TABLE = "bronze"
"""A raw Delta table, which the processes that drive also keep fresh."""


class Database(Protocol):
    """What keeps the control plane."""

    def away(self, seconds: float, rng: random.Random) -> None: ...


class PostgresAway:
    """Killed or stopped, and started again."""

    def __init__(self, server: Postgres) -> None:
        self.server = server

    def away(self, seconds: float, rng: random.Random) -> None:
        rng.choice((self.server.kill, self.server.stop))()
        time.sleep(seconds)
        self.server.start()


class SqliteLocked:
    """Somebody else holds the file."""

    def __init__(self, url: str) -> None:
        self.path = url.removeprefix("sqlite:///")

    def away(self, seconds: float, rng: random.Random) -> None:
        with contextlib.closing(sqlite3.connect(self.path, timeout=60.0, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")


class Drivers:
    """Two processes that want to drive the region; one of them has the lease, the other waits for it."""

    def __init__(self, s: Scenario) -> None:
        self.s = s
        self.processes = [self._start(), self._start()]

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdin is not None
        process.stdin.write(self.s.config.to_json().encode())
        process.stdin.close()
        return process

    def replace(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self._start()

    def lease(self) -> Lease | None:
        return self.s.region.plane.read(lambda reader, row: reader.get(Lease, "driver", ""))

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


class Nemesis:
    """Each method `f…` is one fault, from its beginning to its end, with its number in docs/reliability.md (a pause, 00, is none)."""

    def __init__(
        self, s: Scenario, drivers: Drivers, database: Database, proxy: KafkaProxy | None, rng: random.Random
    ) -> None:
        self.s, self.drivers, self.database, self.proxy, self.rng = s, drivers, database, proxy, rng
        self.partitions = s.partitions

    def faults(self) -> dict[str, Callable[[], None]]:
        found = {name: getattr(self, name) for name in sorted(dir(self)) if name[0] == "f" and name[1].isdigit()}
        return {name: fault for name, fault in found.items() if self.proxy is not None or name[1:3] != "44"}

    def someone(self) -> int:
        return self.rng.randrange(self.s.region.status().region.members_wanted)

    def name(self) -> str:
        return self.s.member(self.someone())

    # Members

    def f01_kill_a_member(self) -> None:
        self.s.kill(self.someone())

    def f02_kill_a_member_at_a_step_of_a_cut(self) -> None:
        """Faults 2 to 5."""
        self._at_point(self.rng.choice((fp.CONTRIBUTE, fp.CONTRIBUTED, fp.MERGED, fp.SAVED, fp.WRITE)), "kill")

    def f09_member_frozen_past_its_session(self) -> None:
        self.s.stop_for(self.someone(), self.s.session + self.rng.uniform(0.5, 4.0))

    def f10_member_frozen_for_less(self) -> None:
        self.s.stop_for(self.someone(), self.rng.uniform(0.5, self.s.session - 2.0))

    def f11_event_thread_hangs(self) -> None:
        self._at_point(fp.POLL, f"sleep:{self.rng.uniform(2.0, self.s.session + 4.0):.1f}")

    def f28_commit_is_refused(self) -> None:
        self._at_point(fp.COMMIT, self.rng.choice(sorted(fp.ERRORS)))

    def f61_batch_is_lost(self) -> None:
        self._at_point(fp.POLL, "raise")

    def f63_all_members_killed(self) -> None:
        for number in range(self.s.region.status().region.members_wanted):
            self.s.kill(number)
            time.sleep(self.rng.choice((0.0, self.rng.uniform(0.0, 2.0))))

    def _at_point(self, point: str, action: str) -> None:
        """At most one of them is reached if the member is not there just now: the fault is over then."""
        name = self.name()
        self.s.points.set(name, point, action)
        end = time.monotonic() + 15.0
        while self.s.points.pending(name, point) and time.monotonic() < end:
            time.sleep(0.05)
        self.s.points.clear(name, point)

    # Drivers and rebalances

    def f06_driver_killed(self) -> None:
        self.drivers.replace(self.rng.randrange(2))

    def f08_driver_sleeps_past_its_lease(self) -> None:
        """Which of the two has it, nobody can see from outside: both are frozen in turn, so one of them was it."""
        for process in self.drivers.processes:
            before = self.drivers.lease()
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(self.rng.uniform(3.5, 5.0))
            os.kill(process.pid, signal.SIGCONT)
            after = self.drivers.lease()
            assert before is None or after is None or after.number >= before.number

    def f14_rebalances_during_a_reset(self) -> None:
        self.s.region.reset(cause="fault 14")
        for _ in range(self.rng.randint(1, 3)):
            with self.s.stranger():
                time.sleep(self.rng.uniform(0.2, 1.5))

    # Kafka

    def f23_partition_leader_down(self) -> None:
        leaders = sorted(set(self.s.kafka.topics.leaders(self.s.topics[0]).values()))
        self._node_down(self.rng.choice(leaders))

    def f24_coordinator_down(self) -> None:
        self._node_down(self._coordinator())

    def _coordinator(self) -> int:
        return self.s.region.admin().describe_group(self.s.config.group_id).coordinator.id

    def _node_down(self, node: int) -> None:
        self.s.kafka.kill(node)
        time.sleep(self.rng.uniform(1.0, 8.0))
        self.s.kafka.start_node(node)

    def f25_broker_frozen(self) -> None:
        node = self._coordinator()
        self.s.kafka.pause(node)
        time.sleep(self.rng.uniform(2.0, 10.0))
        self.s.kafka.resume(node)

    def f26_whole_cluster_down(self) -> None:
        for node in self.s.kafka.node_ids:
            self.s.kafka.kill(node)
        time.sleep(self.rng.uniform(1.0, 15.0))
        self.s.kafka.heal()

    def f44_member_cut_off_from_kafka(self) -> None:
        assert self.proxy is not None
        self.proxy.cut(f"{self.name()}-")
        time.sleep(self.rng.uniform(1.0, self.s.session + 8.0))
        self.proxy.mend()

    # The control plane, storage

    def f37_control_plane_away(self) -> None:
        if self.rng.random() < 0.5:  # in the middle of a cut
            self.s.until(lambda: self.s.phase is not Phase.RUNNING, "a cut is open")
        self.database.away(self.rng.choice((0.0, 1.0, self.rng.uniform(2.0, 15.0))), self.rng)

    def f40_disk_full(self) -> None:
        self._for_a_while(fp.DISK, self.rng.uniform(1.0, 10.0))

    def f43_member_cut_off_from_sql(self) -> None:
        self._for_a_while(fp.SQL, self.rng.uniform(1.0, self.s.session + 6.0))

    def _for_a_while(self, point: str, seconds: float) -> None:
        member = self.name()
        self.s.points.set(member, point, "down")
        time.sleep(seconds)
        self.s.points.clear(member, point)

    # What people ask for

    def f16_scale(self) -> None:
        now = self.s.region.status().region.members_wanted
        self.s.region.scale(self.rng.choice([n for n in range(1, MOST_MEMBERS + 1) if n != now]))
        time.sleep(self.rng.uniform(0.0, 3.0))

    def f18_partitions_added(self) -> None:
        if self.partitions < MOST_PARTITIONS:
            self.s.quieten()
            self.partitions += 1
            for topic in self.s.topics:
                self.s.kafka.topics.add_partitions(topic, self.partitions)
            self.produce()

    def f19_topic_that_matches(self) -> None:
        if len(self.s.topics) < MOST_TOPICS:
            self.s.quieten()
            name = unique(self.s.topics[0].rpartition(".")[0] + ".t")
            self.s.topics.append(self.s.kafka.topics.create(name, self.partitions, replication=3))
            self.produce()

    def f53_rewind(self) -> None:
        there = [c.id for c in self.s.region.checkpoints() if c.status == "MERGED"][-RECENT:]
        target: int | Literal["initial"] = self.rng.choice(there) if self.rng.random() < 0.9 else "initial"
        self._ask(lambda: self.s.region.reset(target, cause="fault 53"), ServiceUnavailable)

    def f00_pause(self) -> None:
        topic = self.rng.choice(self.s.topics)
        self.s.region.pause("topic", topic)
        time.sleep(self.rng.uniform(0.5, 5.0))
        self.s.region.resume("topic", topic)

    def f00_table_compacted(self) -> None:
        with contextlib.suppress(CommitFailedError):  # somebody else was quicker
            DeltaTable(self.s.config.tables[0].path).optimize.compact()

    def f00_table_written_by_others_and_mended(self) -> None:
        """Some rows a second time, and some no more; of these the segments are kept, since without Spark nothing is read from Kafka."""
        plane = self.s.region.plane
        held = plane.do(lambda tx: reading.take(tx, holder="the nemesis", token=uuid.uuid4().hex, length=300.0))
        kept = [c.id for c in held.plan.line if c.status == "MERGED"]
        begin = plane.read(lambda reader, _: reader.select(MergedOffset, ("checkpoint", "=", min(kept, default=0))))
        there = [f"(topic = '{o.topic}' AND offset >= {o.from_offset})" for o in begin if o.partition == 0]
        with contextlib.suppress(CommitFailedError):
            delta = DeltaTable(self.s.config.tables[0].path)
            if files := delta.file_uris():
                write_deltalake(delta, pq.read_table(files[0]).slice(0, 3), mode="append")
            some = f"partition = 0 AND offset % {self.rng.choice((5, 50))} = 1"
            delta.delete(f"{some} AND ({' OR '.join(there) or 'false'})")
        self.mend()
        plane.do(lambda tx: reading.release(tx, held.lease))

    def mend(self) -> None:
        """Once the region runs: before that a rewind may have to be followed first."""
        self._ask(lambda: adopt.mend(self.s.region, TABLE), CrkafkaError)

    def _ask(self, work: Callable[[], object], refused: type[CrkafkaError]) -> None:
        """A person who is refused asks again: that a service is away may be another fault's doing."""

        def done() -> bool:
            try:
                work()
            except refused:
                return False
            return True

        self.s.until(done, "a person was heard")

    def f66_stop_and_start(self) -> None:
        self.s.region.stop(wait=self.rng.random() < 0.5)
        time.sleep(self.rng.uniform(0.0, 3.0))
        self._ask(self.s.region.start, ServiceUnavailable)

    def produce(self) -> None:
        self.s.produce(RATE, topics=self.s.topics, partitions=self.partitions)
