"""A topic in a Delta table, without Dagster and without Spark."""
