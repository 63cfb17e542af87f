"""Records that a generator really committed to Kafka, for comparison with the landed rows (SPEC I2)."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.model.errors import ConfigError
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural

_SCHEMA = pa.schema({"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "seq": pa.int64()})
_RUN = b"run"
SEQ_AT = slice(9, 21)
"""Where a value has its sequence number: after eight letters of the run and a blank."""


def value_of(run: str, seq: int, topic: str, padding: bytes = b"") -> bytes:
    """The value of a record: run, number, topic and padding, readable in any tool."""
    return b"%s %012d %s " % (run.encode(), seq, topic.encode()) + padding


def sequences(values: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """The sequence numbers of many values, such as the `value` column of landed records."""
    digits = pc.binary_slice(values, SEQ_AT.start, SEQ_AT.stop)
    return np.asarray(digits.cast(pa.string()).cast(pa.int64()))


class Ledger:
    """Per partition the offsets of committed records and their numbers. Safe to use from several threads."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._parts: dict[TP, list[tuple[np.ndarray, np.ndarray]]] = {}
        self._deleted: dict[tuple[str, TP], tuple[np.ndarray, np.ndarray]] = {}
        """(id of a deleted topic, partition) → its records."""
        self._lost = 0
        self._lock = threading.Lock()

    def add(self, tp: TP, offsets: Iterable[int] | np.ndarray, seqs: Iterable[int] | np.ndarray) -> None:
        """Records of one partition that are known to be committed."""
        pair = (_whole(offsets), _whole(seqs))
        if len(pair[0]) != len(pair[1]):
            raise ValueError(f"{plural(len(pair[0]), 'offset')} and {len(pair[1])} numbers of {tp}")
        with self._lock:
            self._parts.setdefault(tp, []).append(pair)

    def delete(self, topic: str, topic_id: str) -> None:
        """Set the records of a deleted topic aside: another topic of its name begins."""
        for tp in [tp for tp in self.tps if tp.topic == topic]:
            records = self.of(tp)
            with self._lock:
                del self._parts[tp]
                self._deleted[topic_id, tp] = records

    def let_go(self, tp: TP, start: int, stop: int | None = None, *, topic_id: str | None = None) -> None:
        """Kafka deleted [start, stop) before it was merged: its records are not due any more."""
        offsets, _ = self.of(tp, topic_id)
        last = len(offsets) if stop is None else int(np.searchsorted(offsets, stop))
        with self._lock:
            self._lost += max(0, last - int(np.searchsorted(offsets, start)))

    def of(self, tp: TP, topic_id: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Offsets in rising order, and their numbers; of the deleted topic with this id, if there is one."""
        with self._lock:
            if topic_id is not None and (topic_id, tp) in self._deleted:
                return self._deleted[topic_id, tp]
            parts = list(self._parts.get(tp, ()))
        if not parts:
            return _whole(()), _whole(())
        offsets = np.concatenate([part[0] for part in parts])
        seqs = np.concatenate([part[1] for part in parts])
        order = np.argsort(offsets, kind="stable")
        return offsets[order], seqs[order]

    @property
    def tps(self) -> frozenset[TP]:
        with self._lock:
            return frozenset(self._parts)

    def rows(self) -> int:
        """The number of records that are due."""
        with self._lock:
            current = sum(len(offsets) for parts in self._parts.values() for offsets, _ in parts)
            return current + sum(len(offsets) for offsets, _ in self._deleted.values()) - self._lost

    def table(self) -> pa.Table:
        """Records as topic, partition, offset and seq, in that order; deleted topics have no rows."""
        tables = [_SCHEMA.empty_table()]
        for tp in sorted(self.tps):
            offsets, seqs = self.of(tp)
            columns = [[tp.topic] * len(offsets), np.full(len(offsets), tp.partition, np.int32), offsets, seqs]
            arrays = [pa.array(column, type=field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
            tables.append(pa.Table.from_arrays(arrays, schema=_SCHEMA))
        return pa.concat_tables(tables)

    def save(self, path: Path) -> None:
        """Write it to a file, for a check in another process."""
        table = self.table().replace_schema_metadata({_RUN: self.run.encode()})
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)

    @classmethod
    def load(cls, path: Path) -> Ledger:
        """The ledger that `save` wrote."""
        try:
            with pa.memory_map(str(path)) as source:
                table = pa.ipc.open_file(source).read_all()
            ledger = cls((table.schema.metadata or {})[_RUN].decode())
        except (pa.ArrowInvalid, KeyError):
            raise ConfigError(f"{path} is not the ledger of a generator.") from None
        topics, partitions = table.column("topic").to_pylist(), table.column("partition").to_pylist()
        places = [TP(topic, partition) for topic, partition in zip(topics, partitions, strict=True)]
        offsets, seqs = np.asarray(table.column("offset")), np.asarray(table.column("seq"))
        starts = [i for i, tp in enumerate(places) if i == 0 or tp != places[i - 1]]
        for start, stop in zip(starts, [*starts[1:], len(places)], strict=True):
            ledger.add(places[start], offsets[start:stop].copy(), seqs[start:stop].copy())
        return ledger


def _whole(values: Iterable[int] | np.ndarray) -> np.ndarray:
    return np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.int64)
