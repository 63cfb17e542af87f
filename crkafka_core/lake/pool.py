"""A small pool of processes beside the host, which turns records of segments into data files of tables (SPEC K6).

A process that dies on a batch, or takes too long for it, is replaced; the batch is gone through record by record, and the record that
does it is set aside, as a dead letter or by an error that names it (fault 90). The processes end with the host, of `kill -9` too.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Self

from crkafka_core.config.region_config import BATCH_TIMEOUT
from crkafka_core.lake.new_files import Output
from crkafka_core.lake.transform import Transform
from crkafka_core.lake.worker import Made, Record, Search, Segments, Source, Task
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.plural import plural
from crkafka_core.model.redaction import conceal, redact_values
from crkafka_core.model.rows import Segment
from crkafka_core.model.selection import EVERYTHING, Selection
from crkafka_core.segments.storage import Storage

WORKERS = 2
_TASK_BYTES = 64 << 20
"""A task has at most about so much."""
_WORTH_A_TASK = 1 << 20
"""Less than this is not worth a second process."""
_DEATHS = 3
"""A task that ends so many processes, by none of its records when they come one by one, is given up for now."""
_START = 60.0
"""Seconds more for a process that has yet to start."""
_DEADLY = 20
"""Where so many records of one batch end their process, not they are bad, but what decodes them is."""


def segments_in_shares(
    storage: Storage, segments: Sequence[Segment], selection: Selection = EVERYTHING, count: int = 1
) -> list[Source]:
    """Segments as `count` tasks or more, where that is worth it, of about equal size, each in the order of checkpoints (SPEC K7)."""
    total = sum(segment.bytes for segment in segments)
    wanted = max(math.ceil(total / _TASK_BYTES), min(count, math.ceil(total / _WORTH_A_TASK)), 1)
    shares: list[list[Segment]] = [[] for _ in range(min(wanted, len(segments)))]
    filled = [0] * len(shares)
    for segment in sorted(segments, key=lambda s: -s.bytes):
        least = filled.index(min(filled))
        shares[least].append(segment)
        filled[least] += segment.bytes
    return [
        Segments(
            storage,
            tuple((s.path, s.checkpoint, s.rows) for s in sorted(share, key=lambda s: (s.checkpoint, s.path))),
            selection,
        )
        for share in shares
    ]


class WorkerDied(ServiceUnavailable):
    """Processes of the pool were ended while they made files, and no record alone does it. Reaction: wait and try again."""


class PoolClosed(CrkafkaError):
    """The pool was closed meanwhile, since the host ends. Reaction: none; nothing was committed."""


class Pool:
    """Its processes start when they are needed. Safe to use from several threads."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._free = InTurn(workers)
        self.workers = workers
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def files(
        self,
        sources: Sequence[Source],
        transform: Transform,
        outputs: Mapping[str, Output],
        check: Callable[[], object] = lambda: None,
        *,
        batch_timeout: float = BATCH_TIMEOUT,
    ) -> Made:
        """New files of all records, which nothing commits yet; none is left behind after an error.

        An output that is not among `outputs` is counted. `check` is called for each batch, and ends it by an error. `batch_timeout`: a
        process that gives no sign of life for longer is ended, and counts as one that died on its batch.
        """
        made, error = Made(), None
        with ThreadPoolExecutor(min(self.workers, len(sources)) or 1, "pool") as threads:
            tasks = [Task(source, transform, outputs) for source in sources]
            running = [threads.submit(self._made, task, check, batch_timeout) for task in tasks]
            try:
                for future in running:
                    made.add(future.result())
            except BaseException as failed:
                error = failed
                for future in running:
                    future.cancel()
                wait(running) if isinstance(failed, Exception) else self.close()
        if error is not None:
            for future in running:
                if not future.cancelled() and future.exception() is None:
                    future.result().discard(outputs)
            raise error
        return made

    def close(self) -> None:
        """End the processes; what they were doing is given up."""
        with self._lock:
            self._closed = True
            ending, self._all, self._idle = self._all, set(), []
        for worker in ending:
            worker.end()

    def _made(self, task: Task, check: Callable[[], object], patience: float) -> Made:
        """A task, carried out by as many processes as it takes."""
        deaths = 0
        while True:
            batch: tuple[int, int, str] | None = None
            try:
                with self._borrowed() as worker:
                    for answer in worker.ask(task, patience):
                        check()
                        if isinstance(answer, Made):
                            return answer
                        batch = answer
            except _Died as died:
                end = died.how
            if batch is not None and (deadly := self._deadly(task, batch[0], batch[1], patience)):
                task = replace(task, deadly={**task.deadly, **deadly})
                continue
            deaths += 1
            if deaths >= _DEATHS:
                last = f" The last one was at {batch[2]}." if batch else ""
                raise WorkerDied(
                    f"{plural(deaths, 'process', 'processes')} that made files of a table {end}, and no record alone does that.{last}",
                    hint="It is tried again. Is memory short? The kernel's log names processes that it has ended. "
                    "Where a batch takes so long by right, raise `batch_timeout`.",
                )

    def _deadly(self, task: Task, first: int, stop: int, patience: float) -> dict[Record, str]:
        """Records of a batch that end a process, with how it ended; each twice, since once may be by chance, as where memory is short."""
        deadly: dict[Record, str] = {}
        suspect: Record | None = None
        row = first
        while True:
            record: Record | None = None
            try:
                with self._borrowed() as worker:
                    for answer in worker.ask(Search(task, row, stop), patience):
                        if answer is None:
                            break
                        row, record = answer
                return deadly
            except _Died as died:
                if record is None:
                    return deadly
                if record != suspect:
                    suspect = record
                    continue
                if record not in task.deadly:
                    deadly[record] = f"the process that decoded it {died.how}"
                if len(deadly) >= _DEADLY:
                    raise WorkerDied(
                        f"{plural(len(deadly), 'record')} of one batch each end the process that decodes it; the last one {died.how}.",
                        hint="It is tried again. Is the decoder broken, or memory short? The kernel's log names processes it has ended.",
                    ) from None
                row += 1

    @contextmanager
    def _borrowed(self) -> Iterator[_Worker]:
        """A worker for the time of the block; one that dies in it is dropped."""
        with self._free:
            with self._lock:
                if self._closed:
                    raise PoolClosed("The pool of processes that make files of tables was closed.")
                worker = self._idle.pop() if self._idle else _Worker()
                self._all.add(worker)
            try:
                yield worker
            finally:
                with self._lock:
                    if kept := worker.free and not self._closed:
                        self._idle.append(worker)
                    else:
                        self._all.discard(worker)
                if not kept:
                    worker.end()


