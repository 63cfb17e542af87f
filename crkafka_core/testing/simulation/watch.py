"""A simulated watchdog: whoever sees a renewal counter stand still for a whole lease declares the loss; anyone advances (SPEC G4, G7)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.rows import Member, MemberStatus
from crkafka_core.plane import advance, members

if TYPE_CHECKING:
    from crkafka_core.testing.simulation.world import World


class Watch:
    """Counts only time in which it reached SQL itself: after a gap it begins anew."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.last = -1.0
        self.every = world.limits.session_timeout / 4
        self.since: dict[str, tuple[str, int, float]] = {}

    def look(self, who: Any) -> None:
        """One round, as the process `who`."""
        now = self.world.now
        if now < self.last + self.every * 0.5:
            self.advance(who)
            return
        try:
            rows = self.world.ask(
                who,
                lambda r, region: r.select(Member, ("region", "=", region.name), ("status", "=", MemberStatus.LIVE)),
            )
        except ServiceUnavailable:
            return
        if now > self.last + 2 * self.every:
            self.since.clear()
        self.last = now
        for row in rows:
            seen = self.since.get(row.name)
            if seen is None or seen[:2] != (row.incarnation, row.renewals):
                self.since[row.name] = (row.incarnation, row.renewals, now)
            elif now - seen[2] > self.world.limits.session_timeout and row.name != self.name:
                self.lose(who, row, seen[2])
                del self.since[row.name]

    def lose(self, who: Any, row: Member, since: float) -> None:
        why = f"its lease was not renewed for {self.world.now - since:.1f} s"
        lose = partial(
            members.lose, name=row.name, incarnation=row.incarnation, renewals=row.renewals, by=self.name, why=why
        )
        try:
            self.world.sql(who, lose, f"lose {row.name}")
        except CrkafkaError:
            return

    def advance(self, who: Any) -> None:
        try:
            if self.world.ask(who, advance.due):
                self.world.sql(who, advance.advance, "advance")
        except CrkafkaError:
            return
