"""The name that code in executors and code in the driver share; imports nothing of Spark."""

CHECKPOINT = "crkafka_checkpoint"
"""The added column: which checkpoint a row belongs to (SPEC K6)."""
