"""Kafka's generation of a consumer (docs/clients.md C-K15, C-R3)."""

from __future__ import annotations

import struct
from typing import Any

_MAGIC = b"CGMDv2:"


def generation_of(consumer: Any) -> int:
    """The generation, or −1: the format is private, so anything unexpected is "unknown", never a guess."""
    try:
        metadata = consumer.consumer_group_metadata()
        raw = metadata if isinstance(metadata, bytes) else bytes(metadata)
    except Exception:
        return -1
    if not raw.startswith(_MAGIC) or len(raw) < len(_MAGIC) + 4:
        return -1
    (generation,) = struct.unpack_from("<i", raw, len(_MAGIC))
    return int(generation)
