"""Record headers as Kafka's Java client reads them, out of librdkafka's own memory.

`Message.headers()` of confluent-kafka raises SystemError at a name that is not UTF-8, and cuts a name at its first NUL
(docs/clients.md C-K20). So the C list of headers in each message is read before a call of `headers()` frees it. The layout of that
memory is private: once per process it is compared with the public functions' results; if it differs, `headers()` is used.
"""

from __future__ import annotations

import codecs
import ctypes
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import confluent_kafka
import numpy as np
from confluent_kafka import Message

from crkafka_core.kafka.native.library import librdkafka

_log = logging.getLogger(__name__)

_BASE = 1 << 12
"""First address of the array: 0 would be a null pointer, and nothing lies below this."""
# In a Message: the headers as a Python list, once asked for; librdkafka's list of them.
_PYTHON_HEADERS, _C_HEADERS = 40, 48
# In a list of headers: capacity and count, 32 bits each; the elements. In a header: value's size, name's size, value; the name.
_COUNT, _ELEMENTS = 0, 8
_VALUE_SIZE, _NAME_SIZE, _VALUE, _NAME = 8, 16, 24, 32

_string_at: Callable[[int, int], bytes] = ctypes.string_at


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of some records, one after the other."""

    counts: np.ndarray | None
    """How many each record has; None if no record has any."""
    names: list[bytes]
    """UTF-8."""
    values: list[bytes | None]
    unreadable: dict[int, str]
    """Index of a record whose headers could not be read, and why."""


def read_headers(messages: Sequence[Message]) -> Headers:
    """The headers of the messages. Names that are not UTF-8 are decoded as in Java, with U+FFFD."""
    if not _layout_is_known():
        return _one_by_one(messages)
    where = np.fromiter(map(id, messages), np.int64, len(messages))
    if _words(where + _PYTHON_HEADERS).any():  # made in Python, or `headers()` was called before
        return _one_by_one(messages)
    lists = _words(where + _C_HEADERS)
    having = np.flatnonzero(lists)
    if not len(having):
        return Headers(None, [], [], {})
    counts = np.zeros(len(messages), np.int64)
    counts[having] = _words(lists[having] + _COUNT) >> 32
    return Headers(counts, *_entries(lists[having], counts[having]), {})


def _entries(lists: np.ndarray, counts: np.ndarray) -> tuple[list[bytes], list[bytes | None]]:
    ends = np.cumsum(counts)
    within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    headers = _words(np.repeat(_words(lists + _ELEMENTS), counts) + 8 * within)
    names = list(map(_string_at, (headers + _NAME).tolist(), _words(headers + _NAME_SIZE).tolist()))
    pointers = _words(headers + _VALUE)
    values: list[bytes | None] = list(map(_string_at, pointers.tolist(), _words(headers + _VALUE_SIZE).tolist()))
    for i in np.flatnonzero(pointers == 0).tolist():
        values[i] = None
    if not all(map(bytes.isascii, names)):
        names = [name if name.isascii() else java_text(name).encode() for name in names]
    return names, values


def _one_by_one(messages: Sequence[Message]) -> Headers:
    """Headers by the client's own method, record by record; unreadable ones are null and reported."""
    counts = np.zeros(len(messages), np.int64)
    names: list[bytes] = []
    values: list[bytes | None] = []
    unreadable: dict[int, str] = {}
    for i, message in enumerate(messages):
        try:
            pairs: Any = message.headers() or ()
            encoded = [(name.encode(), value.encode() if isinstance(value, str) else value) for name, value in pairs]
        except (SystemError, UnicodeError) as error:
            unreadable[i] = f"the client cannot decode a header's name ({error.__cause__ or error})"
            continue
        counts[i] = len(encoded)
        names += [name for name, _ in encoded]
        values += [value for _, value in encoded]
    return Headers(counts if counts.any() else None, names, values, unreadable)


def _words(addresses: np.ndarray) -> np.ndarray:
    """The 64-bit words at these addresses, all in memory that the messages own."""
    words: np.ndarray = _memory()[(addresses - _BASE) >> 3]
    return words


@cache
def _memory() -> np.ndarray:
    """This process's memory, seen as an array: a view, nothing is allocated or read by making it."""
    memory: Any = (ctypes.c_char * (1 << 56)).from_address(_BASE)
    return np.frombuffer(memory, np.int64)


@cache
def _layout_is_known() -> bool:
    try:
        if _message_is_known() and _list_is_known():
            return True
    except (OSError, AttributeError) as error:
        _log.debug("checking the layout of librdkafka's headers: %s", error)
    _log.warning(
        "confluent-kafka %s stores headers in an unknown layout: names are cut at a NUL, and a record with a name that is not UTF-8 "
        "lands without its headers",
        confluent_kafka.version(),
    )
    return False


def _message_is_known() -> bool:
    """A message made here has its parts where they are looked for."""
    known: Any = Message
    if known.__basicsize__ != 120:
        return False
    plain, full = known(topic="t", value=b"v"), known(topic="t", value=b"v", headers=[("n", b"v")])
    parts = [_word(id(full) + at) for at in (16, 24, _PYTHON_HEADERS, _C_HEADERS)]
    expected = [id(full.topic()), id(full.value()), id(full.headers()), 0]
    return parts == expected and not _word(id(plain) + _PYTHON_HEADERS)


def _list_is_known() -> bool:
    """A list made by the public functions reads back as it was made."""
    library = librdkafka()
    new, add, get, destroy = (
        getattr(library, f"rd_kafka_{name}")
        for name in ("headers_new", "header_add", "header_get_all", "headers_destroy")
    )
    new.restype, new.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    add.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_ssize_t, ctypes.c_char_p, ctypes.c_ssize_t]
    get.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.POINTER(ctypes.c_size_t)] * 3]
    destroy.argtypes, destroy.restype = [ctypes.c_void_p], None
    made = [(b"a\0b", b"\xff\0v"), (b"", None), (b"\xff", b"")]
    headers = new(4)
    try:
        for name, value in made:
            add(headers, name, len(name), value, len(value or b""))
        if _word(headers + _COUNT) >> 32 != len(made):
            return False
        name_at, value_at, size = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
        for i in range(len(made)):
            get(headers, i, name_at, value_at, size)
            if _word(_word(headers + _ELEMENTS) + 8 * i) + _NAME != name_at.value:
                return False
        names, values = _entries(np.array([headers]), np.array([len(made)]))
        return list(zip(names, values, strict=True)) == [(java_text(n).encode(), v) for n, v in made]
    finally:
        destroy(headers)


def _word(address: int) -> int:
    return int(ctypes.c_int64.from_address(address).value)


def java_text(raw: bytes) -> str:
    """UTF-8 as Java's `new String(raw, UTF_8)` decodes it: malformed bytes become U+FFFD, one for a surrogate's three."""
    return raw.decode("utf-8", "crkafka.java")


def _java_replacement(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    raw, at = error.object, error.start
    if raw[at] == 0xED and 0xA0 <= (raw[at + 1] if at + 1 < len(raw) else 0) <= 0xBF:
        third = raw[at + 2] if at + 2 < len(raw) else 0
        return "\N{REPLACEMENT CHARACTER}", at + (3 if 0x80 <= third <= 0xBF else 2)
    return "\N{REPLACEMENT CHARACTER}", error.end


codecs.register_error("crkafka.java", _java_replacement)
