"""Finds librdkafka inside the Kafka client's package, and our few functions over it; None, with the reason, where one is missing.

librdkafka's C interface is public and stable. One thing is not: where a `Consumer` keeps its handle. So only versions of the
client that were tried are allowed (docs/clients.md C-K19); with any other, records come through Python objects, as without a compiler.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import cimpl

_log = logging.getLogger(__name__)

TRIED = {"2.16.0": "2.16.0", "2.16.1": "2.16.0"}
"""Versions of confluent-kafka whose `Consumer` was seen to keep its handle where `handle` looks for it, and the librdkafka of each: a
client that was built here may call another one, whose records may lie otherwise."""
SWITCH = "CRKAFKA_NATIVE"
"""Environment: `0` reads through Python objects even where the native edge could run."""
_LAYOUT = 3
"""`edge_layout` of edge.c."""
_HANDLE_AT = object.__basicsize__
"""A `Consumer` is Python's object header, and then librdkafka's handle."""


class Functions(ctypes.Structure):
    """librdkafka's functions, as `edge.c` takes them."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in ("consume", "timestamp", "headers", "header", "topic_name", "destroy", "leader_epoch")
    ]


_NAMES = {
    "consume": "rd_kafka_consume_batch_queue",
    "timestamp": "rd_kafka_message_timestamp",
    "headers": "rd_kafka_message_headers",
    "header": "rd_kafka_header_get_all",
    "topic_name": "rd_kafka_topic_name",
    "destroy": "rd_kafka_message_destroy",
    "leader_epoch": "rd_kafka_message_leader_epoch",
}


@dataclass(frozen=True)
class Library:
    """Both libraries, loaded."""

    kafka: Any
    edge: Any
    functions: Functions


@cache
def load() -> Library | None:
    """Both libraries, or None; the reason is logged once, at INFO."""
    try:
        return _load()
    except (OSError, AttributeError, LookupError) as error:
        _log.info("records are read through Python objects: %s", error)
        return None


def librdkafka() -> ctypes.CDLL:
    """The one that the client itself calls, found through the client: another one in this process would not know its handles."""
    return ctypes.CDLL(cimpl.__file__)


def handle(consumer: Any) -> int:
    """librdkafka's own pointer of a `Consumer` (private: only for the versions in TRIED)."""
    return int(ctypes.c_void_p.from_address(id(consumer) + _HANDLE_AT).value or 0)


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
    with _edge() as path:
        edge = ctypes.CDLL(str(path))
    _refuse_stale(edge)
    functions = Functions(
        **{field: ctypes.cast(getattr(kafka, name), ctypes.c_void_p).value for field, name in _NAMES.items()}
    )
    pointer, number = ctypes.c_void_p, ctypes.c_long
    for name in ("rd_kafka_queue_new", "rd_kafka_queue_get_partition"):
        getattr(kafka, name).restype = pointer
    kafka.rd_kafka_queue_new.argtypes = [pointer]
    kafka.rd_kafka_queue_get_partition.argtypes = [pointer, ctypes.c_char_p, ctypes.c_int32]
    kafka.rd_kafka_queue_forward.argtypes = [pointer, pointer]
    kafka.rd_kafka_queue_destroy.argtypes = [pointer]
    edge.take.restype = number
    edge.take.argtypes = [pointer, pointer, ctypes.c_int, number, ctypes.c_int64, number, pointer, pointer]
    edge.fill.restype = edge.drop.restype = None
    edge.fill.argtypes = [pointer, pointer, number, pointer, pointer]
    edge.drop.argtypes = [pointer, pointer, number]
    return Library(kafka, edge, functions)


def _refuse_stale(edge: Any) -> None:
    """A library that was built from another source takes other arguments, and would write anywhere."""
    try:
        layout = ctypes.c_int.in_dll(edge, "edge_layout").value
    except ValueError:
        layout = 1
    if layout != _LAYOUT:
        raise LookupError("the native edge was built from another version of its source; install crkafka anew")


@contextmanager
def _edge() -> Iterator[Path]:
    """Our library as a file; where the code came as a zip, as on Spark's executors, it is unpacked for a moment."""
    here = resources.files(__package__)
    built = next((f for f in here.iterdir() if f.name.startswith("_edge.") and f.name.endswith(".so")), None)
    if built is None:
        raise LookupError("the native edge is not built (no compiler was there when crkafka was installed)")
    if isinstance(built, Path):
        yield built
        return
    with tempfile.TemporaryDirectory(prefix="crkafka-edge-") as folder:
        path = Path(folder) / built.name
        path.write_bytes(built.read_bytes())
        yield path
