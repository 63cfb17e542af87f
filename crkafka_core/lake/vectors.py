"""Deletion vectors: rows of a file that are deleted, as roaring bitmaps. Delta's and Iceberg's are the same bytes within."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from crkafka_core.lake.port import CannotCommit

_MAGIC = struct.pack("<I", 1681511377)


def bitmap(positions: Iterable[int]) -> bytes:
    """The magic number, and a roaring bitmap of 64-bit numbers in the portable format."""
    return _MAGIC + bytes(_roaring()(np.fromiter(positions, np.uint64)).serialize())


def parsed_bitmap(content: bytes) -> npt.NDArray[np.int64]:
    if content[:4] != _MAGIC:
        raise ValueError("This is no deletion vector: it does not begin with its magic number.")
    found = _roaring().deserialize(content[4:])
    return np.fromiter(found, np.int64, len(found))


def blob(positions: Iterable[int]) -> bytes:
    """A vector in a file, as both have it: its size, the bitmap, and a checksum."""
    inside = bitmap(positions)
    return struct.pack(">I", len(inside)) + inside + struct.pack(">I", zlib.crc32(inside))


def parsed(content: bytes) -> npt.NDArray[np.int64]:
    """The positions of a vector in a file; ValueError if it is damaged."""
    (size,) = struct.unpack_from(">I", content)
    inside = content[4 : 4 + size]
    if len(content) < size + 8 or struct.unpack_from(">I", content, 4 + size)[0] != zlib.crc32(inside):
        raise ValueError("A deletion vector is damaged: its checksum is another.")
    return parsed_bitmap(inside)


def _roaring() -> Any:
    try:
        from pyroaring import BitMap64
    except ImportError as error:
        raise CannotCommit(
            "The table has deletion vectors, which take pyroaring.",
            hint="pip install 'crkafka[delta]', or crkafka[iceberg]",
        ) from error
    return BitMap64
