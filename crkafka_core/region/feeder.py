"""Keeps tables fresh that need no Spark: as soon as a checkpoint is merged, its rows come into each (SPEC K6, A7).

One per region, by a lease; it is woken by the control plane and does not poll. After a rewind it makes the fences that need no
Spark. Each table, or each family of one shape, is written on a thread of its own: an object store that does not answer holds up no
other, and no end. Rows of typed tables are made by one pool of processes. What it cannot do is told once and tried again later: an
alarm counts how far a table is behind, whoever writes it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from crkafka_core.control import Reader
from crkafka_core.holder import holder
from crkafka_core.lake import road
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.pool import Pool
from crkafka_core.lake.road import MEANS, Means
from crkafka_core.loop import Loop, Runtime
from crkafka_core.model import rows
from crkafka_core.model.errors import CrkafkaError, LeaseHeld
from crkafka_core.model.plural import plural
from crkafka_core.plane import checkpoints, epochs
from crkafka_core.plane import tables as plane
from crkafka_core.region.feeder_process import FeederProcess, Tell
from crkafka_core.region.joining import Joining
from crkafka_core.region.lease import DriverLease, free

if TYPE_CHECKING:
    from crkafka_core.region.region import Region

_log = logging.getLogger(__name__)
LEASE = plane.FEEDER
_PATIENCE = 0.5
"""Seconds after which it looks again though nothing was told."""
_LONGEST = 30.0
"""Seconds between two tries of a table that fails."""
_TOGETHER = 1.0
"""Seconds for which it waits for the commits that it has begun, before it looks what else is due."""
_HANGS = 60.0
"""Seconds after which a commit that has not ended is told."""
LAST = 45.0
"""Seconds at its end for what is merged by then."""


class Work(Protocol):
    """What is done to a table."""

    def __call__(self, region: Handle, name: str, *, means: Means) -> object: ...


class Writing(Loop):
    """One commit to one table, on a thread of its own."""

    def __init__(self, name: str, work: Callable[[], bool], runtime: Runtime) -> None:
        super().__init__(f"feeds {name}", runtime)
        self._work = work
        self.began, self.moved, self.warned = runtime.now(), False, False

    def turn(self, patience: float = 0.0) -> bool:
        self.moved = self._work()
        return False


class Feeder(Loop):
    """Threads: its own, one for each table that is written at this moment, and one that renews its lease. `turn` begins all that is due."""

    def __init__(self, region: Handle, *, tell: Callable[[str], None] = lambda _: None, means: Means = MEANS) -> None:
        super().__init__("feeder", region.runtime)
        self._pool = Pool()
        self._region, self._tell, self._means = region, tell, replace(means, pool=means.pool or self._pool)
        self._left = region.config.left_to_others
        self._over = threading.Event()
        self._held = ExitStack()
        self._lease: DriverLease | None = None
        self._failed: dict[str, tuple[int, float, str]] = {}
        """Table → failures in a row, when to try again, and what was said."""
        self._writing: dict[str, Writing] = {}
        """Table → its last commit, which may still be under way."""
        self._joining = Joining(region, means, tell)

    def begin(self) -> None:
        self._runtime.start(self)

    def end(self) -> None:
        """Bring in what is merged by now, for at most `LAST` seconds, then end."""
        self._over.set()
        self._runtime.ended(self, None)
        self._pool.close()

    def turn(self, patience: float = _PATIENCE) -> bool:
        """Advance, or fence, where it is due; else wait for a change of the region. False: it has ended."""
        try:
            if self._lease is None:
                free(self._region, LEASE)
                data = plane.left_out(self._left)
                lease = DriverLease(self._region.plane, LEASE, holder(), data=data, runtime=self._runtime)
                self._lease = self._held.enter_context(lease)
            if self._over.is_set():
                self._finish()
                self._let_go()
                return False
            version = self._region.plane.read(lambda _, row: row.version)
            fed = self._feed()
            self._joining.begin()
            if not fed:
                self._region.plane.wait(version, patience)
            return True
        except CrkafkaError as error:
            if not isinstance(error, LeaseHeld):
                _log.warning("feeder: %s", error)
            self._let_go()
        except BaseException as error:
            # A thread that died here would go on holding its lease: no other host could take over. (A panic of Delta's library
            # is no Exception.)
            _log.exception("feeder")
            self._tell(f"{type(error).__name__}: {error}")
            self._let_go()
            if not isinstance(error, Exception) and type(error).__module__ == "builtins":
                raise
        self._runtime.wait(self._over, 2.0)
        return not self._over.is_set()

    def _let_go(self) -> None:
        held, self._held, self._lease = self._held, ExitStack(), None
        try:
            held.close()
        except CrkafkaError as error:
            _log.warning("feeder: %s", error)

    def _finish(self) -> None:
        """What is merged by now; what has failed is tried once more, whenever it would have been."""
        self._failed = {name: (failures, 0.0, text) for name, (failures, _, text) in self._failed.items()}
        limit = self._runtime.now() + LAST
        while self._feed() or self._running():
            if self._runtime.now() > limit:
                self._tell(f"what is still being written is left to the next host: {', '.join(self._running())}")
                return

    def _running(self) -> list[str]:
        """Tables with a commit that has not ended, which is waited for a moment."""
        return [name for name, writing in self._writing.items() if not self._runtime.ended(writing, 0.02)]

    def _feed(self) -> bool:
        """Begin what is due; whether a commit was made to any table within a moment."""
        assert self._lease is not None
        self._lease.check()
        owed, behind = self._region.plane.read(due)
        fences: list[tuple[str, Work]] = [(name, road.fence) for name in owed]
        advances: list[tuple[str, Work]] = [(name, road.advance) for name in behind if name not in self._left]
        begun = [self._begin(name, work) for name, work in fences + advances if self._may_begin(name)]
        limit = self._runtime.now() + _TOGETHER
        for commit in begun:
            self._runtime.ended(commit, max(0.0, limit - self._runtime.now()))
        return any(commit.moved for commit in begun)

    def _may_begin(self, name: str) -> bool:
        """Not while the last commit is under way, nor so soon after one that failed."""
        writing, now = self._writing.get(name), self._runtime.now()
        if writing is not None and not self._runtime.ended(writing, 0.0):
            if now - writing.began > _HANGS and not writing.warned:
                writing.warned = True
                _log.warning("feeder: table %s: a commit has not ended for %.0f s", name, now - writing.began)
                self._tell(
                    f"table {name}: a commit has not ended for {now - writing.began:.0f} s; does its storage answer?"
                )
            return False
        return now >= self._failed.get(name, (0, 0.0, ""))[1]

    def _begin(self, name: str, work: Work) -> Writing:
        writing = self._writing[name] = Writing(name, lambda: self._write(name, work), self._runtime)
        self._runtime.start(writing)
        return writing

    def _write(self, name: str, work: Work) -> bool:
        """On the table's thread: whether it was done, or can be tried again at once."""
        try:
            if work(self._region, name, means=self._means) is not None:
                self._joining.committed(name)
            self._failed.pop(name, None)
            return True
        except LeaseHeld:
            with suppress(CrkafkaError):
                family = self._region.plane.read(lambda reader, _: plane.siblings(reader, plane.of(reader, name)))
                return any(free(self._region, f"writer:{table.name}") for table in family)
        except CrkafkaError as error:
            self._fail(name, str(error))
        except (
            BaseException
        ) as error:  # a panic of Delta's library is no Exception, and must not end this in silence either
            _log.exception("feeder: table %s", name)
            self._fail(name, f"{type(error).__name__}: {error}")
            if not isinstance(error, Exception) and type(error).__module__ == "builtins":
                raise
        return False

    def _fail(self, name: str, text: str) -> None:
        failures, _, before = self._failed.get(name, (0, 0.0, ""))
        self._failed[name] = (failures + 1, self._runtime.now() + min(2.0 ** (failures + 1), _LONGEST), text)
        if text != before:
            _log.warning("feeder: table %s: %s", name, text)
            self._tell(f"table {name}: {text}")


