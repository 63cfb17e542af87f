"""Segments against the merges: each record once, in order, in an undamaged file that a merged checkpoint names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, MergedOffset, Segment
from crkafka_core.model.segment import SegmentName
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.errors import SegmentMissing, StorageUnavailable
from crkafka_core.segments.scan import hash_of, read_with_topics
from crkafka_core.segments.storage import Storage
from crkafka_core.verify.compare import Stretch, Truth, by_partition
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
        nothing = SCHEMA.empty_table().select(list(self.truth.columns))
        for tp in sorted({tp for c in group for tp in self.history.merged.get(c.id, {})}):
            stretches: list[Stretch] = []
            pieces: list[list[pa.Table]] = []
            for c in group:
                m = self.history.merged.get(c.id, {}).get(tp)
                if m is None:
                    continue
                landed = tables[c.id].pop(tp, nothing)
                self._inside(c, m, landed)
                if stretches and (stretches[-1].stop, stretches[-1].topic_id) == (m.from_offset, m.topic_id):
                    stretches[-1] = replace(stretches[-1], stop=m.to_offset)
                    pieces[-1].append(landed)
                else:
                    stretches.append(Stretch(tp, m.from_offset, m.to_offset, landed, invariant, c.id, m.topic_id))
                    pieces.append([landed])
            for stretch, parts in zip(stretches, pieces, strict=True):
                joined = replace(stretch, landed=pa.concat_tables(parts).combine_chunks())
                self._ordered(joined)
                if joined.start < joined.stop:
                    compared = self.truth.compare(joined, self.findings)
                    self.compared += compared if invariant == "I2" else 0
        for checkpoint, left in tables.items():
            for tp in left:
                text = f"{tp} has rows in segments of it, and is not in its map"
                self.findings.add(invariant, text, checkpoint, tp)

    def _inside(self, c: Checkpoint, m: MergedOffset, landed: pa.Table) -> None:
        """I2: a partition has as many landed rows as were merged, all of them in its range."""
        tp, start, stop = TP(m.topic, m.partition), m.from_offset, m.to_offset
        if landed.num_rows != m.rows:
            text = f"{plural(landed.num_rows, 'row')} of {tp} are in its segments, its map says {m.rows}"
            self.findings.add("I2", text, c.id, tp)
        low, high = pc.min_max(landed.column("offset")).values()
        if landed.num_rows and (low.as_py() < start or high.as_py() >= stop):
            text = f"{tp} landed offsets {low} … {high} in the range [{start}, {stop})"
            self.findings.add("I2", text, c.id, tp, low.as_py() if low.as_py() < start else high.as_py())

    def _ordered(self, part: Stretch) -> None:
        """I3: offsets strictly increase per partition."""
        wrong = np.flatnonzero(np.diff(part.offsets) <= 0)
        if len(wrong):
            before, offset = part.offsets[wrong[0] : wrong[0] + 2].tolist()
            text = f"{part.tp}: offset {offset} comes after {before}"
            self.findings.add("I3", text, part.checkpoint, part.tp, offset)

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
                text = f"the file has {plural(table.num_rows, 'row')}, SQL says {segment.rows}"
                self.findings.add("I2", text, c.id, path=segment.path)
            starts = {span.tp: span.first for span in segment.spans}
            topic, partition = (table.column(name).combine_chunks() for name in ("topic", "partition"))
            for _, tp, rows in by_partition(topic, partition):
                piece = table.take(pa.array(rows)).select(list(self.truth.columns))
                pieces.setdefault(tp, []).append((starts.get(tp, 0), piece))
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
                self.findings.add("I13", text, c.id, path=segment.path)
            table, topic_ids = read_with_topics(self.storage, segment.path, list(self.truth.columns))
            merged = {tp.topic: m.topic_id for tp, m in self.history.merged.get(c.id, {}).items() if m.rows}
            for topic, topic_id in topic_ids.items():
                if merged.get(topic, topic_id) != topic_id:
                    text = f"the file has records of topic {topic} with id {topic_id}, merged was id {merged[topic]}"
                    self.findings.add("I2", text, c.id, path=segment.path)
            return table
        except SegmentMissing:
            self.findings.add("I13", "a named segment is not there", c.id, path=segment.path)
        except (pa.ArrowException, OSError, StorageUnavailable) as error:
            if isinstance(error, StorageUnavailable) and not harmed:
                raise  # of a harmed file Arrow says the same as of a storage that is away
            self.findings.add("I13", f"a named segment cannot be read: {error}", c.id, path=segment.path)
        return None

    def _archives(self) -> None:
        """I2 for retired checkpoints: their archives' counts are right."""
        for c in (c for c in self.history.checkpoints.values() if c.status is CheckpointStatus.RETIRED):
            for tp, topic_id, start, stop, rows in archived(c):
                due = self.truth.count(tp, topic_id, start, stop)
                if due is not None and due != rows:
                    text = f"{tp}: its archive has {plural(rows, 'row')} in [{start}, {stop}), {plural(due, 'was', 'were')} committed"
                    self.findings.add("I2", text, c.id, tp, start)


def orphans(history: History, storage: Storage) -> int:
    """The number of files that SQL does not name and no member is writing."""
    named = {s.path for segments in history.segments.values() for s in segments}
    writing = history.region.open_cut or history.region.filling
    names = (SegmentName.parse(f.path) for f in storage.list(history.region.uid) if f.path not in named)
    return sum(name is not None and (name.number <= history.region.head or name.number < writing) for name in names)
