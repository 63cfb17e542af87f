"""Several machines: control plane in PostgreSQL, segments and tables in S3, members on a standalone Spark."""
