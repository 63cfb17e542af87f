"""What has to leave a table of adopted files: whole files by their names, and rows inside files that a compaction wrote (SPEC X4).

What stays of such a file is written anew. Where rows that leave and rows that stay cannot be told apart, all of them leave, and
what belongs there is adopted once more, as long as its segments are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crkafka_core.model.errors import Refused
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Table
from crkafka_core.plane.contents import Piece
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import files, places
from crkafka_core.tables.files import Added
from crkafka_core.tables.log import DataFile
from crkafka_core.tables.places import BEFORE, NOWHERE, Places, SortedFiles
from crkafka_core.tables.stamp import Stamp
from crkafka_core.tables.superseded_records import SupersededRecords

Mask = Callable[[pa.RecordBatch], np.ndarray]


@dataclass(frozen=True)
class Leaving:
    """What a commit takes out of the table, and what it has to bring in for it."""

    files: list[DataFile]
    torn: list[DataFile]
    """Those of `files` that also hold rows which stay."""
    leaves: Mask
    returning: list[Piece]
    """What belongs there and leaves with the rest."""

    def take_back(self, pieces: Iterable[Piece], found: SortedFiles) -> None:
        """Pieces return. Of an archived checkpoint all rows are read again, so that files which name it leave."""
        back = list(pieces)
        archived = {p.checkpoint for p in back if p.segment is None}
        self.returning.extend(back)
        self.files.extend(file for checkpoint, file in found.named if checkpoint in archived)

    def take_marked(self, found: SortedFiles, pieces: Sequence[Piece], checkpoints: Collection[int]) -> None:
        """Adopted files with rows that are marked as deleted beside them, of these checkpoints or all: they leave, and come again."""
        named = {files.name_of(p.segment): p for p in pieces if p.segment is not None and not p.erased}
        marked = [(c, f) for c, f in found.named if f.kept is not None and (c in checkpoints or not checkpoints)]
        hit, archived = {f.path for _, f in marked}, {c for c, f in marked if f.path not in named}
        self.returning.extend(named[f.path] for _, f in marked if f.path in named)
        self.returning.extend(p for p in pieces if p.segment is None and p.checkpoint in archived and not p.erased)
        self.files.extend(f for c, f in found.named if c in archived or f.path in hit)


def superseded(
    table: Table, storage: Storage, found: SortedFiles, gone: Sequence[Piece], *, source: Storage, forgotten: bool
) -> Leaving:
    """What a rewind takes out. `gone`: what leaves, with its rows in files that name no checkpoint.

    What cannot be told apart by offsets from rows of an archived checkpoint, which nobody may be able to bring back, is told apart by
    the segments in `source`. `forgotten`: SQL does not know the beginning any more, so that rows at these offsets may be an older topic's.
    """
    leaving = [piece for piece in gone if piece.rows > 0 or not forgotten]
    left = set(map(id, leaving))
    at = Places([*leaving, *(piece for piece in found.pieces if piece.rows > 0)])
    groups = {n for n, group in enumerate(at.groups) if _leaves(group, left)}
    # What is lost stays in the log: a fence is made all the same, and whoever mends the table takes it out.
    near = [file for file in found.others if at.near(file, groups) and storage.exists(file.path)]
    counts = places.count(table.name, storage, near, at).of_files
    inside = sum(counted[g] for counted in counts for g in groups)
    allowed = sum(piece.rows for g in groups for piece in at.groups[g])
    if forgotten and inside > allowed:
        raise Refused(
            f"Table {table.name} at {table.path} was compacted or written by others: "
            f"{plural(inside, 'of its rows has', 'of its rows have')} offsets that were rewound, "
            f"where {allowed} can be; those of a topic made anew and those of the old one cannot be told apart.",
            hint=f"Nothing was removed. Mend the table by hand, or `crkafka undeclare {table.name}` and declare it at a new path.",
        )
    mixed = {g for g in groups if any(p.segment is None and p.rows and id(p) not in left for p in at.groups[g])}
    told = [p for g in mixed for p in at.groups[g] if id(p) in left and p.rows]
    records = SupersededRecords.found(table.name, storage, near, _rows_of(at, mixed), told, source) if mixed else None
    if records is not None:
        groups -= mixed
    out = _leaving([file for _, file in found.wrong], near, counts, at, groups, records)
    out.take_back((piece for g in groups for piece in at.groups[g] if id(piece) not in left), found)
    return out


def _rows_of(at: Places, groups: Collection[int]) -> Mask:
    wanted = np.array(sorted(groups), np.int64)
    return lambda batch: np.isin(at.of(batch), wanted)


def _leaves(group: Sequence[Piece], left: set[int]) -> bool:
    """Whether rows of a group have to leave: not where those that leave are all in files of their own, and the others are not."""
    return any(id(p) in left for p in group) and (
        any(id(p) in left and p.rows > 0 for p in group) or all(id(p) in left for p in group)
    )


def foreign(
    table: Table,
    storage: Storage,
    found: SortedFiles,
    replaced: Callable[[int, int], bool],
    *,
    forgotten: bool,
    anew: Collection[int] = (),
) -> Leaving:
    """All that does not belong there, whoever has brought it.

    `replaced`: whether rows that are there, of so many that have to be, are adopted once more; those of the checkpoints `anew` are,
    but for files that name them. `forgotten`: SQL does not know the beginning any more, and what lies before all that it knows stays.
    """
    at = Places(found.pieces)
    count = places.count(table.name, storage, found.others, at)
    wrong = {n for n, group in enumerate(at.groups) if replaced(count.total[n], sum(piece.rows for piece in group))}
    asked = {n for n, group in enumerate(at.groups) if any(p.checkpoint in anew and p.rows > 0 for p in group)}
    groups = wrong | count.doubled | asked
    strange = {NOWHERE} if forgotten else {NOWHERE, BEFORE}
    out = _leaving([file for _, file in found.wrong], found.others, count.of_files, at, groups | strange)
    out.take_back((piece for g in groups for piece in at.groups[g] if piece.rows > 0), found)
    return out


def _leaving(
    whole: list[DataFile],
    others: Sequence[DataFile],
    counts: Sequence[Counter[int]],
    at: Places,
    groups: set[int],
    records: SupersededRecords | None = None,
) -> Leaving:
    """All rows of these groups, and these records."""
    torn, of_groups = [], _rows_of(at, groups)
    for file, counted in zip(others, counts, strict=True):
        rows = sum(counted[g] for g in groups) + (records.number_in(file) if records else 0)
        if rows:
            whole.append(file)
        if 0 < rows < counted.total():
            torn.append(file)

    def leaves(batch: pa.RecordBatch) -> np.ndarray:
        return of_groups(batch) | records.mask(batch) if records else of_groups(batch)

    return Leaving(whole, torn, leaves, [])


def rewritten(storage: Storage, table: Table, leaving: Leaving, stamp: Stamp) -> list[Added]:
    """New files with the rows that stay of torn ones."""
    return [
        _staying_rows(storage, table, file, leaving.leaves, f"kept/{stamp.number:012d}-{stamp.token[-8:]}-{i}.parquet")
        for i, file in enumerate(leaving.torn)
    ]


def _staying_rows(storage: Storage, table: Table, file: DataFile, leaves: Mask, name: str) -> Added:
    tally = files.Tally()
    staying = (batch.filter(pa.array(~leaves(batch))) for batch in places.batches(table.name, storage, file, None))
    size = parquet.write(storage, name, tally.of(batch for batch in staying if batch.num_rows))
    return Added(name, size, tally.bounds())
