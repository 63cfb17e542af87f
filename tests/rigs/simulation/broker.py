"""A simulated Kafka: logs with holes, and one consumer group of the classic eager protocol, on simulated time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from crkafka_core.model.offsets import TP
from crkafka_core.protocol.signals import Outcome

Record = tuple[int, int]
"""(offset, unique number)."""


def between(log: list[Record], start: int, stop: int) -> list[Record]:
    return log[bisect_left(log, (start, 0)) : bisect_left(log, (stop, 0))]


def after(log: list[Record], start: int, most: int) -> list[Record]:
    at = bisect_left(log, (start, 0))
    return log[at : at + most]


class FencedInstance(Exception):
    """A newer member uses this static member's name."""


@dataclass(eq=False)
class Client:
    """One consumer, as its own process sees it."""

    name: str
    instance: str | None
    away_until: float = 0.0
    """Before, its process does not run or does not reach Kafka; it heartbeats by itself while it does both."""
    id: int = 0
    holds: frozenset[TP] | None = None
    """What the last callback assigned; None between revocation and assignment, and before the first."""
    generation: int = -1
    topics: frozenset[str] | None = None
    """What it has subscribed to; None: everything."""
    stranger: bool = False
    """A member of somebody else's: it takes part in every rebalance, and reads what it gets."""
    leaks: bool = True
    """Once removed from the group, it still delivers one batch before it hears of it (docs/clients.md C-R5)."""


@dataclass(eq=False)
class Seat:
    """One member, as the coordinator sees it."""

    client: Client
    heard: float
    joined: bool = True
    fresh: bool = False
    """An assignment waits for its next poll."""
    parts: frozenset[TP] = frozenset()


