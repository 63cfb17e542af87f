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
from crkafka_core.verify.tables import Tables, groups, whole


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
        place = self.tables.place_columns(self.table)
        kept = place if self.tables.typed else place[1:]  # a shape need not keep the topic
        schema = pa.schema(
            [("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64()), (CHECKPOINT, pa.int64())]
        )
        parts = []
        for file in self.tables.files(self.table):
            for batch in self.tables.batches(self.table, file, list(dict.fromkeys([*self.keys, *kept, CHECKPOINT]))):
                columns = {f"key {k}": batch.column(k) for k in self.keys}
                given = [
                    batch.column(c) if c in batch.schema.names else pa.nulls(batch.num_rows)
                    for c in (*place, CHECKPOINT)
                ]
                columns |= {field.name: c.cast(field.type) for field, c in zip(schema, given, strict=True)}
                parts.append(pa.table(columns))
        return pa.concat_tables(parts, promote_options="permissive") if parts else schema.empty_table()

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

    def _belonging(self, rows_read: pa.Table) -> None:
        """Each row is a record of a checkpoint of the line."""
        topic = rows_read["topic"].combine_chunks().dictionary_encode()
        topics, codes = topic.dictionary.to_pylist(), whole(topic.indices)
        ids, partitions, offsets = (
            whole(rows_read[name].combine_chunks()) for name in (CHECKPOINT, "partition", "offset")
        )
        for (checkpoint, code, partition), rows in groups(ids, codes, partitions):
            tp, row_offsets = TP(topics[code] if code >= 0 else "", partition), offsets[rows]
            if checkpoint not in self.tables.expected:
                if not self.tables.belongs(checkpoint):
                    self._say(
                        f"{plural(len(rows), 'row')} of a checkpoint that is not on the line",
                        checkpoint,
                        tp,
                        int(row_offsets[0]),
                    )
                continue
            known = self.tables.expected[checkpoint].items()
            ranges = [
                r for at, taken in known if at.partition == partition and tp.topic in ("", at.topic) for r in taken
            ]
            inside = (
                np.any([(r.start <= row_offsets) & (row_offsets < r.stop) for r in ranges], axis=0)
                if ranges
                else np.zeros(len(row_offsets), bool)
            )
            if not np.all(inside):
                self._say("a row outside of what was merged", checkpoint, tp, int(row_offsets[~inside][0]))

    def _last_ones(self, rows: pa.Table) -> None:
        """Compare each key's row with its last decodable record in the kept segments; a tombstone has no row.

        A key of which a record was erased is left out: the table may have had the record before it was.
        """
        last, alive, left_out = self._replayed()
        if self._retired():
            self.tables.findings.note(
                f"table {self.table.name}: rows of keys that are in retired checkpoints alone were not compared with their records"
            )
        named = f"key {self.keys[0]}"
        present = {
            (row[named], row["topic"], row["partition"], row["offset"])
            for row in rows.to_pylist()
            if row[named] not in left_out
        }
        due = {(key, *last[key][1:]) for key in alive - left_out}
        for key, topic, partition, offset in sorted(due - present, key=lambda row: row[1:]):
            self._say("the last record of its key has no row", last[key][0], TP(topic, partition), offset)
        strange = sorted((row[1:], row[0]) for row in present - due if row[0] in last)
        for (topic, partition, offset), _ in strange:
            self._say("a later record of its key replaced it, or deleted it", 0, TP(topic, partition), offset)
        unknown = [row for row in present if row[0] not in last]
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
            for piece in self.tables.state.pieces
            for r in (piece.ranges if piece.erased else ())
        }
        for checkpoint, batch in self._records():
            gone = batch.column("value").is_null().to_pylist()
            columns = [batch.column(name).to_pylist() for name in ("key", "topic", "partition", "offset")]
            for key, topic, partition, offset, deleted in zip(*columns, gone, strict=True):
                if not self.tables.takes(checkpoint, topic):
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
