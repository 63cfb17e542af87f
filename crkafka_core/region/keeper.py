"""Keeps tables fresh: brings each merged checkpoint into each of them, and fences each after a rewind (SPEC K6, X4, A7). One keeper for
each way of writing (without Spark, by a Spark session), under a lease; the control plane wakes it. Each table, or family of one shape, is
written on a thread of its own: one that hangs delays no other, and no end. A failure is reported once and tried again later: an alarm
counts how far a table is behind, whichever process writes it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from crkafka_core.control import Reader
from crkafka_core.holder import holder
from crkafka_core.lake.handle import Handle
from crkafka_core.loop import Loop, Runtime
from crkafka_core.model.errors import CrkafkaError, LeaseHeld
from crkafka_core.model.limits import Backoff
from crkafka_core.model.redaction import redact_values
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import epochs
from crkafka_core.plane import tables as plane
from crkafka_core.region.lease import DriverLease, free

_log = logging.getLogger(__name__)
Tell = Callable[[str], None]
_PATIENCE = 0.5
"""Longest wait for a change of the region, in seconds."""
_AWAY = 2.0
"""Seconds between two tries of a lease that another process has, or of a control plane that is away."""
_PAUSES = Backoff(2.0, 30.0)
"""Between two tries of a table that fails."""
_TOGETHER = 1.0
"""Seconds to wait for the commits just begun, before the next look at what is due."""
_AT_ONCE, _LONG = 16, 10.0
"""Most commits under way at once, without those that take longer than so many seconds."""
_HANGS = 60.0
"""Seconds after which a commit that has not ended is reported."""
LAST = 45.0
"""Seconds for which an ending keeper still writes the checkpoints merged by then."""


class Way:
    """A way of writing some of the tables."""

    lease: str
    """Kind of the lease of the process that keeps these tables."""
    pause = 0.5
    """Most seconds between two looks whether a write has ended."""
    grows = False
    """Whether tables are declared while it runs."""

    def families(self, reader: Reader, row: Region) -> list[list[Table]]:
        """The tables of this way, in families that are written together."""
        raise NotImplementedError

    def why_not(self) -> str:
        """Reason why nothing can be written now; empty if it can."""
        return ""

    def over(self) -> str:
        """Reason why nothing can ever be written again; empty if it can."""
        return ""

    def open(self) -> None:
        """Called before the first write; may take long."""

    def prepare(self) -> None:
        """Called before each look at what is due, if it grows."""

    def between(self) -> None:
        """Called on the keeper's thread between its rounds."""

    def fence(self, name: str) -> object:
        raise NotImplementedError

    def advance(self, name: str) -> object:
        raise NotImplementedError

    def explained(self, error: BaseException) -> str:
        """A sentence for an error of a foreign library; empty if this way knows none."""
        return ""

    def cancel(self) -> float:
        """End the writes under way, at the end of the keeper; seconds to wait for them."""
        return 0.0


class Writing(Loop):
    """One commit to one table, or one pass over a family, on a thread of its own."""

    def __init__(self, name: str, work: Callable[[], bool], runtime: Runtime) -> None:
        super().__init__(f"feeds {name}", runtime)
        self._work = work
        self.began, self.moved, self.warned = runtime.now(), False, False

    def turn(self, patience: float = 0.0) -> bool:
        self.moved = self._work()
        return False


