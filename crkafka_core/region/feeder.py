"""The keepers of a host's tables: one for tables that need no Spark, one for those whose rows Spark makes (SPEC K6, A7)."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from crkafka_core.config.location import in_catalog
from crkafka_core.config.shapes import has_records, topic_of
from crkafka_core.control import Reader
from crkafka_core.lake import compact, road, together
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.pool import Pool
from crkafka_core.lake.road import MEANS, Means
from crkafka_core.loop import Repeated
from crkafka_core.model import rows
from crkafka_core.model.errors import CrkafkaError, Refused
from crkafka_core.model.plural import plural
from crkafka_core.model.redaction import redact_values
from crkafka_core.plane import checkpoints, passes, templates
from crkafka_core.plane import tables as plane
from crkafka_core.region.feeder_process import FeederProcess
from crkafka_core.region.keeper import Keeper, Tell, Way

if TYPE_CHECKING:
    from crkafka_core.region.region import Region


_log = logging.getLogger(__name__)
EVERY = 25
"""Commits to a table between two looks at its small files."""
_NICENESS = 15
_JOINED = 5.0
"""Seconds to wait at the end for a file that is being made of small ones; a later one is not committed."""


class Joining:
    """One table after another, on a thread that ends when none is due. Without a lease: no commit of rows waits for it."""

    def __init__(self, region: Handle, means: Means, tell: Callable[[str], None]) -> None:
        self._region, self._means, self._tell = region, means, tell
        self._commits: Counter[str] = Counter()
        """Table → commits since the last look."""
        self._left: set[str] = set()
        """Files that cannot be joined."""
        self._over = False
        self._loop: Repeated | None = None

    def committed(self, name: str) -> None:
        """Count a commit of rows to the table and those of its shape."""
        self._commits[name] += 1

    def begin(self) -> None:
        """Start the thread if a table is due and none runs."""
        runtime = self._region.runtime
        if max(self._commits.values(), default=0) >= EVERY and (self._loop is None or runtime.ended(self._loop, 0.0)):
            self._loop = Repeated("joins files", self._turn, runtime)
            runtime.start(self._loop)

    def end(self, patience: float) -> None:
        """Make no further file; wait so many seconds for the one that is being made."""
        self._over = True
        if self._loop is not None:
            self._region.runtime.ended(self._loop, patience)

    def _turn(self) -> bool:
        with suppress(OSError, AttributeError):  # of this thread alone; not on every system
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        name = max(self._commits, key=lambda each: self._commits[each])
        if self._commits[name] < EVERY or self._over:
            return False
        self._commits[name] = 0
        try:
            for table in self._region.plane.read(lambda reader, _: plane.siblings(reader, plane.of(reader, name))):
                done = compact.join_crowds(
                    self._region, table.name, self._left, go_on=lambda: not self._over, logs=self._means.logs
                )
                if done.merged:
                    _log.info("table %s: %s", table.name, compact.in_words(done))
        except Exception as error:
            ours = isinstance(error, CrkafkaError)
            if not ours:
                _log.exception("table %s: small files", name)
            why = f"{'' if ours else f'{type(error).__name__}: '}{error}"
            self._tell(redact_values(f"table {name}: its small files are not joined: {why}"))
        return True


class ByRoad(Way):
    """Without Spark. One pool of processes makes the rows of typed tables."""

    lease = plane.FEEDER

    def __init__(self, region: Handle, means: Means, tell: Tell) -> None:
        self._pool = Pool()
        self._region, self._means = region, replace(means, pool=means.pool or self._pool)
        self._joining = Joining(region, means, tell)
        self._tell = tell
        self.grows = bool(region.config.templates)
        self._topics: frozenset[str] = frozenset()
        self._head = -1
        self._together: dict[str, list[str]] = {}
        """The first table of a pass → all tables that it writes."""
        self._alone: set[str] = set()
        """Tables that have left a pass, and are written by themselves until they have all checkpoints."""

    def families(self, reader: Reader, row: rows.Region) -> list[list[rows.Table]]:
        """Tables of one shape together; tables of many topics that take the same checkpoints in one pass."""
        families = plane.families(plane.written_here(reader))
        if not self.grows:
            return families
        level: dict[tuple[int, int], list[rows.Table]] = {}
        of_topic = Counter[str]()
        """Topic → its tables so far: each goes into another pass."""
        for table in (family[0] for family in families if self._goes_together(family, row.head)):
            of_topic[topic := topic_of(table.shape)] += 1
            level.setdefault((table.acknowledged, of_topic[topic]), []).append(table)
        passes = []
        for peers in level.values():  # groups of equal size, each of at most as many tables as one pass takes
            count = -(-len(peers) // together.AT_ONCE)
            passes += [group for i in range(count) if len(group := peers[i::count]) > 1]
        self._together = {group[0].name: [table.name for table in group] for group in passes}
        taken = {name for group in self._together.values() for name in group}
        return [*(family for family in families if family[0].name not in taken), *passes]

    def _goes_together(self, family: list[rows.Table], head: int) -> bool:
        table = family[0]
        late = self._means.logs is MEANS.logs and in_catalog(table.path) and not table.version
        waits = table.acknowledged < head and not table.owes_fence and table.name not in self._alone
        return waits and has_records(table.shape) and bool(topic_of(table.shape)) and not late

    def prepare(self) -> None:
        """Declare the tables of new topics, and acknowledge checkpoints without records of a table's topic; once for each head."""
        if (head := self._region.plane.read(lambda _, row: row.head)) == self._head:
            return
        try:
            control, config = self._region.plane, self._region.config
            self._topics = templates.declare_new(control, config, known=self._topics, by="the host")
            if control.read(lambda reader, _: passes.passable(reader)):
                control.do(passes.pass_over)
        except Refused as error:
            self._tell(f"tables of new topics: {error}")
        self._head = head

    def fence(self, name: str) -> object:
        return road.fence(self._region, name, means=self._means)

    def advance(self, name: str) -> None:
        if (names := self._together.get(name)) is not None:
            came = together.advance(self._region, names, means=self._means)
            self._alone.update(came.left)
            for each in came.done:
                self._joining.committed(each)
            return
        if road.advance(self._region, name, means=self._means) is not None:
            self._joining.committed(name)
        self._alone.discard(name)

    def between(self) -> None:
        self._joining.begin()

    def cancel(self) -> float:
        self._pool.close()
        self._joining.end(_JOINED)
        return 0.0


