"""Whose rows are those in files that name no checkpoint, as OPTIMIZE makes them: told by topic, partition and offset (SPEC K6)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.model.errors import Refused
from crkafka_core.plane.contents import Piece
from crkafka_core.plane.reading import KafkaRange
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import files
from crkafka_core.tables.files import KEY
from crkafka_core.tables.log import DataFile

NOWHERE, BEFORE = -1, -2
"""Of a row that is in no piece: behind or between those of its partition, or of none; before all of them."""

BLOCK = 1 << 16
"""Offsets that are looked at together: of a sparse topic, one record may cost as many bits."""

Part = tuple[tuple[str, int], np.ndarray]
"""Topic and partition, and which rows of a batch are of it."""


class Places:
    """Pieces by offsets. Those that overlap, as of a topic made anew and of the old one, cannot be told apart: they are one group."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        joined = list(range(len(pieces)))

        def root(i: int) -> int:
            while joined[i] != i:
                joined[i] = i = joined[joined[i]]
            return i

        by_partition: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        for i, piece in enumerate(pieces):
            for r in piece.ranges:
                by_partition.setdefault((r.topic, r.partition), []).append((r.start, r.stop, i))
        merged: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        for tp, ranges in by_partition.items():
            apart = merged.setdefault(tp, [])
            for start, stop, i in sorted(ranges):
                if apart and start < apart[-1][1]:
                    joined[root(i)] = root(apart[-1][2])
                    apart[-1] = (apart[-1][0], max(stop, apart[-1][1]), apart[-1][2])
                else:
                    apart.append((start, stop, i))
        number = {r: n for n, r in enumerate(sorted({root(i) for i in range(len(pieces))}))}
        self.groups: list[list[Piece]] = [[] for _ in number]
        for i, piece in enumerate(pieces):
            self.groups[number[root(i)]].append(piece)
        self._intervals = {
            tp: tuple(
                np.array(column, np.int64)
                for column in zip(*((a, b, number[root(i)]) for a, b, i in apart), strict=True)
            )
            for tp, apart in merged.items()
        }

    def of(self, batch: pa.RecordBatch) -> np.ndarray:
        """The group of each row."""
        return self.among(batch, _by_partition(batch))

    def among(self, batch: pa.RecordBatch, parts: Iterable[Part]) -> np.ndarray:
        """The same, of a batch that is parted already."""
        group_of = np.full(batch.num_rows, NOWHERE, np.int64)
        offsets = batch.column("offset").to_numpy(zero_copy_only=False)
        for tp, here in parts:
            known = self._intervals.get(tp)
            if known is not None:
                group_of[here] = _groups(offsets[here], *known)
        return group_of

    def near(self, file: DataFile, groups: set[int]) -> bool:
        """Whether the log's statistics leave it open that rows of these groups are in the file."""
        return any(may_hold(file, r) for g in groups for piece in self.groups[g] for r in piece.ranges)


def _by_partition(batch: pa.RecordBatch) -> Iterator[Part]:
    """Each topic and partition of a batch."""
    topics = pc.dictionary_encode(batch.column("topic"))
    codes = topics.indices.to_numpy(zero_copy_only=False)
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        of_topic = codes == code
        for partition in np.unique(partitions[of_topic]).tolist():
            yield (topic, partition), of_topic & (partitions == partition)


def _groups(offsets: np.ndarray, starts: np.ndarray, stops: np.ndarray, groups: np.ndarray) -> np.ndarray:
    at = np.searchsorted(starts, offsets, side="right") - 1
    inside = np.where(offsets < stops[np.maximum(at, 0)], groups[np.maximum(at, 0)], NOWHERE)
    return np.where(at < 0, BEFORE, inside)


