"""Rows of declared tables: each record of the line once, and no superseded row (SPEC K6, I2, I3).

Read from the tables' own files, without Spark. The code that writes and repairs tables is not used, except to list the files of a version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import CHECKPOINT
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Table, TableCommit
from crkafka_core.plane.tables import DONE, FENCE
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.verify.entries import DataFile
from crkafka_core.verify.iceberg_files import OnlySpark, Unreadable
from crkafka_core.verify.last_of_keys import LastOfEachKey
from crkafka_core.verify.steady import families, steady
from crkafka_core.verify.tables import NONE, NOWHERE, Range, Tables, groups, whole
from crkafka_core.verify.verdict import Findings


def look(region: Handle, findings: Findings) -> tuple[str, ...]:
    """Compare every declared table whose files can be read here; returns the names of those compared."""
    compared: list[str] = []
    for family in region.plane.read(families):
        moment = steady(region, family, findings)
        if moment is not None:
            state, snapshots = moment
            compare(Tables(region, state, snapshots, findings))
            compared += family
    return tuple(sorted(compared))


def compare(tables: Tables) -> None:
    """Report rows that are in the tables and should not be, and those that are missing."""
    try:
        for table in tables.state.family:
            _compare_history(tables, table)
        keyed = [t for t in tables.state.family if tables.keys.get(t.name)]
        rest = [t for t in tables.state.family if t not in keyed]
        rows = _RowByRow(tables, rest, whole=not keyed)
        if rest:
            rows.run()
        for table in keyed:
            LastOfEachKey(tables, table, rows.offsets if rest else {}).compare()
    except SegmentMissing as gone:
        tables.say(tables.state.family, gone.message)
    except Unreadable as damaged:
        tables.say(tables.state.family, str(damaged))
    except OnlySpark as only:
        tables.findings.note(f"{tables.state.words}: {only}; they were not compared")
    except parquet.OtherColumns as odd:
        tables.findings.note(
            f"{tables.state.words}: the file {odd} lacks columns that tell its rows; they were not compared"
        )


def _compare_history(tables: Tables, table: Table) -> None:
    snapshot = tables.snapshots.get(table.name)
    if not table.version:
        return
    if snapshot is None or int(snapshot.version) < int(table.version):
        is_ = "is not there" if snapshot is None else f"is at version {snapshot.version or 'none'}"
        tables.say([table], f"it {is_}, and version {table.version} was acknowledged")
        return
    # The table's own state has the version up to which all commits are accounted for, ours or not.
    settled = snapshot.settled(tables.state.uid, table.name)
    if foreign := [entry for entry in snapshot.since(str(settled)) if not entry.uid and entry.changes_rows]:
        tables.say(
            [table], f"{plural(len(foreign), 'commit')} of another program, the first is version {foreign[0].version}"
        )


class _RowByRow:
    """Tables with a row for each record, or with what a program makes of each."""

    def __init__(self, tables: Tables, family: Sequence[Table], *, whole: bool) -> None:
        """`whole`: all rows of a checkpoint are in these tables."""
        self.tables, self.family, self.whole = tables, family, whole
        self.counts: Counter[tuple[str, int]] = Counter()
        """(table, checkpoint) → rows."""
        self.offsets: dict[tuple[int, TP], list[np.ndarray]] = {}
        """(checkpoint, partition) → offsets of its rows; filled only if another table of the shape needs them."""
        self._left = set(tables.state.live)

    def run(self) -> None:
        """Read the files by their least checkpoint, and judge a checkpoint once no later file can have rows of it."""
        everything = [(table, file) for table in self.family for file in self.tables.files(table)]
        everything.sort(key=lambda each: each[1].lowest.get(CHECKPOINT, -1))
        pending: dict[int, dict[TP, list[np.ndarray]]] = {}
        for at, (table, file) in enumerate(everything):
            columns = self.tables.place_columns(table) if self.tables.placed else []
            for batch in self.tables.batches(table, file, [*columns, CHECKPOINT]):
                self._sort_in(pending, table, file, batch)
            coming = everything[at + 1][1].lowest.get(CHECKPOINT) if at + 1 < len(everything) else None
            self._judge_all(pending, [c for c in pending if coming is not None and c < coming])
        self._judge_all(pending, [*pending, *(c for c in self._left if c not in pending)])
        for table in self.family:
            self._as_committed(table)

    def _sort_in(
        self, pending: dict[int, dict[TP, list[np.ndarray]]], table: Table, file: DataFile, batch: pa.RecordBatch
    ) -> None:
        placed = self.tables.placed
        topic, partition, offset = (
            (batch.column(name) for name in self.tables.place_columns(table))
            if placed
            else (pa.repeat("", batch.num_rows), pa.repeat(0, batch.num_rows), pa.repeat(0, batch.num_rows))
        )
        encoded = topic.dictionary_encode()
        topics, codes = encoded.dictionary.to_pylist(), whole(encoded.indices)
        partitions, offsets = _numbers(file, partition), _numbers(file, offset)
        ids = whole(batch.column(CHECKPOINT))
        for (checkpoint, code, number), rows in groups(ids, codes, partitions):
            tp = TP(topics[code] if code >= 0 else "", number)
            pending.setdefault(checkpoint, {}).setdefault(tp, []).append(offsets[rows])
            self.counts[table.name, checkpoint] += len(rows)
            if not self.whole and placed:
                self.offsets.setdefault((checkpoint, tp), []).append(offsets[rows])

    def _judge_all(self, pending: dict[int, dict[TP, list[np.ndarray]]], ids: Collection[int]) -> None:
        for checkpoint in sorted(ids):
            self._left.discard(checkpoint)
            rows = {tp: np.sort(np.concatenate(parts)) for tp, parts in pending.pop(checkpoint, {}).items()}
            if checkpoint in self.tables.expected:
                self._judge(checkpoint, rows)
            elif checkpoint == NOWHERE or not self.tables.belongs(checkpoint):
                self._report_stray(checkpoint, rows)

    def _report_stray(self, checkpoint: int, rows: Mapping[TP, np.ndarray]) -> None:
        tp = min(rows)
        count, place = sum(map(len, rows.values())), (tp, int(rows[tp][0])) if self.tables.placed else (None, None)
        if checkpoint == NOWHERE:
            self._say(f"{plural(count, 'row')} of no checkpoint that belongs there", 0, *place)
        else:
            self._say(f"{plural(count, 'row')} of a checkpoint that is not on the line", checkpoint, *place)

    def _say(self, text: str, checkpoint: int, tp: TP | None = None, offset: int | None = None) -> None:
        self.tables.say(self.family, text, checkpoint, tp, offset)

    def _judge(self, checkpoint: int, rows: Mapping[TP, np.ndarray]) -> None:
        expected = self.tables.expected[checkpoint]
        if not self.tables.placed:
            due, count = sum(r.rows for ranges in expected.values() for r in ranges), sum(map(len, rows.values()))
            whole = self.whole and checkpoint not in self.tables.skipped
            if whole and len(self.family) > 1 and due != count:
                self._say(f"{plural(count, 'row')}, and {due} were merged", checkpoint)
            return
        for tp in sorted(expected.keys() | rows.keys()):
            self._judge_offsets(checkpoint, tp, rows.get(tp, NONE), expected.get(tp, []))

    def _judge_offsets(self, checkpoint: int, tp: TP, landed: np.ndarray, expected: Sequence[Range]) -> None:
        twice = landed[1:][np.diff(landed) == 0]
        if len(twice):
            self._say(
                f"{plural(len(np.unique(twice)), 'record is', 'records are')} there more than once",
                checkpoint,
                tp,
                int(twice[0]),
            )
        landed, due, inside = np.unique(landed), sum(r.rows for r in expected), 0
        strange = np.ones(len(landed), bool)
        for r in expected:
            first, last = np.searchsorted(landed, [r.start, r.stop])
            strange[first:last] = False
            inside += int(last - first)
        if strange.any():
            offset = int(landed[strange][0])
            self._say(f"{plural(int(strange.sum()), 'row')} outside of what was merged", checkpoint, tp, offset)
        if inside > due or (self.whole and checkpoint not in self.tables.skipped and inside < due):
            whole = (np.arange(r.start, r.stop) for r in expected if r.rows == r.stop - r.start)
            missing = next(
                (int(lacking[0]) for offsets in whole if len(lacking := np.setdiff1d(offsets, landed))), None
            )
            self._say(f"{inside} of {plural(due, 'record is', 'records are')} there", checkpoint, tp, missing)

    def _as_committed(self, table: Table) -> None:
        """Row counts against those of each acknowledged commit: the only check for rows that a program makes."""
        state, uncounted = self.tables.state, 0
        for commit in () if self.tables.adopted else state.commits[table.name]:
            if commit.status != DONE or commit.kind == FENCE:
                continue
            filled = state.filled(commit)
            counts = [i for i in filled if state.counting[table.name].get(i) == commit.number]
            expected = state.counted(commit)
            if expected is not None:
                for i in counts:
                    self._compare_count(table, commit, [i], expected[i])
            elif counts == filled:
                self._compare_count(table, commit, counts, commit.rows)
            elif not self.tables.placed:
                uncounted += len(counts)
        if uncounted:
            self.tables.findings.note(
                f"table {table.name}: rows of {plural(uncounted, 'checkpoint')} were not counted: they were written together with others "
                "that have been written again or left behind since, and nothing tells how many rows each had"
            )

    def _compare_count(self, table: Table, commit: TableCommit, ids: Sequence[int], expected: int) -> None:
        rows = sum(self.counts[table.name, i] for i in ids)
        if rows != expected:
            text = f"{plural(rows, 'row')} of what commit {commit.number} wrote; it had {expected} when it was acknowledged"
            self.tables.say([table], text, ids[-1])


def _numbers(file: DataFile, values: pa.Array) -> np.ndarray:
    """The values of a column; another program may have given it a type that is no integer."""
    if not pa.types.is_integer(values.type):
        raise parquet.OtherColumns(file.path)
    return whole(values)
