"""A table with one row for each key, compared with the last record of each key in the segments that are kept (SPEC K6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.lake.port import CHECKPOINT
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Table
from crkafka_core.segments import rows as parquet
from crkafka_core.verify.compare import by_partition, whole
from crkafka_core.verify.tables import Tables


class LastOfEachKey:
    """A table that keeps one row for each key."""

    def __init__(self, tables: Tables, table: Table, bad: Mapping[tuple[int, TP], list[np.ndarray]]) -> None:
        """`bad`: (checkpoint, partition) → offsets of records that could not be decoded; they leave their key's row as it was."""
        self.tables, self.table, self.keys = tables, table, tables.keys[table.name]
        self.bad = {at: set(np.concatenate(parts).tolist()) for at, parts in bad.items()}

    def compare(self) -> None:
        rows = self._rows()
        if rows.num_rows == 0 and not self.tables.typed:
            return
        self._each_key_once(rows)
        self._belonging(rows)
        if self.tables.typed and self.tables.skipped:
            self.tables.findings.note(
                f"table {self.table.name}: records were left out, since they could not be decoded or other topics were named then, and "
                "nothing tells which: its rows were not compared with the last record of each key"
            )
        elif self.tables.typed:
            self._last_ones(rows)

    def _rows(self) -> pa.Table:
        """Keys, checkpoint and place of each row."""
        columns = [*self.tables.place_columns(self.table), CHECKPOINT]
        needed = columns if self.tables.typed else columns[1:]  # a shape need not keep the topic
        kinds = {"topic": pa.string(), "partition": pa.int64(), "offset": pa.int64(), CHECKPOINT: pa.int64()}
        parts = []
        for file in self.tables.files(self.table):
            for batch in self.tables.batches(self.table, file, list(dict.fromkeys([*self.keys, *needed]))):
                rows = {f"key {k}": batch.column(k) for k in self.keys}
                for column, (name, kind) in zip(columns, kinds.items(), strict=True):
                    known = column in batch.schema.names
                    rows[name] = batch.column(column).cast(kind) if known else pa.nulls(batch.num_rows, kind)
                parts.append(pa.table(rows))
        return pa.concat_tables(parts, promote_options="permissive") if parts else pa.schema(kinds).empty_table()

    def _each_key_once(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        counted = rows.group_by([f"key {k}" for k in self.keys]).aggregate([([], "count_all"), ("offset", "max")])
        twice = counted.filter(pc.greater(counted["count_all"], 1))
        if twice.num_rows:
            text = f"{plural(twice.num_rows, 'key has', 'keys have')} more than one row"
            self._say(text, offset=twice["offset_max"][0].as_py())

    def _belonging(self, rows: pa.Table) -> None:
        """Each row is a record of a checkpoint of the line."""
        topic, partition, offset, ids = (
            rows[name].combine_chunks() for name in ("topic", "partition", "offset", CHECKPOINT)
        )
        for checkpoint, tp, at in by_partition(topic, partition, whole(ids)):
            offsets, expected = whole(offset)[at], self.tables.expected.get(checkpoint)
            if expected is None:
                if not self.tables.belongs(checkpoint):
                    text = f"{plural(len(at), 'row')} of a checkpoint that is not on the line"
                    self._say(text, checkpoint, tp, int(offsets[0]))
                continue
            strange = np.ones(len(offsets), bool)
            for r in (r for taken in expected.values() for r in taken):
                if r.partition == tp.partition and tp.topic in ("", r.topic):
                    strange &= (offsets < r.start) | (offsets >= r.stop)
            if strange.any():
                self._say("a row outside of what was merged", checkpoint, tp, int(offsets[strange][0]))

    def _last_ones(self, rows: pa.Table) -> None:
        """Compare each key's row with its last decodable record in the kept segments; a tombstone has no row.

        A key of which a record was erased is left out: the table may have had the record before it was.
        """
        last, left_out = self._replayed()
        if self._retired():
            self.tables.findings.note(
                f"table {self.table.name}: rows of keys that are in retired checkpoints alone were not compared with their records"
            )
        names = (f"key {self.keys[0]}", "topic", "partition", "offset") if rows.num_rows else ()
        columns = (rows[name].to_pylist() for name in names)
        present = {row for row in zip(*columns, strict=True) if row[0] not in left_out}
        due = {(key, *row[1:4]) for key, row in last.items() if not row[4] and key not in left_out}
        for key, topic, partition, offset in sorted(due - present, key=lambda row: row[1:]):
            self._say("the last record of its key has no row", last[key][0], TP(topic, partition), offset)
        strange = sorted((row[1:], row[0]) for row in present - due if row[0] in last)
        for (topic, partition, offset), _ in strange:
            self._say("a later record of its key replaced it, or deleted it", 0, TP(topic, partition), offset)
        unknown = [row for row in present if row[0] not in last]
        if unknown and not self._retired():
            _, topic, partition, offset = min(unknown, key=lambda row: row[1:])
            self._say(f"{plural(len(unknown), 'row')} with a key that no record has", 0, TP(topic, partition), offset)

    def _replayed(self) -> tuple[dict[bytes, tuple[int, str, int, int, bool]], set[bytes]]:
        """Key → checkpoint and place of its last record, and whether that deletes it; keys of which a record was erased."""
        last: dict[bytes, tuple[int, str, int, int, bool]] = {}
        left_out: set[bytes] = set()
        erased = {(r.checkpoint, r.tp, r.start) for p in self.tables.state.pieces if p.erased for r in p.ranges}
        for checkpoint, batch in self._records():
            deleted = batch.column("value").is_null().to_pylist()
            columns = [batch.column(name).to_pylist() for name in ("key", "topic", "partition", "offset")]
            for key, topic, partition, offset, deletes in zip(*columns, deleted, strict=True):
                if not self.tables.takes(checkpoint, topic):
                    continue
                tp, row = TP(topic, partition), (checkpoint, topic, partition, offset, deletes)
                if (checkpoint, tp, offset) in erased:
                    left_out.add(key)
                if offset not in self.bad.get((checkpoint, tp), ()) and (key not in last or last[key] < row):
                    last[key] = row
        return last, left_out

    def _retired(self) -> bool:
        return self.tables.state.forgotten or any(piece.segment is None for piece in self.tables.state.pieces)

    def _records(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        storage = self.tables.region.storage()
        for piece in sorted(self.tables.state.pieces, key=lambda p: p.checkpoint):
            if piece.segment is not None and not piece.erased:
                columns = ["key", "value", "topic", "partition", "offset"]
                for batch in parquet.batches(storage, piece.segment.path, columns, only=True):
                    yield piece.checkpoint, batch

    def _say(self, text: str, checkpoint: int = 0, tp: TP | None = None, offset: int | None = None) -> None:
        self.tables.say([self.table], text, checkpoint, tp, offset)