def may_hold(file: DataFile, r: KafkaRange) -> bool:
    """Whether rows of the range may be in the file, by the log's statistics."""
    least, greatest = file.lowest, file.highest
    if not (set(KEY) <= least.keys() and set(KEY) <= greatest.keys()):
        return True
    return bool(
        least["topic"] <= r.topic <= greatest["topic"]
        and least["partition"] <= r.partition <= greatest["partition"]
        and least["offset"] < r.stop
        and greatest["offset"] >= r.start
    )


def checkpoints_in(there: Sequence[DataFile], storage: Storage, uid: str, at: Places) -> set[int]:
    """Checkpoints of which these files hold rows: by their names, or by their rows.

    Of a file that is gone, or has other columns, those that lie between the bounds in the log's statistics.
    """
    found: set[int] = set()
    for file in there:
        named = files.checkpoints_of(file.path, uid)
        try:
            found.update(_by_rows(storage, file, at) if named is None else range(named[0], named[1] + 1))
        except (SegmentMissing, parquet.OtherColumns):
            found.update(p.checkpoint for group in at.groups for p in group if any(may_hold(file, r) for r in p.ranges))
    return found


def _by_rows(storage: Storage, file: DataFile, at: Places) -> set[int]:
    groups: set[int] = set()
    for batch in parquet.batches(storage, file.path, KEY, only=True, kept=file.kept):
        groups.update(np.unique(at.of(batch)).tolist())
    return {piece.checkpoint for g in groups if g >= 0 for piece in at.groups[g]}


@dataclass(frozen=True)
class SortedFiles:
    """The files of a table, as far as their names tell whose rows they hold."""

    wrong: tuple[tuple[int, DataFile], ...]
    """Adopted ones of checkpoints that do not belong there, with these."""
    named: tuple[tuple[int, DataFile], ...]
    """Of those that do."""
    others: tuple[DataFile, ...]
    """Those of a compaction, or of somebody else."""
    pieces: tuple[Piece, ...]
    """What belongs there; the rows of each are those that have to be in `others`: none where its file is there by name."""
    packed: Counter[int] = field(default_factory=Counter)
    """Checkpoint → its rows in files of ours that hold several checkpoints, whose names and numbers of rows tell what is in them."""


def sort_files(
    there: Sequence[DataFile], uid: str, belongs: Callable[[int], bool], pieces: Sequence[Piece]
) -> SortedFiles:
    """Sort files by their names; `pieces`: what belongs there, as far as SQL knows."""
    telling = _telling(pieces)
    wrong, named, others, packed = [], [], [], []
    for file in there:
        checkpoint, several = files.checkpoint_of(file.path, uid), files.packed_of(file.path, uid)
        if several is not None and file.kept is None and belongs(several[0]) and belongs(several[1]):
            packed.append((*several, file))
        elif checkpoint is not None and not belongs(checkpoint):
            wrong.append((checkpoint, file))
        elif checkpoint is not None and telling(checkpoint, file.path):
            named.append((checkpoint, file))
        else:
            others.append(file)
    left, packed_rows = _without_named(pieces, named), Counter[int]()
    for first, last, file in packed:
        near = slice(bisect_left(left, first, key=_checkpoint), bisect_right(left, last, key=_checkpoint))
        if left[near] and sum(piece.rows for piece in left[near]) != file.rows:  # none: SQL has forgotten all of them
            others.append(file)
            continue
        for piece in left[near]:
            packed_rows[piece.checkpoint] += piece.rows
        left[near] = [replace(piece, rows=0) for piece in left[near]]
    return SortedFiles(tuple(wrong), tuple(named), tuple(others), tuple(left), packed_rows)


def _telling(pieces: Sequence[Piece]) -> Callable[[int, str], bool]:
    """Whether an adopted file of a checkpoint holds what its name says, all of it, and nothing else."""
    names = {files.name_of(p.segment): p.checkpoint for p in pieces if p.segment is not None}
    kept = set(names.values())
    erased = {files.name_of(p.segment) for p in pieces if p.erased and p.segment is not None}
    archived = {p.checkpoint for p in pieces if p.erased and p.segment is None}

    def telling(checkpoint: int, path: str) -> bool:
        return path not in erased and checkpoint not in archived and (checkpoint not in kept or path in names)

    return telling


