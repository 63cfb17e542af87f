"""Segments against the merges: each record once, in order, in an undamaged file that a merged checkpoint names."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Segment
from crkafka_core.model.segment_name import SegmentName
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.errors import SegmentMissing, StorageUnavailable
from crkafka_core.segments.scan import hash_of, read_with_topics
from crkafka_core.segments.storage import Storage
from crkafka_core.verify.compare import Stretch, Truth
from crkafka_core.verify.history import History, archived
from crkafka_core.verify.verdict import Findings

GROUP_ROWS = 2_000_000
"""Rows of neighbouring checkpoints that are compared together, at most."""


class Landed:
    """Reads the segments of kept checkpoints; counts what is on the line."""

    def __init__(self, history: History, storage: Storage, truth: Truth, findings: Findings) -> None:
        self.history, self.storage, self.truth, self.findings = history, storage, truth, findings
        self.rows = self.bytes = self.segments = self.compared = 0

    def check(self) -> None:
        """I2, I3 along the line; I7 for superseded checkpoints."""
        on_line = set(self.history.line)
        for group in self._groups([c for c in self.history.on_line if c.status is CheckpointStatus.MERGED]):
            self._compare(group, "I2")
        for c in self.history.kept:
            if c.id not in on_line:
                self._compare([c], "I7")
        self._archives()

    def _groups(self, line: list[Checkpoint]) -> Iterator[list[Checkpoint]]:
        group: list[Checkpoint] = []
        for c in line:
            if group and sum(g.rows for g in group) + c.rows > GROUP_ROWS:
                yield group
                group = []
            group.append(c)
        if group:
            yield group

    def _compare(self, group: list[Checkpoint], invariant: str) -> None:
        """Compare neighbours on the line, whose ranges join to one of each partition; a gap or another topic id begins a new range."""
        tables = {c.id: self._read(c, count=invariant == "I2") for c in group}
        tps = sorted({tp for c in group for tp in self.history.merged.get(c.id, {})})
        for tp in tps:
            runs: list[tuple[int, int, int, list[pa.Table], str]] = []
            for c in group:
                m = self.history.merged.get(c.id, {}).get(tp)
                if m is None:
                    continue
                table = tables[c.id].pop(tp, None)
                pieces = [] if table is None else [table]
                self._inside(c, tp, m.from_offset, m.to_offset, table)
                if runs and (runs[-1][2], runs[-1][4]) == (m.from_offset, m.topic_id):
                    runs[-1] = (runs[-1][0], runs[-1][1], m.to_offset, runs[-1][3] + pieces, m.topic_id)
                else:
                    runs.append((c.id, m.from_offset, m.to_offset, pieces, m.topic_id))
            for checkpoint, start, stop, pieces, topic_id in runs:
                empty = SCHEMA.empty_table().select(list(self.truth.columns))
                landed = pa.concat_tables(pieces) if pieces else empty
                self._ordered(tp, landed, checkpoint)
                if start < stop:
                    part = Stretch(tp, start, stop, landed.combine_chunks(), invariant, checkpoint, topic_id)
                    compared = self.truth.compare(part, self.findings)
                    self.compared += compared if invariant == "I2" else 0
        for checkpoint, left in tables.items():
            for tp in left:
                self.findings.add(
                    invariant, f"{tp} has rows in segments of it, and is not in its map", checkpoint=checkpoint, tp=tp
                )

    def _inside(self, c: Checkpoint, tp: TP, start: int, stop: int, table: pa.Table | None) -> None:
        """I2: a partition has as many landed rows as were merged, all of them in its range."""
        rows = 0 if table is None else table.num_rows
        if rows != self.history.merged[c.id][tp].rows:
            text = (
                f"{plural(rows, 'row')} of {tp} are in its segments, its map says {self.history.merged[c.id][tp].rows}"
            )
            self.findings.add("I2", text, checkpoint=c.id, tp=tp)
        if table is not None and rows:
            bounds = pc.min_max(table.column("offset")).as_py()
            if bounds["min"] < start or bounds["max"] >= stop:
                text = f"{tp} landed offsets {bounds['min']} … {bounds['max']} in the range [{start}, {stop})"
                self.findings.add(
                    "I2", text, checkpoint=c.id, tp=tp, offset=bounds["min"] if bounds["min"] < start else bounds["max"]
                )

    def _ordered(self, tp: TP, landed: pa.Table, checkpoint: int) -> None:
        """I3: offsets strictly increase per partition."""
        offsets = np.asarray(landed.column("offset").combine_chunks())
        wrong = np.flatnonzero(np.diff(offsets) <= 0)
        if len(wrong):
            at = int(wrong[0]) + 1
            text = f"{tp}: offset {int(offsets[at])} comes after {int(offsets[at - 1])}"
            self.findings.add("I3", text, checkpoint=checkpoint, tp=tp, offset=int(offsets[at]))

    def _read(self, c: Checkpoint, *, count: bool) -> dict[TP, pa.Table]:
        """Landed rows by partition, segments in the order of their offsets, rows in file order."""
        pieces: dict[TP, list[tuple[int, pa.Table]]] = {}
        for segment in sorted(self.history.segments.get(c.id, ()), key=lambda s: s.path):
            table = self._segment(c, segment)
            if table is None:
                continue
            if count:
                self.segments += 1
                self.rows += table.num_rows
                self.bytes += segment.bytes
            if table.num_rows != segment.rows:
                self.findings.add(
                    "I2",
                    f"the file has {plural(table.num_rows, 'row')}, SQL says {segment.rows}",
                    checkpoint=c.id,
                    path=segment.path,
                )
            starts = {span.tp: span.first for span in segment.spans}
            for tp, rows in _split(table).items():
                pieces.setdefault(tp, []).append((starts.get(tp, 0), rows.select(list(self.truth.columns))))
        return {
            tp: pa.concat_tables([t for _, t in sorted(parts, key=lambda part: part[0])])
            for tp, parts in pieces.items()
        }

    def _segment(self, c: Checkpoint, segment: Segment) -> pa.Table | None:
        harmed = False
        try:
            crc, size = hash_of(self.storage, segment.path)
            if harmed := (crc, size) != (segment.hash, segment.bytes):
                text = f"the file has hash {crc} and {size} bytes, SQL says {segment.hash} and {segment.bytes}"
                self.findings.add("I13", text, checkpoint=c.id, path=segment.path)
            table, topic_ids = read_with_topics(self.storage, segment.path, list(self.truth.columns))
            merged = {tp.topic: m.topic_id for tp, m in self.history.merged.get(c.id, {}).items() if m.rows}
            for topic, topic_id in topic_ids.items():
                if merged.get(topic, topic_id) != topic_id:
                    text = f"the file has records of topic {topic} with id {topic_id}, merged was id {merged[topic]}"
                    self.findings.add("I2", text, checkpoint=c.id, path=segment.path)
            return table
        except SegmentMissing:
            self.findings.add("I13", "a named segment is not there", checkpoint=c.id, path=segment.path)
        except (pa.ArrowException, OSError, StorageUnavailable) as error:
            if isinstance(error, StorageUnavailable) and not harmed:
                raise  # of a harmed file Arrow says the same as of a storage that is away
            self.findings.add("I13", f"a named segment cannot be read: {error}", checkpoint=c.id, path=segment.path)
        return None

    def _archives(self) -> None:
        """I2 for retired checkpoints: their archives' counts are right."""
        for c in self.history.checkpoints.values():
            if c.status is not CheckpointStatus.RETIRED:
                continue
            for tp, topic_id, start, stop, rows in archived(c):
                due = self.truth.count(tp, topic_id, start, stop)
                if due is not None and due != rows:
                    text = f"{tp}: its archive has {plural(rows, 'row')} in [{start}, {stop}), {plural(due, 'was', 'were')} committed"
                    self.findings.add("I2", text, checkpoint=c.id, tp=tp, offset=start)


