"""The region with its tables, and revenue by day beside it: `dagster dev -f definitions.py`, then `crkafka start`."""

import datetime as dt
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

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
    midnight = dt.datetime.combine(day, dt.time(), dt.UTC)
    silver = DeltaTable(str(FOLDER / "var/tables/silver")).to_pyarrow_dataset()
    of_day = (pc.field("kafka_timestamp") >= midnight) & (pc.field("kafka_timestamp") < midnight + dt.timedelta(days=1))
    orders = silver.to_table(columns=["cents"], filter=of_day)
    cents = pc.sum(orders["cents"]).as_py() or 0
    row = pa.table({"day": [day], "orders": [orders.num_rows], "cents": [cents]})
    target = str(FOLDER / "var/tables/daily_revenue")
    if DeltaTable.is_deltatable(target):
        write_deltalake(target, row, mode="overwrite", predicate=f"day = '{day}'")
    else:
        write_deltalake(target, row)
    return dg.MaterializeResult(metadata={"orders": orders.num_rows, "revenue": cents / 100})


defs = dg.Definitions.merge(consistent_region(FOLDER / "region.yaml"), dg.Definitions(assets=[daily_revenue]))
