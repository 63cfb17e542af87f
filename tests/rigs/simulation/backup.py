"""A backup of a simulated control plane, put in place while the region runs, as a failover to a replica that lags does (SPEC G10)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from crkafka_core.control import Store, Tx
from crkafka_core.model.rows import ROWS, Region, Row, Segment

if TYPE_CHECKING:
    from tests.rigs.simulation.world import World

Rows = Mapping[type[Row], list[Row]]
OF_SQL = (
    "row",
    "merged",
    "landed",
    "seen",
    "parents",
    "fixed",
    "initial",
    "initials",
    "known",
    "launches",
    "failures",
    "retired",
    "led",
    "logs",
    "ids",
)
"""What the oracle knows of SQL; what it knows of members, Kafka and the disk stays true."""


def rows_of(store: Store, region: str) -> Rows:
    """All rows of a region, as they are at this moment."""
    with store.read(region) as reader:
        return {row: list(reader.select(row)) for row in ROWS}


def put(store: Store, rows: Rows) -> None:
    """Make these the rows of the region, in whichever store; what was there is gone."""
    (region,) = rows[Region]
    assert isinstance(region, Region)
    others = [row for row in ROWS if row is not Region]

    def fill(tx: Tx) -> None:
        for row in others:
            tx.delete(row)
            if rows[row]:
                tx.add(*rows[row])

    if any(each.name == region.name for each in store.regions()):
        store.run(region.name, lambda tx: tx.delete(Region))
    store.create(region, fill)


class Backup:
    """SQL as it was, and what the oracle knew then."""

    def __init__(self, world: World) -> None:
        self.rows = rows_of(world.store, world.region)
        self.transactions = world.faults.transactions
        self.oracle: dict[str, Any] = {name: deepcopy(getattr(world.oracle, name)) for name in OF_SQL}

    def put_in_place(self, world: World) -> None:
        with world.store.read(world.region) as reader:
            named = set(reader.column(Segment, "path"))
        put(world.store, self.rows)
        world.oracle.went_back(self.oracle, named)