def orphans(history: History, storage: Storage, findings: Findings, *, collected: bool) -> int:
    """The number of files that SQL does not name and no member is writing; none after retirement and collection (I9)."""
    named = {s.path for segments in history.segments.values() for s in segments}
    count = 0
    for file in storage.list(history.region.uid):
        name = SegmentName.parse(file.path)
        if name is None or file.path in named:
            continue
        collectable = name.number <= history.region.head
        if not collectable and name.number >= (history.region.open_cut or history.region.filling):
            continue  # being written
        count += 1
        if collected and collectable:
            findings.add("I9", "a file of an older epoch or a retired checkpoint was not collected", path=file.path)
    return count


def _split(table: pa.Table) -> dict[TP, pa.Table]:
    """Rows by partition, in file order; vectorised, since a segment interleaves its partitions."""
    if not table.num_rows:
        return {}
    topics = table.column("topic").combine_chunks().dictionary_encode()
    names = topics.dictionary.to_pylist()
    keys = np.asarray(topics.indices).astype(np.int64) << 32 | np.asarray(
        table.column("partition").combine_chunks()
    ).astype(np.int64)
    order = np.argsort(keys, kind="stable")
    values, starts = np.unique(keys[order], return_index=True)
    rows_of = {}
    for i, value in enumerate(values):
        stop = starts[i + 1] if i + 1 < len(starts) else len(order)
        tp = TP(names[int(value) >> 32], int(value) & 0xFFFFFFFF)
        rows_of[tp] = table.take(pa.array(order[starts[i] : stop]))
    return rows_of
