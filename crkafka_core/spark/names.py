"""The name that code in executors and code in the driver share; imports nothing of Spark."""

from crkafka_core.segments.batch import CHECKPOINT

__all__ = ["CHECKPOINT"]
