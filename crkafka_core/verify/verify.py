"""`verify`: all invariants of a region, against a ledger or against Kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from crkafka_core.holder import whoami
from crkafka_core.lake.hold import keeping
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint
from crkafka_core.plane import reading, starts
from crkafka_core.region import Region
from crkafka_core.verify import chain, in_tables
from crkafka_core.verify.committed import commits
from crkafka_core.verify.compare import KafkaTruth, LedgerTruth, Truth
from crkafka_core.verify.history import History
from crkafka_core.verify.landed import Landed, orphans
from crkafka_core.verify.ledger import Ledger
from crkafka_core.verify.verdict import Findings, Verdict

_HOLD = 120.0
"""Seconds for which retirement stays held back after this process has died; renewed while it lives (SPEC T1)."""


def verify(region: Region, ledger: Ledger | None = None, *, kafka: bool = True, quiet: bool = False) -> Verdict:
    """Check every invariant of a region on what its control plane names and its storage holds; nothing is changed.

    Without a ledger, what landed is compared with Kafka, column by column; `kafka=False` asks Kafka nothing.
    `quiet`: nothing is on its way, so commits must equal the head (I12).
    """
    began, findings = time.monotonic(), Findings()
    truth: Truth = LedgerTruth(ledger) if ledger is not None else _of_kafka(region) if kafka else Truth()
    try:
        with _held(region, findings):
            history, storage = region.plane.read(History), region.storage()
            chain.by_sql(history, findings)
            landed = Landed(history, storage, truth, findings)
            landed.check()
            _visible(region, history, findings)
            if kafka:
                again, group = partial(region.plane.read, History), region.config.group_id
                commits(history, region.admin(), group, findings, quiet=quiet, again=again)
            tables, files = in_tables.look(region, findings), orphans(history, storage)
            return _verdict(history, landed, files, tables, time.monotonic() - began)
    finally:
        truth.close()


def latest(region: Region, ids: Sequence[int]) -> Findings:
    """Check some neighbours on the line, given oldest first, by SQL and their segments alone; the start of the first, too."""
    findings = Findings()
    with _held(region, findings):
        first = region.plane.read(lambda reader, _: reader.get(Checkpoint, ids[0]))
        before = [first.parent] if first is not None else []
        history = region.plane.read(lambda reader, row: History(reader, row, [*before, *ids]))
        chain.coverage(history, findings)
        chain.merges(history, findings)
        Landed(history.only(ids), region.storage(), Truth(), findings).check()
    return findings


@contextmanager
def _held(region: Region, findings: Findings) -> Iterator[None]:
    """Hold back all retirement meanwhile; without the right to write, only note that it could not be held."""
    token, holder = uuid.uuid4().hex, f"{whoami()} (crkafka verify)"
    try:
        held = region.plane.do(lambda tx: reading.follow(tx, stream=token, holder=holder, after=0, length=_HOLD))
    except CrkafkaError as refused:
        findings.notes.append(
            f"what is retired meanwhile is reported as missing, since nothing could be held: {refused.message}"
        )
        yield
        return
    with keeping(region, held, "verify"):
        yield


def _of_kafka(region: Region) -> KafkaTruth:
    known = region.plane.read(lambda reader, row: {TP(i.topic, i.partition) for i in starts.initials(reader)})
    admin = region.admin()
    topics = admin.topics({tp.topic for tp in known})
    present = {tp for topic, info in topics.items() for tp in info.tps(topic)}
    return KafkaTruth(
        region.config.resolved_kafka(),
        {topic: info.id for topic, info in topics.items()},
        compacted=admin.compacted(topics),
        begins={tp: earliest for tp, (earliest, _) in admin.watermarks(known & present).items()},
    )


def _verdict(history: History, landed: Landed, orphans: int, tables: tuple[str, ...], seconds: float) -> Verdict:
    row, findings, on_line = history.region, landed.findings, set(history.line)
    return Verdict(
        region=row.name,
        head=row.head,
        epoch=row.epoch,
        checkpoints=sum(c.id in on_line for c in history.kept),
        retired=sum(c.status == "RETIRED" for c in history.on_line),
        superseded=sum(c.id not in on_line for c in history.kept),
        partitions=len(history.merged.get(row.head, {})),
        segments=landed.segments,
        rows=landed.rows,
        bytes=landed.bytes,
        orphans=orphans,
        truth=landed.truth.name,
        compared=landed.compared,
        seconds=round(seconds, 3),
        findings=tuple(findings.kept),
        broken=dict(findings.counts),
        notes=tuple(findings.notes),
        tables=tables,
    )


def _visible(region: Region, history: History, findings: Findings) -> None:
    """I13: a reader reads exactly the segments that merged checkpoints of the line name."""
    kept = [i for i in history.line if history.merged.get(i)]
    if not kept:
        return
    try:
        plan = region.plane.read(lambda reader, row: reading.plan(reader, row, ids=kept))
    except CrkafkaError as error:
        findings.add("I13", f"the line cannot be read: {error}", history.region.head)
        return
    named = {s.path for i in kept for s in history.segments.get(i, ())}
    for path in sorted({s.path for s in plan.segments} ^ named):
        findings.add("I13", "a reader would read another set of segments than the merged checkpoints name", path=path)
