"""The region with its tables, and revenue by day beside it: `dagster dev -f definitions.py`, then `crkafka start`."""

import datetime as dt
from pathlib import Path

import dagster as dg
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from dagster_project import consistent_region

FOLDER = Path(__file__).parent
DAYS = dg.DailyPartitionsDefinition(start_date="2024-01-01", end_offset=1)
SILVER = dg.AssetKey(["orders", "silver"])


@dg.asset(
    partitions_def=DAYS,
    deps=[dg.AssetDep(SILVER, partition_mapping=dg.LastPartitionMapping())],
    kinds={"delta"},
)
def daily_revenue(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """What the orders of a day are worth. Made from the silver table, so a backfill of any days is right, also after a rewind."""
    day = dt.date.fromisoformat(context.partition_key)
    silver = QueryBuilder().register("silver", DeltaTable(str(FOLDER / "var/tables/silver")))
    found = silver.execute(
        "SELECT count(*) AS orders, coalesce(sum(cents), 0) AS cents FROM silver "
        f"WHERE CAST(kafka_timestamp AS DATE) = DATE '{day}'"
    ).read_all()
    orders, cents = (found.column(name).to_pylist()[0] for name in ("orders", "cents"))
    row = pa.table({"day": [day], "orders": [orders], "cents": [cents]})
    target = str(FOLDER / "var/tables/daily_revenue")
    if DeltaTable.is_deltatable(target):
        write_deltalake(target, row, mode="overwrite", predicate=f"day = '{day}'")
    else:
        write_deltalake(target, row)
    return dg.MaterializeResult(metadata={"orders": orders, "revenue": cents / 100})


defs = dg.Definitions.merge(consistent_region(FOLDER / "region.yaml"), dg.Definitions(assets=[daily_revenue]))
