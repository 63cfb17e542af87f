"""One way into a table: permit → files → one commit of the format's own log → acknowledged (SPEC K6, X4).

Tables of one shape take the same checkpoints by one pass: permits for all of them, files of all of them, then a commit to each, the last
in order first, under one token. A writer that dies after a commit leaves a stamp that SQL does not know; who comes next has SQL
acknowledge it, and asks for another permit. What one table has and another lacks is written again in all of them before anything new.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from crkafka_core.control import Reader, Tx
from crkafka_core.lake import again, formats, keyed, made, standing, writing
from crkafka_core.lake.again import Fetch
from crkafka_core.lake.audit import TableAudit
from crkafka_core.lake.columns import PLACE, keys_of, place_of
from crkafka_core.lake.formats import Logs
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.keyed import KeyedWrite
from crkafka_core.lake.made import Files, Frames
from crkafka_core.lake.pool import Pool
from crkafka_core.lake.port import Snapshot, TableLog
from crkafka_core.lake.standing import NotAcknowledged, Standing
from crkafka_core.lake.staying import Staying
from crkafka_core.lake.write import Write
from crkafka_core.lake.writing import Ask, Committed, Fenced, Written
from crkafka_core.model.errors import Refused, Stale
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import checkpoints, contents, events, passes, permits, tables
from crkafka_core.plane.passes import AT_ONCE, Step
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.table_versions import State, state_at

_log = logging.getLogger(__name__)
T = TypeVar("T")
_RECORDS = 4_000_000
"""Of one pass of a table with one row for each key, at most, where it has several checkpoints."""
_PERMITS = 5
"""Permits that one call asks for at most, when commits show up that SQL has not acknowledged."""


@dataclass(frozen=True)
class Means:
    """What a table is written with: tests have their own."""

    logs: Logs = formats.open_log
    fetch: Fetch | None = None
    """None: Kafka."""
    pool: Pool | None = None
    """Of who writes for long; None: each pass opens one for its time, if it needs one."""
    frames: Frames | None = None
    """Makes rows of shapes on DataFrames, by a Spark session; None: there is none."""

    def fetch_of(self, region: Handle) -> Fetch:
        return self.fetch or again.FromKafka(region.config)


MEANS = Means()


def advance(
    region: Handle, name: str, *, limit: int | None = AT_ONCE, upto: int | None = None, means: Means = MEANS
) -> Committed | None:
    """Bring in what follows the acknowledged checkpoint, in all tables of this one's shape; at most `limit` checkpoints, and not past
    `upto`. None: nothing new.
    """

    def look(reader: Reader, row: Region) -> tuple[list[str], list[str]]:
        tables_ = tables.siblings(reader, tables.of(reader, name))
        declared_again = [t.name for t in tables_ if t.owes_fence and row.phase is not Phase.REWINDING]
        return [t.name for t in tables_], declared_again

    family, owing = region.plane.read(look)
    for each in owing:
        fence(region, each, means=means)
    if kept := bool(_keyed(region, family)):
        limit = region.plane.read(lambda reader, row: _few_records(reader, row, name, limit))
    if len(family) == 1:
        ask = writing.asking(name, limit=limit, upto=upto)
        return _acknowledging(region, family, means, _Pass(region, means, {name: ask}).run).get(name)
    return _step_by_step(
        region, name, means, lambda reader, row: passes.following(reader, row, name, limit, upto, kept=kept)
    )


def _few_records(reader: Reader, region: Region, name: str, limit: int | None) -> int:
    """How many checkpoints have so few records that their keys fit into memory; at least one."""
    ids = tables.behind(reader, region, tables.of(reader, name))[:limit]
    rows, count = checkpoints.rows_of(reader, ids), 0
    for at, number in enumerate(ids):
        count += rows.get(number, 0)
        if count > _RECORDS:
            return max(1, at)
    return max(1, len(ids))


def _step_by_step(
    region: Handle, name: str, means: Means, ask: Callable[[Reader, Region], Step | None]
) -> Committed | None:
    """A pass over all tables of a shape; passes that were left undone before it."""
    family = _family(region, name)

    def once() -> tuple[Step | None, dict[str, Committed]]:
        step = region.plane.read(ask)
        if step is not None and step.erasing:
            return step, _erase_in_all(region, family, step.ids, means)
        names = [] if step is None else _taking(region, family, step)
        asks = {each: _asking(each, step) for each in names} if step is not None else {}
        return step, _Pass(region, means, asks).run() if asks else {}

    last: Committed | None = None
    while True:
        step, done = _acknowledging(region, family, means, once)
        last = done.get(name, last)
        if step is None or step.onward:
            return last


def _asking(name: str, step: Step) -> Ask:
    """For the very checkpoints of the step."""
    if name in step.advancing:
        return writing.asking(name, upto=step.ids[-1])
    return writing.asking(name, ids=step.ids)


def _keyed(region: Handle, names: Iterable[str]) -> list[str]:
    """Those of the tables that have one row for each key."""
    return region.plane.read(
        lambda reader, _: [name for name in names if keys_of(region.config, tables.of(reader, name))]
    )


def _taking(region: Handle, family: Sequence[str], step: Step) -> list[str]:
    """Tables that take a pass. One with one row for each key has what others lack, and gets nothing of it again; refused where another
    joins its shape later, since which of the records before are in neither, nothing tells.
    """
    has = [name for name in _keyed(region, family) if name not in step.advancing]
    if has:
        found = [region.plane.read(partial(_table, name=name)) for name in sorted(step.advancing)]
        if joined := next((table.name for table in found if not table.version), ""):
            keyed.refuse_rewrite(region, region.plane.read(partial(_table, name=has[0])), joined=joined)
    return [name for name in family if name not in has]


def rewrite(
    region: Handle,
    name: str,
    ids: Collection[int],
    *,
    means: Means = MEANS,
    also: Collection[int] = (),
    settles: int = -1,
) -> Committed | None:
    """Replace the rows of these live checkpoints in all tables of this one's shape, as a replay does; those that are not acknowledged
    come with the next advance.

    A repair has rows of `also`, and those without a number, leave this table as well, and settles what others committed up to a version.
    """
    family, by_key = _family(region, name), _keyed(region, _family(region, name))
    if name in by_key:
        keyed.refuse_rewrite(region, region.plane.read(partial(_table, name=name)))
    if len(family) > 1:
        kept = bool(by_key)
        _step_by_step(region, name, means, lambda reader, row: passes.left_undone(reader, row, name, kept=kept))
    family = [each for each in family if each not in by_key]
    reached = region.plane.read(lambda reader, _: min(tables.of(reader, each).acknowledged for each in family))
    ids = [number for number in sorted(ids) if number <= reached]
    if not ids:
        return None
    repairs = {name: _Repair(also, settles)} if settles >= 0 else {}
    asks = {each: writing.asking(each, ids=ids) for each in family}
    return _acknowledging(region, family, means, _Pass(region, means, asks, repairs).run).get(name)


@dataclass(frozen=True)
class _Repair:
    """What leaves one table of a pass besides, and up to which version others' commits are settled with it."""

    also: Collection[int] = ()
    settles: int = -1


