"""Deletion vectors: rows of a file that are deleted, as roaring bitmaps. Delta's and Iceberg's are the same bytes within.

Delta's lie in a file of their own, which a commit writes once with all of its vectors; the log names file, offset and size (SPEC K6).
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crkafka_core.lake.port import CannotCommit, needed

_MAGIC = struct.pack("<I", 1681511377)


class Positions(Collection[int]):
    """Positions of marked rows, in order; read when they are needed. Those of the same places in storage are equal."""

    def __init__(
        self,
        places: Hashable,
        read: Callable[[], npt.NDArray[np.int64]],
        count: int | None = None,
        files: Collection[str] = (),
    ) -> None:
        """`count`: how many they are, where that is known without reading them. `files`: of the table's folder, that have them."""
        self.places, self._read, self._count, self.files = places, read, count, files

    @classmethod
    def of(cls, positions: npt.NDArray[np.int64]) -> Positions:
        """Of these, which are in no storage yet."""
        return cls(object(), lambda: positions, len(positions))

    @cached_property
    def array(self) -> npt.NDArray[np.int64]:
        return self._read()

    def __iter__(self) -> Iterator[int]:
        return iter(self.array.tolist())

    def __len__(self) -> int:
        return len(self.array) if self._count is None else self._count

    def __contains__(self, position: object) -> bool:
        return isinstance(position, int) and bool(np.isin(position, self.array))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Positions) and self.places == other.places

    def __hash__(self) -> int:
        return hash(self.places)


def as_array(positions: Collection[int]) -> npt.NDArray[np.int64]:
    """In order, each once."""
    if isinstance(positions, Positions):
        return positions.array
    return np.unique(np.fromiter(positions, np.int64, len(positions)))


def bitmap(positions: Collection[int]) -> bytes:
    return _MAGIC + bytes(_roaring()(as_array(positions).astype(np.uint64)).serialize())


def parsed_bitmap(content: bytes) -> npt.NDArray[np.int64]:
    if content[:4] != _MAGIC:
        raise ValueError("This is no deletion vector: it does not begin with its magic number.")
    positions = _roaring().deserialize(content[4:])
    return np.fromiter(positions, np.int64, len(positions))


def blob(positions: Collection[int]) -> bytes:
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


Descriptor = dict[str, Any]
"""Where a vector is, as the `add` and `remove` actions of Delta's log name it."""


def delta_file(vectors: Sequence[Collection[int]]) -> tuple[str, bytes, list[Descriptor]]:
    """A file of vectors: its name in the table's folder, what is in it, and the descriptor of each vector."""
    named, content, made = uuid.uuid4(), bytearray(b"\x01"), []
    for positions in vectors:
        one = blob(positions)
        place = {"storageType": "u", "pathOrInlineDv": _z85(named.bytes), "offset": len(content)}
        made.append({**place, "sizeInBytes": len(one) - 8, "cardinality": len(positions)})
        content += one
    return f"deletion_vector_{named}.bin", bytes(content), made


def delta_vector(descriptor: Descriptor, read: Callable[[str], bytes]) -> npt.NDArray[np.int64]:
    """The positions that a descriptor stands for. `read`: a file in the table's folder."""
    if descriptor["storageType"] == "i":
        return parsed_bitmap(_unz85(descriptor["pathOrInlineDv"]))
    if not (name := vector_file(descriptor)):
        raise CannotCommit("A deletion vector lies outside of the table's folder.", hint="OPTIMIZE the table in Spark.")
    at = descriptor.get("offset") or 0
    return parsed(read(name)[at : at + descriptor["sizeInBytes"] + 8])


def vector_file(descriptor: Descriptor | None) -> str:
    """The file in the table's folder with a vector; empty: it is in no such file."""
    if descriptor is None or descriptor["storageType"] != "u":
        return ""
    text = descriptor["pathOrInlineDv"]
    prefix, named = text[:-20], uuid.UUID(bytes=_unz85(text[-20:]))
    return f"{prefix}/deletion_vector_{named}.bin" if prefix else f"deletion_vector_{named}.bin"


_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _z85(content: bytes) -> str:
    return base64.b85encode(content).decode().translate(str.maketrans(_B85, _Z85))


def _unz85(text: str) -> bytes:
    return base64.b85decode(text.translate(str.maketrans(_Z85, _B85)))


def _roaring() -> Any:
    return needed("pyroaring", "A table with deletion vectors", "delta,iceberg").BitMap64
