"""The rows of a declared table compared with SQL, and the version that counts for a reader (SPEC K6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from crkafka_core.control import Reader
from crkafka_core.lake import files, formats, keyed, standing
from crkafka_core.lake.columns import keys_of, place_of
from crkafka_core.lake.files import Staying
from crkafka_core.lake.formats import Logs
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import Snapshot
from crkafka_core.lake.standing import Standing
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, permits, tables
from crkafka_core.segments.storage import Storage

LOOKS = 5
"""Times that a commit may come between the look at the table and the one at SQL."""


@dataclass(frozen=True)
class TableAudit:
    strangers: tuple[int, ...] = ()
    """Checkpoints whose rows do not belong there: superseded, or not acknowledged."""
    miscounted: tuple[int, ...] = ()
    """Checkpoints with other rows than were merged."""
    foreign: int = 0
    """Commits of others that changed rows, and which no repair has settled."""
    unknown: int = 0
    """Rows of no checkpoint."""
    changed: tuple[int, ...] = ()
    """Checkpoints of which these commits may have changed rows, whatever their number."""
    lost: tuple[str, ...] = ()
    """Data files of the table that are not in storage, or whose marks are not."""
    version: str = field(default="", compare=False)
    """Which one was looked at, where no Spark was needed."""

    @property
    def wrong(self) -> set[int]:
        """Checkpoints of which rows have to be written again."""
        return {*self.miscounted, *self.changed}

    @property
    def clean(self) -> bool:
        return not (self.strangers or self.miscounted or self.foreign or self.unknown or self.lost)


def in_words(audit: TableAudit) -> list[str]:
    more = [checkpoint for checkpoint in audit.changed if checkpoint not in audit.miscounted]
    changing = f", with rows of checkpoints {_list(more)}" if more else ""
    lost = plural(len(audit.lost), "data file is", "data files are")
    texts = (
        (audit.strangers, f"rows of checkpoints that it should not hold ({_list(audit.strangers)})"),
        (audit.miscounted, f"other rows than were merged of checkpoints {_list(audit.miscounted)}"),
        (audit.foreign, f"{plural(audit.foreign, 'commit')} of another program{changing}"),
        (audit.unknown, f"{plural(audit.unknown, 'row')} of no checkpoint that belongs there"),
        (audit.lost, f"{lost} not in storage, or marks of deleted rows in them"),
    )
    return [text for wrong, text in texts if wrong]


def _list(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown


@dataclass(frozen=True)
class _Expected:
    """A table as SQL has it."""

    table: Table
    permit: int
    """Of the commit that the table shows."""
    settled: int
    """Up to this version of the table others' commits are settled."""
    rows: Mapping[int, int]
    """Checkpoint → rows that the table has to have."""
    live: frozenset[int]
    """All live checkpoints of the table, with those whose number of rows is not known."""
    begins: int
    """What is not after it has no row in SQL any more: it belongs unless its number is dead (SPEC T2, C8)."""
    coming: frozenset[int]
    """Checkpoints of the line that the table has not acknowledged: a commit of them may just be made."""
    last: int
    """Number of the last acknowledged commit that wrote anything."""

    @classmethod
    def of(cls, name: str, snapshot: Snapshot | None, reader: Reader, row: Region) -> _Expected:
        """Refused where the table is newer than SQL."""
        table = tables.of(reader, name)
        stamp = None if snapshot is None else snapshot.stamp(row.uid, name)
        if stamp is not None and standing.standing(reader, table, stamp) is Standing.NEWER:
            raise standing.newer(table, stamp)
        live = contents.live_in(reader, row, table)
        return cls(
            table,
            0 if stamp is None else stamp.permit,
            -1 if stamp is None else stamp.settled,
            standing.due(reader, table, live),
            frozenset(live),
            begins=min(contents.before_line(reader, row), table.acknowledged),
            coming=frozenset(i for i in reader.line(row.head) if i > table.acknowledged),
            last=permits.last_number(reader, table),
        )


