"""The records that should have landed, from a ledger or from Kafka read again, compared with those that did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.model.errors import DataLoss
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.verify.kafka_again import Headers, KafkaAgain
from crkafka_core.verify.ledger import Ledger, sequences
from crkafka_core.verify.verdict import Findings

COLUMNS = ("topic", "partition", "offset")
NULL = -1
"""Stands for a null among whole numbers."""
STRANGE = "landed that nobody committed"


@dataclass(frozen=True)
class Stretch:
    """The landed rows of one partition between two offsets, and the invariant that a difference breaks."""

    tp: TP
    start: int
    stop: int
    landed: pa.Table
    invariant: str
    checkpoint: int
    topic_id: str = ""
    """The id of the topic that the offsets belong to."""

    @property
    def offsets(self) -> np.ndarray:
        return np.asarray(self.landed.column("offset").combine_chunks())

    def differs(self, findings: Findings, text: str, offset: int) -> None:
        findings.add(self.invariant, f"{self.tp}{text}", self.checkpoint, self.tp, offset)


class Truth:
    """The records that should have landed. This one knows none, so that only the region's own account is checked."""

    name = "nothing else"
    columns: Sequence[str] = COLUMNS
    """Columns of landed rows that `compare` needs."""

    def compare(self, part: Stretch, findings: Findings) -> int:
        """Report where the landed rows differ; returns how many of them were compared."""
        return 0

    def count(self, tp: TP, topic_id: str, start: int, stop: int) -> int | None:
        """The number of records in a range; None when it cannot be known cheaply."""
        return None

    def close(self) -> None:
        """Release connections."""


