"""Failpoints inside member processes: a test writes a file, the member that reaches the point dies, sleeps or fails there.

A host's order names `install` as its hook; nothing of this is in a member otherwise. One file per member and point, in a
folder that both sides know: its text is the action. Actions that happen once take the file away as they begin.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.edge import Polled
from crkafka_core.kafka.errors import Fenced, GroupRebalanced, KafkaFailed, KafkaUnavailable
from crkafka_core.member.main import MemberProcess
from crkafka_core.member.open_segments import OpenSegments
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.protocol import signals as sg
from crkafka_core.segments import local
from crkafka_core.segments.errors import storage_error

HOOK = "tests.rigs.failpoints:install"
_log = logging.getLogger(__name__)

CONTRIBUTE = "contribute"
"""Drained and saved; the contribution is not in SQL."""
CONTRIBUTED = "contributed"
"""The contribution is in SQL, and the merge if it was the last."""
MERGED = "merged"
"""Whatever could be merged is; this member has not heard of it."""
SAVED = "saved"
"""Segments are closed and on disk; nobody has named them."""
WRITE = "write"
"""Before a batch is written to the open segment, under the permit."""
POLL = "poll"
"""`raise`: the next poll loses its batch, as an exception out of `consume` does (docs/clients.md C-K3)."""
COMMIT = "commit"
"""The name of an error: the synchronous commit of a drain fails with it."""
SQL = "sql"
"""While the file is there, this member cannot reach the control plane."""
DISK = "disk"
"""While the file is there, nothing can be written to the storage."""
START = "start"
"""Registered; nothing runs yet."""
RESOLVED = "resolved"
"""A start was resolved; the event thread has not got the answer."""

ERRORS: dict[str, type[CrkafkaError]] = {
    "rebalanced": GroupRebalanced,
    "unavailable": KafkaUnavailable,
    "fenced": Fenced,
    "broken": KafkaFailed,
}


class Failpoints:
    """The test's side."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def set(self, member: str, point: str, action: str = "kill") -> None:
        """kill, sleep:SECONDS, hold (until cleared), raise, or the name of an error."""
        path = _file(self.folder, member, point)
        path.with_suffix(".new").write_text(action)
        path.with_suffix(".new").rename(path)

    def clear(self, member: str, point: str) -> None:
        _file(self.folder, member, point).unlink(missing_ok=True)

    def clear_all(self) -> None:
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)

    def pending(self, member: str, point: str) -> bool:
        return _file(self.folder, member, point).exists()

    def await_reached(self, member: str, point: str, timeout: float = 30.0) -> None:
        end = time.monotonic() + timeout
        while not _file(self.folder, member, point + "!").exists():
            if time.monotonic() > end:
                raise TimeoutError(f"{member} did not reach {point} within {timeout:.0f} s")
            time.sleep(0.01)
        _file(self.folder, member, point + "!").unlink()


def _file(folder: Path, member: str, point: str) -> Path:
    return folder / f"{member.replace('/', '-')}@{point}"


class _Inside:
    """The member's side."""

    def __init__(self, folder: Path, member: str) -> None:
        self._folder = folder
        self._member = member

    def action_at(self, point: str) -> str:
        try:
            return _file(self._folder, self._member, point).read_text()
        except FileNotFoundError:
            return ""

    def take(self, point: str) -> str:
        """The action; it happens once, and not if the test takes it back meanwhile."""
        action = self.action_at(point)
        if action:
            try:
                _file(self._folder, self._member, point).rename(_file(self._folder, self._member, point + "!"))
            except FileNotFoundError:
                return ""
        return action

    def reach(self, point: str) -> None:
        action = self.action_at(point)
        if not action:
            return
        _log.warning("failpoint %s: %s", point, action)
        if action == "hold":
            _file(self._folder, self._member, point + "!").touch()
            while self.action_at(point) == "hold":
                time.sleep(0.01)
            return
        if not self.take(point):
            return
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action.startswith("sleep:"):
            time.sleep(float(action[6:]))


def install(folder: str, parts: MemberProcess) -> None:
    """The hook of a host's order: wraps what the points are about."""
    inside = _Inside(Path(folder), parts.name)
    wanted: set[str] = set()
    """Of a contribution, when it began: one that is under way as a test sets a point is an earlier cut's."""

    def contributes() -> None:
        inside.reach(CONTRIBUTE)
        wanted.clear()
        wanted.update(point for point in (CONTRIBUTED, MERGED) if inside.action_at(point))

    def has_contributed(point: str) -> None:
        if point in wanted:
            inside.reach(point)

    _around(parts.reporter, "_contribute", before=contributes, after=lambda: has_contributed(MERGED))
    post = parts.reporter._post

    def posted(event: sg.Event) -> None:
        post(event)
        if isinstance(event, sg.Contributed):
            has_contributed(CONTRIBUTED)

    parts.reporter._post = posted
    resolved = parts.resolver._post

    def answered(event: sg.Event) -> None:
        inside.reach(RESOLVED)
        resolved(event)

    parts.resolver._post = answered
    segments: OpenSegments = parts.submitter._segments
    _around(segments, "close", after=lambda: inside.reach(SAVED))
    _around(segments, "write", before=lambda: inside.reach(WRITE))
    _sql(parts, inside)
    _disk(inside)
    _kafka(inside)
    inside.reach(START)


def _around(
    owner: Any, name: str, *, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
) -> None:
    call = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before()
        result = call(*args, **kwargs)
        after()
        return result

    setattr(owner, name, wrapped)


def _sql(parts: MemberProcess, inside: _Inside) -> None:
    def refuse() -> None:
        if inside.action_at(SQL):
            raise ServiceUnavailable(
                "The control plane cannot be reached: a failpoint.", hint="The test takes it away."
            )

    def slowly() -> None:
        if inside.action_at(SQL):
            time.sleep(0.05)
            refuse()

    store: Any = parts.plane._plane.store
    _around(store, "run", before=refuse)
    _around(store, "read", before=refuse)
    _around(store, "wait", before=slowly)


def _disk(inside: _Inside) -> None:
    write = local._LocalOutput.write

    def full(output: Any, data: memoryview) -> None:
        if inside.action_at(DISK):
            raise storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "Writing", str(output._path))
        write(output, data)

    setattr(local._LocalOutput, "write", full)  # noqa: B010 (a patch, as meant)


def _kafka(inside: _Inside) -> None:
    poll, commit = GroupConsumer.poll, GroupConsumer.commit

    def losing(consumer: GroupConsumer, *args: Any, **kwargs: Any) -> Polled:
        polled = poll(consumer, *args, **kwargs)
        if polled.batch is not None and inside.action_at(POLL) == "raise":
            inside.take(POLL)
            _log.warning("failpoint poll: %s records are lost", polled.batch.rows)
            return Polled(None, polled.rebalances, polled.errors, {}, True, polled.batch.rows + polled.dropped)
        if inside.action_at(POLL) != "raise":
            inside.reach(POLL)
        return polled

    def failing(consumer: GroupConsumer, *args: Any, **kwargs: Any) -> None:
        action = inside.action_at(COMMIT)
        if action in ERRORS:
            inside.take(COMMIT)
            raise ERRORS[action](f"Kafka failed committing: a failpoint ({action}).")
        inside.reach(COMMIT)
        commit(consumer, *args, **kwargs)

    setattr(GroupConsumer, "poll", losing)  # noqa: B010
    setattr(GroupConsumer, "commit", failing)  # noqa: B010
