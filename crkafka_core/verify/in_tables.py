"""What declared tables hold, row by row: each record of the line once, and nothing that a rewind left behind (SPEC K6, I2, I3).

Read from the tables' own files, without Spark. Of what writes and mends tables nothing is asked but which files a version has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.location import in_catalog
from crkafka_core.config.sections import GOOD
from crkafka_core.config.typed import has_records, name_of
from crkafka_core.lake.folder import folder_of
from crkafka_core.lake.formats import open_log
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import CHECKPOINT
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Table, TableCommit
from crkafka_core.plane import tables
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.segments.storage import Storage
from crkafka_core.verify.entries import LogEntry
from crkafka_core.verify.iceberg_files import IcebergFiles, OnlySpark, Unreadable
from crkafka_core.verify.steady import Snapshot, State, families, steady
from crkafka_core.verify.verdict import Findings


def look(region: Handle, found: Findings) -> tuple[str, ...]:
    """Compare every declared table whose files can be read here; the names of those that were."""
    compared: list[str] = []
    for family in region.plane.read(families):
        told = steady(region, family, found)
        if told is not None:
            state, snapshots = told
            compare(Tables(region, state, snapshots, found))
            compared += family
    return tuple(sorted(compared))


NOWHERE = -1
"""The checkpoint of a row that names none."""
NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Range:
    """Offsets that a checkpoint took of a partition, and how many records there are."""

    start: int
    stop: int
    rows: int


@dataclass(frozen=True)
class File:
    """One data file, and from which checkpoint on its rows are."""

    table: Table
    path: str
    first: int | None
    """None: of any."""
    kept: Sequence[bool] | None = None
    """Rows that are marked as deleted beside the file are false."""


class Tables:
    """Tables of one shape, or a single one, at one moment, and where what is wrong with them is told."""

    def __init__(self, region: Handle, state: State, snapshots: Mapping[str, Snapshot | None], found: Findings) -> None:
        self.region, self.state, self.snapshots, self.found = region, state, snapshots, found
        table, config = state.family[0], region.config
        declared = config.table(name_of(table.shape) or table.name, table.shape)
        self.topics = declared.topics if declared is not None else None
        self.typed, self.adopted = bool(name_of(table.shape)) or has_records(table.shape), tables.adopts(table)
        self.placed = self.typed or not table.shape
        """Each row is a record, and tells which one."""
        self.keys = {
            t.name: tuple(of.keys or ()) for t in state.family if (of := config.table(t.name, t.shape)) is not None
        }
        """Table → columns of which it has one row for each value, if it does."""
        skips = declared is not None and declared.on_bad_record == "skip"
        self.of_others = self._of_other_topics(skips=skips)
        """Checkpoints that were written when the configuration named other topics: which, nothing tells."""
        self.expected: dict[int, dict[TP, list[Range]]] = {c: defaultdict(list) for c in state.live}
        """Checkpoint → partition → what was merged of it, in the order of offsets."""
        for piece in state.pieces:
            for r in piece.ranges:
                if self.takes(piece.checkpoint, r.topic):
                    self.expected[piece.checkpoint][TP(r.topic, r.partition)].append(Range(r.start, r.stop, r.rows))
        self.skipped = self._skipped(skips=skips)
        """Checkpoints with records that could not be decoded, and are in none of the tables."""
        self._storages: dict[str, Storage] = {}

    def takes(self, checkpoint: int, topic: str) -> bool:
        """Whether records of the topic may be in the tables."""
        return self.topics is None or topic in self.topics or checkpoint in self.of_others

    def _of_other_topics(self, *, skips: bool) -> set[int]:
        if self.topics is None:
            return set()
        due, erased = dict.fromkeys(self.state.live, 0), {p.checkpoint for p in self.state.pieces if p.erased}
        for piece in self.state.pieces:
            due[piece.checkpoint] += sum(r.rows for r in piece.ranges if r.topic in self.topics)
        given = ((i, rows) for i, rows in self.state.given.items() if i in due and i not in erased)
        return {i for i, rows in given if rows > due[i] or (rows < due[i] and not skips)}

    def _skipped(self, *, skips: bool) -> set[int]:
        """By what was told when they were written; where nothing tells, by today's configuration."""
        state, found = self.state, set[int]()
        if self.adopted:
            return found
        written: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for i in state.live:
            written[tuple(state.counting[t.name].get(i, 0) for t in state.family)].append(i)
        due = {i: sum(r.rows for ranges in self.expected[i].values() for r in ranges) for i in state.live}
        by_number = {t.name: {commit.number: commit for commit in state.commits[t.name]} for t in state.family}
        for numbers, ids in written.items():
            pairs = zip(state.family, numbers, strict=True)
            commits = [by_number[t.name][number] for t, number in pairs if number]
            told = [state.told(commit) for commit in commits]
            if len(commits) == len(numbers) and None not in told:
                found |= {i for i in ids if sum(of[i] for of in told if of is not None) < due[i]}
            elif len(commits) == len(numbers) and all(state.filled(commit) == ids for commit in commits):
                found |= set(ids) if sum(commit.rows for commit in commits) < sum(due[i] for i in ids) else set()
            elif skips:
                found |= set(ids)
        return found

    def say(
        self, tables: Sequence[Table], text: str, checkpoint: int = 0, tp: TP | None = None, offset: int | None = None
    ) -> None:
        who = f"table{'s' if len(tables) > 1 else ''} {', '.join(t.name for t in tables)}"
        self.found.add("K6", f"{who}: {text}", checkpoint=checkpoint, tp=tp, offset=offset)

    def files(self, table: Table) -> Iterator[File]:
        """Those that count."""
        snapshot = self.snapshots[table.name]
        for file in snapshot.files() if snapshot is not None else ():
            yield File(table, file.path, file.lowest.get(CHECKPOINT), file.kept)

    def storage(self, table: Table) -> Storage:
        """The folder of its files."""
        if table.name not in self._storages:
            self._storages[table.name] = (
                open_log(self.region, table).storage
                if in_catalog(table.path)
                else folder_of(table.path, self.region.config.resolve().storage_options)
            )
        return self._storages[table.name]

    def batches(self, file: File, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of a file, without rows that are marked as deleted beside it."""
        snapshot = self.snapshots.get(file.table.name)
        try:
            for batch in parquet.batches(self.storage(file.table), file.path, columns, only=True, kept=file.kept):
                if isinstance(snapshot, IcebergFiles) and any(map(snapshot.has_other, batch.schema)):
                    raise parquet.OtherColumns(file.path)
                yield batch
        except (pa.ArrowException, OSError) as error:
            raise Unreadable(f"{file.path} cannot be read: {error}") from error

    def place_columns(self, table: Table) -> list[str]:
        """Where a row tells its topic, partition and offset."""
        prefix = PREFIX if name_of(table.shape) and table.output in ("", GOOD) else ""
        return [prefix + name for name in ("topic", "partition", "offset")]

    def belongs(self, checkpoint: int) -> bool:
        """Of the line; or so old that SQL knows nothing of it any more. What is not acknowledged may just be coming."""
        return checkpoint in self.state.line or self.state.belongs(checkpoint)


def compare(there: Tables) -> None:
    """Whatever is in them and should not be, or is not and should."""
    try:
        for table in there.state.family:
            _compare_history(there, table)
        keyed = [t for t in there.state.family if there.keys.get(t.name)]
        rest = [t for t in there.state.family if t not in keyed]
        rows = _RowByRow(there, rest, whole=not keyed)
        if rest:
            rows.run()
        for table in keyed:
            LastOfEachKey(there, table, rows.offsets if rest else {}).compare()
    except SegmentMissing as gone:
        there.say(there.state.family, gone.message)
    except Unreadable as damaged:
        there.say(there.state.family, str(damaged))
    except OnlySpark as only:
        there.found.note(f"{there.state.words}: {only}; they were not compared")
    except parquet.OtherColumns as odd:
        there.found.note(
            f"{there.state.words}: the file {odd} lacks columns that tell its rows; they were not compared"
        )


def _compare_history(there: Tables, table: Table) -> None:
    snapshot = there.snapshots.get(table.name)
    if not table.version:
        return
    if snapshot is None or not snapshot.reaches(table.version):
        is_ = "is not there" if snapshot is None else f"is at version {snapshot.version or 'none'}"
        there.say([table], f"it {is_}, and version {table.version} was acknowledged")
    elif found := _of_others(there, table, snapshot):
        there.say([table], f"{plural(len(found), 'commit')} of somebody else, the first is version {found[0].version}")


def _of_others(there: Tables, table: Table, snapshot: Snapshot) -> Sequence[LogEntry]:
    """Also behind commits of ours: the table's own state has the version up to which all are accounted for."""
    settled = snapshot.settled(there.state.uid, table.name)
    return [entry for entry in snapshot.since(str(settled)) if not entry.uid and entry.changes_rows]


class _RowByRow:
    """Tables with a row for each record, or with what a program makes of each."""

    def __init__(self, there: Tables, family: Sequence[Table], *, whole: bool) -> None:
        """`whole`: all rows of a checkpoint are in these tables."""
        self.there, self.family, self.whole = there, family, whole
        self.counts: Counter[tuple[str, int]] = Counter()
        """(table, checkpoint) → rows."""
        self.offsets: dict[tuple[int, TP], list[np.ndarray]] = {}
        """Of all rows, by checkpoint and partition, where another table of the shape has to know."""
        self._left = set(there.state.live)

    def run(self) -> None:
        """What is known of a checkpoint is let go once no file can have more of it."""
        everything = [file for table in self.family for file in self.there.files(table)]
        everything.sort(key=lambda f: -1 if f.first is None else f.first)
        pending: dict[int, dict[TP, list[np.ndarray]]] = {}
        for at, file in enumerate(everything):
            for batch in self.there.batches(file, self._columns(file)):
                self._sort_in(pending, file, batch)
            coming = everything[at + 1].first if at + 1 < len(everything) else None
            self._judge_all(pending, [c for c in pending if coming is not None and c < coming])
        self._judge_all(pending, [*pending, *(c for c in self._left if c not in pending)])
        for table in self.family:
            self._as_committed(table)

    def _columns(self, file: File) -> list[str]:
        return [*(self.there.place_columns(file.table) if self.there.placed else []), CHECKPOINT]

    def _sort_in(self, pending: dict[int, dict[TP, list[np.ndarray]]], file: File, batch: pa.RecordBatch) -> None:
        placed = self.there.placed
        topic, partition, offset = (
            (batch.column(name) for name in self.there.place_columns(file.table))
            if placed
            else (pa.repeat("", batch.num_rows), pa.repeat(0, batch.num_rows), pa.repeat(0, batch.num_rows))
        )
        encoded = topic.dictionary_encode()
        topics, codes = encoded.dictionary.to_pylist(), _whole(encoded.indices)
        partitions, offsets = _numbers(file, partition), _numbers(file, offset)
        ids = _whole(batch.column(CHECKPOINT))
        for (checkpoint, code, number), rows in groups(ids, codes, partitions):
            tp = TP(topics[code] if code >= 0 else "", number)
            pending.setdefault(checkpoint, {}).setdefault(tp, []).append(offsets[rows])
            self.counts[file.table.name, checkpoint] += len(rows)
            if not self.whole and placed:
                self.offsets.setdefault((checkpoint, tp), []).append(offsets[rows])

    def _judge_all(self, pending: dict[int, dict[TP, list[np.ndarray]]], ids: Collection[int]) -> None:
        for checkpoint in sorted(ids):
            self._left.discard(checkpoint)
            rows = {tp: np.sort(np.concatenate(parts)) for tp, parts in pending.pop(checkpoint, {}).items()}
            if checkpoint in self.there.expected:
                self._judge(checkpoint, rows)
            elif checkpoint == NOWHERE or not self.there.belongs(checkpoint):
                self._stranger(checkpoint, rows)

    def _stranger(self, checkpoint: int, rows: Mapping[TP, np.ndarray]) -> None:
        tp = min(rows)
        count, place = sum(map(len, rows.values())), (tp, int(rows[tp][0])) if self.there.placed else (None, None)
        if checkpoint == NOWHERE:
            self._say(f"{plural(count, 'row')} of no checkpoint that belongs there", 0, *place)
        else:
            self._say(f"{plural(count, 'row')} of a checkpoint that is not on the line", checkpoint, *place)

    def _say(self, text: str, checkpoint: int, tp: TP | None = None, offset: int | None = None) -> None:
        self.there.say(self.family, text, checkpoint, tp, offset)

    def _judge(self, checkpoint: int, rows: Mapping[TP, np.ndarray]) -> None:
        expected = self.there.expected[checkpoint]
        if not self.there.placed:
            due, there = sum(r.rows for ranges in expected.values() for r in ranges), sum(map(len, rows.values()))
            whole = self.whole and checkpoint not in self.there.skipped
            if whole and len(self.family) > 1 and due != there:
                self._say(f"{plural(there, 'row')}, and {due} were merged", checkpoint)
            return
        for tp in sorted(expected.keys() | rows.keys()):
            self._judge_offsets(checkpoint, tp, rows.get(tp, NONE), expected.get(tp, []))

    def _judge_offsets(self, checkpoint: int, tp: TP, there: np.ndarray, expected: Sequence[Range]) -> None:
        twice = there[1:][np.diff(there) == 0]
        if len(twice):
            self._say(
                f"{plural(len(np.unique(twice)), 'record is', 'records are')} there more than once",
                checkpoint,
                tp,
                int(twice[0]),
            )
        there, due, inside = np.unique(there), sum(r.rows for r in expected), 0
        strange = np.ones(len(there), bool)
        for r in expected:
            first, last = np.searchsorted(there, [r.start, r.stop])
            strange[first:last] = False
            inside += int(last - first)
        if strange.any():
            offset = int(there[strange][0])
            self._say(f"{plural(int(strange.sum()), 'row')} outside of what was merged", checkpoint, tp, offset)
        if inside > due or (self.whole and checkpoint not in self.there.skipped and inside < due):
            missing = next((o for r in expected if r.rows == r.stop - r.start for o in _lacking(there, r)), None)
            self._say(f"{inside} of {plural(due, 'record is', 'records are')} there", checkpoint, tp, missing)

    def _as_committed(self, table: Table) -> None:
        """As many rows as were counted when each commit was acknowledged: all that is known of rows that a program makes."""
        state, uncounted = self.there.state, 0
        for commit in () if self.there.adopted else state.commits[table.name]:
            if commit.status != tables.DONE or commit.kind == tables.FENCE:
                continue
            filled = state.filled(commit)
            counts = [i for i in filled if state.counting[table.name].get(i) == commit.number]
            told = state.told(commit)
            if told is not None:
                for i in counts:
                    self._compare_count(table, commit, [i], told[i])
            elif counts == filled:
                self._compare_count(table, commit, counts, commit.rows)
            elif not self.there.placed:
                uncounted += len(counts)
        if uncounted:
            self.there.found.note(
                f"table {table.name}: rows of {plural(uncounted, 'checkpoint')} were not counted: they were written together with others "
                "that have been written again or left behind since, and nothing tells how many rows each had"
            )

    def _compare_count(self, table: Table, commit: TableCommit, ids: Sequence[int], told: int) -> None:
        rows = sum(self.counts[table.name, i] for i in ids)
        if rows != told:
            text = f"{plural(rows, 'row')} of what commit {commit.number} wrote; it had {told} when it was acknowledged"
            self.there.say([table], text, ids[-1])


class LastOfEachKey:
    """A table that keeps one row for each key."""

    def __init__(self, there: Tables, table: Table, bad: Mapping[tuple[int, TP], list[np.ndarray]]) -> None:
        """`bad`: records that are not decoded, by offset: they leave the row of their key as it was."""
        self.there, self.table, self.keys = there, table, there.keys[table.name]
        self.bad = {at: set(np.concatenate(parts).tolist()) for at, parts in bad.items()}

    def compare(self) -> None:
        rows = self._rows()
        if rows.num_rows == 0 and not self.there.typed:
            return
        self._each_key_once(rows)
        self._belonging(rows)
        if self.there.typed and self.there.skipped:
            self.there.found.note(
                f"table {self.table.name}: records were left out, since they could not be decoded or other topics were named then, and "
                "nothing tells which: its rows were not compared with the last record of each key"
            )
        elif self.there.typed:
            self._last_ones(rows)

    def _rows(self) -> pa.Table:
        """Keys, checkpoint and place of each row."""
        place = self.there.place_columns(self.table)
        schema = pa.schema(
            [("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64()), (CHECKPOINT, pa.int64())]
        )
        parts = []
        for file in self.there.files(self.table):
            for batch in self.there.batches(file, list(dict.fromkeys([*self.keys, *self._told(place), CHECKPOINT]))):
                columns = {f"key {k}": batch.column(k) for k in self.keys}
                told = [
                    batch.column(c) if c in batch.schema.names else pa.nulls(batch.num_rows)
                    for c in (*place, CHECKPOINT)
                ]
                columns |= {field.name: c.cast(field.type) for field, c in zip(schema, told, strict=True)}
                parts.append(pa.table(columns))
        return pa.concat_tables(parts, promote_options="permissive") if parts else schema.empty_table()

    def _told(self, place: Sequence[str]) -> Sequence[str]:
        """A shape has to keep partition and offset alone."""
        return place if self.there.typed else place[1:]

    def _each_key_once(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        counted = rows.group_by([f"key {k}" for k in self.keys]).aggregate(
            [([], "count_all"), ("offset", "max"), ("partition", "max")]
        )
        twice = counted.filter(pc.greater(counted["count_all"], 1))
        if twice.num_rows:
            self._say(
                f"{plural(twice.num_rows, 'key has', 'keys have')} more than one row",
                offset=twice["offset_max"][0].as_py(),
            )

    def _belonging(self, found: pa.Table) -> None:
        """Each row is a record of a checkpoint of the line."""
        topic = found["topic"].combine_chunks().dictionary_encode()
        topics, codes = topic.dictionary.to_pylist(), _whole(topic.indices)
        ids, partitions, offsets = (
            _whole(found[name].combine_chunks()) for name in (CHECKPOINT, "partition", "offset")
        )
        for (checkpoint, code, partition), rows in groups(ids, codes, partitions):
            tp, there = TP(topics[code] if code >= 0 else "", partition), offsets[rows]
            if checkpoint not in self.there.expected:
                if not self.there.belongs(checkpoint):
                    self._say(
                        f"{plural(len(rows), 'row')} of a checkpoint that is not on the line",
                        checkpoint,
                        tp,
                        int(there[0]),
                    )
                continue
            known = self.there.expected[checkpoint].items()
            ranges = [r for at, of in known if at.partition == partition and tp.topic in ("", at.topic) for r in of]
            inside = (
                np.any([(r.start <= there) & (there < r.stop) for r in ranges], axis=0)
                if ranges
                else np.zeros(len(there), bool)
            )
            if not np.all(inside):
                self._say("a row outside of what was merged", checkpoint, tp, int(there[~inside][0]))

    def _last_ones(self, rows: pa.Table) -> None:
        """By the segments that are kept: of each key the last record that could be decoded, unless it is a tombstone.

        A key of which a record was erased is left out: the table may have had the record before it was.
        """
        last, alive, left_out = self._replayed()
        if self._retired():
            self.there.found.note(
                f"table {self.table.name}: rows of keys that are in retired checkpoints alone were not compared with their records"
            )
        named = f"key {self.keys[0]}"
        there = {
            (row[named], row["topic"], row["partition"], row["offset"])
            for row in rows.to_pylist()
            if row[named] not in left_out
        }
        due = {(key, *last[key][1:]) for key in alive - left_out}
        for key, topic, partition, offset in sorted(due - there, key=lambda row: row[1:]):
            self._say("the last record of its key has no row", last[key][0], TP(topic, partition), offset)
        strange = sorted((row[1:], row[0]) for row in there - due if row[0] in last)
        for (topic, partition, offset), _ in strange:
            self._say("a later record of its key replaced it, or deleted it", 0, TP(topic, partition), offset)
        unknown = [row for row in there if row[0] not in last]
        if unknown and not self._retired():
            _, topic, partition, offset = min(unknown, key=lambda row: row[1:])
            self._say(f"{plural(len(unknown), 'row')} with a key that no record has", 0, TP(topic, partition), offset)

    def _replayed(self) -> tuple[dict[bytes, tuple[int, str, int, int]], set[bytes], set[bytes]]:
        """Key → checkpoint and place of its last record; keys that are not deleted; keys of which a record was erased."""
        last: dict[bytes, tuple[int, str, int, int]] = {}
        alive: set[bytes] = set()
        left_out: set[bytes] = set()
        erased = {
            (piece.checkpoint, TP(r.topic, r.partition), r.start)
            for piece in self.there.state.pieces
            for r in (piece.ranges if piece.erased else ())
        }
        for checkpoint, batch in self._records():
            gone = batch.column("value").is_null().to_pylist()
            columns = [batch.column(name).to_pylist() for name in ("key", "topic", "partition", "offset")]
            for key, topic, partition, offset, deleted in zip(*columns, gone, strict=True):
                if not self.there.takes(checkpoint, topic):
                    continue
                place = checkpoint, topic, partition, offset
                if (checkpoint, TP(topic, partition), offset) in erased:
                    left_out.add(key)
                bad = offset in self.bad.get((checkpoint, TP(topic, partition)), ())
                if bad or (key in last and last[key] > place):
                    continue
                last[key] = place
                (alive.discard if deleted else alive.add)(key)
        return last, alive, left_out

    def _retired(self) -> bool:
        return self.there.state.forgotten or any(piece.segment is None for piece in self.there.state.pieces)

    def _records(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        storage = self.there.region.storage()
        for piece in sorted(self.there.state.pieces, key=lambda p: p.checkpoint):
            if piece.segment is not None and not piece.erased:
                columns = ["key", "value", "topic", "partition", "offset"]
                for batch in parquet.batches(storage, piece.segment.path, columns, only=True):
                    yield piece.checkpoint, batch

    def _say(self, text: str, checkpoint: int = 0, tp: TP | None = None, offset: int | None = None) -> None:
        self.there.say([self.table], text, checkpoint, tp, offset)


def _numbers(file: File, values: pa.Array) -> np.ndarray:
    """Of a column that somebody else may have made."""
    if not pa.types.is_integer(values.type):
        raise parquet.OtherColumns(file.path)
    return _whole(values)


def _whole(values: pa.Array) -> np.ndarray:
    return np.asarray(values.fill_null(NOWHERE)).astype(np.int64)


def _lacking(there: np.ndarray, r: Range) -> Iterator[int]:
    yield from np.setdiff1d(np.arange(r.start, r.stop), there)[:1].tolist()


def groups(*keys: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Each combination of values, and the rows that have it."""
    if not len(keys[0]):
        return
    order = np.lexsort(keys[::-1])
    there = np.stack([key[order] for key in keys])
    starts = [0, *(np.flatnonzero(np.any(np.diff(there, axis=1) != 0, axis=0)) + 1).tolist()]
    for at, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        yield tuple(there[:, at].tolist()), order[at:stop]
