"""How Spark finds `format("crkafka")` by itself: it looks for `DefaultSource` in every installed package named `pyspark_…`."""

from crkafka_core.spark.source import CrkafkaSource as DefaultSource

__all__ = ["DefaultSource"]
