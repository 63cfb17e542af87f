"""The Kafka edge of a simulated member: the consumer and the admin of `kafka/edge.py`, over a simulated broker, misbehaving as told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from crkafka_core.kafka.commits import chunks
from crkafka_core.kafka.edge import Committed, Isolation, Kind, Polled, Rebalance, TopicInfo
from crkafka_core.kafka.errors import (
    Fenced,
    GroupRebalanced,
    KafkaUnavailable,
    NotAllowed,
    OffsetGone,
    RecordUnreadable,
    TopicGone,
)
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.protocol.signals import Outcome
from crkafka_core.segments.batch import Run
from tests.rigs.simulation import answers
from tests.rigs.simulation.broker import Client, FencedInstance, Record
from tests.rigs.simulation.fetched import fetched

if TYPE_CHECKING:
    from tests.rigs.simulation.member import SimulatedMember
    from tests.rigs.simulation.scheduler import Owner
    from tests.rigs.simulation.world import World

QUIET = 10.0
"""Seconds between two reports of the same unreachable broker."""
READ_AGAIN = 2.0
"""Seconds after which what could not be read is asked for again."""
COMMIT_BYTES = 512
"""What one commit may hold: of two or three partitions."""
MOST = 4
"""Records of one partition in one fetch, at most."""


class SimulatedConsumer:
    """One consumer of the group; `GroupConsumer` says what each call promises."""

    def __init__(self, member: SimulatedMember, properties: Mapping[str, str]) -> None:
        self.member, self.world = member, member.world
        self.broker = member.world.broker
        self.client = Client(properties["client.id"], properties.get("group.instance.id"))
        self.client.away_until = member.away_until
        member.clients.append(self.client)
        self._subscribed = False
        self._held: frozenset[TP] = frozenset()
        self._flowing: set[TP] = set()
        self._next: dict[TP, int] = {}
        self._read: dict[TP, int] = {}
        """Leader epoch of the record before the next one, where it was read, or told with the seek (docs/clients.md C-K25)."""
        self._stalled: set[TP] = set()
        """What is gone of them was told, and they are silent until they are sought (docs/clients.md C-R10)."""
        self._unreadable: dict[TP, float] = {}
        """What could not be read, and when it is asked for again."""
        self._complained = -QUIET

    @property
    def reaches(self) -> bool:
        return not self.broker.down and self.world.now >= self.client.away_until

    def subscribe(self, topics: Sequence[str] = (), *, pattern: str | None = None) -> None:
        self._subscribed, self.client.topics = True, frozenset(topics)

    def close(self) -> None:
        if self.reaches and self.client.id not in self.broker.fenced:
            self.broker.leave(self.client)

    # Polling

    def poll(self, max_records: int = 5_000, timeout: float = 0.1) -> Polled:
        world, rng = self.world, self.world.rng
        world.scheduler.give_way()
        if not self._subscribed or not self.reaches:
            return self._unreached(timeout)
        try:
            brought = self.broker.poll(self.client, rng.random())
            rebalances = self._rebalanced(brought)
            if rebalances and rng.random() < 0.3:  # both callbacks in one call
                rebalances += self._rebalanced(self.broker.poll(self.client, rng.random()))
        except FencedInstance:
            world.scheduler.sleep(timeout)
            return Polled(errors=(Fenced("Another consumer has joined with the same group.instance.id."),))
        if rebalances:
            return Polled(rebalances=tuple(rebalances), disturbed=True)
        if world.faults.strikes(self.member, "poll fails"):
            error = answers.to_a_poll(rng)
            world.note(self.member.name, f"a poll fails: {error.message}")
            return Polled(errors=(error,), disturbed=rng.random() < 0.8)
        fetched = self._fetch(max_records) if brought == "records" else Polled()
        if fetched.batch is None and not fetched.errors and not fetched.troubles:
            world.scheduler.sleep(timeout * (0.5 + 8.0 * rng.random()))
        return fetched

    def _unreached(self, timeout: float) -> Polled:
        if not self.reaches:
            self._cut_off()
        self.world.scheduler.sleep(timeout)
        if not self._subscribed or self.world.now - self._complained < QUIET:
            return Polled()
        self._complained = self.world.now
        return Polled(errors=(KafkaUnavailable("No broker answers."),))

    def _cut_off(self) -> None:
        self.world.faults.hit("kafka down" if self.broker.down else "cut kafka", self.member)

    def _rebalanced(self, brought: str) -> list[Rebalance]:
        if brought not in ("revoked", "lost", "assigned"):
            return []
        given = self.client.holds if brought == "assigned" else None
        parts, self._held = given if given is not None else self._held, self.client.holds or frozenset()
        self._flowing, self._next, self._read, self._stalled, self._unreadable = set(), {}, {}, set(), {}
        self.world.note(self.member.name, f"partitions {brought}", sorted(map(str, parts)))
        rebalances = [Rebalance(Kind(brought), parts, self.client.generation)]
        if brought != "assigned" and self.world.plan.member_epochs:  # as `GroupConsumer` does
            rebalances.append(Rebalance(Kind.ASSIGNED, self._held, self.client.generation))
        return rebalances

    def _fetch(self, max_records: int) -> Polled:
        rng, odd = self.world.rng, self.world.faults.misbehaves(self.member, "late fetch")
        ready = sorted(self._flowing - self._stalled)
        rng.shuffle(ready)
        records: list[Record] = []
        runs: list[Run] = []
        ends: dict[TP, int] = {}
        gone: list[CrkafkaError] = []
        troubles: dict[TP, CrkafkaError] = {}
        for tp in ready[: rng.randint(1, 3)]:
            at = self._next.get(tp, 0)
            if at < self.broker.starts[tp] or at > self.broker.ends[tp] or self._cut_below(tp, at):
                self._stalled.add(tp)
                gone.append(OffsetGone(tp, at))
                continue
            if trouble := self._trouble(tp, at):
                if isinstance(trouble, KafkaUnavailable | NotAllowed | TopicGone | RecordUnreadable):
                    troubles[tp] = trouble
                else:
                    gone.append(trouble)
                continue
            since = max(self.broker.starts[tp], at - 3) if odd else at
            came = self.broker.fetch(tp, since, rng.randint(1, min(MOST, max_records)))
            if not came:
                if at < self.broker.ends[tp]:
                    self._next[tp] = self.broker.ends[tp]  # control records at the end
                ends[tp] = self.broker.ends[tp]
                continue
            if came[0][0] < at:
                self.world.faults.hit("late fetch", self.member)
            for epoch, of_one in groupby(came, partial(self.broker.written_by, tp)):
                some = list(of_one)
                since, stop = (since if some[0] == came[0] else records[-1][0] + 1), len(records) + len(some)
                runs.append(Run(tp, len(records), stop, some[0][0], some[-1][0] + 1, since, epoch))
                records += some
                self._read[tp] = epoch
            self._next[tp] = max(at, came[-1][0] + 1)
        gone += self._heard_while_paused()
        if not runs:
            return Polled(ends=ends, errors=tuple(gone), troubles=troubles)
        return Polled(fetched(records, runs), ends=ends, errors=tuple(gone), troubles=troubles)

    def _trouble(self, tp: TP, at: int) -> CrkafkaError | None:
        """Why this partition gives nothing now: its leader is away, or answers with any error there is."""
        if self._unreadable.get(tp, 0.0) > self.world.now:
            return RecordUnreadable(tp, at, "as before")
        if not self.broker.led(tp):
            self.world.faults.hit("no leader", self.member)
            return KafkaUnavailable(f"{tp} has no leader.")
        if not self.world.faults.strikes(self.member, "partition fails"):
            return None
        error = answers.to_a_fetch(self.world.rng, tp, at)
        if isinstance(error, RecordUnreadable):
            self._unreadable[tp] = self.world.now + READ_AGAIN
        self.world.note(self.member.name, f"{tp} fails: {error.message}")
        return error

    def _heard_while_paused(self) -> list[CrkafkaError]:
        """A log that was cut is told of soon, also if its partition does not flow."""
        waiting = sorted((self.broker.cuts.keys() & self._next.keys()) - self._flowing - self._stalled)
        heard = [tp for tp in waiting if self._cut_below(tp, self._next[tp]) and self.world.rng.random() < 0.5]
        self._stalled.update(heard)
        return [OffsetGone(tp, self._next[tp]) for tp in heard]

    def _cut_below(self, tp: TP, at: int) -> bool:
        """librdkafka compares the leader epoch of where it stands with the broker's."""
        return tp in self._read and self.broker.end_of(tp, self._read[tp]) < at

    # Where and what to read

    def seek(self, offsets: Mapping[TP, int], leader_epochs: Mapping[TP, int] | None = None) -> None:
        self.world.scheduler.give_way()
        for tp, offset in sorted(offsets.items()):
            if tp not in self._held:
                continue
            if self.world.faults.strikes(self.member, "seek fails"):
                self.world.note(self.member.name, f"a seek fails at {tp}")
                raise KafkaUnavailable(f"Seeking {tp} to {offset} failed.")
            self._stalled.discard(tp)
            self._unreadable.pop(tp, None)
            if self.world.faults.misbehaves(self.member, "seek is lost"):
                if self._next.get(tp, 0) != offset:
                    self.world.faults.hit("seek is lost", self.member)
                    self.world.faults.troubled = True
            else:
                self._next[tp] = offset
                self._read.pop(tp, None)
                if (epoch := (leader_epochs or {}).get(tp, -1)) >= 0:
                    self._read[tp] = epoch

    def flow(self, tps: Iterable[TP]) -> None:
        self._flowing = set(tps) & self._held

    def known_ends(self) -> dict[TP, int]:
        return {tp: self.broker.ends[tp] for tp in sorted(self._held)}

    # Commit

    def commit(
        self,
        offsets: Mapping[TP, int],
        metadata: Mapping[TP, str] | None = None,
        leader_epochs: Mapping[TP, int] | None = None,
        patience: float | None = None,
    ) -> None:
        texts = metadata or {}
        for piece in chunks(offsets, texts, group_id="group", most=COMMIT_BYTES):
            self._commit_piece(piece, texts)

    def _commit_piece(self, offsets: Mapping[TP, int], metadata: Mapping[TP, str]) -> None:
        """One request; between two of them anything may happen."""
        world = self.world
        world.scheduler.give_way()
        if not self.reaches:
            self._cut_off()
            world.scheduler.sleep(2.0 * world.rng.random())
            if world.rng.random() < 0.5 or not self.reaches:
                raise KafkaUnavailable("The coordinator did not answer a commit.")
        size = sum(60 + len(tp.topic) + len(metadata.get(tp, "")) for tp in offsets)
        if size > COMMIT_BYTES:
            raise KafkaUnavailable("UNKNOWN: the commit is larger than a batch.")
        error = self._commit_error(offsets)
        if error is None:
            outcome = self.broker.commit(self.client, offsets, metadata)
            if outcome is Outcome.RESTART:
                raise Fenced("Another consumer has joined with the same group.instance.id.")
            if outcome is Outcome.REBALANCED:
                raise GroupRebalanced("A rebalance is on its way.")
            world.judged(lambda: world.oracle.committed(self.member, offsets))
        world.scheduler.give_way()
        if error is not None:
            raise error

    def _commit_error(self, offsets: Mapping[TP, int]) -> CrkafkaError | None:
        """One partition fails, and those before it are committed all the same; or the reply is lost."""
        if not self.world.faults.strikes(self.member, "commit fails"):
            return None
        if self.world.rng.random() < 0.5:
            some = dict(sorted(offsets.items())[: self.world.rng.randint(0, len(offsets))])
            if self.broker.commit(self.client, some, {}) is Outcome.DONE:
                self.world.judged(lambda: self.world.oracle.committed(self.member, some))
        error = answers.to_a_commit(self.world.rng)
        self.world.note(self.member.name, f"a commit fails: {error.message}")
        return error


