"""An admin client with typed errors, which also have the reason of a refused connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from crkafka_core.kafka import clients
from crkafka_core.kafka.errors import KafkaUnavailable, NotAllowed, error_of
from crkafka_core.model.errors import CrkafkaError

T = TypeVar("T")


class AdminConnection:
    """Safe to use from several threads."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties
        self.bootstrap = properties["bootstrap.servers"]
        self._refusal: KafkaError | None = None
        self._lock = threading.Lock()
        self._client = self._new_client()

    def _new_client(self) -> AdminClient:
        return clients.admin(self._properties, self._on_error)

    def _call(self, what: str, call: Callable[[], T], *, raw: bool = False) -> T:
        """Run a call and convert its errors; `raw` passes on a KafkaException that the caller examines."""
        try:
            return call()
        except KafkaException as error:
            if raw:
                raise
            raise self._typed(error, what) from error
        except TimeoutError as error:
            raise KafkaUnavailable(f"Kafka at {self.bootstrap} did not answer {what} in time.") from error

    def _typed(self, error: KafkaException, what: str) -> CrkafkaError:
        """The typed error. A refused client reconnects and times out; only the error callback has the reason."""
        typed = error_of(error, f"{what} at {self.bootstrap}")
        if isinstance(typed, KafkaUnavailable):
            self._client.poll(0)
            with self._lock:
                refusal, self._refusal = self._refusal, None
            if refusal is not None:
                return error_of(refusal, f"{what} at {self.bootstrap}")
        return typed

    def _on_error(self, error: KafkaError) -> None:
        if isinstance(error_of(error, "connecting"), NotAllowed) or "SSL" in error.str():
            with self._lock:
                self._refusal = error