class Feeder(Keeper):
    """The keeper of tables that need no Spark."""

    def __init__(self, region: Handle, *, tell: Tell = lambda _: None, means: Means = MEANS) -> None:
        super().__init__(region, ByRoad(region, means, tell), tell=tell)


Warm = Callable[[Tell, Tell], Keeper]
"""Makes the keeper of a host's own Spark session; the first function receives problems, the second progress."""


@contextmanager
def feeding(
    region: Region, *, tell: Tell = lambda _: None, news: Tell | None = None, warm: Warm | None = None
) -> Iterator[None]:
    """Keep tables fresh until the block ends, with the checkpoints merged by then. Without tables nothing is started. Tables whose rows
    Spark makes are fed by `warm`, else by a process with a session of its own. `tell` receives what delays a table, `news`, or else `tell`,
    that Spark starts and writes."""
    feeders: list[Keeper | FeederProcess] = []
    declared = [t for t in region.config.tables if t.kept_fresh]
    # It also fences the tables that are left to other programs.
    if region.config.templates or any(map(region.config.without_spark, region.config.tables)):
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
        with suppress(CrkafkaError):
            left = region.plane.read(lambda reader, row: plane.late(reader, row, region.config.left_to_others))
            for name, reached in left.items():
                tell(f"table {name} is left at checkpoint {reached}: its next host goes on from there")


def _waiting(region: Handle) -> dict[str, int]:
    """Tables that are kept fresh, with the number of records that wait for each."""

    def ask(reader: Reader, row: rows.Region) -> dict[str, int]:
        late = plane.late(reader, row, region.config.left_to_others)
        waiting = {name: checkpoints.filled(reader, above=reached) for name, reached in late.items()}
        return {name: sum(checkpoints.rows_of(reader, ids).values()) for name, ids in waiting.items() if ids}

    with suppress(CrkafkaError):
        return region.plane.read(ask)
    return {}
