"""The simulated group by KIP-848: the broker assigns, each member reconciles at a poll of its own, and has an epoch of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crkafka_core.model.offsets import TP
from crkafka_core.protocol.signals import Outcome
from tests.rigs.simulation.broker import Broker, Client, Seat

HEARS = 0.3
"""Chance of a poll to bring what the broker wants: members hear of it at heartbeats."""


@dataclass
class EpochBroker(Broker):
    """`generation` is the group's epoch; `Seat.parts` is what a member has not given up."""

    targets: dict[int, frozenset[TP]] = field(default_factory=dict)

    def rebalance(self) -> None:
        """Another target: each keeps what it can of its share."""
        self.calm = False
        self.generation += 1
        self.rebalances += 1
        shares: dict[int, set[TP]] = {at: set() for at in self.seats}
        for tp in sorted(self.logs):
            readers = [
                at for at, s in sorted(self.seats.items()) if s.client.topics is None or tp.topic in s.client.topics
            ]
            if readers:
                least = min(readers, key=lambda at: (len(shares[at]) - (tp in self.seats[at].parts), at))
                shares[least].add(tp)
        self.targets = {at: frozenset(share) for at, share in shares.items()}

    def join(self, client: Client) -> None:
        self.next_id += 1
        client.id, client.holds, client.leaks = self.next_id, None, True
        self.seats[client.id] = Seat(client, self.now())
        self.rebalance()

    def tick(self, now: float) -> None:
        super().tick(now)
        for at, seat in self.seats.items():
            if seat.client.stranger:
                seat.parts = (seat.parts & self.targets[at]) | self._free(at)

    def _free(self, at: int) -> frozenset[TP]:
        """What a member is to have and no other has."""
        return self.targets[at].difference(*(s.parts for other, s in self.seats.items() if other != at))

    def poll(self, client: Client, chance: float) -> str:
        seat = self.seats.get(client.id)
        if seat is None:
            return super().poll(client, chance)
        if client.holds is None:  # it has joined, and holds nothing yet
            client.holds, client.generation = seat.parts, self.generation
            return "assigned"
        if chance < HEARS:
            target = self.targets[client.id]
            if seat.parts - target:
                client.holds = seat.parts = seat.parts & target
                return "revoked"
            client.generation = self.generation
            if self._free(client.id) - seat.parts:
                client.holds = seat.parts = seat.parts | self._free(client.id)
                return "assigned"
        return "records"

    def commit(self, client: Client, offsets: Mapping[TP, int], metadata: Mapping[TP, str]) -> Outcome:
        """Refused of who is out of the group, whatever it holds (docs/clients.md C-R4)."""
        if client.id not in self.seats:
            return Outcome.REBALANCED
        self.committed.update(offsets)
        self.metadata.update({tp: metadata.get(tp, "") for tp in offsets})
        return Outcome.DONE
