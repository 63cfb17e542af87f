"""Writes record batches byte by byte: what no client library lets anybody write, and a broker accepts all the same."""

from __future__ import annotations

import gzip
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

GZIP = 1

_NOT_YET_LED = {3, 6}
"""Kafka's errors of a partition that was made a moment ago: the broker knows no such topic, or does not lead it yet."""


@dataclass(frozen=True)
class Record:
    value: bytes | None = b""
    key: bytes | None = None
    timestamp: int = 0
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def produce(bootstrap: str, topic: str, batches: Sequence[Sequence[Record]], *, codec: int = 0) -> None:
    """Append these batches to partition 0, in this order; each in a request of its own, asked again until the broker leads."""
    host, port = bootstrap.split(",")[0].split(":")
    until = time.monotonic() + 30
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        for number, batch in enumerate(batches):
            records = _batch(batch, codec)
            body = struct.pack(">hhih", 0, 3, number, -1) + struct.pack(">hhi", -1, -1, 30_000)
            body += struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, 0, len(records)) + records
            while (error := _sent(connection, topic, body)) in _NOT_YET_LED and time.monotonic() < until:
                time.sleep(0.1)
            assert error == 0, f"the broker refused batch {number} with error {error}"


def _batch(records: Sequence[Record], codec: int) -> bytes:
    first = records[0].timestamp
    encoded = b"".join(_record(record, i, record.timestamp - first) for i, record in enumerate(records))
    if codec == GZIP:
        encoded = gzip.compress(encoded)
    most = max(record.timestamp for record in records)
    body = struct.pack(">hiqqqhii", codec, len(records) - 1, first, most, -1, -1, -1, len(records)) + encoded
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


def _record(record: Record, offset_delta: int, time_delta: int) -> bytes:
    headers = b"".join(_varint(len(name)) + name + _bytes(value) for name, value in record.headers)
    body = b"\0" + _varint(time_delta) + _varint(offset_delta) + _bytes(record.key) + _bytes(record.value)
    body += _varint(len(record.headers)) + headers
    return _varint(len(body)) + body


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def _sent(connection: socket.socket, topic: str, body: bytes) -> int:
    connection.sendall(struct.pack(">i", len(body)) + body)
    answer = _exactly(connection, struct.unpack(">i", _exactly(connection, 4))[0])
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic.encode()) + 4 + 4)
    return int(error)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        assert more, "the broker closed the connection"
        found += more
    return found


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
