"""Faults on real processes, drawn from a seed: members, drivers, brokers, database, network, disk, and what people ask for."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import uuid
from collections.abc import Callable
from typing import Literal

import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import MergedOffset, Start
from crkafka_core.plane import leases, reading, starts
from crkafka_core.spark import tables
from crkafka_core.testing.pytest_services import unique
from tests.rigs import failpoints as fp
from tests.rigs.proxy import KafkaProxy
from tests.rigs.scenario import Scenario
from tests.soak.processes import CONFIGURATION, TAKES_OVER, Database, Pair, PostgresAway

MEMBERS = 3
MOST_MEMBERS = 4
MOST_PARTITIONS = 12
MOST_TOPICS = 4
RATE = 300.0
RECENT = 20
"""Checkpoints that a person may go back by."""
TABLE = "bronze"
"""A raw Delta table, which the processes that drive also keep fresh."""


class Nemesis:
    """Each method `f…` is one fault, from its beginning to its end, with its number in docs/reliability.md (a pause, 00, is none)."""

    def __init__(
        self, s: Scenario, hosts: Pair, drivers: Pair, database: Database, proxy: KafkaProxy, rng: random.Random
    ) -> None:
        self.s, self.hosts, self.drivers, self.database, self.proxy, self.rng = s, hosts, drivers, database, proxy, rng
        self.partitions = s.partitions
        self.oldest = 0
        """Nobody goes back to before this checkpoint: what is behind it, Kafka has not any more."""
        self.deleted: set[str] = set()
        """Names of topics of which there was another one before."""

    def faults(self) -> dict[str, Callable[[], None]]:
        found = {name: getattr(self, name) for name in sorted(dir(self)) if name[0] == "f" and name[1].isdigit()}
        frozen = isinstance(self.database, PostgresAway)
        return {name: fault for name, fault in found.items() if frozen or name != "f37_control_plane_frozen"}

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

    # Hosts

    def f85_host_killed(self) -> None:
        """Its members end with it, and the other host takes over."""
        number, token = self.hosts.holder()
        self.hosts.replace(number)
        self.hosts.taken_over(token)

    def f55_host_sleeps_past_its_lease(self) -> None:
        """Another host starts the same members meanwhile; the older processes, and who comes back to them, give way."""
        number, token = self.hosts.holder()
        pid = self.hosts.processes[number].pid
        self.s.freeze(pid)
        try:
            self.hosts.taken_over(token)
            time.sleep(self.rng.uniform(0.0, 4.0))
        finally:
            os.kill(pid, signal.SIGCONT)

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
        self.proxy.cut(f"{self.name()}-")
        time.sleep(self.rng.uniform(1.0, self.s.session + 8.0))
        self.proxy.mend()

    # The control plane, storage

    def f37_control_plane_away(self) -> None:
        if self.rng.random() < 0.5:  # in the middle of a cut
            self.s.until(lambda: self.s.phase is not Phase.RUNNING, "a cut is open")
        self.database.away(self.rng.choice((0.0, 1.0, self.rng.uniform(2.0, 15.0))), self.rng)

    def f37_control_plane_frozen(self) -> None:
        assert isinstance(self.database, PostgresAway)
        self.database.frozen(self.rng.uniform(1.0, 15.0))

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
        kept = [c.id for c in self.s.region.checkpoints() if c.status == "MERGED"]
        there = [i for i in kept if i >= self.oldest][:RECENT]
        target: int | Literal["initial"] | None = self.rng.choice(there) if there else None
        if not self.oldest and self.rng.random() < 0.1:
            target = "initial"
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
        """Some rows a second time, and some no more; their segments are kept, since without Spark nothing is read from Kafka.

        Not once a topic was made anew: where files were joined, its rows are counted with those of the old one, and of the checkpoints
        that have both all come again, those from Kafka too that are retired (docs/operations.md).
        """
        if self.deleted.intersection(self.s.topics):
            return
        plane = self.s.region.plane
        held = plane.do(lambda tx: reading.take(tx, holder="the nemesis", token=uuid.uuid4().hex, length=300.0))
        kept = [c.id for c in held.plan.line if c.status == "MERGED"]
        begin = plane.read(lambda reader, _: reader.select(MergedOffset, ("checkpoint", "=", min(kept, default=0))))
        there = [o for o in begin if o.partition == 0]
        with contextlib.suppress(CommitFailedError):
            delta = DeltaTable(self.s.config.tables[0].path)
            if there:
                again = [
                    [("topic", "=", o.topic), ("partition", "=", 0), ("offset", ">=", o.from_offset)] for o in there
                ]
                found = (pq.read_table(file, filters=again) for file in delta.file_uris())
                if twice := next((rows.slice(0, 3) for rows in found if rows.num_rows), None):
                    write_deltalake(delta, twice, mode="append")
            some = f"partition = 0 AND offset % {self.rng.choice((5, 50))} = 1"
            places = " OR ".join(f"(topic = '{o.topic}' AND offset >= {o.from_offset})" for o in there)
            delta.delete(f"{some} AND ({places or 'false'})")
        self.mend()
        plane.do(lambda tx: leases.release(tx, held.lease))

    def mend(self) -> None:
        """As `crkafka tables mend` does. Once the region runs: before that a rewind may have to be followed first."""
        self._ask(lambda: tables.mend(None, self.s.region, TABLE), CrkafkaError)

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

    def f00_configuration_changed(self) -> None:
        trigger = self.s.config.trigger.model_copy(update={"period": self.rng.choice((1.0, 2.0, 4.0))})
        batch, segment = self.rng.choice((50, 500, 2_000)), self.rng.choice((1 << 20, 256 << 20))
        self._configure(trigger=trigger, max_poll_records=batch, segment_bytes=segment)

    def _configure(self, **keys: object) -> None:
        """As docs/operations.md says: change it, `crkafka init`, and start who has read the old one anew."""
        self.s.config = self.s.region.config = self.s.config.model_copy(update=keys)
        (self.s.folder / CONFIGURATION).write_text(self.s.config.to_json())
        self._ask(self.s.region.init, ServiceUnavailable)
        number, token = self.hosts.holder()
        self.hosts.replace(1 - number)  # it may have read the old one, and wait for the right
        self.hosts.replace(number, self.rng.choice((signal.SIGTERM, signal.SIGKILL)))
        self.hosts.taken_over(token)
        for number in range(2):
            self.drivers.replace(number)

    # Topics

    def f20_topic_made_anew(self) -> None:
        """While the old one is read, or once nobody knows it any more."""
        topic, soon = self.rng.choice(self.s.topics), self.rng.random() < 0.5
        self._topic_deleted(topic, anew=soon)
        if not soon:
            time.sleep(self.rng.uniform(0.0, 5.0))
            self.s.quieten()
            self._make(topic)
            self.produce()

    def f59_topic_leaves_for_good(self) -> None:
        while len(self.s.topics) == 1:
            self.f19_topic_that_matches()
            self.s.wait_head(self._next(), timeout=TAKES_OVER)
        self._topic_deleted(self.rng.choice(self.s.topics[1:]), anew=False)

    def _topic_deleted(self, topic: str, *, anew: bool) -> None:
        """The region stops, and goes on once a person has forgotten the topic; what was merged of it by then stays, and is due."""
        old = self._known(topic)
        self.s.quieten()
        self.s.kafka.topics.delete(topic)
        self.s.ledger.delete(topic, old)
        self.s.topics.remove(topic)
        self.deleted.add(topic)
        self.s.generator.reconnect()
        if anew:
            self._make(topic)
        self.produce()
        self._stopped(topic)
        for tp, merged in self._merged(old).items():
            self.s.ledger.let_go(tp, merged, topic_id=old)
        self._ask(lambda: self.s.region.forget(topic), CrkafkaError)
        self._goes_on()

    def _make(self, topic: str) -> None:
        self.s.topics.append(self.s.kafka.topics.create(topic, self.partitions, replication=3))

    def f21_retention_passes_the_head(self) -> None:
        """Where the configuration says to stop, a person says to go on with a gap; it holds until it is merged."""
        topic_id = self._known(self.s.topics[0])
        self._ask(self.s.region.stop, ServiceUnavailable)
        self.s.wait_phase(Phase.IDLE)
        time.sleep(self.rng.uniform(2.0, 4.0))
        self.s.quieten()
        gaps = self._records_expire(topic_id)
        self.produce()
        self._ask(self.s.region.start, ServiceUnavailable)
        self._stopped(next(iter(gaps)).topic)
        self._configure(data_loss="gap")
        self._goes_on()
        self.s.wait_head(self._next(), timeout=TAKES_OVER)
        found = self.s.region.plane.read(lambda reader, _: reader.select(Start, ("reason", "=", "gap")))
        assert gaps.items() <= {(TP(g.topic, g.partition), g.offset) for g in found}, (gaps, found)
        self._configure(data_loss="stop")

    def _records_expire(self, topic_id: str) -> dict[TP, int]:
        """Of a topic, some that nobody has read: where its partitions begin now."""
        gaps = dict[TP, int]()
        for tp, merged in sorted(self._merged(topic_id).items()):
            last = int(self.s.ledger.of(tp)[0][-1])
            if merged < last:
                gaps[tp] = self.rng.randint(merged + 1, last)
                self.s.ledger.let_go(tp, merged, gaps[tp])
        self.s.kafka.topics.delete_records(gaps)
        return gaps

    def _known(self, topic: str) -> str:
        """The id of a topic, once a checkpoint has it."""
        topic_id = self.s.kafka.topics.id(topic)
        self.s.until(lambda: self._merged(topic_id), f"{topic} is read", timeout=TAKES_OVER)
        return topic_id

    def _stopped(self, topic: str) -> None:
        self.s.wait_phase(Phase.STOPPED, timeout=TAKES_OVER)
        reason = self.s.region.status().region.stop_reason
        assert topic in reason, reason

    def _goes_on(self) -> None:
        """From here on: what was before, Kafka has not any more."""
        self._ask(self.s.region.start, ServiceUnavailable)
        self.oldest = self._next()

    def _next(self) -> int:
        return self.s.region.plane.read(lambda _, row: row.filling)

    def _merged(self, topic_id: str) -> dict[TP, int]:
        """Partitions of the topic, and how far they are merged."""
        merged = self.s.region.plane.read(lambda reader, row: starts.merged(reader, row.head))
        return {tp: m.to_offset for tp, m in merged.items() if m.topic_id == topic_id}

    def produce(self) -> None:
        self.s.produce(RATE, topics=self.s.topics, partitions=self.partitions)
