"""A table with one row for each key: what a commit adds to it, and marks in it (SPEC K6).

A commit begins with the files and marks of the version that is acknowledged. It adds the new files, of which only the last record of
each key is not marked, and marks the rows of their keys in all files before. A rewind goes back to the files and marks of an older version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.lake import files
from crkafka_core.lake.columns import keys_of, place_in
from crkafka_core.lake.files import Staying
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import CHECKPOINT, Change, DataFile, NewFile, Snapshot, Stamp, TableLog
from crkafka_core.lake.vectors import Positions, as_array
from crkafka_core.lake.write import Write
from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import Table
from crkafka_core.plane import permits
from crkafka_core.plane.contents import State, how_to_refill
from crkafka_core.segments import read_footer
from crkafka_core.segments.errors import SegmentMissing

Ids = npt.NDArray[np.int64]


@dataclass(eq=False)
class KeyedWrite(Write):
    """One commit to a table with one row for each key."""

    state: State = field(kw_only=True)
    """What the table has to be before the rows come that are made."""

    @cached_property
    def _keys(self) -> tuple[str, ...]:
        return keys_of(self.region.config, self.permit.table)

    def _change(self, snapshot: Snapshot, staying: Staying | None) -> Change:
        present = {file.path: file for file in snapshot.files()}
        wanted = {file.path: file for file in self._base(snapshot, present)}
        if self._made.new:
            wanted = {file.path: file for file in self._merged(wanted.values())}
        marks = {
            present[path]: file.marks or ()
            for path, file in wanted.items()
            if path in present and file.marks != present[path].marks
        }
        add = [file for path, file in wanted.items() if path not in present]
        return Change(add, [file for path, file in present.items() if path not in wanted], marks)

    def _settled(self, snapshot: Snapshot, shown: Stamp | None) -> int:
        """What others have done is undone by each commit."""
        return snapshot.version + 1

    def _base(self, snapshot: Snapshot, present: dict[str, DataFile]) -> Iterable[DataFile]:
        """The files of the acknowledged version; the current ones, if nothing has changed rows since."""
        state, table = self.state, self.permit.table
        if not state.version:
            return ()
        if untouched_since(snapshot, int(state.version)):
            return present.values()
        try:
            older = self.log.look(state.version)
            wanted = None if older is None else list(older.files())
        except SegmentMissing as error:
            raise gone_for_good(table, state, f"its files were deleted ({error.message})") from error
        if wanted is None:
            raise gone_for_good(table, state, "the table's log does not have it any more")
        others = [each for each in wanted if each.path not in present or each.marks != present[each.path].marks]
        if files.missing(self.log.storage, others):
            raise gone_for_good(table, state, "its files were deleted")
        return wanted

    def _merged(self, before: Iterable[DataFile]) -> Iterable[DataFile]:
        keys, new = self._records
        for file in before:
            if not keys.may_be_in(file, self._keys):
                yield file
                continue
            known = as_array(file.marks or ())
            marked = np.union1d(self._rows_of_keys(file), known)
            if len(marked) == len(known):
                yield file
            elif len(marked) != file.rows:
                yield replace(file, marks=Positions.of(marked))
        yield from new

    def _rows_of_keys(self, file: DataFile) -> Ids:
        positions, at = list[Ids](), 0
        for batch in files.rows_of(self.log.storage, replace(file, marks=None), self._keys, only=True):
            hits = self._records[0].find([batch.column(name) for name in self._keys])
            positions.append(np.flatnonzero(hits) + at)
            at += batch.num_rows
        return np.concatenate(positions) if positions else np.zeros(0, np.int64)

    @cached_property
    def _records(self) -> tuple[Keys, Sequence[DataFile]]:
        return last_records(self.log, self._made.new, self._keys, self.permit.table)


def last_records(
    log: TableLog, new: Sequence[NewFile], names: Sequence[str], table: Table
) -> tuple[Keys, Sequence[DataFile]]:
    """The keys of new files, and the files with all records marked but the last one of each key, by checkpoint and place.

    A file's marks are of records that delete their key: where such a one is the last, none stays.
    """
    batches: list[pa.RecordBatch] = []
    rows: list[int] = []
    for file in new:
        place = place_in(read_footer.names(log.storage, file.path), table)
        needed = list(dict.fromkeys([*names, CHECKPOINT, *place]))
        read = [*files.rows_of(log.storage, _unmarked(file), needed, only=True)]
        rows.append(sum(batch.num_rows for batch in read))
        batches += read
    records = pa.Table.from_batches(batches)
    keys = Keys([records.column(name) for name in names])
    order = [_ranks(records.column(name)) for name in (CHECKPOINT, *place)]
    at = np.lexsort([*reversed(order), keys.ids])
    last = np.ones(len(at), bool)
    last[:-1] = keys.ids[at][1:] != keys.ids[at][:-1]
    stays = np.zeros(len(at), bool)
    stays[at[last]] = True
    kept = list[DataFile]()
    for file, part in zip(new, np.split(stays, np.cumsum(rows)[:-1]), strict=True):
        if isinstance(file, DataFile) and file.marks is not None:
            part[as_array(file.marks)] = False
        if part.any():
            gone = np.flatnonzero(~part)
            kept.append(replace(_unmarked(file), marks=Positions.of(gone) if len(gone) else None))
    return keys, kept


def _unmarked(file: NewFile) -> DataFile:
    return DataFile(file.path, file.bytes, file.rows, file.lowest, file.highest, file.nulls, file.values)


def _ranks(column: pa.ChunkedArray) -> Ids:
    """Numbers in the order of the values."""
    one = column.combine_chunks()
    if not pa.types.is_integer(one.type):
        one = pc.rank(one, sort_keys="ascending", tiebreaker="dense")
    ranks: Ids = one.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return ranks


def untouched_since(snapshot: Snapshot, version: int) -> bool:
    """Whether no commit has changed rows since; one that the log was cleaned of may have."""
    entries = snapshot.since(version)
    return entries is not None and not any(entry.changes_rows for entry in entries)


def refuse_late(region: Handle, table: Table) -> None:
    """Refuse a table that begins behind what is forgotten."""
    if region.plane.read(lambda reader, _: permits.began_late(reader, table)):
        raise Refused(
            f"Table {table.name} has one row for each {', '.join(keys_of(region.config, table))}, and what led to checkpoint "
            f"{table.acknowledged} is not archived any more: rows of keys that came before, and not since, would be missing.",
            hint="Nothing was written. `crkafka tables undeclare` it, and let a region of its own read the topic from the beginning.",
        )


def refuse_rewrite(region: Handle, table: Table, *, joined: str = "") -> None:
    """Rows of one checkpoint cannot be replaced where later ones have come over them. `joined`: a table that lacks its own."""
    back = (
        f"`crkafka tables undeclare {joined}`, which joins it too late, and what the configuration was without it; or "
    )
    raise Refused(
        f"Table {table.name} of region {table.region} keeps the last record of each {', '.join(keys_of(region.config, table))}: rows of "
        "single checkpoints cannot be written again.",
        hint=(back if joined else "") + how_to_refill(table.name),
    )


class Gone(Refused):
    """The version to go back to is no longer kept. Reaction: declare the table at another path."""


def gone_for_good(table: Table, state: State, why: str) -> Gone:
    return Gone(
        f"Table {table.name} at {table.path} cannot go back to checkpoint {state.checkpoint}, its version {state.version}: {why}.",
        hint=f"{how_to_refill(table.name)} How long others keep old versions, their own settings say (docs/cdc.md).",
    )


class Keys:
    """The keys of records, of one column or several; null is a value like any other in a key of several."""

    def __init__(self, columns: Sequence[pa.ChunkedArray]) -> None:
        self._values: list[pa.Array] = []
        """Of each column, the values that there are."""
        self._pairs: list[Ids] = []
        """Of each column but the first, the pairs that there are: the number of the columns before it, and its own."""
        self.ids: Ids = np.zeros(0, np.int64)
        """Of each record, the number of its key."""
        for number, column in enumerate(columns):
            encoded = _equal(column.combine_chunks()).dictionary_encode(null_encoding="encode")
            self._values.append(encoded.dictionary)
            own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            if not number:
                self.ids = own
                continue
            pairs, self.ids = np.unique(self.ids * len(encoded.dictionary) + own, return_inverse=True)
            self._pairs.append(pairs)
        self._bounds = [_bounds(values) for values in self._values]

    def find(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Which rows have one of the keys."""
        ids: Ids = np.zeros(0, np.int64)
        for number, (column, values) in enumerate(zip(columns, self._values, strict=True)):
            known = pc.index_in(_equal(column.cast(values.type)), value_set=values).fill_null(-1)
            own = known.to_numpy(zero_copy_only=False).astype(np.int64)
            if not number:
                ids = own
                continue
            pairs = self._pairs[number - 1]
            wanted = np.where((ids < 0) | (own < 0), -1, ids * len(values) + own)
            at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
            ids = np.where(pairs[at] == wanted, at, -1)
        return ids >= 0

    def may_be_in(self, file: DataFile, names: Sequence[str]) -> bool:
        """Whether the bounds that a table's log has of a file leave room for one of the keys."""
        for bounds, name in zip(self._bounds, names, strict=True):
            low, high = file.lowest.get(name), file.highest.get(name)
            kind = None if bounds is None else type(bounds[0])
            if bounds and type(low) is kind and type(high) is kind and not (low <= bounds[1] and high >= bounds[0]):
                return False
        return True


def _equal(column: pa.Array) -> pa.Array:
    """With 0.0 for -0.0, which SQL calls equal."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _bounds(values: pa.Array) -> tuple[Any, Any] | None:
    """The least and greatest of texts and whole numbers; None where a log may have bounds in other words."""
    comparable = pa.types.is_integer(values.type) or pa.types.is_string(values.type)
    if values.null_count or not len(values) or not comparable:
        return None
    bounds = pc.min_max(values).as_py()
    return bounds["min"], bounds["max"]
