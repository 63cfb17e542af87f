"""What a seed stands for: the region, and the faults that hit it.

A plan can be shrunk: its faults are a list, and the scheduler's chance does not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Literal


def kinds(names: str) -> tuple[str, ...]:
    return tuple(names.split(", "))


PROCESS_FAULTS = kinds(
    "kill, kill before sql, kill after sql, lose reply, stall, cut sql, cut kafka, duplicate, trouble, disturb, "
    "hang, storage full"
)
EDGE_FAULTS = ("poll fails", "seek fails", "seek is lost", "commit fails", "late fetch")
"""Of the Kafka client, now and then for a while."""
REGION_FAULTS = kinds(
    "sql down, kafka down, add partition, rebalance, driver stall, driver kill, writer stall, writer kill, "
    "clock step, stranger, slow, retention, restore, lake fails, copy, upgrade, host kill, host stall"
)
LATER = ("cut log",)
"""Of regions too, drawn apart: most seeds stand for what they stood for before there were any."""
ANSWERS = ("partition fails", "no leader", "question fails")
"""Of Kafka, to one process or to all, about one partition or about all; drawn apart as well."""
RENEWED = "topic made anew"
"""Drawn apart as well."""
NOT_WITH_RENEWED = frozenset({"cut log", "restore", "skip", "cut kafka", "kafka down", "stall"})
"""Kafka does not tell ids while it is away, which docs/operations.md says is not promised; the others have their own way to name a log."""
PERSON = ("rewind", "initial", "reset", "scale", "stop", "pause", "configure", "skip", "undeclare")
VISITS = ("read", "consume")
"""Of somebody who comes, and goes by himself."""
TO_TABLES = frozenset({"rewind", "initial", "undeclare", "lake fails", "writer stall", "writer kill"})
"""Kinds that need a table."""
FOR_SPARK = frozenset({"undeclare", "initial", "restore"})
"""Kinds after which a table may need what is archived: only Spark fetches that."""
LOOPS = ("main", "process", "reporter", "resolver", "observer")
MOMENTS = ("", "", "CUTTING", "CUTTING", "RESETTING", "RESETTING", "BIRTH", "REWINDING")
RARE: dict[str, tuple[tuple[str, ...], ...]] = {
    "REWINDING": (("writer stall", "rewind"), ("lake fails", "rewind"), ("writer kill", "initial")),
    "STOPPED": (("restore",), ("trouble",) * 16),
    "IDLE": (("stop",),),
}
"""Phases to which few kinds of faults lead, and what brings a region there: some schedules are about one of them."""


@dataclass(frozen=True)
class Fault:
    """Something that happens at a simulated time, or at the first moment after it at which the region is in a phase."""

    at: float
    kind: str
    who: int = 0
    """Which process or actor, taken modulo how many there are."""
    value: float = 0.0
    """How long, or how much; a share of one."""
    when: str = ""

    def __str__(self) -> str:
        moment = f" and {self.when}" if self.when else ""
        return f"{self.at:.2f} s{moment}: {self.kind} (who {self.who}, value {self.value:.2f})"


@dataclass(frozen=True)
class Plan:
    seed: int
    members: int = 2
    partitions: tuple[int, ...] = (2,)
    static: bool = True
    member_epochs: bool = False
    """The group is KIP-848's."""
    commit_at_drain: bool = True
    trigger_count: int = 0
    drain: Literal["flow", "stop"] = "flow"
    """Whether members go on while a cut is open, where none counts tuples."""
    period: float | None = 2.0
    """None: cuts come by the count alone."""
    tables: int = 0
    adopts: bool = True
    """Tables take segments as their files; else Spark writes them."""
    aided: bool = True
    """A program in Spark writes tables that take segments, too; else the feeders of hosts are alone with them."""
    from_end: bool = False
    """A partition that nobody saw before starts where it ends at that moment (SPEC S2)."""
    data_loss: Literal["stop", "gap"] = "stop"
    """What the region does when Kafka no longer holds what it needs (SPEC S4)."""
    segment_rows: int = 0
    """After so many a member begins its next segment; 0: it needs one for each cut."""
    queue_rows: int = 0
    """With so many its queue is full; 0: it never is."""
    sluggish: str = ""
    """The loop of each process that takes its time."""
    chaos: float = 12.0
    """Simulated seconds in which faults come."""
    faults: tuple[Fault, ...] = ()


