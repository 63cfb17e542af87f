"""What is in a declared table, compared with what SQL says it holds (SPEC K6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from crkafka_core.control import Reader
from crkafka_core.lake import files, formats, standing
from crkafka_core.lake.columns import keys_of, place_of
from crkafka_core.lake.formats import Logs
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import LogEntry, Snapshot
from crkafka_core.lake.standing import Standing
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, permits, tables
from crkafka_core.segments.storage import Storage

LOOKS = 5
"""Times that a commit may come between the look at the table and the one at SQL."""


@dataclass(frozen=True)
class TableAudit:
    """What is in a table and should not be, or not so."""

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


def miscounted(expected: Mapping[int, int], counts: Mapping[int, int]) -> tuple[int, ...]:
    """Checkpoints of which a table has more or fewer rows than were merged."""
    return tuple(sorted(c for c, n in expected.items() if counts.get(c, 0) != n))


def in_words(audit: TableAudit) -> list[str]:
    """What an audit found, in words."""
    return [
        text
        for text in (
            f"rows of checkpoints that it should not hold ({_list(audit.strangers)})" if audit.strangers else "",
            f"other rows than were merged of checkpoints {_list(audit.miscounted)}" if audit.miscounted else "",
            f"{plural(audit.foreign, 'commit')} of somebody else{_changing(audit)}" if audit.foreign else "",
            f"{plural(audit.unknown, 'row')} of no checkpoint that belongs there" if audit.unknown else "",
            f"{plural(len(audit.lost), 'data file is', 'data files are')} not in storage, or marks of deleted rows in them"
            if audit.lost
            else "",
        )
        if text
    ]


def _changing(audit: TableAudit) -> str:
    """Of which checkpoints, where it is not named already."""
    more = [checkpoint for checkpoint in audit.changed if checkpoint not in audit.miscounted]
    return f", with rows of checkpoints {_list(more)}" if more else ""


def _list(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown


@dataclass(frozen=True)
class _Expected:
    """What SQL says of a table."""

    table: Table
    rows: Mapping[int, int]
    """Checkpoint → rows that it has to have, of those that belong in the table."""
    live: frozenset[int]
    """All live checkpoints of the table, with those whose number of rows is not known."""
    begins: int
    """What is not after it has no row in SQL any more: it belongs unless its number is dead (SPEC T2, C8)."""
    coming: frozenset[int]
    """Checkpoints of the line that the table has not acknowledged: a commit of them may just be made."""
    last: int
    """Number of the last acknowledged commit that wrote anything."""


def look(region: Handle, name: str, logs: Logs = formats.open_log) -> TableAudit:
    """Count the rows of a table by the number of their checkpoint; by the log alone, but for files with several."""
    for _ in range(LOOKS):  # first the table, then SQL: what came into the table before is acknowledged by then
        log = logs(region, region.plane.read(lambda reader, row: tables.of(reader, name)))
        snapshot = log.look()
        expected = region.plane.read(partial(_expected, name, snapshot))
        table = expected.table
        if not table.version or (snapshot is not None and int(table.version) <= snapshot.version):
            break
    standing.check_place(table, snapshot)
    if snapshot is None:
        if keys_of(region.config, table):
            return TableAudit()
        return TableAudit(miscounted=tuple(sorted(c for c, rows in expected.rows.items() if rows)))
    standing.check_columns(region, table, snapshot)
    return _compared(region, log.storage, snapshot, expected)


def _compared(region: Handle, storage: Storage, snapshot: Snapshot, expected: _Expected) -> TableAudit:
    table = expected.table
    uid = region.plane.read(lambda _, row: row.uid)
    stamp = snapshot.stamp(uid, table.name)
    if expected.last > (stamp.permit if stamp is not None else 0):
        raise standing.older_copy(table, stamp.permit if stamp is not None else 0, str(expected.last))
    entries = snapshot.since(-1 if stamp is None else stamp.settled)
    there = list(snapshot.files())
    gone = files.missing(storage, there)
    if keys_of(region.config, table):
        # A count does not show whether each row is its key's last one: where the log is incomplete, rows may have changed.
        foreign = [entry for entry in entries or () if entry.stamp is None and entry.changes_rows]
        return TableAudit(
            foreign=len(foreign) if entries is not None else 1, lost=tuple(sorted(gone)), version=str(snapshot.version)
        )
    # Where the log was cleaned of what others did, each record is counted.
    counted = standing.count(
        storage, (f for f in there if f.path not in gone), distinct=place_of(table) if entries is None else None
    )
    foreign = [entry for entry in entries or () if entry.stamp is None and entry.changes_rows]
    staying = standing.staying_at(region, table.acknowledged)
    strangers = {
        number
        for number in counted.rows
        if not (staying.holds(number) and (number in expected.live or number <= expected.begins))
        and number not in expected.coming
    }
    wrong = {*miscounted(expected.rows, counted.rows), *(counted.doubled & expected.rows.keys())}
    if not (wrong or strangers or counted.unnumbered or expected.begins):
        # All rows are counted: those that were only deleted are rows that were erased since.
        foreign = [entry for entry in foreign if entry.touched is not None]
    return TableAudit(
        tuple(sorted(strangers)),
        tuple(sorted(wrong)),
        len(foreign),
        counted.unnumbered,
        tuple(sorted(c for c, rows in expected.rows.items() if rows and any(_touches(e, c) for e in foreign))),
        tuple(sorted(gone)),
        str(snapshot.version),
    )


def _touches(entry: LogEntry, checkpoint: int) -> bool:
    return entry.touched is not None and entry.touched[0] <= checkpoint <= entry.touched[1]


def _expected(name: str, snapshot: Snapshot | None, reader: Reader, row: Region) -> _Expected:
    """Refused where the table is newer than SQL."""
    table = tables.of(reader, name)
    stamp = None if snapshot is None else snapshot.stamp(row.uid, name)
    if stamp is not None and standing.standing(reader, table, stamp) is Standing.NEWER:
        raise standing.newer(table, stamp)
    begins = min(contents.before_line(reader, row), table.acknowledged)
    coming = frozenset(i for i in reader.line(row.head) if i > table.acknowledged)
    live = contents.live_in(reader, row, table)
    rows = standing.due(reader, table, live)
    return _Expected(table, rows, frozenset(live), begins, coming, permits.last_number(reader, table))
