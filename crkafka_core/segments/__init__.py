"""Segments: Arrow batches of tuples, and the Parquet files that members write between two cuts (SPEC C7, K2)."""
