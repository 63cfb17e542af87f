"""What is in a declared table, compared with what SQL says it holds (SPEC K6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from crkafka_core.control import Reader
from crkafka_core.lake.handle import Handle
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, tables
from crkafka_core.plane.contents import Piece
from crkafka_core.tables import last_commit, others, places, stamp
from crkafka_core.tables.content import Content, content_of
from crkafka_core.tables.delta_log import open_log
from crkafka_core.tables.files import checkpoints_of
from crkafka_core.tables.last_commit import Standing
from crkafka_core.tables.log import Logs, Snapshot, lost
from crkafka_core.tables.on_snapshot import check_columns
from crkafka_core.tables.places import Count, Places, SortedFiles

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
    """Commits that SQL has not acknowledged, since the last one that it has; and earlier ones whose rows may be there still."""
    unknown: int = 0
    """Rows of no checkpoint that belongs there, in files that name none."""
    changed: tuple[int, ...] = ()
    """Checkpoints of which these commits may have changed rows, whatever their number."""
    lost: tuple[str, ...] = ()
    """Data files of the table that are not in storage."""
    version: str = field(default="", compare=False)
    """Which one was looked at, of a table of adopted files."""

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
            f"{plural(len(audit.lost), 'data file is', 'data files are')} not in storage" if audit.lost else "",
        )
        if text
    ]


def _changing(audit: TableAudit) -> str:
    """Of which checkpoints, where it is not said already."""
    more = [checkpoint for checkpoint in audit.changed if checkpoint not in audit.miscounted]
    return f", with rows of checkpoints {_list(more)}" if more else ""


def _list(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown


def look(region: Handle, name: str, logs: Logs = open_log) -> TableAudit:
    """Look at a table of adopted files: by the log alone, but for files that a compaction or somebody else has written."""
    for _ in range(LOOKS):  # first the table, then SQL: what came into the table before is known to SQL by then
        log = logs(region, region.plane.read(lambda r, row: tables.of(r, name)))
        snapshot = log.snapshot()
        table, rows, written, rewrites, content = region.plane.read(partial(_expected, name, snapshot))
        if not table.version or (snapshot is not None and int(table.version) <= snapshot.version):
            break
    if snapshot is None or content is None:
        return TableAudit(miscounted=tuple(sorted(rows)))
    check_columns(table, snapshot)
    files = snapshot.files()
    gone = lost(log.storage(), files)
    there = content.among([file for file in files if file.path not in gone])
    at = Places(there.pieces)
    count = places.count(name, log.storage(), there.others, at)
    wrong = _miscounted(at, count) | _with_too_few_rows(there, rows)
    strange = count.total[places.NOWHERE] + (0 if content.forgotten else count.total[places.BEFORE])
    inside = _in_files_of_others(there, count, at, content.uid)
    of_others = others.of_adopted(
        table, snapshot, log.storage(), content.uid, content.pieces, written, inside, rewrites
    )
    strangers = sorted({c for c, _ in there.wrong if c not in _on_the_way(region)})
    return TableAudit(
        tuple(strangers),
        tuple(sorted(wrong)),
        len(of_others.commits),
        strange,
        tuple(sorted(of_others.changed)),
        tuple(sorted(gone)),
        str(snapshot.version),
    )


def _miscounted(at: Places, count: Count) -> set[int]:
    """Checkpoints with more or fewer rows than have to be in the files that were counted, or with one twice."""
    counts = count.total
    return {
        c
        for g, group in enumerate(at.groups)
        if counts[g] != sum(p.rows for p in group) or g in count.doubled
        for c in _to_blame(group)
    }


def _in_files_of_others(there: SortedFiles, count: Count, at: Places, uid: str) -> set[int]:
    """Checkpoints with rows in files that others have written, or that were made of such."""
    pairs = zip(there.others, count.of_files, strict=True)
    groups = {g for file, rows in pairs if checkpoints_of(file.path, uid) is None for g in rows if g >= 0}
    return {piece.checkpoint for g in groups for piece in at.groups[g]}


def _expected(
    name: str, snapshot: Snapshot | None, reader: Reader, row: Region
) -> tuple[Table, Mapping[int, int], Mapping[int, str], set[str], Content | None]:
    """What SQL says of a table: checkpoint → rows, and → the version with which they came; versions of rewrites; and what belongs
    in a snapshot of it.

    Refused where that is newer than SQL.
    """
    table = tables.of(reader, name)
    rows = contents.counted_in(reader, row, table)
    if snapshot is None:
        return table, rows, {}, set(), None
    facts = snapshot.facts(stamp.app_of(row.uid, name))
    if last_commit.standing(reader, table, facts) is Standing.NEWER:
        raise last_commit.newer(table, facts)
    rewrites = contents.rewrites(tables.commits(reader, table))
    return table, rows, contents.written(reader, row, table), rewrites, content_of(reader, row, table)


def _on_the_way(region: Handle) -> set[int]:
    """Checkpoints of the line that are not acknowledged yet: a commit of them may just be made."""
    return region.plane.read(lambda reader, row: set(reader.line(row.head)))


def _to_blame(group: Sequence[Piece]) -> set[int]:
    """Of those that cannot be told apart, the ones of which rows have to be there; else all of them."""
    return {p.checkpoint for p in group if p.rows > 0} or {p.checkpoint for p in group}


def _with_too_few_rows(files: SortedFiles, rows: Mapping[int, int]) -> set[int]:
    """Checkpoints whose adopted files hold fewer rows than they had, as where some are marked as deleted."""
    there: Counter[int] = Counter()
    for checkpoint, file in files.named:
        there[checkpoint] += file.rows or 0
    inside = Counter(files.packed)
    for piece in files.pieces:
        inside[piece.checkpoint] += piece.rows
    return {c for c, wanted in rows.items() if there[c] + inside[c] != wanted}
