"""Records straight from librdkafka into Arrow columns; where it cannot run, `kafka/messages.py` does the same through Python objects."""
