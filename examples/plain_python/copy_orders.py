"""Brings all that a topic has now into a Delta table, by two members beside this program; run it again for what came since.

    python copy_orders.py localhost:9092 orders var

It needs `pip install 'crkafka[delta]'`, and neither Dagster nor Spark nor Java.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from deltalake import DeltaTable, QueryBuilder

from crkafka import Region, RegionConfig, consume, initialise


def configuration(bootstrap: str, topic: str, folder: Path) -> RegionConfig:
    """What region.yaml would say; relative paths are below the folder."""
    return RegionConfig.of(
        base=folder,
        region=f"copy-{topic}",
        control_plane="sqlite:///crkafka.db",
        storage="segments",
        kafka={"bootstrap.servers": bootstrap, "group.id": f"copy-{topic}"},
        topics=[topic],
        members=2,
        trigger={"manual": True},
        tables=[{"name": "bronze", "format": "delta", "path": "bronze"}],
    )


def copy(config: RegionConfig) -> DeltaTable:
    """One bounded run: members start, read to where Kafka ends now, make one checkpoint, and leave."""
    initialise(config.control_plane)
    with Region.open(config) as region:
        region.init()
        with region.hosted():
            checkpoint = consume(region).checkpoint
            while any(table.waiting for table in region.status().lags):
                time.sleep(0.1)  # members' host brings the checkpoint into the table
        print(f"new records in checkpoint {checkpoint.id}: {checkpoint.rows:,}")
    return DeltaTable(config.tables[0].path)


def orders(table: DeltaTable) -> list[bytes | None]:
    """Their values, read without crkafka."""
    rows = QueryBuilder().register("orders", table).execute("SELECT value FROM orders").read_all()
    values: list[bytes | None] = rows.column("value").to_pylist()
    return values


def cents(table: DeltaTable) -> int:
    """What the orders are worth."""
    return sum(json.loads(value)["cents"] for value in orders(table) if value is not None)


if __name__ == "__main__":
    bootstrap, topic, folder = sys.argv[1:4]
    Path(folder).mkdir(parents=True, exist_ok=True)
    bronze = copy(configuration(bootstrap, topic, Path(folder).absolute()))
    print(f"orders: {len(orders(bronze)):,}, worth {cents(bronze) / 100:,.2f}")
