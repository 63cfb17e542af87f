"""Rows of declared tables: each record of the line once, and no superseded row (SPEC K6, I2, I3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import CHECKPOINT
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Table
from crkafka_core.plane import tables as plane
from crkafka_core.plane.reading import KafkaRange
from crkafka_core.plane.tables import DONE, FENCE
from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.verify.compare import NULL, by_partition, whole
from crkafka_core.verify.last_of_keys import LastOfEachKey
from crkafka_core.verify.table_files import DataFile, NotCompared, Unreadable, other_columns
from crkafka_core.verify.tables import Tables, named, steady
from crkafka_core.verify.verdict import Findings


def look(region: Handle, findings: Findings) -> tuple[str, ...]:
    """Compare every declared table whose files can be read here; returns the names of those compared."""
    compared: list[str] = []
    declared = region.plane.read(lambda reader, _: plane.families(reader.select(Table)))
    for family in sorted([t.name for t in each] for each in declared):
        try:
            compare(steady(region, family, findings))
            compared += family
        except NotCompared as reason:
            findings.note(f"{named(family)}: {reason}; they were not compared")
        except ConfigError as error:
            findings.note(f"{named(family)}: could not be compared: {error.message}")
        except SegmentMissing as gone:
            findings.add("K6", f"{named(family)}: {gone.message}")
        except Unreadable as damaged:
            findings.add("K6", f"{named(family)}: {damaged}")
    return tuple(sorted(compared))


def compare(tables: Tables) -> None:
    """Report rows that are in the tables and should not be, and those that are missing."""
    for table in tables.state.family:
        _compare_history(tables, table)
    keyed = [t for t in tables.state.family if tables.keys.get(t.name)]
    rest = [t for t in tables.state.family if t not in keyed]
    rows = _RowByRow(tables, rest, whole=not keyed)
    if rest:
        rows.run()
    for table in keyed:
        LastOfEachKey(tables, table, rows.offsets if rest else {}).compare()


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
        text = f"{plural(len(foreign), 'commit')} of another program, the first is version {foreign[0].version}"
        tables.say([table], text)


class _RowByRow:
    """Tables with a row for each record, or with what a program makes of each."""

    def __init__(self, tables: Tables, family: Sequence[Table], *, whole: bool) -> None:
        """`whole`: all rows of a checkpoint are in these tables."""
        self.tables, self.family, self.whole = tables, family, whole
        self.counts: Counter[tuple[str, int]] = Counter()
        """(table, checkpoint) → rows."""
        self.offsets: dict[tuple[int, TP], list[np.ndarray]] = {}
        """(checkpoint, partition) → offsets of its rows; filled only if another table of the shape needs them."""
        self.pending: dict[int, dict[TP, list[np.ndarray]]] = {i: {} for i in tables.state.live}
        """Checkpoint → partition → offsets of its rows, until they are judged."""

    def run(self) -> None:
        """Read the files by their least checkpoint, and judge a checkpoint once no later file can have rows of it."""
        everything = [(table, file) for table in self.family for file in self.tables.files(table)]
        everything.sort(key=lambda each: NULL if each[1].least is None else each[1].least)
        for at, (table, file) in enumerate(everything):
            columns = self.tables.place_columns(table) if self.tables.placed else []
            for batch in self.tables.batches(table, file, [*columns, CHECKPOINT]):
                self._sort_in(table, file, columns, batch)
            coming = everything[at + 1][1].least if at + 1 < len(everything) else None
            self._judge_all([c for c in self.pending if coming is not None and c < coming])
        self._judge_all([*self.pending])
        for table in self.family:
            self._as_committed(table)

    def _sort_in(self, table: Table, file: DataFile, columns: Sequence[str], batch: pa.RecordBatch) -> None:
        nothing = (pa.repeat(value, batch.num_rows) for value in ("", 0, 0))
        topic, partition, offset = map(batch.column, columns) if columns else nothing
        if not (pa.types.is_integer(partition.type) and pa.types.is_integer(offset.type)):
            raise other_columns(file)  # another program may have given them another type
        offsets = whole(offset)
        for checkpoint, tp, rows in by_partition(topic, partition, whole(batch.column(CHECKPOINT))):
            self.pending.setdefault(checkpoint, {}).setdefault(tp, []).append(offsets[rows])
            self.counts[table.name, checkpoint] += len(rows)
            if not self.whole and columns:
                self.offsets.setdefault((checkpoint, tp), []).append(offsets[rows])

    def _judge_all(self, ids: Collection[int]) -> None:
        for checkpoint in sorted(ids):
            rows = {tp: np.sort(np.concatenate(parts)) for tp, parts in self.pending.pop(checkpoint).items()}
            if checkpoint in self.tables.expected:
                self._judge(checkpoint, rows)
            elif checkpoint == NULL or not self.tables.belongs(checkpoint):
                tp, stray = min(rows), plural(sum(map(len, rows.values())), "row")
                place = (tp, int(rows[tp][0])) if self.tables.placed else (None, None)
                of_which = (
                    "a checkpoint that is not on the line" if checkpoint != NULL else "no checkpoint that belongs there"
                )
                self._say(f"{stray} of {of_which}", max(checkpoint, 0), *place)

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
            self._judge_offsets(checkpoint, tp, rows.get(tp, np.zeros(0, np.int64)), expected.get(tp, []))

    def _judge_offsets(self, checkpoint: int, tp: TP, landed: np.ndarray, expected: Sequence[KafkaRange]) -> None:
        twice = landed[1:][np.diff(landed) == 0]
        if len(twice):
            text = f"{plural(len(np.unique(twice)), 'record is', 'records are')} there more than once"
            self._say(text, checkpoint, tp, int(twice[0]))
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
            lacking = (np.setdiff1d(offsets, landed) for offsets in whole)
            missing = next((int(offsets[0]) for offsets in lacking if len(offsets)), None)
            self._say(f"{inside} of {plural(due, 'record is', 'records are')} there", checkpoint, tp, missing)

    def _as_committed(self, table: Table) -> None:
        """Row counts against those of each acknowledged commit: the only check for rows that a program makes."""
        state = self.tables.state
        for commit in () if self.tables.adopted else state.commits[table.name]:
            if commit.status != DONE or commit.kind == FENCE:
                continue
            for checkpoint, due in state.counted(commit).items():
                rows = self.counts[table.name, checkpoint]
                if state.counting[table.name].get(checkpoint) == commit.number and rows != due:
                    text = f"{plural(rows, 'row')} of what commit {commit.number} wrote; it had {due} when it was acknowledged"
                    self.tables.say([table], text, checkpoint)
