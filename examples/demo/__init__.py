"""The demo: a real Kafka, a region hosted by Spark, cuts driven by Dagster, a table that grows, a member that dies."""
