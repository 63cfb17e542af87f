"""A member of an older version, as a process: its row types have only the columns that the database had when it began.

`python old_member.py URL`: makes a region, and is its one member; each line that comes in is a cut.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from typing import Any

from sqlalchemy import MetaData, create_engine

from crkafka_core.model import rows


def go_back(url: str) -> None:
    """Before anything else is imported: rows without the columns that came later."""
    there = MetaData()
    there.reflect(create_engine(url))
    names = {"Group": "consumer_group", "Expected": "expected_member", "Initial": "initial_offset"}
    names |= {"Start": "partition_start", "Table": "declared_table"}
    older: dict[type[Any], type[Any]] = {}
    for row in rows.ROWS:
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in row.__name__)[1:]
        columns = set(there.tables[names.get(row.__name__, snake)].columns.keys())
        later = {f.name: f.default for f in dataclasses.fields(row) if f.name not in columns}
        if later:
            older[row] = _without(row, later)
            setattr(rows, row.__name__, older[row])
    rows.ROWS = tuple(older.get(row, row) for row in rows.ROWS)


def _without(row: type[Any], later: dict[str, Any]) -> type[Any]:
    kept = [f for f in dataclasses.fields(row) if f.name not in later]
    made = dataclasses.make_dataclass(
        row.__name__,
        [(f.name, f.type, dataclasses.field(default=f.default)) for f in kept],
        bases=(rows.Row,),
        namespace={**later, "KEY": row.KEY, "REGION": row.REGION, "SHARED": row.SHARED},
        frozen=True,
    )
    made.__module__ = rows.__name__
    return made


def main(url: str) -> None:
    go_back(url)

    from checkpoints_db import SqlStore
    from checkpoints_db.address import parse
    from checkpoints_db.testing.players import PARTITIONS, Player, new_region
    from crkafka_core.plane import advance, cuts, life
    from crkafka_core.plane.transact import ControlPlane

    store = SqlStore(parse(url))
    life.declare(store, new_region("orders", members_wanted=1))
    plane = ControlPlane(store, "orders")
    plane.do(lambda tx: life.start(tx, by="me"))
    player = Player(plane, "orders/0", random=random.Random(0))
    player.assign(1, PARTITIONS)

    def steps() -> None:
        for _ in range(4):
            player.step()
            plane.do(advance.advance)

    steps()
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        plane.do(lambda tx, n=number: cuts.open_cut(tx, token=f"cut {n}", cause="test"))  # type: ignore[misc]
        steps()
        print(plane.read(lambda _, row: f"{row.phase} {row.head}"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
