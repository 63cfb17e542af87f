"""Reads the tables with a plain Delta reader, without Kafka, Spark or crkafka's services: `python read.py`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError


def column(table: str, name: str) -> list[object]:
    """Of all rows of a table."""
    try:
        rows = QueryBuilder().register(table, DeltaTable(f"var/tables/{table}"))
        values = list(rows.execute(f'SELECT "{name}" FROM {table}').read_all().column(name).to_pylist())
    except TableNotFoundError:
        raise SystemExit(
            f"{table} is no table in {Path('var/tables').absolute()}: it is made some seconds after `crkafka host` has read the first "
            "orders, or has started Spark; `crkafka tables` tells what waits. If it was there before, `crkafka check` tells more"
        ) from None
    return values


if __name__ == "__main__":
    print(f"orders_bronze      records: {len(column('orders_bronze', 'offset')):,}")
    cents = [int(str(value)) for value in column("orders_typed", "cents")]
    print(f"orders_typed       orders: {len(cents):,}, worth {sum(cents) / 100:,.2f}")
    reasons = Counter(column("orders_typed_dead", "reason"))
    print(f"orders_typed_dead  dead letters: {reasons.total():,}")
    shown = reasons.most_common(3)
    for reason, count in shown:
        print(f"                   {count} x {reason}")
    if others := reasons.total() - sum(count for _, count in shown):
        print(f"                   {others} x another reason")