class InTurn:
    """A semaphore in the order of arrival, so that a call with many tasks does not keep out another."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if self._places:
                self._places -= 1
                return
            called = threading.Event()
            self._waiting.append(called)
        called.wait()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._places += 1


class _Died(Exception):
    """`how` it ended."""

    def __init__(self, how: str) -> None:
        self.how = how


class _Worker:
    """One process, and the connection to it; used by one thread at a time."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from crkafka_core.lake.worker import main; main()", str(theirs.fileno())],
            stdin=subprocess.PIPE,  # held open while the host lives
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path},
        )
        theirs.close()
        self._connection: Connection[Any, Any] = ours
        self.free = True
        """It waits for a task."""
        self._start = _START

    def ask(self, asked: Task | Search, patience: float) -> Any:
        """Its answers to a task: its progress, then the result. Its error is raised."""
        self.free = False
        try:
            self._connection.send_bytes(pickle.dumps(asked))
            while True:
                if not self._connection.poll(patience + self._start):
                    raise _Died(f"gave no sign of life for {patience:g} s")
                answer, self._start = pickle.loads(self._connection.recv_bytes()), 0.0
                if not isinstance(answer, tuple):
                    break
                yield answer
        except (EOFError, OSError):
            code = self._process.wait()
            raise _Died(f"was ended by signal {-code}" if code < 0 else f"ended with code {code}") from None
        self.free = True
        if isinstance(answer, CrkafkaError):  # the worker that made it does not know what has to be hidden
            answer.message, answer.hint = redact_values(answer.message), redact_values(answer.hint)
        if isinstance(answer, Exception):
            raise conceal(answer)
        yield answer

    def end(self) -> None:
        self._process.kill()
        with suppress(OSError):
            self._connection.close()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