@dataclass
class _Pass:
    """One pass: the tables with what asks SQL for a permit for each, in the order in which permits are taken."""

    region: Handle
    means: Means
    asks: Mapping[str, Ask]
    repairs: Mapping[str, _Repair] = field(default_factory=dict)

    def run(self) -> dict[str, Committed]:
        """What was written, by table; empty: there is nothing."""
        self._permits: list[Permit] = []
        self._holds: list[Hold] = []
        self._logs: dict[str, TableLog] = {}
        self._done: dict[str, Committed] = {}
        self._token = f"pass-{self.region.runtime.unique()}"
        self._write(list(self.asks))
        return self._done

    def _write(self, names: Sequence[str]) -> None:
        """The first of the tables, once all after it are permitted and written."""
        name, *rest = names

        def write(permit: Permit, hold: Hold) -> Written:
            self._permitted(permit, hold)
            if rest:
                self._write(rest)
            else:
                self._empty = made.without_records(self.region, self._permits[0])
                if not all(map(self._brings_nothing, self._permits)):
                    self._files = self._make()
            if self._brings_nothing(permit):
                return Written("", 0, counts=dict.fromkeys(permit.plan.checkpoints, 0) if permit.table.shape else None)
            return self._commit(permit, hold)

        done = writing.commit(self.region, name, self.asks[name], write, token=self._token)
        if done is not None:
            self._done[name] = done

    def _brings_nothing(self, permit: Permit) -> bool:
        return permit.commit.kind == tables.ADVANCE and self._empty

    def _permitted(self, permit: Permit, hold: Hold) -> None:
        if self._permits:
            plan, first = permit.plan, self._permits[0].plan
            if (plan.checkpoints, plan.selection) != (first.checkpoints, first.selection):
                raise Stale(
                    f"Table {permit.table.name} of region {permit.table.region} takes other checkpoints than "
                    f"{self._permits[0].table.name}, with which it is written: somebody else wrote one of them, or records were erased.",
                    hint="Write again.",
                )
        if keys_of(self.region.config, permit.table):
            keyed.refuse_late(self.region, permit.table)
        self._permits.append(permit)
        self._holds.append(hold)
        self._logs[permit.table.name] = self.means.logs(self.region, permit.table)

    def _make(self) -> dict[str, Callable[[], Files]]:
        """The files of each table. Those of a transform are made for all tables before the first commit, and counted in SQL."""
        fetch = self.means.fetch_of(self.region)
        if not self._permits[0].table.shape:
            permit, log = self._permits[0], self._logs[self._permits[0].table.name]
            return {permit.table.name: lambda: made.as_they_are(self.region, fetch, log, permit)}

        def check() -> None:
            for hold in self._holds:
                hold.check()

        related = self.region.plane.read(lambda reader, _: tables.siblings(reader, self._permits[0].table))
        logs = {table.name: self.means.logs(self.region, table) for table in related}
        with pool_of(self.means) as pool:
            files = made.by_shape(self.region, fetch, pool, self.means.frames, self._permits, logs, check)
        self.region.plane.do(lambda tx: self._note(tx, files))
        return {name: partial(files.__getitem__, name) for name in files}

    def _note(self, tx: Tx, files: Mapping[str, Files]) -> None:
        permits.note_counts(tx, [(permit, files[permit.table.name].counts or {}) for permit in self._permits])
        for name, of in files.items():
            events.tell_schema(tx, name, of.alarm)

    def _commit(self, permit: Permit, hold: Hold) -> Written:
        name = permit.table.name
        make, repair, log = self._files[name], self.repairs.get(name, _Repair()), self._logs[name]
        if keys_of(self.region.config, permit.table):
            state = State(permit.table.acknowledged, permit.table.version)
            doing: Write = KeyedWrite(self.region, log, permit, hold, state, make)
        else:
            doing = Write(self.region, log, permit, hold, make, settles=repair.settles)
        version = doing.run(self._deciding(permit, repair))
        if not permit.table.shape:
            return Written(version, sum(permit.plan.rows_for_tables.values()))
        files = make()
        counts = files.counts or {}
        return Written(version, sum(counts.values()), bad=files.bad, counts=counts)

    def _deciding(self, permit: Permit, repair: _Repair) -> Callable[[Snapshot, Standing], tuple[int, Staying | None]]:
        if permit.commit.kind == tables.ADVANCE:
            return lambda *_: (permit.commit.upto, None)
        holds, gone = permit.table.acknowledged, {*permit.plan.checkpoints, *repair.also}
        staying = standing.staying_at(self.region, holds, gone, unnumbered=repair.settles < 0)
        return lambda *_: (holds, staying)


