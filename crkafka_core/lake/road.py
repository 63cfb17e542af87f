"""One way into a table: permit → files → one commit of the format's own log → acknowledged (SPEC K6, X4).

Tables of one shape take the same checkpoints by one pass: permits for all of them, files of all of them, then a commit to each, the last
in order first, under one token. A writer that dies after a commit leaves a stamp that SQL does not know; the next writer has SQL
acknowledge it, and asks for another permit. What one table has and another lacks is written again in all of them before anything new.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TypeVar

from crkafka_core.config.shapes import by_value
from crkafka_core.control import Reader, Tx
from crkafka_core.lake import keyed, made, standing, writing
from crkafka_core.lake.audit import TableAudit
from crkafka_core.lake.columns import PLACE, keys_of, place_of
from crkafka_core.lake.files import Staying
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.keyed import KeyedWrite
from crkafka_core.lake.made import Files
from crkafka_core.lake.means import MEANS as MEANS
from crkafka_core.lake.means import Means as Means
from crkafka_core.lake.port import Snapshot, TableLog
from crkafka_core.lake.standing import Standing
from crkafka_core.lake.values import NewValues
from crkafka_core.lake.write import Write
from crkafka_core.lake.writing import Committed, PermitOutdated, Written
from crkafka_core.model.errors import Refused, Stale
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import checkpoints, contents, events, passes, permits, tables, templates
from crkafka_core.plane.contents import State, state_at
from crkafka_core.plane.passes import AT_ONCE, Step
from crkafka_core.plane.permits import Permit

_log = logging.getLogger(__name__)
T = TypeVar("T")
_RECORDS = 4_000_000
"""Of one pass of a table with one row for each key, at most, where it has several checkpoints."""
_PERMITS = 5
"""Permits that one call asks for at most, when commits show up that SQL has not acknowledged."""


def advance(
    region: Handle, name: str, *, limit: int | None = AT_ONCE, upto: int | None = None, means: Means = MEANS
) -> Committed | None:
    """Bring at most `limit` checkpoints that follow, none past `upto`, into all tables of this one's shape; None: nothing new."""
    return _with_new_values(region, lambda: _advance(region, name, limit=limit, upto=upto, means=means))


def _with_new_values(region: Handle, write: Callable[[], T]) -> T:
    """Write; where records have values without a table, declare their tables first."""
    while True:
        try:
            return write()
        except NewValues as new:
            templates.declare_values(region.plane, region.config, new.shape, new.values, by="their first records")


def _advance(region: Handle, name: str, *, limit: int | None, upto: int | None, means: Means) -> Committed | None:
    def look(reader: Reader, row: Region) -> tuple[list[str], list[str]]:
        siblings = tables.siblings(reader, tables.of(reader, name))
        declared_again = [t.name for t in siblings if t.owes_fence and row.phase is not Phase.REWINDING]
        return [t.name for t in siblings], declared_again

    family, owing = region.plane.read(look)
    for each in owing:
        fence(region, each, means=means)
    if kept := bool(_keyed(region, family)):
        limit = region.plane.read(lambda reader, row: _few_records(reader, row, name, limit))
    if len(family) == 1:
        ask = writing.asking(family, limit=limit, upto=upto)
        return _acknowledging(region, family, means, partial(_Pass(region, means).commit, ask)).get(name)
    return _step_by_step(
        region, name, means, lambda reader, row: passes.following(reader, row, name, limit, upto, kept=kept)
    )


def _few_records(reader: Reader, region: Region, name: str, limit: int | None) -> int:
    """How many checkpoints have so few records that their keys fit into memory; at least one."""
    ids = tables.behind(reader, region, tables.of(reader, name))[:limit]
    rows = checkpoints.rows_of(reader, ids)
    totals = accumulate(rows.get(number, 0) for number in ids)
    return max(1, sum(total <= _RECORDS for total in totals))


def _step_by_step(
    region: Handle, name: str, means: Means, ask: Callable[[Reader, Region], Step | None]
) -> Committed | None:
    """A pass over all tables of a shape; passes that were left undone before it."""
    family = _family(region, name)

    def once() -> tuple[Step | None, dict[str, Committed]]:
        step = region.plane.read(ask)
        if step is None:
            return None, {}
        if step.erasing:
            return step, _erase_in_all(region, family, step.ids, means)
        taking = _taking(region, family, step)
        permits_of = writing.asking(taking, ids=step.ids, advancing=step.advancing)
        return step, _Pass(region, means).commit(permits_of) if taking else {}

    last: Committed | None = None
    while True:
        step, done = _acknowledging(region, family, means, once)
        last = done.get(name, last)
        if step is None or step.onward:
            return last


def _keyed(region: Handle, names: Iterable[str]) -> list[str]:
    """Those of the tables that have one row for each key."""
    return region.plane.read(
        lambda reader, _: [name for name in names if keys_of(region.config, tables.of(reader, name))]
    )


