"""What should have landed: a ledger of committed records, or Kafka read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from crkafka_core.model.errors import DataLoss
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.verify.kafka_again import Headers, KafkaAgain
from crkafka_core.verify.ledger import Ledger, sequences
from crkafka_core.verify.verdict import Findings

COLUMNS = ("topic", "partition", "offset")
STRANGE = "landed that nobody committed"


class Truth(Protocol):
    """Compares the rows of one partition's range with what should be there."""

    name: str
    columns: Sequence[str]
    """What it needs of the landed rows."""

    def compare(
        self, tp: TP, start: int, stop: int, landed: pa.Table, found: Findings, *,
        invariant: str, checkpoint: int, topic_id: str = "",
    ) -> None:  # fmt: skip
        """`topic_id`: of the topic in which these offsets count."""

    def count(self, tp: TP, start: int, stop: int) -> int | None:
        """How many records there are in a range; None when it cannot say cheaply."""


class LedgerTruth:
    """Offsets and numbers of a generator's committed records."""

    name = "ledger"
    columns: Sequence[str] = (*COLUMNS, "value")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._cache: dict[TP, tuple[np.ndarray, np.ndarray]] = {}

    def _range(self, tp: TP, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        if tp not in self._cache:
            self._cache[tp] = self._ledger.of(tp)
        offsets, seqs = self._cache[tp]
        first, last = np.searchsorted(offsets, [start, stop])
        return offsets[first:last], seqs[first:last]

    def compare(
        self,
        tp: TP,
        start: int,
        stop: int,
        landed: pa.Table,
        found: Findings,
        *,
        invariant: str,
        checkpoint: int,
        topic_id: str = "",
    ) -> None:
        offsets, seqs = self._range(tp, start, stop)
        got = np.asarray(landed.column("offset").combine_chunks())
        if not compare_offsets(tp, offsets, got, found, invariant=invariant, checkpoint=checkpoint) or not len(got):
            return
        wrong = np.flatnonzero(sequences(landed.column("value")) != seqs)
        if len(wrong):
            at = int(wrong[0])
            number = int(sequences(landed.column("value").slice(at, 1))[0])
            text = f"{tp} landed record number {number} where number {int(seqs[at])} was produced"
            found.add(invariant, text, checkpoint=checkpoint, tp=tp, offset=int(offsets[at]))

    def count(self, tp: TP, start: int, stop: int) -> int | None:
        return len(self._range(tp, start, stop)[0])


class KafkaTruth:
    """Kafka itself, read again by exact ranges: every column must be the same (SPEC K3)."""

    name = "kafka"
    columns: Sequence[str] = tuple(SCHEMA.names)

    def __init__(self, kafka: Mapping[str, str], topic_ids: Mapping[str, str]) -> None:
        """`topic_ids`: those that Kafka has now."""
        self._kafka = KafkaAgain(kafka)
        self._topic_ids = topic_ids
        self._gone: set[TP] = set()

    def close(self) -> None:
        self._kafka.close()

    def compare(
        self,
        tp: TP,
        start: int,
        stop: int,
        landed: pa.Table,
        found: Findings,
        *,
        invariant: str,
        checkpoint: int,
        topic_id: str = "",
    ) -> None:
        if tp in self._gone or self._another(tp.topic, topic_id, found):
            return
        try:
            produced, said = self._kafka.read(tp, start, stop)
        except DataLoss as loss:
            self._gone.add(tp)
            found.note(f"{tp} could not be compared: {loss.message}")
            return
        offsets, got = (np.asarray(t.column("offset").combine_chunks()) for t in (produced, landed))
        if not compare_offsets(tp, offsets, got, found, invariant=invariant, checkpoint=checkpoint):
            return
        different = {name: _first(produced.column(name), landed.column(name)) for name in produced.column_names}
        different["headers"] = _first_headers(tp, said, landed.column("headers"), found)
        for name, at in different.items():
            if at is not None:
                text = f"{tp} landed another {name} than Kafka has"
                found.add(invariant, text, checkpoint=checkpoint, tp=tp, offset=int(got[at]))
                return

    def _another(self, topic: str, topic_id: str, found: Findings) -> bool:
        """Whether Kafka no longer has the topic that was read: no offset of it can be asked for (SPEC S4)."""
        now = self._topic_ids.get(topic)
        if now is not None and (not topic_id or not now or topic_id == now):
            return False
        has = "is gone" if now is None else f"has the id {now} now"
        found.note(f"{topic} with id {topic_id} could not be compared: the topic of this name {has}")
        return True

    def count(self, tp: TP, start: int, stop: int) -> int | None:
        return None


class NoTruth:
    """Only what the region says of itself."""

    name = "nothing else"
    columns: Sequence[str] = COLUMNS

    def compare(
        self,
        tp: TP,
        start: int,
        stop: int,
        landed: pa.Table,
        found: Findings,
        *,
        invariant: str,
        checkpoint: int,
        topic_id: str = "",
    ) -> None:
        return

    def count(self, tp: TP, start: int, stop: int) -> int | None:
        return None


def _first(produced: pa.ChunkedArray, landed: pa.ChunkedArray) -> int | None:
    """The first row in which they differ."""
    if produced.equals(landed):
        return None
    return next(i for i in range(len(landed)) if produced[i] != landed[i])


def _first_headers(tp: TP, said: Mapping[int, Headers], landed: pa.ChunkedArray, found: Findings) -> int | None:
    refused = sum(each is None for each in said.values())
    if refused:
        found.note(f"{tp}: the headers of {plural(refused, 'record')} cannot be read, and were not compared")
    there = set(np.flatnonzero(landed.is_valid().to_numpy()).tolist())
    for row in sorted(there | said.keys()):
        headers = said.get(row, [])
        if headers is not None and headers != [(each["key"], each["value"]) for each in landed[row].as_py() or []]:
            return row
    return None


def compare_offsets(
    tp: TP, due: np.ndarray, got: np.ndarray, found: Findings, *, invariant: str, checkpoint: int
) -> bool:
    """Whether exactly these offsets landed; the first that did not, or that landed twice or from nowhere, is named."""
    if np.array_equal(due, got):
        return True
    for offset, words in _differences(due, got):
        found.add(invariant, f"{tp}: {words}", checkpoint=checkpoint, tp=tp, offset=offset)
    return False


def _differences(due: np.ndarray, got: np.ndarray) -> Iterator[tuple[int, str]]:
    missing, strange = np.setdiff1d(due, got), np.setdiff1d(got, due)
    values, counts = np.unique(got, return_counts=True)
    twice = values[counts > 1]
    if len(missing):
        yield int(missing[0]), f"{len(missing)} of {plural(len(due), 'committed record')} did not land"
    if len(strange):
        yield int(strange[0]), f"{plural(len(strange), 'record')} {STRANGE}"
    if len(twice):
        yield int(twice[0]), f"{plural(len(twice), 'record')} landed more than once"
    if not len(missing) and not len(strange) and not len(twice):
        at = int(np.flatnonzero(due != got)[0])
        yield int(got[at]), "the records landed in another order"
