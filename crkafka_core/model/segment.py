"""A complete segment, as its writer reports it and a contribution names it, and its path, given before its first byte (SPEC C1, C7, G6)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from crkafka_core.model.offsets import TP

_PATH = re.compile(
    r"(?P<uid>[^/]+)/(?P<epoch>\d{8,})/(?P<incarnation>[A-Za-z0-9_.-]+)-(?P<number>\d+)-(?P<seq>\d+)\.parquet"
)
_WORD = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Span:
    """Records of one partition in a segment."""

    tp: TP
    first: int
    """Offset of the first record."""
    next: int
    """Offset of the last record, plus one."""
    rows: int

    def stored(self) -> list[str | int]:
        """The span's form in SQL and in digests."""
        return [self.tp.topic, self.tp.partition, self.first, self.next, self.rows]


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A segment that is complete and durable."""

    path: str
    rows: int
    bytes: int
    hash: str
    """`crc32:` and eight hex digits, over the bytes of the file."""
    spans: tuple[Span, ...]
    """One per partition, in order of first appearance."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """Region uid, epoch, incarnation, number of the checkpoint and sequence: no two segments share all five."""

    uid: str
    epoch: int
    incarnation: str
    number: int
    seq: int

    def __post_init__(self) -> None:
        for word in (self.uid, self.incarnation):
            if not _WORD.fullmatch(word) or word in (".", ".."):
                allowed = "only letters, digits, '.', '_' and '-'"
                raise ValueError(f"{word!r} cannot be part of a segment's path: {allowed}.")

    @property
    def path(self) -> str:
        """Relative to the region's storage root, with `/` on every system."""
        return f"{epoch_folder(self.uid, self.epoch)}/{self.incarnation}-{self.number}-{self.seq}.parquet"

    @classmethod
    @lru_cache(maxsize=1024)  # the same few are asked about again and again: those of the last checkpoints
    def parse(cls, path: str) -> SegmentName | None:
        """The name of a path, or None if it is not a segment of ours: such a file is never touched."""
        part = _PATH.fullmatch(path)
        if part is None:
            return None
        try:
            name = cls(part["uid"], int(part["epoch"]), part["incarnation"], int(part["number"]), int(part["seq"]))
        except ValueError:
            return None
        return name if name.path == path else None


def segment_path(uid: str, epoch: int, incarnation: str, number: int, seq: int) -> str:
    return SegmentName(uid, epoch, incarnation, number, seq).path


def epoch_folder(uid: str, epoch: int) -> str:
    """The folder of all segments of one epoch, which orphan collection lists (SPEC T3)."""
    return f"{uid}/{epoch:08d}"