class Keeper(Loop):
    """Threads: its own, one for each family that is being written, and one that renews its lease."""

    def __init__(self, region: Handle, way: Way, *, tell: Tell = lambda _: None, token: str = "") -> None:
        """`token`: the token of a lease that was already taken for this keeper."""
        super().__init__("feeder", region.runtime)
        self._region, self._way, self._tell, self._token = region, way, tell, token
        self._left = region.config.left_to_others
        self._over, self._ended = threading.Event(), False
        self._lease: DriverLease | None = None
        self._failed: dict[str, tuple[int, float]] = {}
        """Table → failures in a row, and time of the next try."""
        self._reported: dict[str, str] = {}
        """Table → its last report."""
        self._writing: dict[str, Writing] = {}
        """Table → its last commit, which may still be under way."""

    def begin(self) -> None:
        self._runtime.start(self)

    def end(self) -> None:
        """Write the checkpoints merged by now, for at most `LAST` seconds, then end."""
        self._over.set()
        self._runtime.ended(self, None)
        self._ended = True
        patience = self._way.cancel()
        for writing in self._writing.values():
            self._runtime.ended(writing, patience)

    def abandon(self) -> None:
        """End without another write: other processes may write the tables at once."""
        self._over.set()
        self._let_go()

    def turn(self, patience: float = _PATIENCE) -> bool:
        """Begin what is due, or wait for a change of the region; False once it has ended."""
        try:
            return self._turn(patience)
        except CrkafkaError as error:
            if not isinstance(error, LeaseHeld):
                _log.warning("feeder: %s", error)
            self._let_go()
        except BaseException as error:
            # A thread that died here would keep its lease: no other host could take over. (A panic of Delta's library is no Exception.)
            _log.exception("feeder")
            self._report("", f"{type(error).__name__}: {error}")
            self._let_go()
            if not isinstance(error, Exception) and type(error).__module__ == "builtins":
                raise
        self._runtime.wait(self._over, _AWAY)
        return not self._over.is_set()

    def _turn(self, patience: float) -> bool:
        version, wanted = self._region.plane.read(lambda reader, row: (row.version, self._way.families(reader, row)))
        why = self._way.why_not() if wanted else ""
        self._report("", why)
        if (why and not self._running()) or not (wanted or self._lease or self._way.grows):
            self._let_go()
            if not self._over.is_set():
                self._region.plane.wait(version, patience)
            return not self._over.is_set()
        if self._lease is None:
            free(self._region, self._way.lease)
            data = plane.left_out(self._left)
            self._lease = DriverLease(
                self._region.plane, self._way.lease, holder(), token=self._token, data=data, runtime=self._runtime
            )
            self._way.open()
        if gone := self._way.over():
            self._report("", gone)
            self._over.set()
        elif self._over.is_set():
            self._finish()
        if self._over.is_set():
            self._let_go()
            return False
        fed = not why and self._feed()
        self._way.between()
        if not fed:
            writes = any(not self._runtime.ended(each, 0.0) for each in self._writing.values())
            self._region.plane.wait(version, min(patience, self._way.pause) if writes else patience)
        return True

    def _let_go(self) -> None:
        lease, self._lease = self._lease, None
        try:
            if lease is not None:
                lease.let_go()
        except CrkafkaError as error:
            _log.warning("feeder: %s", error)

    def _finish(self) -> None:
        """Write the checkpoints merged by now; a table that failed is tried once more, without its pause."""
        self._failed = {name: (failures, 0.0) for name, (failures, _) in self._failed.items()}
        limit = self._runtime.now() + LAST
        while self._feed() or self._running():
            if self._runtime.now() > limit:
                self._report("", f"what is still being written is left to the next host: {', '.join(self._running())}")
                return

    def _running(self) -> list[str]:
        """Tables whose commit does not end within a moment."""
        return [name for name, writing in self._writing.items() if not self._runtime.ended(writing, 0.02)]

    def _feed(self) -> bool:
        """Begin what is due; whether any table had a commit within a moment."""
        assert self._lease is not None
        self._lease.check()
        if self._way.grows:
            self._way.prepare()
        unfenced, behind = self._region.plane.read(
            lambda reader, row: due(self._way.families(reader, row), reader, row)
        )
        works: list[tuple[str, Callable[[str], object]]] = [(name, self._way.fence) for name in unfenced]
        works += [(name, self._way.advance) for name in behind if name not in self._left]
        able = [(name, work) for name, work in works if self._may_begin(name)]
        now, all_begun = self._runtime.now(), self._writing
        if len(able) > _AT_ONCE:  # the one that waited longest comes first; one that takes long delays no other
            under_way = sum(w.began > now - _LONG and not self._runtime.ended(w, 0.0) for w in all_begun.values())
            began = {name: all_begun[name].began if name in all_begun else 0.0 for name, _ in able}
            able = sorted(able, key=lambda each: began[each[0]])[: max(0, _AT_ONCE - under_way)]
        begun = [self._begin(name, work) for name, work in able]
        limit = self._runtime.now() + _TOGETHER
        for commit in begun:
            self._runtime.ended(commit, max(0.0, limit - self._runtime.now()))
        return any(commit.moved for commit in begun)

    def _may_begin(self, name: str) -> bool:
        """Whether the table's last commit has ended, and its pause after a failure."""
        writing, now = self._writing.get(name), self._runtime.now()
        if writing is not None and not self._runtime.ended(writing, 0.0):
            if now - writing.began > _HANGS and not writing.warned:
                writing.warned, silent = True, now - writing.began
                self._report(name, f"table {name}: a commit has not ended for {silent:.0f} s; does its storage answer?")
            return False
        return now >= self._failed.get(name, (0, 0.0))[1]

    def _begin(self, name: str, work: Callable[[str], object]) -> Writing:
        writing = self._writing[name] = Writing(name, lambda: self._write(name, work), self._runtime)
        self._runtime.start(writing)
        return writing

    # On the thread of a family

    def _write(self, name: str, work: Callable[[str], object]) -> bool:
        """Do one piece of work on a table; whether it is done, or can be tried again at once."""
        try:
            work(name)
        except LeaseHeld:
            with suppress(CrkafkaError):
                family = self._region.plane.read(lambda reader, _: plane.siblings(reader, plane.of(reader, name)))
                return any(free(self._region, f"writer:{table.name}") for table in family)
        except CrkafkaError as error:
            self._fail(name, str(error))
        except BaseException as error:  # a panic of Delta's library must not end this in silence either
            known = self._way.explained(error)
            if not known:
                _log.exception("feeder: table %s", name)
            self._fail(name, known or f"{type(error).__name__}: {error}")
            if not isinstance(error, Exception) and type(error).__module__ == "builtins":
                raise
        else:
            self._failed.pop(name, None)
            self._reported.pop(name, None)
            return True
        return False

    def _fail(self, name: str, text: str) -> None:
        failures = self._failed.get(name, (0, 0.0))[0] + 1
        self._failed[name] = (failures, self._runtime.now() + _PAUSES.after(failures))
        self._report(name, f"table {name}: {text}")

    def _report(self, name: str, text: str) -> None:
        """Report a text once, until it changes, without the secrets of this process."""
        text = redact_values(text)
        if text and self._reported.get(name) != text and not self._ended:
            _log.warning("feeder: %s", text)
            self._tell(text)
        self._reported[name] = text


def due(families: list[list[Table]], reader: Reader, row: Region) -> tuple[list[str], list[str]]:
    """Tables to fence, and the first of each family that can take a merged checkpoint."""
    unfenced = {table.name for table in epochs.unfenced(reader)}
    owed = [t.name for family in families for t in family if t.name in unfenced]
    behind = [
        family[0].name
        for family in families
        if any(t.acknowledged < row.head for t in family) and not any(t.name in owed for t in family)
    ]
    return owed, behind