class SimulatedAdmin:
    """Questions to the broker beside one's own consumption."""

    def __init__(self, world: World, owner: Owner) -> None:
        self.owner, self.world, self.broker = owner, world, world.broker

    def _reach(self) -> None:
        self.world.scheduler.give_way()
        if self.broker.down or self.world.now < self.owner.away_until:
            self.world.faults.hit("kafka down" if self.broker.down else "cut kafka", self.owner)
            self.world.scheduler.sleep(self.world.rng.random())
            raise KafkaUnavailable("No broker answers.")
        if self.world.faults.strikes(self.owner, "question fails"):
            raise self._failed()

    def _failed(self) -> CrkafkaError:
        error = answers.to_a_question(self.world.rng)
        self.world.note(self.owner.name, f"a question fails: {error.message}")
        return error

    def cluster_id(self) -> str:
        self._reach()
        return "cluster"

    def topics(self, names: Iterable[str] = (), *, pattern: str | None = None) -> dict[str, TopicInfo]:
        self._reach()
        counts = self.broker.partitions
        return {n: TopicInfo(self.broker.ids[n], tuple(range(counts[n]))) for n in sorted(set(names)) if n in counts}

    def compacted(self, topics: Iterable[str]) -> dict[str, bool]:
        self._reach()
        return dict.fromkeys(topics, False)

    def watermarks(self, tps: Iterable[TP], isolation: Isolation = "read_committed") -> dict[TP, tuple[int, int]]:
        known, silent = self.known_watermarks(tps, isolation)
        for error in silent.values():
            raise error
        return known

    def known_watermarks(
        self, tps: Iterable[TP], isolation: Isolation = "read_committed"
    ) -> tuple[dict[TP, tuple[int, int]], dict[TP, CrkafkaError]]:
        self._reach()
        known: dict[TP, tuple[int, int]] = {}
        silent: dict[TP, CrkafkaError] = {}
        for tp in sorted(set(tps)):
            if not self.broker.led(tp):
                silent[tp] = KafkaUnavailable(f"{tp} has no leader.")
            elif self.world.faults.strikes(self.owner, "question fails"):
                silent[tp] = self._failed()
            else:
                known[tp] = self.broker.starts[tp], self.broker.ends[tp]
        return known, silent

    def cut_below(self, offsets: Mapping[TP, tuple[int, int]]) -> dict[TP, int]:
        self._reach()
        ends = {tp: (self.broker.end_of(tp, epoch), offset) for tp, (offset, epoch) in sorted(offsets.items())}
        return {tp: end for tp, (end, offset) in ends.items() if end < offset}

    def offsets_for_time(self, tps: Iterable[TP], millis: int) -> dict[TP, int]:
        return {tp: start for tp, (start, _) in self.watermarks(tps).items()}

    def committed(self, group_id: str, tps: Iterable[TP]) -> dict[TP, Committed]:
        self._reach()
        metadata = self.broker.metadata
        return {
            tp: Committed(self.broker.committed[tp], metadata.get(tp, "")) for tp in tps if tp in self.broker.committed
        }

    def close(self) -> None:
        """It holds nothing."""

    def client_ids(self, group_id: str) -> list[str]:
        self._reach()
        return sorted(seat.client.name for seat in self.broker.seats.values())

    def describe_group(self, group_id: str) -> Any:
        self._reach()
        members = [
            SimpleNamespace(client_id=seat.client.name, member_id=str(at)) for at, seat in self.broker.seats.items()
        ]
        return SimpleNamespace(
            state=SimpleNamespace(name="STABLE"), coordinator=None, partition_assignor="", members=members
        )
