"""A table of a database, kept by key from the changes that Debezium reads from it."""
