"""The Kafka edge: the only place of the core that imports confluent_kafka."""
