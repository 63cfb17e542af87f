"""Writes sample orders into the topic: `python produce.py 1000`. Every hundredth is spoiled, as happens; see dead letters."""

from __future__ import annotations

import sys

from crkafka import CrkafkaError, RegionConfig
from crkafka_core.dev.sample import produce_orders

SPOILED = 100

if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    try:
        brokers = RegionConfig.load("region.yaml").resolved_kafka()["bootstrap.servers"]
        produce_orders(brokers, "orders", count, spoiled=SPOILED)
    except CrkafkaError as error:
        raise SystemExit(str(error)) from None
    print(f"records written: {count:,}, of them spoiled: {count // SPOILED:,}")
