"""What keeps a host's tables fresh: one keeper for those that need no Spark, and one for those whose rows Spark makes (SPEC K6, A7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from crkafka_core.config.location import in_catalog
from crkafka_core.config.typed import has_records, topic_of
from crkafka_core.control import Reader
from crkafka_core.lake import road, together
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.pool import Pool
from crkafka_core.lake.road import MEANS, Means
from crkafka_core.model import rows
from crkafka_core.model.errors import CrkafkaError, Refused
from crkafka_core.model.plural import plural
from crkafka_core.plane import checkpoints, passed, templates
from crkafka_core.plane import tables as plane
from crkafka_core.region.feeder_process import FeederProcess
from crkafka_core.region.joining import Joining
from crkafka_core.region.keeper import Keeper, Tell

if TYPE_CHECKING:
    from crkafka_core.region.region import Region


_JOINED = 5.0
"""Seconds for which a file that is being made of small ones is waited for at the end; after that nobody commits it."""


class ByRoad:
    """A `Way`: without Spark. Rows of typed tables are made by one pool of processes."""

    lease, pause = plane.FEEDER, 0.5

    def __init__(self, region: Handle, means: Means, tell: Tell) -> None:
        self._pool = Pool()
        self._region, self._means = region, replace(means, pool=means.pool or self._pool)
        self._joining = Joining(region, means, tell)
        self._tell = tell
        self.grows = bool(region.config.templates)
        self._topics: frozenset[str] = frozenset()
        self._head = -1
        self._together: dict[str, list[str]] = {}
        """The first table of a pass → all that it is for."""
        self._alone: set[str] = set()
        """Tables that have left one, and are written by themselves, once they can be."""

    def families(self, reader: Reader, row: rows.Region) -> list[list[rows.Table]]:
        """Those of one shape together, and those of many topics that take the same checkpoints by one pass."""
        families = plane.families(plane.written_here(reader))
        if not self.grows:
            return families
        level: dict[tuple[int, int], list[rows.Table]] = {}
        of_topic = Counter[str]()
        """Tables of each topic, which are in several passes."""
        for table in (family[0] for family in families if self._goes_together(family, row.head)):
            of_topic[topic := topic_of(table.shape)] += 1
            level.setdefault((table.acknowledged, of_topic[topic]), []).append(table)
        passes = [list(group) for of in level.values() for group in _chunks(of) if len(group) > 1]
        self._together = {group[0].name: [table.name for table in group] for group in passes}
        taken = {name for group in self._together.values() for name in group}
        return [*(family for family in families if family[0].name not in taken), *passes]

    def _goes_together(self, family: list[rows.Table], head: int) -> bool:
        table = family[0]
        late = self._means.logs is MEANS.logs and in_catalog(table.path) and not table.version
        waits = table.acknowledged < head and not table.owes_fence and table.name not in self._alone
        return waits and has_records(table.shape) and bool(topic_of(table.shape)) and not late

    def why_not(self) -> str:
        return ""

    def open(self) -> None: ...

    def over(self) -> str:
        return ""

    def prepare(self) -> None:
        """Declare the tables of new topics, and pass over what has nothing of a table's topic; once for each head."""
        if (head := self._region.plane.read(lambda _, row: row.head)) == self._head:
            return
        try:
            control, config = self._region.plane, self._region.config
            self._topics = templates.declare_new(control, config, known=self._topics, by="the host")
            if control.read(lambda reader, _: passed.waiting(reader)):
                control.do(passed.acknowledge)
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

    def explained(self, error: BaseException) -> str:
        return ""

    def cancel(self) -> float:
        self._pool.close()
        self._joining.end(_JOINED)
        return 0.0


def _chunks(level: list[rows.Table]) -> Iterator[list[rows.Table]]:
    """Of equal size, as many as one pass takes at most."""
    count = -(-len(level) // together.AT_ONCE)
    return (level[i::count] for i in range(count))


class Feeder(Keeper):
    """The keeper of tables that need no Spark."""

    def __init__(self, region: Handle, *, tell: Tell = lambda _: None, means: Means = MEANS) -> None:
        super().__init__(region, ByRoad(region, means, tell), tell=tell)


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

    Those whose rows Spark makes are fed by `warm`, else by a process with a session of its own. `tell` hears what keeps a table back,
    `news`, or else `tell`, that Spark starts and writes.
    """
    feeders: list[Ending] = []
    declared = [t for t in region.config.tables if t.kept_fresh]
    if region.config.templates or any(
        map(region.config.without_spark, region.config.tables)
    ):  # also those left to others follow a rewind by it
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
            tell(f"table {name} is left at checkpoint {reached}: its next host goes on from there")


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