def due(reader: Reader, row: rows.Region) -> tuple[list[str], list[str]]:
    """Tables that owe a fence which needs no Spark, and the first of each family that can take what is merged."""
    owed = [t.name for t in epochs.unfenced(reader) if not plane.needs_spark(t)]
    behind = [
        family[0].name
        for family in plane.families(plane.written_here(reader))
        if any(t.acknowledged < row.head for t in family) and not any(t.name in owed for t in family)
    ]
    return owed, behind


class Ending(Protocol):
    """What keeps tables fresh in the background."""

    def begin(self) -> None: ...
    def end(self) -> None:
        """Bring in what is merged by now, then end."""


Warm = Callable[[Tell, Tell], Ending]
"""Makes what feeds tables by a Spark session that is there; the first hears what keeps a table back, the other what goes well."""


@contextmanager
def feeding(
    region: Region, *, tell: Tell = lambda _: None, news: Tell | None = None, warm: Warm | None = None
) -> Iterator[None]:
    """Tables are kept fresh until the block ends; what is merged by then is brought in first. Nothing is started without tables.

    Those that Spark writes are fed by `warm`, else by a process with a session of its own. `tell` hears what keeps a table back,
    `news`, or else `tell`, that Spark starts and writes.
    """
    feeders: list[Ending] = []
    declared = [t for t in region.config.tables if t.kept_fresh]
    if any(map(region.config.without_spark, region.config.tables)):  # also those left to others follow a rewind by it
        feeders.append(Feeder(region, tell=tell))
    if any(not region.config.without_spark(t) for t in declared):
        feeders.append(warm(tell, news or tell) if warm is not None else FeederProcess(region, tell=tell, news=news))
    for feeder in feeders:
        feeder.begin()
    try:
        yield
    finally:
        if late := _waiting(region):
            records = plural(max(late.values()), "record")
            (news or tell)(f"{records} still come into {' and '.join(late)}; that takes at most a minute")
        for feeder in feeders:
            feeder.end()
        for name, reached in behind(region).items():
            tell(f"table {name} is left at checkpoint {reached}: whoever hosts the region next goes on from there")


def _waiting(region: Handle) -> dict[str, int]:
    """Tables that are kept fresh, and how many records wait for each."""

    def ask(reader: Reader, row: rows.Region) -> dict[str, int]:
        late = plane.late(reader, row, region.config.left_to_others)
        waiting = {name: checkpoints.filled(reader, above=reached) for name, reached in late.items()}
        return {name: sum(checkpoints.rows_of(reader, ids).values()) for name, ids in waiting.items() if ids}

    with suppress(CrkafkaError):
        return region.plane.read(ask)
    return {}


def behind(region: Handle) -> dict[str, int]:
    """Tables that are kept fresh and have not got all that is merged, with the checkpoint that they have reached."""
    left = region.config.left_to_others
    with suppress(CrkafkaError):
        return region.plane.read(lambda reader, row: plane.late(reader, row, left))
    return {}
