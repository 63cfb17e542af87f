"""A complete segment, as its writer reports it and a contribution names it (SPEC C1, C7)."""

from __future__ import annotations

from dataclasses import dataclass

from crkafka_core.model.offsets import TP


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
