"""Runs many seeds over two processes: what the tests of this folder share."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

from checkpoints_db import open_store
from crkafka_core.control import Store
from crkafka_core.testing.memory import MemoryStore
from crkafka_core.testing.simulation import simulate
from crkafka_core.testing.simulation.world import Stores

WORKERS = 2
CHUNK = 25

Failure = tuple[int, str]
"""(seed, what was broken)."""


def sqlite(clock: Callable[[], float]) -> Store:
    """The real control plane on SQLite in memory, telling simulated time."""
    return open_store("sqlite://", clock=clock)


STORES: dict[str, Stores] = {"memory": MemoryStore, "sqlite": sqlite}


def _chunk(seeds: Sequence[int], store: str) -> list[Failure]:
    """In a worker: the seeds of this chunk that break a rule."""
    outcomes = ((seed, simulate(seed, stores=STORES[store]).violation) for seed in seeds)
    return [(seed, str(violation)) for seed, violation in outcomes if violation is not None]


def failures(seeds: Sequence[int], *, store: str = "memory") -> list[Failure]:
    """Seeds that break a rule; stops soon after the first."""
    chunks = iter([seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)])
    found: list[Failure] = []

    def submit(count: int) -> Iterator[Future[list[Failure]]]:
        for chunk in islice(chunks, count):
            yield pool.submit(_chunk, chunk, store)

    # Polite: what runs beside it waits for real services, and its deadlines are real.
    polite = {"initializer": os.nice, "initargs": (10,)}
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn"), **polite) as pool:
        running = set(submit(2 * WORKERS))
        while running and not found:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                found += each.result()
            running |= set(submit(0 if found else len(done)))
    return sorted(found)
