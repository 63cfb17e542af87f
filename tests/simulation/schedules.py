"""Runs many seeds over two processes: what the tests of this folder share."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import combinations, islice

from checkpoints_db import open_store
from crkafka_core.control import Store
from crkafka_core.model.phase import Phase
from tests.rigs.memory import MemoryStore
from tests.rigs.simulation import simulate
from tests.rigs.simulation.plan import (
    ANSWERS,
    EDGE_FAULTS,
    LATER,
    PERSON,
    PROCESS_FAULTS,
    REGION_FAULTS,
    RENEWED,
    VISITS,
    plan,
)
from tests.rigs.simulation.world import Stores

WORKERS = 2
CHUNK = 8

Failure = tuple[int, str]
"""(seed, what was broken)."""
Strike = tuple[str, str, str]
"""(phase of the region, step of the victim's cut, kind of fault)."""


@dataclass
class Outcome:
    failures: list[Failure] = field(default_factory=list)
    strikes: set[Strike] = field(default_factory=set)
    actions: set[str] = field(default_factory=set)
    """Of all histories: mutations of SQL, faults, decisions, without their numbers."""
    tuples: int = 0
    cuts: int = 0

    def add(self, other: Outcome) -> None:
        self.failures += other.failures
        self.strikes |= other.strikes
        self.actions |= other.actions
        self.tuples += other.tuples
        self.cuts += other.cuts

    def report(self) -> str:
        """What was tried, and what never was: faults that struck in no schedule while the region was in a phase."""
        kinds = (*PROCESS_FAULTS, *EDGE_FAULTS, *ANSWERS, *REGION_FAULTS, *LATER, RENEWED, *PERSON, *VISITS)
        tried = {(phase, kind) for phase, _, kind in self.strikes}
        never = [f"{kind} in {phase}" for kind in kinds for phase in Phase if (str(phase), kind) not in tried]
        text = f"{len(self.strikes)} combinations of phase, step and fault were tried; {len(tried)} of phase and fault"
        return f"{text}; never: {', '.join(never) or 'nothing'}"


def sqlite(clock: Callable[[], float]) -> Store:
    """The real control plane on SQLite in memory, telling simulated time."""
    return open_store("sqlite://", clock=clock)


STORES: dict[str, Stores] = {"memory": MemoryStore, "sqlite": sqlite}


def varied(first: int, count: int) -> list[int]:
    """Out of a hundred times as many seeds, those that try the most together: forty of them try as much as two hundred in a row."""
    left, done, chosen = {seed: _tries(seed) for seed in range(first, first + 100 * count)}, set[tuple[str, str]](), []
    for _ in range(count):
        chosen.append(max(left, key=lambda seed: len(left[seed] - done)))
        done |= left.pop(chosen[-1])
    return chosen


def _tries(seed: int) -> set[tuple[str, str]]:
    """Faults at moments, faults that meet each other, and faults in a kind of region."""
    p = plan(seed)
    kinds = sorted({fault.kind for fault in p.faults})
    region = (
        p.static,
        p.commit_at_drain,
        p.drain,
        p.trigger_count,
        p.tables,
        p.adopts,
        p.aided,
        p.sluggish,
        p.from_end,
    )
    named = [f"{at} {value}" for at, value in enumerate((*region, p.segment_rows > 0))]
    return {(f.kind, f.when) for f in p.faults} | {*combinations(kinds, 2)} | {(k, r) for k in kinds for r in named}


def _chunk(seeds: Sequence[int], store: str, epochs: bool) -> Outcome:
    outcome = Outcome()
    for seed in seeds:
        history = simulate(seed, plan=replace(plan(seed), member_epochs=epochs), stores=STORES[store])
        failures = [] if history.violation is None else [(seed, str(history.violation))]
        actions = {what.rstrip(" 0123456789") for _, _, what, _ in history.entries}
        outcome.add(Outcome(failures, history.pairs, actions, history.tuples, history.cuts))
    return outcome


def run(seeds: Sequence[int], *, store: str = "memory", epochs: bool = False) -> Outcome:
    """Stops soon after the first that breaks a rule. `epochs`: in groups of KIP-848."""
    chunks = iter([seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)])
    outcome = Outcome()

    def submit(count: int) -> Iterator[Future[Outcome]]:
        for chunk in islice(chunks, count):
            yield pool.submit(_chunk, chunk, store, epochs)

    # Polite: what runs beside it waits for real services, and its deadlines are real.
    polite = {"initializer": os.nice, "initargs": (10,)}
    # Imports cost as much as ten schedules: all workers fork from one process that has made them.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(WORKERS, mp_context=context, **polite) as pool:
        running = set(submit(2 * WORKERS))
        while running and not outcome.failures:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                outcome.add(each.result())
            running |= set(submit(0 if outcome.failures else len(done)))
    outcome.failures.sort()
    return outcome
