"""A process of the pool: it makes data files of records, and ends with its host (SPEC K6; fault 90).

| thread | what it does |
|---|---|
| main | takes a task from the connection, and answers; it names each batch before, so that the host knows where it died |
| leash | reads standard input, which ends when the host does, of `kill -9` too |
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Protocol

import pyarrow as pa

from crkafka_core.lake.new_files import NewFiles, Output
from crkafka_core.lake.port import CHECKPOINT, NewFile
from crkafka_core.lake.transform import Run, Transform, numbered
from crkafka_core.model.selection import EVERYTHING, Selection
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.scan import scan_segment
from crkafka_core.segments.storage import Storage

Record = tuple[int, str, int, int]
"""Checkpoint, topic, partition, offset: a topic that was made again has records of the same names in other checkpoints."""


class Source(Protocol):
    """The records of one task; picklable, and the same each time it is read."""

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The number of their checkpoint, and records with the columns of `SCHEMA`."""


@dataclass(frozen=True)
class Segments:
    """Records of segments that are named, each with its checkpoint and how many rows it landed with."""

    storage: Storage
    named: tuple[tuple[str, int, int], ...]
    selection: Selection = EVERYTHING

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """DataLoss where a segment does not have its rows."""
        for path, checkpoint, rows in self.named:
            within = self.selection.within(checkpoint)
            for batch in scan_segment(self.storage, path, landed=rows, columns=SCHEMA.names, selection=within):
                yield checkpoint, batch


@dataclass(frozen=True)
class Task:
    """Files of one source's records."""

    source: Source
    transform: Transform
    outputs: Mapping[str, Output]
    deadly: Mapping[Record, str] = field(default_factory=dict)
    """Records that end a process, each with how it ended: they are set aside."""
    careful: tuple[int, int] = (0, 0)
    """Records to transform one by one, [first, stop) counted from the first of the source: the same records come again in the same order,
    but perhaps in other batches.
    """


@dataclass
class Made:
    """What became of records."""

    files: dict[str, list[NewFile]] = field(default_factory=dict)
    """Of each output that has a table."""
    rows: dict[str, Counter[int]] = field(default_factory=dict)
    """Output → checkpoint → rows; of every output, with a table or without."""
    records: Counter[int] = field(default_factory=Counter)
    """Checkpoint → records that were transformed."""

    def add(self, other: Made) -> None:
        for name, files in other.files.items():
            self.files.setdefault(name, []).extend(files)
        for name, rows in other.rows.items():
            self.rows.setdefault(name, Counter()).update(rows)
        self.records.update(other.records)

    def discard(self, outputs: Mapping[str, Output]) -> None:
        """Remove the files."""
        for name, files in self.files.items():
            for file in files:
                with suppress(Exception):
                    outputs[name].storage.delete(file.path)


At = Callable[[int, int, "Record | None"], object]
"""Gets which records of the source come next, [first, stop), before they are transformed; the record, where it comes alone."""


def make(task: Task, run: Run, at: At = lambda first, stop, record: None) -> Made:
    """Carry out a task."""
    outputs = {
        name: NewFiles(task.outputs.get(name), schema if CHECKPOINT in schema.names else numbered(schema))
        for name, schema in task.transform.schemas().items()
    }
    made, count = Made(), 0
    try:
        for checkpoint, batch in task.source.batches():
            made.records[checkpoint] += batch.num_rows
            for rows in _parts(checkpoint, batch, count, task, run, at):
                for name, of in rows.items():
                    outputs[name].add(checkpoint, of)
            count += batch.num_rows
        for each in outputs.values():
            each.close()
    except BaseException:
        for each in outputs.values():
            each.discard()
        raise
    made.files = {name: each.made for name, each in outputs.items() if name in task.outputs}
    made.rows = {name: each.rows for name, each in outputs.items()}
    return made


def _parts(
    checkpoint: int, batch: pa.RecordBatch, count: int, task: Task, run: Run, at: At
) -> Iterator[Mapping[str, pa.RecordBatch]]:
    """A batch transformed, without the records that are set aside. `count`: records of the source before it."""
    at(count, count + batch.num_rows, None)
    alone = range(max(task.careful[0] - count, 0), min(task.careful[1] - count, batch.num_rows))
    if not task.deadly and not alone:
        yield run(batch)
        return
    records = [*_records(checkpoint, batch)]
    for row, record in enumerate(records):
        if record in task.deadly:
            yield task.transform.set_aside(batch.slice(row, 1), task.deadly[record])
        elif row in alone:
            at(count + row, count + row + 1, record)
            rows = run(batch.slice(row, 1))
            at(count, count + batch.num_rows, None)
            yield rows
    together = [row for row, record in enumerate(records) if row not in alone and record not in task.deadly]
    yield run(batch.take(pa.array(together, pa.int64())))


def _records(checkpoint: int, batch: pa.RecordBatch) -> Iterator[Record]:
    """Which they are, in their order."""
    for name in zip(*(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True):
        yield checkpoint, *name


def main() -> None:
    """Serve the connection whose descriptor is the first argument, until it or the host ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a terminal and systemd signal all processes: the host decides
    threading.Thread(target=_until_the_host_ends, name="leash", daemon=True).start()
    connection = Connection(int(sys.argv[1]))
    opened: dict[bytes, Run] = {}
    while True:
        try:
            asked = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            answer: object = _answer(asked, opened, connection)
        except Exception as error:
            answer = error
        _send(connection, answer)


def _answer(task: Task, opened: dict[bytes, Run], connection: Connection) -> Made:
    key = pickle.dumps(task.transform)
    if key not in opened:
        opened.clear() if len(opened) >= _OPENED else None
        opened[key] = task.transform.open()
    return make(task, opened[key], lambda *given: connection.send(given))


_OPENED = 64
"""Transforms that a process keeps open."""


def _send(connection: Connection, answer: object) -> None:
    try:
        sent = pickle.dumps(answer)
        pickle.loads(sent)
    except Exception:
        sent = pickle.dumps(RuntimeError(f"{type(answer).__name__}: {answer}"))
    connection.send_bytes(sent)


def _until_the_host_ends() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
