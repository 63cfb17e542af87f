"""Which way the records of a consumer come."""

from __future__ import annotations

from typing import Any

from crkafka_core.kafka.messages import MessageRecords
from crkafka_core.kafka.native.library import load
from crkafka_core.kafka.native.records import NativeRecords
from crkafka_core.kafka.taken import Records


def records_of(consumer: Any) -> Records:
    """Natively where that can be, else through Python objects. Both give the same rows."""
    library = load()
    return MessageRecords(consumer) if library is None else NativeRecords(consumer, library)
