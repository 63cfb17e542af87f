"""I12: offsets committed to Kafka are never ahead of the submitted ones, and equal the merge once the region is quiet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crkafka_core.kafka.edge import Admin
from crkafka_core.model.offsets import TP
from crkafka_core.protocol.commit_metadata import CommitMetadata
from crkafka_core.verify.history import History, archived
from crkafka_core.verify.verdict import Findings

HEAD_ENDS = "the head ends at"
"""Words of a finding that a commit to Kafka is behind the head, which is no fault while cuts go on: it follows the merge (SPEC D5)."""


def commits(
    history: History, admin: Admin, group_id: str, findings: Findings, *, quiet: bool, again: Callable[[], History]
) -> None:
    """Compare the group's commits with SQL; `quiet`: no cut or reset is on its way, and the last cut was merged.

    Cuts may have gone on since `history` was read: the commits are compared with a history that `again` reads after them.
    """
    known = {TP(i.topic, i.partition): i.topic_id for i in history.initials if not i.forgotten}
    if not known:
        return
    committed = admin.committed(group_id, known)
    ends = admin.watermarks(committed, "read_uncommitted")
    history = again()
    head = {tp: m for tp, m in history.merged.get(history.region.head, {}).items() if known.get(tp) == m.topic_id}
    submitted = _submitted(history, known)
    for tp, commit in sorted(committed.items()):
        if commit.offset > ends[tp][1]:
            text = f"{tp} is committed at {commit.offset}, and ends at {ends[tp][1]}"
            findings.add("I12", text, tp=tp, offset=commit.offset)
        metadata = CommitMetadata.parse(commit.metadata)
        if metadata is None or metadata.uid != history.region.uid:
            if tp not in head:
                continue  # before its first cut a region has committed nothing: an application before it may have
            findings.add("I12", f"{tp} is committed by somebody else: {commit.metadata!r}", tp=tp, offset=commit.offset)
        elif metadata.merged > submitted.get(tp, metadata.merged):
            text = f"{tp}: the commit names {metadata.merged} as merged; nothing past {submitted[tp]} was"
            findings.add("I12", text, tp=tp, offset=commit.offset)
        if quiet and tp in head and commit.offset != head[tp].to_offset:
            text = f"{tp} is committed at {commit.offset}; {HEAD_ENDS} {head[tp].to_offset}"
            findings.add("I12", text, history.region.head, tp, commit.offset)
    if quiet:
        for tp in sorted(head.keys() - committed.keys()):
            findings.add("I12", f"{tp} is not committed; {HEAD_ENDS} {head[tp].to_offset}", history.region.head, tp)


def _submitted(history: History, known: Mapping[TP, str]) -> dict[TP, int]:
    """Partition → the highest offset that was ever merged of its present topic, by rows and archives."""
    highest: dict[TP, int] = {}
    for c in history.checkpoints.values():
        merged = ((tp, m.topic_id, m.to_offset) for tp, m in history.merged.get(c.id, {}).items())
        for tp, topic_id, stop in (*merged, *((tp, topic_id, stop) for tp, topic_id, _, stop, _ in archived(c))):
            if known.get(tp) == topic_id:
                highest[tp] = max(highest.get(tp, 0), stop)
    return highest
