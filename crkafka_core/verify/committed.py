"""I12: what is committed to Kafka is never ahead of what was submitted, and equals the merge once the region is quiet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from crkafka_core.kafka.edge import Admin
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint
from crkafka_core.protocol.commit_metadata import CommitMetadata
from crkafka_core.verify.history import History, archived
from crkafka_core.verify.verdict import Findings

HEAD_ENDS = "the head ends at"
"""In the text of a finding that a commit to Kafka is behind the head: in a region that is not quiet it only follows the merge (SPEC D5)."""


def commits(
    history: History, admin: Admin, group_id: str, found: Findings, *, quiet: bool, again: Callable[[], History]
) -> None:
    """Ask the group; `quiet`: no cut or reset is on its way, and the last cut was merged.

    Cuts may have gone on since `history` was read: what the commits name is compared with SQL as it is `again`, after them.
    """
    known = {TP(i.topic, i.partition): i.topic_id for i in history.initials if not i.forgotten}
    if not known:
        return
    committed = admin.committed(group_id, known)
    ends = admin.watermarks(committed, "read_uncommitted")
    history = again()
    head = {tp: m for tp, m in history.merged.get(history.region.head, {}).items() if known.get(tp) == m.topic_id}
    submitted = _submitted(history, known)
    for tp, said in sorted(committed.items()):
        if said.offset > ends[tp][1]:
            found.add(
                "I12", f"{tp} is committed at {said.offset}, and ends at {ends[tp][1]}", tp=tp, offset=said.offset
            )
        metadata = CommitMetadata.parse(said.metadata)
        if metadata is None or metadata.uid != history.region.uid:
            if tp not in head:
                continue  # before its first cut a region has committed nothing: an application before it may have
            found.add("I12", f"{tp} is committed by somebody else: {said.metadata!r}", tp=tp, offset=said.offset)
        elif metadata.merged > submitted.get(tp, metadata.merged):
            text = f"{tp}: the commit names {metadata.merged} as merged; nothing past {submitted[tp]} was"
            found.add("I12", text, tp=tp, offset=said.offset)
        if quiet and tp in head and said.offset != head[tp].to_offset:
            text = f"{tp} is committed at {said.offset}; {HEAD_ENDS} {head[tp].to_offset}"
            found.add("I12", text, checkpoint=history.region.head, tp=tp, offset=said.offset)
    if quiet:
        for tp in sorted(head.keys() - committed.keys()):
            found.add(
                "I12",
                f"{tp} is not committed; {HEAD_ENDS} {head[tp].to_offset}",
                checkpoint=history.region.head,
                tp=tp,
            )


def _submitted(history: History, known: Mapping[TP, str]) -> dict[TP, int]:
    """The highest offset up to which anything of the topics that are known now was ever merged, by rows and archives."""
    highest: dict[TP, int] = {}
    for c in history.checkpoints.values():
        for tp, topic_id, stop in _stops(history, c):
            if known.get(tp) == topic_id:
                highest[tp] = max(highest.get(tp, 0), stop)
    return highest


def _stops(history: History, c: Checkpoint) -> Iterator[tuple[TP, str | None, int]]:
    """(partition, id of its topic, where the checkpoint ends)."""
    for tp, m in history.merged.get(c.id, {}).items():
        yield tp, m.topic_id, m.to_offset
    for tp, topic_id, _, stop, _ in archived(c):
        yield tp, topic_id, stop