def _without_named(pieces: Sequence[Piece], named: Sequence[tuple[int, DataFile]]) -> list[Piece]:
    """The pieces by their checkpoints, with the rows that are not in files that name them."""
    paths, counted = {file.path for _, file in named}, Counter[int]()
    for checkpoint, file in named:
        counted[checkpoint] += file.rows or 0

    def rest(piece: Piece) -> Piece:
        if piece.erased:
            return piece
        if piece.segment is None:
            return replace(piece, rows=piece.rows - counted[piece.checkpoint])
        return replace(piece, rows=0) if files.name_of(piece.segment) in paths else piece

    return sorted(map(rest, pieces), key=_checkpoint)


def _checkpoint(piece: Piece) -> int:
    return piece.checkpoint


@dataclass(frozen=True)
class Count:
    """How many rows of some files are in which group of `Places`."""

    of_files: list[Counter[int]]
    doubled: set[int]
    """Groups with a record that is there twice: as many may be missing beside it, so that the number of rows tells nothing.

    Only those of one piece: a topic made anew and the old one have records at the same offsets.
    """

    @cached_property
    def total(self) -> Counter[int]:
        return sum(self.of_files, Counter())


def count(table: str, storage: Storage, others: Sequence[DataFile], places: Places) -> Count:
    """Look at the rows of these files."""
    of_files, doubled, seen = [], set[int](), defaultdict[tuple[str, int], _Offsets](_Offsets)
    for file in others:
        counts: Counter[int] = Counter()
        for batch in batches(table, storage, file):
            parts = list(_by_partition(batch))
            group_of = places.among(batch, parts)
            groups, rows = np.unique(group_of, return_counts=True)
            counts.update(dict(zip(groups.tolist(), rows.tolist(), strict=True)))
            offsets = batch.column("offset").to_numpy(zero_copy_only=False)
            for tp, here in parts:
                known = here & (group_of >= 0)
                twice = seen[tp].add(offsets[known].astype(np.int64)) if known.any() else ()
                if len(twice):
                    doubled.update(np.unique(group_of[known & np.isin(offsets, twice)]).tolist())
        of_files.append(counts)
    return Count(of_files, {group for group in doubled if len(places.groups[group]) == 1})


class _Offsets:
    """Those of one partition that were seen, a bit for each."""

    def __init__(self) -> None:
        self._blocks: dict[int, np.ndarray] = {}

    def add(self, offsets: np.ndarray) -> np.ndarray:
        """Those that are there a second time now."""
        different, twice = offsets, [offsets[:0]]
        if not (np.diff(offsets) > 0).all():
            different, times = np.unique(offsets, return_counts=True)
            twice.append(different[times > 1])
        numbers, begins = np.unique(different // BLOCK, return_index=True)
        for number, of_block in zip(numbers.tolist(), np.split(different, begins[1:]), strict=True):
            here = np.zeros(BLOCK, bool)
            here[of_block % BLOCK] = True
            new, known = np.packbits(here), self._blocks.get(number)
            if known is not None and (known & new).any():
                twice.append(of_block[np.unpackbits(known)[of_block % BLOCK] == 1])
            self._blocks[number] = new if known is None else known | new
        return np.concatenate(twice)


def batches(
    table: str, storage: Storage, file: DataFile, columns: Sequence[str] | None = KEY
) -> Iterator[pa.RecordBatch]:
    """Rows of a file of the table that are not marked as deleted beside it, with these columns or all."""
    try:
        yield from parquet.batches(storage, file.path, columns or KEY, only=columns is not None, kept=file.kept)
    except parquet.OtherColumns:
        raise Refused(
            f"Table {table} has columns under other names in its file {file.path} (column mapping).",
            hint="Let it be as it was (RESTORE; of Iceberg rewrite_data_files once more), or declare the table at another path.",
        ) from None