def look(region: Handle, name: str, logs: Logs = formats.open_log) -> TableAudit:
    """Count the rows of a table by the number of their checkpoint; by the log alone, but for files with several."""
    for _ in range(LOOKS):  # first the table, then SQL: what came into the table before is acknowledged by then
        log = logs(region, region.plane.read(lambda reader, row: tables.of(reader, name)))
        snapshot = log.look()
        expected = region.plane.read(partial(_Expected.of, name, snapshot))
        table = expected.table
        if not table.version or (snapshot is not None and int(table.version) <= snapshot.version):
            break
    standing.check_place(table, snapshot)
    if snapshot is None:
        lacking = () if keys_of(region.config, table) else (c for c, rows in expected.rows.items() if rows)
        return TableAudit(miscounted=tuple(sorted(lacking)))
    standing.check_columns(region, table, snapshot)
    return _compared(region, log.storage, snapshot, expected)


def _compared(region: Handle, storage: Storage, snapshot: Snapshot, expected: _Expected) -> TableAudit:
    table = expected.table
    if expected.last > expected.permit:
        raise standing.older_copy(table, expected.permit, str(expected.last))
    entries = snapshot.since(expected.settled)
    foreign = [entry for entry in entries or () if entry.stamp is None and entry.changes_rows]
    present = list(snapshot.files())
    lost, version = tuple(sorted(files.missing(storage, present))), str(snapshot.version)
    if keys_of(region.config, table):
        # A count does not show whether each row is its key's last one: where the log is incomplete, rows may have changed.
        return TableAudit(foreign=len(foreign) if entries is not None else 1, lost=lost, version=version)
    # Where the log was cleaned of what others did, each record is counted.
    distinct = place_of(table) if entries is None else None
    counted = standing.count(storage, (f for f in present if f.path not in lost), distinct=distinct)
    staying = standing.staying_at(region, table.acknowledged)
    strangers = {
        number
        for number in counted.rows
        if not (staying.holds(number, number) and (number in expected.live or number <= expected.begins))
        and number not in expected.coming
    }
    wrong = {c for c, rows in expected.rows.items() if counted.rows[c] != rows or c in counted.doubled}
    if not (wrong or strangers or counted.unnumbered or expected.begins):
        # All rows are counted: those that were only deleted are rows that were erased since.
        foreign = [entry for entry in foreign if entry.touched is not None]
    touched = [entry.touched for entry in foreign if entry.touched is not None]
    changed = [c for c, rows in expected.rows.items() if rows and any(low <= c <= high for low, high in touched)]
    return TableAudit(
        tuple(sorted(strangers)),
        tuple(sorted(wrong)),
        len(foreign),
        counted.unnumbered,
        tuple(sorted(changed)),
        lost,
        version,
    )


@dataclass(frozen=True)
class View:
    at: str
    """As a reader names it."""
    staying: Staying | None
    """Which rows count; None: all."""


def visible(region: Handle, table: Table) -> View | None:
    """What of the table counts at this moment; None: there are no rows."""
    log = formats.open_log(region, table)
    snapshot = log.look()
    if snapshot is None or not snapshot.at:
        return None
    if table.version == str(snapshot.version) and not table.owes_fence:
        return View(snapshot.at, None)
    if not keys_of(region.config, table):
        holds = region.plane.read(
            lambda reader, row: contents.common(reader, row, tables.of(reader, table.name).acknowledged)
        )
        return View(snapshot.at, standing.staying_at(region, holds))
    # Rows that came over others since cannot be left out: what counts is a version.
    state = region.plane.read(lambda reader, row: contents.state_at(reader, row, tables.of(reader, table.name)))
    if not state.version:
        return None
    if not keyed.untouched_since(snapshot, int(state.version)):
        snapshot = log.look(state.version)
    if snapshot is None:
        raise keyed.gone_for_good(table, state, "the table's log does not have it any more")
    return View(snapshot.at, None)