def plan(seed: int) -> Plan:
    """The plan of a seed. A seed uses a few kinds of faults only: so that each meets itself and every other one often enough."""
    rng = Random(f"plan {seed}")
    chaos = rng.choice((5.0, 8.0, 12.0))
    rooms = rng.choices(
        (PROCESS_FAULTS, EDGE_FAULTS, REGION_FAULTS, PERSON, VISITS), (5, 2, 3, 4, 1), k=rng.randint(1, 4)
    )
    kinds = [rng.choice(room) for room in rooms]
    faults = [_fault(rng, chaos, kinds) for _ in range(rng.choice((1, 2, 2, 3, 4, 6, 8)))]
    if phase := rng.choice(("", "", "", *RARE)):
        bringers = rng.choice(RARE[phase])
        chaos, kinds = 12.0, [*kinds, *bringers]
        faults = _about(rng, phase, bringers, rng.uniform(7.0, 11.0), faults)
    apart = Random(f"later {seed}")
    later = [_fault(apart, chaos, list(LATER)) for _ in range(apart.choice((1, 1, 2)) if apart.random() < 0.15 else 0)]
    answers = Random(f"answers {seed}")
    count = answers.choice((1, 2, 3)) if answers.random() < 0.15 else 0
    everything = [*faults, *later, *(_fault(answers, chaos, list(ANSWERS)) for _ in range(count))]
    renewed = Random(f"renewed {seed}")
    if renewed.random() < 0.12 and not NOT_WITH_RENEWED & {f.kind for f in everything}:
        everything.append(_fault(renewed, chaos, [RENEWED]))
    segment_rows, queue_rows = _small(Random(f"small {seed}"))
    trigger = rng.choice((0, 0, 0, 24))
    return Plan(
        seed=seed,
        members=rng.choice((1, 2, 2, 3, 3, 4)),
        partitions=tuple(rng.randint(1, 3) for _ in range(rng.choice((1, 1, 2)))),
        static=rng.random() < 0.6,
        commit_at_drain=rng.random() < 0.8,
        drain="stop" if Random(f"drain {seed}").random() < 0.25 else "flow",
        trigger_count=trigger,
        period=rng.choice((0.3, 1.0, 2.0, None) if trigger else (0.3, 1.0, 2.0)),
        tables=1 if TO_TABLES & set(kinds) else rng.choice((0, 0, 1)),
        adopts="restore" in kinds or rng.random() < 0.6,
        aided=bool(FOR_SPARK & {f.kind for f in everything}) or Random(f"aided {seed}").random() < 0.5,
        from_end=rng.random() < 0.3,
        data_loss="gap" if later or "retention" in kinds else "stop",
        segment_rows=segment_rows,
        queue_rows=queue_rows,
        sluggish="closer" if Random(f"closer {seed}").random() < 0.1 else rng.choice(("", "", *LOOPS)),
        chaos=chaos,
        faults=tuple(sorted(everything, key=lambda f: f.at)),
    )


def _small(rng: Random) -> tuple[int, int]:
    """Segments and queues; mostly both are large."""
    return (rng.choice((1, 2, 5)), rng.choice((1, 4, 12))) if rng.random() < 0.3 else (0, 0)


def _about(rng: Random, phase: str, bringers: tuple[str, ...], at: float, faults: list[Fault]) -> list[Fault]:
    """Bring the region into the phase, and let most of the faults strike there."""
    some = [
        replace(f, at=round(at + rng.uniform(-1.0, 0.8), 3), when=phase) if rng.random() < 0.7 else f for f in faults
    ]
    return some + [
        Fault(round(at - 0.35 * i, 3), kind, rng.randint(0, 11), round(0.3 + 0.6 * rng.random(), 3))
        for i, kind in enumerate(reversed(bringers))
    ]


def _fault(rng: Random, chaos: float, kinds: list[str]) -> Fault:
    kind = rng.choice(kinds)
    earliest = 4.0 if kind in ("rewind", "initial") else 0.5  # before the first cut there is nothing to go back from
    return Fault(
        round(rng.uniform(earliest, chaos), 3),
        kind,
        rng.randint(0, 11),
        round(0.999 * rng.random(), 3),
        rng.choice(MOMENTS),
    )
