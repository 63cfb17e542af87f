"""Promises about rights of hosts, writers and readers: while they are renewed nobody else gets them (SPEC A6, K6, T1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, TableCommit
from crkafka_core.plane import tables
from crkafka_core.region.host import only_host
from tests.rigs.simulation.actors import Actor, SimulatedRegion
from tests.rigs.simulation.configuration import LIMITS
from tests.rigs.simulation.faults import EPOCH
from tests.rigs.simulation.lake import SimulatedSnapshot
from tests.rigs.simulation.tables import SparkWriter
from tests.rigs.simulation.world import World
from tests.simulation.one_failure import AT, LONG, watch
from tests.simulation.promises import Promise, promise


@promise
def nobody_takes_a_right_that_is_renewed(seed: int) -> None:
    """Of the host: the only one that no schedule has (SPEC A6)."""
    refused: list[float] = []

    def begin(world: World) -> None:
        hosts, other = Actor(world, "the host"), Actor(world, "another host")

        def host() -> None:
            with only_host(SimulatedRegion(hosts)):
                world.scheduler.sleep(LONG)

        def ask() -> None:
            world.scheduler.sleep(3 * LIMITS.driver_lease)
            try:
                with only_host(SimulatedRegion(other)):
                    pass
            except LeaseHeld:
                refused.append(world.now - EPOCH)

        world.scheduler.spawn(hosts, "hosting", host)
        world.scheduler.spawn(other, "asking", ask)

    seen = watch(seed, (1.0, begin))
    seen.expect(len(refused) == 1, "refused while another host renews its right")


def _a_slow_write(adopts: bool, where: Any, method: str, world_of: Callable[[Any], World]) -> Promise:
    """It takes twice as long as its lease, and another program asks for the table all the while (SPEC K6)."""

    def check(seed: int) -> None:
        real = getattr(where, method)

        def slow(self: Any, *args: Any, **keys: Any) -> Any:
            world_of(self).scheduler.sleep(2 * LIMITS.driver_lease)
            return real(self, *args, **keys)

        with patch.object(where, method, slow):
            seen = watch(seed, tables=1, adopts=adopts, aided=True, chaos=45.0)
        commits = seen.rows(TableCommit)
        seen.expect(len(commits) > 2, f"a table that is written: {commits}")
        seen.expect(all(c.status != tables.FAILED for c in commits), f"free of writes that were overtaken: {commits}")

    check.__name__ = f"a_write_that_takes_longer_than_its_lease_is_nobody_elses_{'adopted' if adopts else 'by_spark'}"
    return promise(check)


SLOW_WRITES = [
    _a_slow_write(False, SparkWriter, "_take", lambda writer: writer.world),
    _a_slow_write(True, SimulatedSnapshot, "commit", lambda snapshot: snapshot._log._world),
]


@promise
def what_is_read_for_a_write_is_there_for_as_long_as_that_takes(seed: int) -> None:
    """A checkpoint that the table has is written anew, and nothing but the reader's lease keeps it (SPEC T1)."""
    slow, gone, done = 3 * LIMITS.driver_lease, list[str](), list[int]()

    def begin(world: World) -> None:
        writer = world.writers[0]
        assert isinstance(writer, SparkWriter)
        real, missing = writer.read, writer._gone

        def read(plan: Any) -> Any:
            world.scheduler.sleep(slow)
            return real(plan)

        def told(checkpoint: int, path: str) -> Exception:
            gone.append(path)
            return missing(checkpoint, path)

        def once() -> None:
            if done:
                return
            live = writer.plane.read(lambda r, _: r.select(Checkpoint, ("status", "=", CheckpointStatus.MERGED)))
            has = [
                c.id
                for c in live
                if c.rows and c.id <= writer.plane.read(lambda r, _: tables.of(r, writer.lake.name)).acknowledged
            ]
            if has:
                writer.rewrite(has[0])
                done.append(has[0])

        writer.read, writer._gone, writer.move = read, told, once

    seen = watch(seed, (AT, begin), tables=1, adopts=False, period=0.5, chaos=40.0)
    seen.expect(bool(done), "a checkpoint that is written anew")
    seen.expect(not gone, f"in possession of what it reads: {gone[:1]}")
