"""Errors of a client whose records are taken natively: its callback needs no Python of the caller's.

A partition's queue holds errors too, such as that its topic is gone; librdkafka reports them by the callback from within the call that
takes records. The one of confluent-kafka may only run within a call of confluent-kafka, and ends the process in any other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError

from crkafka_core.kafka.native.library import handle, load

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def tell(consumer: Consumer, on_error: Callable[[KafkaError], None]) -> Any:
    """Call `on_error` with the consumer's errors, whichever call serves its queues. The result has to live as long as the consumer."""
    library = load()
    if library is None:
        return None
    kafka = library.kafka

    def callback(client: int, code: int, reason: bytes | None, _: int) -> None:
        fatal = code == KafkaError._FATAL
        if fatal:
            text = ctypes.create_string_buffer(512)
            code = kafka.rd_kafka_fatal_error(ctypes.c_void_p(client), text, ctypes.c_size_t(512))
            reason = text.value
        on_error(KafkaError(code, (reason or b"").decode(errors="replace"), fatal=fatal))

    made = _Callback(callback)
    kafka.rd_kafka_conf.restype = ctypes.c_void_p
    settings = kafka.rd_kafka_conf(ctypes.c_void_p(handle(consumer)))
    kafka.rd_kafka_conf_set_error_cb(ctypes.c_void_p(settings), made)
    return made
