"""Topic partitions and their offsets, with their compact text form in SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from crkafka_core.model.errors import ConfigError


class TP(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


def pack(tps: Iterable[TP]) -> str:
    """A set of partitions as JSON: {"topic": [0, 1]}; equal sets give equal text."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(tps):
        by_topic.setdefault(topic, []).append(partition)
    return json.dumps(by_topic, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=128)
def unpack(text: str) -> frozenset[TP]:
    """The set that `pack` wrote."""
    return frozenset(TP(topic, p) for topic, ps in json.loads(text).items() for p in ps)


def pack_offsets(offsets: Mapping[TP, int]) -> str:
    """Offsets as JSON: {"topic": {"0": 17}}; equal maps give equal text."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic, ensure_ascii=False, separators=(",", ":"))


def unpack_offsets(text: str) -> dict[TP, int]:
    """The map that `pack_offsets` wrote."""
    return {TP(topic, int(p)): o for topic, ps in json.loads(text).items() for p, o in ps.items()}


@lru_cache(maxsize=128)
def partitions_in(text: str) -> frozenset[TP]:
    """The partitions in a text of `pack_offsets`."""
    return frozenset(unpack_offsets(text))


def parse_offsets(text: str) -> tuple[TP, int, int]:
    """Partition, first and last offset from `orders[3]@17` or `orders[3]@17-20`."""
    parts = re.fullmatch(r"(.+)\[(\d+)\]@(\d+)(?:-(\d+))?", text)
    if parts is None:
        raise ConfigError(f"{text!r} does not name offsets.", hint="Write TOPIC[PARTITION]@OFFSET, or @FIRST-LAST.")
    first = int(parts[3])
    return TP(parts[1], int(parts[2])), first, int(parts[4] or first)