@contextmanager
def pool_of(means: Means) -> Iterator[Pool]:
    """Its pool, or one for the time of the block."""
    if means.pool is not None:
        yield means.pool
        return
    with Pool() as pool:
        yield pool


def erase(region: Handle, name: str, ids: Collection[int], *, means: Means = MEANS) -> Committed | None:
    """Take the records that are noted as erased out of the files that hold rows of these checkpoints, in all tables of this one's shape;
    what stays need not come again. Where rows do not tell which record they are, the checkpoints are written again.
    """
    if region.plane.read(lambda reader, _: place_of(tables.of(reader, name))) is None:
        return rewrite(region, name, ids, means=means)
    return _erase_in_all(region, _family(region, name), ids, means).get(name)


def _erase_in_all(region: Handle, family: Sequence[str], ids: Collection[int], means: Means) -> dict[str, Committed]:
    """What was written, by table; one that dies between two tables is gone on from before the next pass (`passes.left_undone`)."""
    token, by_key = f"{passes.ERASING}{region.runtime.unique()}", _keyed(region, family)
    done = {name: _erase(region, name, ids, means, token) for name in reversed(family) if name not in by_key}
    return {name: one for name, one in done.items() if one is not None}


def _erase(region: Handle, name: str, ids: Collection[int], means: Means, token: str) -> Committed | None:
    reached = region.plane.read(lambda reader, _: tables.of(reader, name).acknowledged)
    held = [number for number in sorted(ids) if number <= reached]
    if not held:
        return None

    def write(permit: Permit, hold: Hold) -> Written:
        place, log = place_of(permit.table) or PLACE, means.logs(region, permit.table)
        staying = Staying.without_erased(permit.plan.selection.erased, place)
        nothing = replace(permit, plan=replace(permit.plan, segments=(), ranges=()))
        version = Write(region, log, nothing, hold).run(lambda *_: (permit.table.acknowledged, staying))
        if not permit.table.shape:
            return Written(version, sum(permit.plan.rows_for_tables.values()))
        snapshot = log.look()
        assert snapshot is not None
        there = standing.count(log.storage, snapshot.files((held[0], held[-1]))).rows
        counts = {number: there[number] for number in held}
        return Written(version, sum(counts.values()), counts=counts)

    ask = writing.asking(name, ids=held)
    return _acknowledging(region, [name], means, lambda: writing.commit(region, name, ask, write, token=token))


