"""What hits a region from outside: a process that is frozen, and a foreign consumer in its group."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from crkafka_core.testing.pytest_services import unique


def freeze(pid: int, database: str) -> None:
    """Stop a process, not inside a transaction on this SQLite file: its lock cannot be taken from a frozen one (docs/operations.md)."""
    _stop(pid)
    while database and _is_locked(database):
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
        _stop(pid)


def _stop(pid: int) -> None:
    """Until each thread stands still: one whose core the machine has given to others runs on for a moment after the signal."""
    os.kill(pid, signal.SIGSTOP)
    while any(_state(task) not in "TZX" for task in Path("/proc").glob(f"{pid}/task/*")):
        time.sleep(0.002)


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _is_locked(database: str) -> bool:
    """Whether a transaction, most likely of the frozen process, lasts for longer than any should."""
    try:
        with contextlib.closing(sqlite3.connect(database, timeout=1.0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        return False
    except sqlite3.OperationalError:
        return True


@contextlib.contextmanager
def stranger(kafka: Mapping[str, Any], topics: Sequence[str]) -> Iterator[None]:
    """A foreign consumer joins the group, and leaves it at the end of the block: two rebalances without a process."""
    own = {"client.id": unique("stranger"), "auto.offset.reset": "latest", "enable.auto.commit": False}
    consumer = Consumer({**kafka, **own, "partition.assignment.strategy": "range,roundrobin"})
    over = threading.Event()

    def poll() -> None:
        consumer.subscribe(list(topics))
        while not over.is_set():
            consumer.poll(0.05)
        consumer.close()

    thread = threading.Thread(target=poll, name="stranger", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
