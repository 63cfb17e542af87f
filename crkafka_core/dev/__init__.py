"""Real services as local processes in one folder: Apache Kafka and PostgreSQL, for a first look and for tests."""