def _taking(region: Handle, family: Sequence[str], step: Step) -> list[str]:
    """Tables that take a pass: one by key gets nothing twice. None may join it later: the earlier records that both lack are not known."""
    has = [name for name in _keyed(region, family) if name not in step.advancing]
    if has:
        advancing = [_row(region, name) for name in sorted(step.advancing)]
        if joined := next((table.name for table in advancing if not table.version), ""):
            keyed.refuse_rewrite(region, _row(region, has[0]), joined=joined)
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
    """Replace the rows of these live checkpoints in all tables of this one's shape; what is not acknowledged comes with the next advance.

    In a repair rows of `also`, and those without a number, leave this table as well, and others' commits up to `settles` are settled.
    """
    return _with_new_values(region, lambda: _rewrite(region, name, ids, means=means, also=also, settles=settles))


def _rewrite(
    region: Handle, name: str, ids: Collection[int], *, means: Means, also: Collection[int], settles: int
) -> Committed | None:
    family, by_key = _family(region, name), _keyed(region, _family(region, name))
    if name in by_key:
        keyed.refuse_rewrite(region, _row(region, name))
    if len(family) > 1:
        kept = bool(by_key)
        _step_by_step(region, name, means, lambda reader, row: passes.left_undone(reader, row, name, kept=kept))
    family = [each for each in family if each not in by_key]
    reached = region.plane.read(lambda reader, _: min(tables.of(reader, each).acknowledged for each in family))
    ids = [number for number in sorted(ids) if number <= reached]
    if not ids:
        return None
    ask, repaired = writing.asking(family, ids=ids), name if settles >= 0 else ""
    once = partial(_Pass(region, means, repaired, also, settles).commit, ask)
    return _acknowledging(region, family, means, once).get(name)


@dataclass(frozen=True)
class _Pass:
    """Files and commits of one write to tables of one shape."""

    region: Handle
    means: Means
    repaired: str = ""
    """A table that is repaired: rows of `also` leave it besides, and others' commits up to the version `settles` are settled."""
    also: Collection[int] = ()
    settles: int = -1

    def commit(self, ask: writing.Ask) -> dict[str, Committed]:
        """To the permitted tables, in the order of their permits; empty: there is nothing to write."""
        return writing.commit(self.region, ask, self.write).required()

    def write(self, given: Sequence[Permit], hold: Hold) -> Iterator[tuple[str, Written | Exception]]:
        """A `writing.Write`. After an error the tables that come later are left alone."""
        plan, first = given[0].plan, given[0].table
        for permit in given:
            if (permit.plan.checkpoints, permit.plan.selection) != (plan.checkpoints, plan.selection):
                raise Stale(
                    f"Table {permit.table.name} of region {first.region} takes other checkpoints than {first.name}, with which it is "
                    "written: another program wrote one of them, or records were erased.",
                    hint="Write again.",
                )
            if keys_of(self.region.config, permit.table):
                keyed.refuse_late(self.region, permit.table)
        empty = made.without_records(self.region, given[0])
        nothing = {p.table.name for p in given if empty and p.commit.kind == tables.ADVANCE}
        logs = {p.table.name: self.means.logs(self.region, p.table) for p in given}
        files = self._make(given, logs, hold) if len(nothing) < len(given) else {}
        if files and by_value(first.shape):  # a value is in few checkpoints
            advancing = [p.table for p in given if p.commit.kind == tables.ADVANCE]
            nothing |= {t.name for t in advancing if t.output and not files[t.name]().new}
        # What has nothing is not acknowledged for a table that shows a commit of a writer which did not finish it.
        idle = [p.table for p in given if p.table.name in nothing]
        unsure = self.region.plane.read(lambda reader, _: tables.unsure(reader, idle)) if idle else ()
        failed: Exception | None = None
        for permit in reversed(given):
            name = permit.table.name
            try:
                if failed is not None:
                    yield name, failed
                elif name in nothing:
                    if name in unsure:
                        standing.check(self.region, permit, logs[name].look())
                    counts = dict.fromkeys(permit.plan.checkpoints, 0) if permit.table.shape else None
                    yield name, Written("", 0, counts=counts)
                else:
                    yield name, self._commit(permit, logs[name], hold, files[name])
            except Exception as error:
                failed = error
                yield name, error

    def _make(
        self, given: Sequence[Permit], logs: Mapping[str, TableLog], hold: Hold
    ) -> Mapping[str, Callable[[], Files]]:
        """The files of each table. Those of a shape are made for all tables before the first commit, and counted in SQL."""
        first = given[0].table
        if not first.shape:
            return {first.name: partial(made.as_they_are, self.region, self.means, logs[first.name], given[0])}
        files = made.by_shape(self.region, self.means, given, logs, hold.check)

        def note(tx: Tx) -> None:
            permits.note_counts(tx, [(permit, files[permit.table.name].counts or {}) for permit in given])
            for name, brought in files.items():
                events.tell_schema(tx, name, brought.alarm)

        self.region.plane.do(note)
        return {name: partial(files.__getitem__, name) for name in files}

    def _commit(self, permit: Permit, log: TableLog, hold: Hold, make: Callable[[], Files]) -> Written:
        table = permit.table
        also, settles = (self.also, self.settles) if table.name == self.repaired else ((), -1)
        if keys_of(self.region.config, table):
            state = State(table.acknowledged, table.version)
            write: Write = KeyedWrite(self.region, log, permit, hold, make, state=state)
        else:
            write = Write(self.region, log, permit, hold, make, settles=settles)
        holds, staying = permit.commit.upto, None
        if permit.commit.kind == tables.REWRITE:
            holds, gone = table.acknowledged, {*permit.plan.checkpoints, *also}
            staying = standing.staying_at(self.region, holds, gone, unnumbered=settles < 0)
        version = write.run(lambda *_: (holds, staying))
        if not table.shape:
            return Written(version, sum(permit.plan.rows_for_tables.values()))
        files = make()
        counts = files.counts or {}
        return Written(version, sum(counts.values()), bad=files.bad, counts=counts)


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
    return {name: committed for name, committed in done.items() if committed is not None}


