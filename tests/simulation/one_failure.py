"""One failure in a region where all else is well: for which cause it is reset, and how soon (SPEC D2, G3, G4, G8, S1).

A deadline that lies further off (of a cut, of a reset, of Kafka's session) would bring the region back all the same, later and for a
cause of its own. Each bound here is nearer than that, so that a failure is found of which nobody tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from crkafka_core.member.main import MemberProcess
from crkafka_core.model.rows import Event, Reset, ResetCause
from tests.rigs.simulation import Fault, History, Plan, simulate
from tests.rigs.simulation.faults import EPOCH
from tests.rigs.simulation.history import Heard
from tests.rigs.simulation.member import SimulatedMember
from tests.rigs.simulation.world import SINCE_1970, World

AT = 6.0
"""Simulated seconds after the begin at which it fails: the region has run for a while then."""
SOON = 3.0
"""Seconds within which what is told at once has its reset, and within which a settled group resumes."""
LONG = 60.0
"""Seconds for which a thread hangs, or a process is cut off: longer than any schedule."""

Strike = Callable[[World], None]


class Unnoticed(AssertionError):
    """The region came back later than was promised, or for another cause."""


@dataclass
class Struck:
    times: list[float] = field(default_factory=list)

    @property
    def at(self) -> float:
        if not self.times:
            raise Unnoticed("nothing failed: this schedule tries nothing")
        return self.times[0]


@dataclass
class Watched:
    """A schedule that is over, and what SQL has of it until the faults were over."""

    world: World
    history: History

    def rows(self, kind: type[Any]) -> list[Any]:
        with self.world.store.read(self.world.region) as reader:
            return list(reader.select(kind))

    def resets(self) -> list[tuple[float, Reset]]:
        """After the start."""
        return [(at, r) for at, r in self._of(Reset) if r.cause is not ResetCause.START]

    def events(self, kind: str) -> list[tuple[float, Event]]:
        return [(at, e) for at, e in self._of(Event) if e.kind == kind]

    def _of(self, kind: type[Any]) -> list[tuple[float, Any]]:
        healed = self.history.healed_at
        return [(at, row) for row in self.rows(kind) if (at := row.at - SINCE_1970 - EPOCH) < healed]

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            resets = [f"{at:.2f} s: {r.cause}: {r.text}" for at, r in self.resets()]
            raise Unnoticed(f"seed {self.world.plan.seed}: not {what}; resets: {resets}")

    def reset_for(self, cause: ResetCause, text: str, since: float, within: float = SOON) -> float:
        """When: it was the only one, for this cause and in these words, as soon as that, and the region has resumed soon."""
        resets = self.resets()
        self.expect([r.cause for _, r in resets] == [cause], f"one reset, for {cause}")
        at, reset = resets[0]
        self.expect(text in reset.text, f"a reset that says {text!r}")
        self.expect(since <= at <= since + within, f"reset within {within} s after {since:.2f} s")
        return at

    def resumed(self, since: float, within: float) -> None:
        self.expect(
            any(since < at <= since + within for at, _ in self.events("resumed")),
            f"resumed within {within} s after {since:.2f} s",
        )

    def undisturbed(self) -> None:
        self.expect(not self.resets(), "free of resets")

    def hears(self, who: str, kind: type[Any]) -> list[tuple[float, Heard]]:
        what = f"hears {kind.__name__}"
        return [
            (at, heard)
            for at, name, said, heard in self.history.entries
            if name == who and said == what and isinstance(heard, Heard)
        ]

    def ended(self, who: str) -> tuple[float, str]:
        """When a process did, and with which words."""
        ends = [(at, what) for at, name, what, _ in self.history.entries if name == who and what.startswith("ends")]
        self.expect(bool(ends), f"seeing {who} end")
        return ends[0]


def watch(seed: int, *strikes: tuple[float, Strike], **region: Any) -> Watched:
    """Run it. Every other seed has static members."""
    usual: dict[str, Any] = {"members": 2, "partitions": (3,), "static": seed % 2 == 0, "chaos": 16.0}
    return watched(Plan(seed, **usual | region), *strikes)


def watched(plan: Plan, *strikes: tuple[float, Strike]) -> Watched:
    worlds: list[World] = []

    def plant(world: World) -> None:
        worlds.append(world)
        for at, strike in strikes:
            world.later(at, partial(strike, world))

    history = simulate(plan.seed, plan=plan, plant=plant)
    if not history.ok:
        raise Unnoticed(history.text(last=60))
    return Watched(worlds[0], history)


# What fails


def fails_once(of: Callable[[World], tuple[object, str]], error: Exception) -> tuple[Struck, Strike]:
    """From when it strikes, the next call of that method fails before it has done anything."""
    struck = Struck()

    def strike(world: World) -> None:
        where, method = of(world)
        real = getattr(where, method)

        def failing(*args: Any, **kwargs: Any) -> Any:
            if struck.times:
                return real(*args, **kwargs)
            struck.times.append(world.now - EPOCH)
            raise error

        setattr(where, method, failing)

    return struck, strike


def first(world: World) -> SimulatedMember:
    return world.processes[0]


def parts(world: World) -> MemberProcess:
    """Of the first member."""
    found = first(world).parts
    assert found is not None
    return found


def ask_for_a_reset(world: World) -> None:
    world.person.ask(Fault(AT, "reset"))


def hang(world: World, thread: str, busy: Callable[[MemberProcess], bool] = lambda _: True) -> float:
    """The first member's thread stands still, as soon as it is at what may hang; since when."""
    while not busy(parts(world)):
        world.scheduler.sleep(0.005)
    task = next(task for task in first(world).tasks if task.name == thread)
    task.held_until = world.now + LONG
    return world.now - EPOCH
