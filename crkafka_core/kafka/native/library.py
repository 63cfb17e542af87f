"""Loads librdkafka from the Kafka client's package, and our few functions over it (`edge.c`).

librdkafka's C interface is public and stable, but the place of its handle in a `Consumer` is private: only versions of the client that
were tried are allowed (docs/clients.md C-K19). With any other, or without a compiler, records are read as Python objects.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, cimpl

_log = logging.getLogger(__name__)

TRIED = {"2.16.0": "2.16.0", "2.16.1": "2.16.0"}
"""Tried versions of confluent-kafka, and the librdkafka of each: a client that was built here may use another one, with another layout
of records."""
SWITCH = "CRKAFKA_NATIVE"
"""Environment: `0` reads through Python objects even where the native edge could run."""
_LAYOUT = 3
"""`edge_layout` of edge.c."""
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_HANDLE_AT = object.__basicsize__
"""Address of librdkafka's handle in a `Consumer`: right after Python's object header."""


_NAMES = {
    "consume": "rd_kafka_consume_batch_queue",
    "timestamp": "rd_kafka_message_timestamp",
    "headers": "rd_kafka_message_headers",
    "header": "rd_kafka_header_get_all",
    "topic_name": "rd_kafka_topic_name",
    "destroy": "rd_kafka_message_destroy",
    "leader_epoch": "rd_kafka_message_leader_epoch",
}
"""Fields of `library` in edge.c, in its order, and librdkafka's functions in them."""


class Functions(ctypes.Structure):
    """librdkafka's functions, as edge.c takes them."""

    _fields_ = [(field, ctypes.c_void_p) for field in _NAMES]


@dataclass(frozen=True)
class Library:
    kafka: Any
    edge: Any
    functions: Functions


@cache
def load() -> Library | None:
    """Both libraries, or None, with the reason logged once at INFO."""
    try:
        return _load()
    except (OSError, AttributeError, LookupError, ValueError) as error:
        _log.info("records are read through Python objects: %s", error)
        return None


def librdkafka() -> ctypes.CDLL:
    """The librdkafka of the client: another one in this process would not know its handles."""
    return ctypes.CDLL(cimpl.__file__)


def handle(consumer: Any) -> int:
    """librdkafka's pointer in a `Consumer` (private: only for the versions in TRIED)."""
    return int(ctypes.c_void_p.from_address(id(consumer) + _HANDLE_AT).value or 0)


def report_errors(consumer: Consumer, on_error: Callable[[KafkaError], None]) -> Any:
    """Call `on_error` with the consumer's errors, whichever call serves its queues. Keep the result as long as the consumer. The queue of a
    partition has errors too, such as a deleted topic, which librdkafka reports by its callback inside the call that takes records. The
    callback of confluent-kafka may run inside a call of confluent-kafka only, and ends the process in any other."""
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


def _load() -> Library:
    if os.environ.get(SWITCH) == "0":
        raise LookupError(f"{SWITCH} is 0")
    if sys.platform != "linux":
        raise LookupError("the native edge was tried on Linux only")
    version, calls = str(confluent_kafka.version()), str(confluent_kafka.libversion()[0])
    if TRIED.get(version) != calls:
        tried = ", ".join(f"{client} with {library}" for client, library in sorted(TRIED.items()))
        raise LookupError(
            f"confluent-kafka {version} with librdkafka {calls} was not tried with the native edge ({tried})"
        )
    kafka = librdkafka()
    files = resources.files(__package__).iterdir()
    built = next((file for file in files if file.name.startswith("_edge.") and file.name.endswith(".so")), None)
    if built is None:
        raise LookupError("the native edge is not built (there was no compiler when crkafka was installed)")
    with resources.as_file(built) as path:  # unpacked for a moment if the code is in a zip, as on Spark's executors
        edge = ctypes.CDLL(str(path))
    if ctypes.c_int.in_dll(edge, "edge_layout").value != _LAYOUT:  # other arguments: it would write to wrong addresses
        raise LookupError("the native edge was built from another version of its source; install crkafka again")
    functions = Functions(
        **{field: ctypes.cast(getattr(kafka, name), ctypes.c_void_p).value for field, name in _NAMES.items()}
    )
    pointer, number = ctypes.c_void_p, ctypes.c_long
    signatures: tuple[tuple[Any, ...], ...] = (
        (kafka.rd_kafka_queue_new, pointer, pointer),
        (kafka.rd_kafka_queue_get_partition, pointer, pointer, ctypes.c_char_p, ctypes.c_int32),
        (kafka.rd_kafka_queue_forward, None, pointer, pointer),
        (kafka.rd_kafka_queue_destroy, None, pointer),
        (edge.take, number, pointer, pointer, ctypes.c_int, number, ctypes.c_int64, number, pointer, pointer),
        (edge.fill, None, pointer, pointer, number, pointer, pointer),
        (edge.drop, None, pointer, pointer, number),
    )
    for function, result, *arguments in signatures:
        function.restype, function.argtypes = result, arguments
    return Library(kafka, edge, functions)