def fence(region: Handle, name: str, *, means: Means = MEANS, repairs: bool = False) -> Table:
    """Let the table follow the latest rewind: afterwards it holds exactly the rows of its acknowledged checkpoints."""

    def write(permit: Permit, hold: Hold) -> Fenced:
        log = means.logs(region, permit.table)
        if keys_of(region.config, permit.table):
            state = region.plane.read(
                lambda reader, row: state_at(reader, replace(row, head=permit.commit.upto), permit.table)
            )
            back = KeyedWrite(region, log, permit, hold, state)
            return Fenced(back.run(lambda *_: (state.checkpoint, None)), state.checkpoint)
        doing = Write(region, log, permit, hold, lambda: made.first_columns(region, log, permit.table, means.frames))
        holds = region.plane.read(lambda reader, row: permits.fenced_to(reader, row, permit))

        def decide(snapshot: Snapshot, of: Standing) -> tuple[int, Staying]:
            nonlocal holds
            if of is Standing.NEWER:
                holds = standing.whole_to(region, permit.table, log.storage, snapshot, holds)
            return holds, standing.staying_at(region, holds, unnumbered=not repairs)

        return Fenced(doing.run(decide), holds)

    return _acknowledging(region, [name], means, lambda: writing.fence(region, name, write), fencing=True)


def mend(region: Handle, name: str, found: TableAudit, *, means: Means = MEANS) -> Committed | None:
    """Take out all that does not belong there, bring in what is missing, and settle what others did. None: a fence did it, by which a
    table with one row for each key is what was acknowledged, and one without checkpoints is empty.
    """

    def last(reader: Reader, row: Region) -> list[int]:
        return contents.live_in(reader, row, tables.of(reader, name))[-1:]

    by_key = bool(_keyed(region, [name]))
    if by_key and found.lost:
        table = region.plane.read(partial(_table, name=name))
        raise keyed.gone_for_good(table, State(table.acknowledged, table.version), "its files were deleted")
    ids = [] if by_key else sorted(found.wrong) or region.plane.read(last)
    if ids:
        return rewrite(region, name, ids, means=means, also=found.strangers, settles=int(found.version))
    region.plane.do(lambda tx: permits.owe_fence(tx, name))
    fence(region, name, means=means, repairs=True)
    return None


def _acknowledging(
    region: Handle, names: Sequence[str], means: Means, once: Callable[[], T], *, fencing: bool = False
) -> T:
    """Do it when SQL has acknowledged all that the tables show; what cannot be leaves them by a fence first."""
    for _ in range(_PERMITS):
        try:
            return once()
        except NotAcknowledged as error:
            _log.info("%s", error)
            for name in names:
                standing.acknowledge(region, name, means.logs(region, region.plane.read(partial(_table, name=name))))
            for name in [] if fencing else _owing(region, names):
                fence(region, name, means=means)
    raise Refused(
        f"Commits of this region keep coming to table {', '.join(names)} which the control plane has not acknowledged.",
        hint="It is tried again; whose they are, the table's history tells.",
    )


def _family(region: Handle, name: str) -> list[str]:
    """Tables that are written together with this one, in the order of their permits."""
    return region.plane.read(lambda reader, _: [t.name for t in tables.siblings(reader, tables.of(reader, name))])


def _table(reader: Reader, _: Region, *, name: str) -> Table:
    return tables.of(reader, name)


def _owing(region: Handle, names: Collection[str]) -> list[str]:
    return region.plane.read(lambda reader, _: [name for name in names if tables.of(reader, name).owes_fence])