@dataclass
class Broker:
    """Logs and the group. `now` is simulated."""

    session_timeout: float
    rebalance_timeout: float
    now: Callable[[], float]
    partitions: dict[str, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    logs: dict[TP, list[Record]] = field(default_factory=dict)
    starts: dict[TP, int] = field(default_factory=dict)
    """Where each log begins: retention raises it."""
    ends: dict[TP, int] = field(default_factory=dict)
    leaders: dict[TP, list[tuple[int, int]]] = field(default_factory=dict)
    """Offset from which on a leader wrote → its epoch, of each of the log's leaders, oldest first."""
    cuts: dict[TP, tuple[int, list[Record]]] = field(default_factory=dict)
    """Where a log was cut, and the whole log as it was before; each at most once."""
    leaderless: dict[TP, float] = field(default_factory=dict)
    """Partitions that have no leader until then: nobody reads them, and nobody learns where they end."""
    former: dict[str, dict[TP, list[Record]]] = field(default_factory=dict)
    """Logs of topics that were made anew, under the id that each had before."""
    former_starts: dict[TP, int] = field(default_factory=dict)
    """Where the last of those began: who was placed there may not have noticed yet."""
    committed: dict[TP, int] = field(default_factory=dict)
    metadata: dict[TP, str] = field(default_factory=dict)
    seats: dict[int, Seat] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    generation: int = 0
    rebalancing: bool = False
    calm: bool = False
    """No rebalance is under way, and every member runs and reaches Kafka: nobody can be late."""
    all_heard: float = 0.0
    """When it was last so."""
    since: float = 0.0
    numbers: int = 0
    next_id: int = 0
    down_until: float = 0.0
    rebalances: int = 0

    # Logs

    def create(self, topic: str, count: int) -> None:
        self.ids.setdefault(topic, f"id-{topic}")
        for p in range(self.partitions.get(topic, 0), count):
            self.logs[TP(topic, p)] = []
            self.starts[TP(topic, p)] = self.ends[TP(topic, p)] = 0
            self.leaders[TP(topic, p)] = [(0, 0)]
        self.partitions[topic] = count

    def add_partition(self, topic: str) -> None:
        self.create(topic, self.partitions[topic] + 1)

    def renew(self, topic: str) -> None:
        """It is deleted and made anew under its name: another id, empty logs, and nothing committed (fault 20)."""
        tps = [TP(topic, p) for p in range(self.partitions.pop(topic))]
        self.former[self.ids[topic]] = {tp: self.logs[tp] for tp in tps}
        self.ids[topic] = f"id-{topic}-{len(self.former)}"
        for tp in tps:
            self.former_starts[tp] = self.starts[tp]
            self.committed.pop(tp, None)
            self.metadata.pop(tp, None)
        self.create(topic, len(tps))

    def all(self) -> frozenset[TP]:
        return frozenset(self.logs)

    def produce(self, tp: TP, *, hole: int = 0) -> None:
        """Append one record, after so many offsets that hold none (aborted transactions, control records: docs/clients.md C-R6)."""
        self.numbers += 1
        offset = self.ends[tp] + hole
        self.logs[tp].append((offset, self.numbers))
        self.ends[tp] = offset + 1

    def expire(self, tp: TP, share: float) -> bool:
        """Retention takes the oldest of what is there, if that is anything; `records` and `fetch` still tell it to the oracle."""
        gone = int(share * (self.ends[tp] - self.starts[tp]))
        self.starts[tp] += gone
        return gone > 0

    def cut(self, tp: TP, share: float) -> None:
        """A leader is elected that lacks the newest records, and writes others in their place (fault 71)."""
        log, end = self.logs[tp], self.ends[tp] - int(share * (self.ends[tp] - self.starts[tp]))
        self.cuts[tp] = end, log
        self.logs[tp], self.ends[tp] = log[: bisect_left(log, (end, 0))], end
        left = [(first, epoch) for first, epoch in self.leaders[tp] if first < end]
        self.leaders[tp] = [*left, (end, self.leaders[tp][-1][1] + 1)]

    def written_by(self, tp: TP, record: Record) -> int:
        return max(epoch for first, epoch in self.leaders[tp] if first <= record[0])

    def end_of(self, tp: TP, epoch: int) -> int:
        """Where the log of this leader, or of an older one, ends (OffsetsForLeaderEpoch)."""
        return next((first for first, later in self.leaders[tp] if later > epoch), self.ends[tp])

    def may_begin(self, tp: TP, offset: int, due: int) -> bool:
        """Whether a start is where it is due, or a gap that Kafka has made (SPEC S4)."""
        return offset == due or due < offset <= self.kept_from(tp)

    def kept_from(self, tp: TP) -> int:
        """Retention has taken what is before."""
        return max(self.starts[tp], self.former_starts.get(tp, 0))

    def logs_of(self, tp: TP, topic_id: str = "") -> list[list[Record]]:
        """The log, and what it was before it was cut, or under other ids of its topic; with an id, of that alone."""
        former = [logs[tp] for name, logs in self.former.items() if tp in logs and topic_id in ("", name)]
        now = [] if topic_id in self.former else [self.logs[tp]]
        return [*now, *([self.cuts[tp][1]] if tp in self.cuts else ()), *former]

    def records(self, tp: TP, start: int, stop: int) -> list[Record]:
        return between(self.logs[tp], start, stop)

    def fetch(self, tp: TP, start: int, most: int) -> list[Record]:
        return after(self.logs[tp], start, most)

    def led(self, tp: TP) -> bool:
        return self.now() >= self.leaderless.get(tp, 0.0)

    # The group

    def join(self, client: Client) -> None:
        self.calm = False
        self.next_id += 1
        client.id, client.holds, client.leaks = self.next_id, None, True
        seat = Seat(client, self.now())
        old = next((s for s in self.seats.values() if client.instance and s.client.instance == client.instance), None)
        if old is not None:
            del self.seats[old.client.id]
            self.fenced.add(old.client.id)
            self.seats[client.id] = seat
            if self.rebalancing:
                self._complete()
            elif old.client.topics != client.topics:
                self.rebalance()
                seat.joined = True
                self._complete()
            else:  # a static member came back: the same partitions, no rebalance (docs/clients.md C-R2)
                seat.parts, seat.fresh = old.parts, True
            return
        self.seats[client.id] = seat
        self.rebalance()
        seat.joined = True
        self._complete()

    def leave(self, client: Client) -> None:
        """A dynamic member's close; a static one does not leave (docs/clients.md C-R2)."""
        if client.instance is None:
            self.remove(client)

    def remove(self, client: Client) -> None:
        """What scale-in does for a static member."""
        if client.id in self.seats:
            del self.seats[client.id]
            self.rebalance()

    def rebalance(self) -> None:
        self.calm, self.rebalancing, self.since = False, True, self.now()
        for seat in self.seats.values():
            seat.joined, seat.fresh = seat.client.stranger, False
        self._complete()

    def _complete(self) -> None:
        if not self.rebalancing or not all(s.joined for s in self.seats.values()):
            return
        self.rebalancing = False
        self.generation += 1
        self.rebalances += 1
        order = sorted(self.seats.values(), key=lambda s: (s.client.instance or "", s.client.id))
        shares: dict[int, set[TP]] = {seat.client.id: set() for seat in order}
        for i, tp in enumerate(sorted(self.logs)):
            if readers := [s for s in order if s.client.topics is None or tp.topic in s.client.topics]:
                shares[readers[i % len(readers)].client.id].add(tp)
        for seat in order:
            seat.parts, seat.fresh = frozenset(shares[seat.client.id]), True

    @property
    def down(self) -> bool:
        return self.now() < self.down_until

    def tick(self, now: float) -> None:
        """Sessions and rebalances that are over; the coordinator runs whenever simulated time goes on."""
        if self.calm:
            self.all_heard = now
            return
        if self.down:
            for seat in self.seats.values():
                seat.heard = now
            return
        self.calm, gone = not self.rebalancing, []
        over = self.rebalancing and now - self.since > self.rebalance_timeout
        for seat in self.seats.values():
            if now >= seat.client.away_until:
                seat.heard = now
                late = over and not seat.joined
            else:
                self.calm = False
                late = now - max(seat.heard, self.all_heard) > self.session_timeout
            if late:
                gone.append(seat.client.id)
        for member in gone:
            del self.seats[member]
        if gone:
            self.rebalance()

    def poll(self, client: Client, chance: float) -> str:
        """What the client's next poll brings: revoked, lost, assigned, or records (that it may or may not own)."""
        if client.id in self.fenced:
            raise FencedInstance(client.name)
        seat = self.seats.get(client.id)
        if seat is None:
            if client.leaks and client.holds and chance < 0.5:
                client.leaks = False
                return "records"
            held, client.holds = client.holds, None
            self.join(client)
            return "lost" if held is not None else "nothing"
        if self.rebalancing and not seat.joined:
            held, client.holds = client.holds, None
            seat.joined = True
            self._complete()
            return "revoked" if held is not None else "nothing"
        if seat.fresh:
            seat.fresh = False
            client.holds, client.generation = seat.parts, self.generation
            return "assigned"
        return "records" if client.holds is not None else "nothing"

    def commit(self, client: Client, offsets: Mapping[TP, int], metadata: Mapping[TP, str]) -> Outcome:
        """One synchronous commit (docs/clients.md C-R4)."""
        if client.id in self.fenced:
            return Outcome.RESTART
        if client.id not in self.seats or self.rebalancing or client.generation != self.generation:
            return Outcome.REBALANCED
        self.committed.update(offsets)
        self.metadata.update({tp: metadata.get(tp, "") for tp in offsets})
        return Outcome.DONE
