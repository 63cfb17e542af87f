"""A process of the pool: it makes data files of records, and ends with its host (SPEC K6; fault 90).

| thread | what it does |
|---|---|
| main | takes a task from the connection, and answers; before each batch it names the batch, so that the host knows where it died |
| leash | reads standard input, which ends when the host does, of `kill -9` too |
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Protocol

import numpy as np
import pyarrow as pa

from crkafka_core.lake.new_files import NewFiles, Output
from crkafka_core.lake.port import CHECKPOINT, NewFile
from crkafka_core.lake.transform import Run, Transform, numbered
from crkafka_core.model.selection import EVERYTHING, Selection
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.scan import scan_segment
from crkafka_core.segments.storage import Storage

_CLOSED_AT_ONCE = 8
"""Outputs, of which a pass over many tables has one for each."""
_OPENED = 64
"""Transforms that a process keeps open."""
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
    """Records that end a process, each with what became of it: they are set aside."""


@dataclass(frozen=True)
class Search:
    """Go through some records of a task one by one, naming each before, to find what ends the process.

    They are counted from the first record of the source: the same records come again in the same order, but perhaps in other batches.
    """

    task: Task
    first: int
    stop: int


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
        for name, files in self.files.items():
            for file in files:
                with suppress(Exception):
                    outputs[name].storage.delete(file.path)


def make(task: Task, run: Run, at: Callable[[int, pa.RecordBatch], object] = lambda first, batch: None) -> Made:
    """Carry out a task. `at` gets each batch, and which record of the source is its first, before it is transformed."""
    outputs = {
        name: NewFiles(task.outputs.get(name), schema if CHECKPOINT in schema.names else numbered(schema))
        for name, schema in task.transform.schemas().items()
    }
    made, count = Made(), 0
    try:
        for checkpoint, batch in task.source.batches():
            at(count, batch)
            count += batch.num_rows
            made.records[checkpoint] += batch.num_rows
            for given in _parts(checkpoint, batch, task, run):
                for name, rows in given.items():
                    outputs[name].add(checkpoint, rows)
        # All files whole and durable. Several at once share the disk's writes: one after the other each waits for a write of its own.
        with ThreadPoolExecutor(min(_CLOSED_AT_ONCE, len(outputs)) or 1, "close") as threads:
            deque(threads.map(NewFiles.close, outputs.values()), maxlen=0)
    except BaseException:
        for each in outputs.values():
            each.discard()
        raise
    made.files = {name: each.made for name, each in outputs.items() if name in task.outputs}
    made.rows = {name: each.rows for name, each in outputs.items()}
    return made


def _parts(checkpoint: int, batch: pa.RecordBatch, task: Task, run: Run) -> Iterator[Mapping[str, pa.RecordBatch]]:
    """A batch transformed, without the records that are set aside."""
    known = task.deadly
    deadly = {i: known[each] for i, each in enumerate(_records(checkpoint, batch)) if each in known} if known else {}
    if not deadly:
        yield run(batch)
        return
    alive = np.ones(batch.num_rows, bool)
    alive[list(deadly)] = False
    yield run(batch.filter(pa.array(alive)))
    for row, reason in deadly.items():
        yield task.transform.set_aside(batch.slice(row, 1), reason)


def _records(checkpoint: int, batch: pa.RecordBatch) -> Iterator[Record]:
    for name in zip(*(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True):
        yield checkpoint, *name


def _ends(batch: pa.RecordBatch) -> str:
    """The first and the last record of a batch, for people."""
    ends = [next(_records(0, batch.slice(row, 1))) for row in (0, batch.num_rows - 1)] if batch.num_rows else []
    return " to ".join(f"{topic}[{partition}]@{offset}" for _, topic, partition, offset in ends)


def search(asked: Search, run: Run, at: Callable[[int, Record], object]) -> None:
    """Transform the records one by one; `at` gets each before."""
    count = 0
    for checkpoint, batch in asked.task.source.batches():
        if count >= asked.stop:
            return
        for row in range(max(0, asked.first - count), min(batch.num_rows, asked.stop - count)):
            one = batch.slice(row, 1)
            at(count + row, next(_records(checkpoint, one)))
            run(one)
        count += batch.num_rows


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
        try:
            pickle.loads(sent := pickle.dumps(answer))
        except Exception:
            sent = pickle.dumps(RuntimeError(f"{type(answer).__name__}: {answer}"))
        connection.send_bytes(sent)


def _answer(asked: Task | Search, opened: dict[bytes, Run], connection: Connection) -> Made | None:
    task = asked if isinstance(asked, Task) else asked.task
    key = pickle.dumps(task.transform)
    if key not in opened:
        opened.clear() if len(opened) >= _OPENED else None
        opened[key] = task.transform.open()
    if isinstance(asked, Search):
        search(asked, opened[key], lambda row, record: connection.send((row, record)))
        return None
    return make(task, opened[key], lambda first, batch: connection.send((first, first + batch.num_rows, _ends(batch))))


def _until_the_host_ends() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