class LedgerTruth(Truth):
    """Offsets and numbers of a generator's committed records."""

    name = "ledger"
    columns: Sequence[str] = (*COLUMNS, "value")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._cache: dict[tuple[TP, str], tuple[np.ndarray, np.ndarray]] = {}

    def _range(self, tp: TP, topic_id: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        if (tp, topic_id) not in self._cache:
            self._cache[tp, topic_id] = self._ledger.of(tp, topic_id)
        offsets, seqs = self._cache[tp, topic_id]
        first, last = np.searchsorted(offsets, [start, stop])
        return offsets[first:last], seqs[first:last]

    def compare(self, part: Stretch, findings: Findings) -> int:
        offsets, seqs = self._range(part.tp, part.topic_id, part.start, part.stop)
        if compare_offsets(part, offsets, findings) and len(offsets):
            landed = sequences(part.landed.column("value"))
            wrong = np.flatnonzero(landed != seqs)
            if len(wrong):
                at = int(wrong[0])
                text = f" landed record number {landed[at]} where number {seqs[at]} was produced"
                part.differs(findings, text, int(offsets[at]))
        return len(part.offsets)

    def count(self, tp: TP, topic_id: str, start: int, stop: int) -> int | None:
        return len(self._range(tp, topic_id, start, stop)[0])


class KafkaTruth(Truth):
    """Kafka itself, read again by exact ranges: every column must be the same (SPEC K3)."""

    name = "kafka"
    columns: Sequence[str] = tuple(SCHEMA.names)

    def __init__(
        self,
        kafka: Mapping[str, str],
        topic_ids: Mapping[str, str],
        *,
        compacted: Mapping[str, bool],
        begins: Mapping[TP, int],
    ) -> None:
        """Kafka's present state: ids of topics; whether a topic is compacted, if known; the first offset of each partition."""
        self._kafka = KafkaAgain(kafka)
        self._topic_ids, self._compacted, self._begins = topic_ids, compacted, begins
        self._gone: set[TP] = set()

    def close(self) -> None:
        self._kafka.close()

    def compare(self, part: Stretch, findings: Findings) -> int:
        tp = part.tp
        if tp in self._gone or self._is_replaced(tp.topic, part.topic_id, findings):
            return 0
        part = self._not_expired(part, findings)
        if part.start == part.stop:
            return 0
        try:
            produced, headers = self._kafka.read(tp, part.start, part.stop)
        except DataLoss as loss:
            self._gone.add(tp)
            findings.note(f"{tp} could not be compared: {loss.message}")
            return 0
        due = np.asarray(produced.column("offset").combine_chunks())
        part = self._not_cleaned(part, due, findings)
        if compare_offsets(part, due, findings):
            self._compare_columns(part, produced, headers, findings)
        return len(part.offsets)

    def _compare_columns(
        self, part: Stretch, produced: pa.Table, headers: Mapping[int, Headers], findings: Findings
    ) -> None:
        pairs = {name: (produced.column(name), part.landed.column(name)) for name in produced.column_names}
        different = {
            name: next(i for i in range(len(landed)) if expected[i] != landed[i])
            for name, (expected, landed) in pairs.items()
            if not expected.equals(landed)
        }
        at = _first_headers(part.tp, headers, part.landed.column("headers"), findings)
        different |= {} if at is None else {"headers": at}
        for name in list(different)[:1]:
            part.differs(findings, f" landed another {name} than Kafka has", int(part.offsets[different[name]]))

    def _not_expired(self, part: Stretch, findings: Findings) -> Stretch:
        """The part of the stretch that Kafka has not expired."""
        begins = self._begins.get(part.tp, 0)
        if begins <= part.start:
            return part
        findings.note(f"{part.tp} begins at offset {begins} by now: what landed of it before was not compared")
        left = part.landed.filter(pc.greater_equal(part.landed.column("offset"), begins))
        return replace(part, start=min(begins, part.stop), landed=left.combine_chunks())

    def _not_cleaned(self, part: Stretch, due: np.ndarray, findings: Findings) -> Stretch:
        """The part of the stretch that compaction has left in Kafka: rows cleaned away cannot be compared."""
        topic, uncleaned = part.tp.topic, np.isin(part.offsets, due)
        compacted = self._compacted.get(topic)
        if uncleaned.all() or compacted is False:
            return part
        if compacted is None:
            unknown = f"whether {topic} is compacted could not be asked"
            findings.note(f"{unknown}: if it is, what landed and nobody committed may be cleaned away since")
            return part
        findings.note(f"{topic} is compacted: what landed of it and was cleaned away since was not compared")
        return replace(part, landed=part.landed.filter(pa.array(uncleaned)).combine_chunks())

    def _is_replaced(self, topic: str, topic_id: str, findings: Findings) -> bool:
        """Whether the topic that was read is gone from Kafka, or is another one of its name: its offsets mean nothing there (SPEC S4)."""
        now = self._topic_ids.get(topic)
        if now is not None and (not topic_id or not now or topic_id == now):
            return False
        has = "is gone" if now is None else f"has the id {now} now"
        findings.note(f"{topic} with id {topic_id} could not be compared: the topic of this name {has}")
        return True


def _first_headers(tp: TP, produced: Mapping[int, Headers], landed: pa.ChunkedArray, findings: Findings) -> int | None:
    refused = sum(each is None for each in produced.values())
    if refused:
        findings.note(f"{tp}: the headers of {plural(refused, 'record')} cannot be read, and were not compared")
    with_headers = set(np.flatnonzero(landed.is_valid().to_numpy()).tolist())
    for row in sorted(with_headers | produced.keys()):
        expected, headers = produced.get(row, []), landed[row].as_py() or []
        if expected not in (None, [(each["key"].partition("\0")[0], each["value"]) for each in headers]):
            return row
    return None


def compare_offsets(part: Stretch, due: np.ndarray, findings: Findings) -> bool:
    """Whether exactly these offsets landed; reports the first that is missing, unexpected or doubled."""
    landed = part.offsets
    if np.array_equal(due, landed):
        return True
    values, counts = np.unique(landed, return_counts=True)
    missing, strange, twice = np.setdiff1d(due, values), np.setdiff1d(values, due), values[counts > 1]
    lacking = f"{len(missing)} of {plural(len(due), 'committed record')} did not land"
    differences = [(missing, lacking), (strange, f"{plural(len(strange), 'record')} {STRANGE}")]
    differences.append((twice, f"{plural(len(twice), 'record')} landed more than once"))
    if not any(len(offsets) for offsets, _ in differences):
        differences.append((landed[due != landed], "the records landed in another order"))
    for offsets, words in differences:
        if len(offsets):
            part.differs(findings, f": {words}", int(offsets[0]))
    return False


def whole(values: pa.Array) -> np.ndarray:
    """Whole numbers, `NULL` for nulls."""
    return np.asarray(values.fill_null(NULL)).astype(np.int64)


def by_partition(
    topic: pa.Array, partition: pa.Array, checkpoints: np.ndarray | int = 0
) -> Iterator[tuple[int, TP, np.ndarray]]:
    """Each checkpoint and partition of the rows, and the numbers of the rows that have them, in order; an unknown topic is ""."""
    topics = topic.dictionary_encode()
    keys = (np.broadcast_to(checkpoints, len(topic)), whole(topics.indices), whole(partition))
    order = np.lexsort(keys[::-1])
    ordered = np.stack([key[order] for key in keys])
    starts = np.flatnonzero(np.any(np.diff(ordered, axis=1, prepend=ordered[:, :1] - 1) != 0, axis=0)).tolist()
    for at, stop in zip(starts, [*starts[1:], len(order)], strict=False):
        checkpoint, code, number = ordered[:, at].tolist()
        yield checkpoint, TP(topics.dictionary[code].as_py() if code >= 0 else "", number), order[at:stop]