def _erase(region: Handle, name: str, ids: Collection[int], means: Means, token: str) -> Committed | None:
    reached = region.plane.read(lambda reader, _: tables.of(reader, name).acknowledged)
    held = [number for number in sorted(ids) if number <= reached]
    if not held:
        return None

    def write(given: Sequence[Permit], hold: Hold) -> Iterable[tuple[str, Written]]:
        (permit,) = given
        place, log = place_of(permit.table) or PLACE, means.logs(region, permit.table)
        staying = Staying.without_erased(permit.plan.selection.erased, place)
        nothing = replace(permit, plan=replace(permit.plan, segments=(), ranges=()))
        version = Write(region, log, nothing, hold).run(lambda *_: (permit.table.acknowledged, staying))
        if not permit.table.shape:
            return [(name, Written(version, sum(permit.plan.rows_for_tables.values())))]
        snapshot = log.look()
        assert snapshot is not None
        files = (file for file in snapshot.files() if file.may_have(held[0], held[-1]))
        present = standing.count(log.storage, files).rows
        counts = {number: present[number] for number in held}
        return [(name, Written(version, sum(counts.values()), counts=counts))]

    ask = writing.asking([name], ids=held)
    done = _acknowledging(region, [name], means, lambda: writing.commit(region, ask, write, token=token).required())
    return done.get(name)


def fence(region: Handle, name: str, *, means: Means = MEANS, repairs: bool = False) -> Table:
    """Let the table follow the latest rewind: afterwards it holds exactly the rows of its acknowledged checkpoints."""

    def write(permit: Permit, hold: Hold) -> tuple[str, int]:
        log = means.logs(region, permit.table)
        if keys_of(region.config, permit.table):
            state = region.plane.read(
                lambda reader, row: state_at(reader, replace(row, head=permit.commit.upto), permit.table)
            )
            back = KeyedWrite(region, log, permit, hold, state=state)
            return back.run(lambda *_: (state.checkpoint, None)), state.checkpoint
        doing = Write(region, log, permit, hold, lambda: made.first_columns(region, means, log, permit.table))
        holds = region.plane.read(lambda reader, row: permits.fenced_to(reader, row, permit))

        def decide(snapshot: Snapshot, shown: Standing) -> tuple[int, Staying]:
            nonlocal holds
            if shown is Standing.NEWER:
                holds = standing.whole_to(region, permit.table, log.storage, snapshot, holds)
            return holds, standing.staying_at(region, holds, unnumbered=not repairs)

        return doing.run(decide), holds

    return _acknowledging(region, [name], means, lambda: writing.fence(region, name, write), fencing=True)


def mend(region: Handle, name: str, audited: TableAudit, *, means: Means = MEANS) -> Committed | None:
    """Take out all that does not belong there, bring in what is missing, and settle what others did. None: a fence did it."""

    def last(reader: Reader, row: Region) -> list[int]:
        return contents.live_in(reader, row, tables.of(reader, name))[-1:]

    by_key = bool(_keyed(region, [name]))
    if by_key and audited.lost:
        table = _row(region, name)
        raise keyed.gone_for_good(table, State(table.acknowledged, table.version), "its files were deleted")
    ids = [] if by_key else sorted(audited.wrong) or region.plane.read(last)
    if ids:
        return rewrite(region, name, ids, means=means, also=audited.strangers, settles=int(audited.version))
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
        except PermitOutdated as error:
            _log.info("%s", error)
            for name in names:
                standing.acknowledge(region, name, means.logs(region, _row(region, name)))
            owing = region.plane.read(lambda reader, _: [n for n in names if tables.of(reader, n).owes_fence])
        for name in [] if fencing else owing:
            fence(region, name, means=means)
    raise Refused(
        f"Commits of this region keep coming to table {', '.join(names)} which the control plane has not acknowledged.",
        hint="It is tried again; whose they are, the table's history tells.",
    )


def _family(region: Handle, name: str) -> list[str]:
    return region.plane.read(lambda reader, _: [t.name for t in tables.siblings(reader, tables.of(reader, name))])


def _row(region: Handle, name: str) -> Table:
    return region.plane.read(lambda reader, _: tables.of(reader, name))
