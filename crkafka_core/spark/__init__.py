"""Spark's side: members as tasks, checkpoints as DataFrames, tables, and the data source (SPEC §14)."""
