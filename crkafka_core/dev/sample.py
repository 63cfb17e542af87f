"""Sample data for a first look: numbered orders as JSON, keyed by customer."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from confluent_kafka import KafkaError, Message, Producer

from crkafka_core.dev.errors import ServiceFailed
from crkafka_core.model.plural import plural

_ITEMS = ("apple", "bread", "cheese", "dates", "eggs", "figs")


@dataclass(frozen=True)
class Order:
    """An order in the topic."""

    order: int
    customer: str
    item: str
    quantity: int
    cents: int


def orders(count: int, *, first: int = 1, seed: int = 7) -> Iterator[Order]:
    """Orders that depend only on their numbers and the seed."""
    for number in range(first, first + count):
        chance = random.Random(seed * 1_000_003 + number)
        quantity = chance.randint(1, 9)
        customer = f"customer-{chance.randint(1, 50)}"
        yield Order(number, customer, chance.choice(_ITEMS), quantity, quantity * chance.randint(50, 900))


def value_of(order: Order, *, spoiled: int = 0) -> bytes:
    """An order as JSON. With `spoiled` = n every n-th is broken, alternately by a word as price and by a missing half."""
    value = json.dumps(asdict(order))
    if not spoiled or order.order % spoiled:
        return value.encode()
    if order.order // spoiled % 2:
        return json.dumps(asdict(order) | {"cents": "free"}).encode()
    return value[: len(value) // 2].encode()


def produce_orders(bootstrap: str, topic: str, count: int, *, first: int = 1, spoiled: int = 0) -> int:
    """Write `count` orders to a topic until all are acknowledged; returns the number of the next order."""
    failures: list[str] = []

    def reported(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error.str())

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True, "log_level": 0})
    for order in orders(count, first=first):
        value = value_of(order, spoiled=spoiled)
        while True:
            try:
                producer.produce(topic, value, key=order.customer.encode(), on_delivery=reported)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    unsent = producer.flush(30)
    if unsent or failures:
        why = (
            failures[0]
            if failures
            else f"no answer from {bootstrap} within 30 s; `crkafka dev up` starts the Kafka of a first look"
        )
        raise ServiceFailed(
            "kafka", f"{unsent + len(failures)} of {plural(count, 'order')} not written to {topic}: {why}"
        )
    return first + count
