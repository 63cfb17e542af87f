"""Rows of the table `customers`, of Debezium's change events with JSON values (with or without their schema beside them)."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

CUSTOMER = "struct<id: bigint, name: string, email: string>"
EVENT = f"struct<before: {CUSTOMER}, after: {CUSTOMER}, op: string, ts_ms: bigint>"


def customers(rows: DataFrame) -> DataFrame:
    """The row after each change; `crkafka_deleted` says that there is none any more.

    A delete has the row before it. The tombstone after it says nothing new, and only tells Kafka's compaction to forget the key.
    """
    text = F.col("value").cast("string")
    event = F.coalesce(
        F.from_json(F.get_json_object(text, "$.payload"), EVENT),  # schemas.enable=true
        F.from_json(text, EVENT),
    )
    changes = rows.where("value IS NOT NULL").withColumn("event", event)
    row = F.when(F.col("event.op") == "d", F.col("event.before")).otherwise(F.col("event.after"))
    return changes.withColumn("row", row).select(
        "crkafka_checkpoint",
        "partition",
        "offset",
        "row.*",
        F.timestamp_millis("event.ts_ms").alias("changed_at"),
        (F.col("event.op") == "d").alias("crkafka_deleted"),
    )
