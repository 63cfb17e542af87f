"""For tests of projects that have regions: a real Dagster as processes."""
