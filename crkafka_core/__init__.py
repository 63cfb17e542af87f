"""crkafka: a Kafka consumer group inside a consistent region; this package has the protocol and the member."""
