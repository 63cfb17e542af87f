"""A commit in pieces that a broker takes: one request is one batch of `__consumer_offsets` (docs/clients.md C-R16)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from crkafka_core.model.offsets import TP

COMMIT_BYTES = 512 * 1024
"""Half of Kafka's own `message.max.bytes`, by which a batch of `__consumer_offsets` is bounded."""
_RECORD_BYTES = 72
"""Of one partition's record in that batch, beside the names of group and topic and the metadata."""


def chunks(
    offsets: Mapping[TP, int], metadata: Mapping[TP, str], *, group_id: str, most: int = COMMIT_BYTES
) -> Iterator[dict[TP, int]]:
    """The offsets in order, each piece at most so many bytes long, and one partition at least."""
    piece: dict[TP, int] = {}
    size, group = 0, len(group_id.encode())
    for tp, offset in sorted(offsets.items()):
        needs = _RECORD_BYTES + group + len(tp.topic.encode()) + len(metadata.get(tp, "").encode())
        if piece and size + needs > most:
            yield piece
            piece, size = {}, 0
        piece[tp] = offset
        size += needs
    if piece:
        yield piece
