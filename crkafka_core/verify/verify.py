"""`verify`: all invariants of a region, against a ledger or against Kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from crkafka_core.holder import whoami
from crkafka_core.lake.hold import keeping
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint
from crkafka_core.plane import reading, starts
from crkafka_core.region import Region
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.scan import read_segment
from crkafka_core.verify import chain, in_tables
from crkafka_core.verify.committed import commits
from crkafka_core.verify.compare import KafkaTruth, LedgerTruth, Truth
from crkafka_core.verify.history import History
from crkafka_core.verify.landed import Landed, orphans
from crkafka_core.verify.ledger import Ledger
from crkafka_core.verify.verdict import Findings, Remembered, Verdict

_HOLD = 120.0
"""Seconds for which retirement stays held back after this process has died; renewed while it lives (SPEC T1)."""

_ORDER = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
Replay = Callable[[int, int], pa.Table]
"""Reads the rows of the checkpoints (after, upto], as a user would (I11)."""


def verify(
    region: Region,
    ledger: Ledger | None = None,
    *,
    kafka: bool = True,
    quiet: bool = False,
    collected: bool = False,
    replay: Replay | None = None,
    seen: Remembered | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Check every invariant of a region on what its control plane names and its storage holds; nothing is changed.

    Without a ledger, what landed is compared with Kafka, column by column; `kafka=False` asks Kafka nothing.
    `quiet`: nothing is on its way, so commits must equal the head (I12). `collected`: retirement has just run (I9).
    `seen`: what earlier verifications remembered (I5). `replay` is compared with the landed rows (I11).
    """
    began, findings = time.monotonic(), Findings()
    truth: Truth = LedgerTruth(ledger) if ledger is not None else _of_kafka(region) if kafka else Truth()
    try:
        with _held(region, findings):
            history, storage = region.plane.read(History.read), region.storage()
            chain.by_sql(history, findings, seen or Remembered())
            progress(f"reading what landed in {plural(len(history.kept), 'checkpoint')}")
            landed = Landed(history, storage, truth, findings)
            landed.check()
            _visible(region, history, findings)
            count = orphans(history, storage, findings, collected=collected)
            if kafka:
                again, group = partial(region.plane.read, History.read), region.config.group_id
                commits(history, region.admin(), group, findings, quiet=quiet, again=again)
            if replay is not None:
                _replay(region, history, replay, findings)
            progress("reading declared tables")
            tables = in_tables.look(region, findings)
            return _verdict(history, landed, count, tables, time.monotonic() - began)
    finally:
        truth.close()


def latest(region: Region, ids: Sequence[int]) -> Findings:
    """Check some neighbours on the line, given oldest first, by SQL and their segments alone; the start of the first, too."""
    findings = Findings()
    with _held(region, findings):
        first = region.plane.read(lambda reader, _: reader.get(Checkpoint, ids[0]))
        before = [first.parent] if first is not None else []
        history = region.plane.read(lambda reader, row: History.read(reader, row, [*before, *ids]))
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
    region, findings = history.region, landed.findings
    on_line = set(history.line)
    return Verdict(
        region=region.name,
        head=region.head,
        epoch=region.epoch,
        checkpoints=sum(c.id in on_line for c in history.kept),
        retired=sum(c.status == "RETIRED" for c in history.on_line),
        superseded=sum(c.id not in on_line for c in history.kept),
        partitions=len(history.merged.get(region.head, {})),
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
        findings.add("I13", f"the line cannot be read: {error}", checkpoint=history.region.head)
        return
    named = {s.path for i in kept for s in history.segments.get(i, ())}
    for path in sorted({s.path for s in plan.segments} ^ named):
        findings.add("I13", "a reader would read another set of segments than the merged checkpoints name", path=path)


def _replay(region: Region, history: History, replay: Replay, findings: Findings) -> None:
    """I11: a replay of the whole line gives the rows that landed."""
    kept = [i for i in history.line if history.merged.get(i)]
    if not kept:
        return
    after = history.checkpoints[kept[0]].parent
    again = replay(after, kept[-1]).select(SCHEMA.names).sort_by(_ORDER)
    storage = region.storage()
    paths = [s.path for i in kept for s in history.segments.get(i, ())]
    first = pa.concat_tables([SCHEMA.empty_table(), *(read_segment(storage, path, SCHEMA.names) for path in paths)])
    first = first.sort_by(_ORDER)
    if again.num_rows != first.num_rows:
        findings.add(
            "I11",
            f"a replay of ({after}, {kept[-1]}] gives {plural(again.num_rows, 'row')}, {first.num_rows} landed",
            checkpoint=kept[-1],
        )
        return
    for name in SCHEMA.names:
        if not again.column(name).combine_chunks().equals(first.column(name).combine_chunks()):
            findings.add(
                "I11", f"a replay of ({after}, {kept[-1]}] gives another {name} than what landed", checkpoint=kept[-1]
            )
            return
