"""Lands made-up checkpoints without Kafka: real segments in a storage, and the rows that a merge would leave in SQL."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.config.sections import TableConfig
from crkafka_core.control import Reader, Store, Tx
from crkafka_core.lake.handle import Opened
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP, pack_offsets
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    ContributedOffset,
    Contribution,
    Filler,
    Initial,
    MergedOffset,
    Region,
    Segment,
    Table,
)
from crkafka_core.model.segment import segment_path
from crkafka_core.plane import life, resets, retire
from crkafka_core.plane import tables as plane_tables
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol.merge import digest
from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch, Run
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import SegmentWriter

T = TypeVar("T")


class Landing:
    """Adds checkpoints to a region, each with the next offsets of every partition, spread over some members."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        *,
        name: str = "orders",
        topics: Sequence[str] = ("orders",),
        pattern: str = "",
        partitions: int = 4,
        members: int = 2,
        control_plane: str = "",
        kafka: dict[str, object] | None = None,
        batch_of: Callable[[TP, int, int], Batch] | None = None,
        **keys: object,
    ) -> None:
        """`batch_of` makes the batch of a partition between two offsets."""
        self._batch_of = batch_of or records
        self.config = RegionConfig.of(
            base=folder,
            region=name,
            control_plane=control_plane or f"sqlite:///{folder}/crkafka.db",
            storage=str(keys.pop("storage", folder / "segments")),
            kafka=kafka or {"bootstrap.servers": "localhost:1", "group.id": name},
            **({"pattern": pattern} if pattern else {"topics": list(topics)}),
            members=members,
            **keys,
        )
        self.uid = uuid.uuid4().hex[:12]
        life.declare(store, Region(name=name, uid=self.uid, region_index=0, config_json=self.config.to_json()))
        self.region = Opened(self.config, ControlPlane(store, name))
        self.storage = Storage.of(self.config)
        self.tps = [TP(topic, p) for topic in topics for p in range(partitions)]
        self.members = members
        self.offsets: dict[int, dict[TP, int]] = {0: dict.fromkeys(self.tps, 0)}
        self.topics_made = 0
        self.starts = 0
        """How often the members' processes began anew: each has an incarnation of its own."""
        self.region.plane.do(lambda tx: tx.set_region(phase=Phase.RUNNING, resumed_at=tx.now()))
        self._begin_topics()
        for table in self.config.tables:
            self.declare(table)

    def declare(self, table: TableConfig) -> Table:
        """A table more, or again."""
        shape, output, here = table.shape or "", table.output or "", self.config.on_road(table)
        return self.region.plane.do(
            lambda tx: plane_tables.declare(
                tx, table.name, table.format, table.path, shape=shape, output=output, here=here
            )
        )

    def do(self, work: Callable[[Tx], T | CrkafkaError]) -> T:
        return self.region.plane.do(work)

    def read(self, question: Callable[[Reader, Region], T]) -> T:
        return self.region.plane.read(question)

    def land(self, rows: int = 100, *, quiet: Collection[int | str] = (), times: int = 1) -> int:
        """Land checkpoints with so many rows in each partition, but none in quiet ones and quiet topics; the last number."""
        return [self._land(rows, quiet) for _ in range(times)][-1]

    def _land(self, rows: int, quiet: Collection[int | str]) -> int:
        of = {tp: 0 if {tp.partition, tp.topic} & set(quiet) else rows for tp in self.tps}
        row = self.region.plane.read(lambda _, region: region)
        number, parent = row.filling + 1, row.head
        self.region.plane.do(lambda tx: tx.set_region(filling=number))
        before = self.offsets[parent]
        segments: list[Segment] = []
        merged: list[MergedOffset] = []
        for member in range(self.members):
            tps = [tp for i, tp in enumerate(self.tps) if i % self.members == member]
            for tp in tps:
                offsets = before[tp], before[tp] + of[tp], of[tp]
                of_topic = tp.topic, tp.partition, self._topic_id(tp.topic)
                merged.append(MergedOffset(row.name, number, *of_topic, *offsets, f"{row.name}/{member}"))
            if spans := [(tp, before[tp], before[tp] + of[tp]) for tp in tps if of[tp]]:
                segments.append(self._segment(row, number, member, spans))
        self.offsets[number] = {tp: offset + of[tp] for tp, offset in before.items()}
        self.region.plane.do(lambda tx: self._merge(tx, row, number, segments, merged))
        return number

    def recreate_topics(self) -> None:
        """What lands from now on is of other topics of the same names, from offset 0."""
        self.topics_made += 1
        head = self.region.plane.read(lambda _, row: row.head)
        self.offsets[head] = dict.fromkeys(self.tps, 0)
        self._begin_topics()

    def new_topic(self, topic: str, partitions: int = 1) -> None:
        """One more that the pattern matches, from what lands next."""
        new = [TP(topic, p) for p in range(partitions)]
        head = self.region.plane.read(lambda _, row: row.head)
        self.tps += new
        self.offsets[head] |= dict.fromkeys(new, 0)
        rows = [Initial(self.config.region, self._topic_id(topic), tp.partition, topic, 0, "beginning") for tp in new]
        self.region.plane.do(lambda tx: tx.add(*rows))

    def _topic_id(self, topic: str) -> str:
        return f"id-{topic}" + (f"-{self.topics_made}" if self.topics_made else "")

    def _begin_topics(self) -> None:
        """Their partitions are known from here on."""
        name = self.config.region
        first = [Initial(name, self._topic_id(tp.topic), tp.partition, tp.topic, 0, "beginning") for tp in self.tps]
        self.region.plane.do(lambda tx: tx.add(*first))

    def rewind(self, target: int) -> None:
        """Go back to a checkpoint: those after it are superseded, tables owe a fence."""
        self.region.plane.do(lambda tx: resets.request(tx, cause="test", by="test", target=target))

    def retire(self, *checkpoints: int, history: int = 0) -> None:
        """Make these archived: rows and files of segments go, the ranges stay; with `history` only of the last so many."""
        self.region.plane.do(lambda tx: tx.set_region(limits_json=json.dumps({"retain": 1, "history": history})))
        for path in self.region.plane.do(lambda tx: retire.retire(tx, checkpoints)):
            self.storage.delete(path)

    def _incarnation(self, member: int) -> str:
        return f"m{member}" + (f".{self.starts}" if self.starts else "")

    def _segment(self, row: Region, number: int, member: int, spans: list[tuple[TP, int, int]]) -> Segment:
        incarnation = self._incarnation(member)
        path = segment_path(self.uid, row.epoch, incarnation, number, 0)
        writer = SegmentWriter(self.storage, path)
        for tp, start, stop in spans:
            writer.write(self._batch_of(tp, start, stop))
        closed = writer.close()
        who = f"{row.name}/{member}", incarnation, row.epoch
        spans_json = json.dumps([span.stored() for span in closed.spans])
        return Segment(row.name, path, number, *who, closed.rows, closed.bytes, closed.hash, spans_json)

    def _merge(self, tx: Tx, row: Region, number: int, segments: list[Segment], merged: list[MergedOffset]) -> None:
        tx.add(
            Checkpoint(
                *(row.name, number, row.head, row.epoch, CheckpointStatus.MERGED),
                cause="test",
                opened_at=tx.now(),
                merged_at=tx.now(),
                rows=sum(s.rows for s in segments),
                bytes=sum(s.bytes for s in segments),
                segments=len(segments),
                members=self.members,
                hash=digest({TP(o.topic, o.partition): o.to_offset for o in merged}),
            )
        )
        if segments:
            tx.add(*segments)
        tx.add(*merged)
        for member in range(self.members):
            self._contribute(tx, row, number, member, [o for o in merged if o.member == f"{row.name}/{member}"])
        tx.set_region(head=number, filling=number, opened=number, phase=Phase.RUNNING)

    def _contribute(self, tx: Tx, row: Region, number: int, member: int, mine: list[MergedOffset]) -> None:
        name, who = f"{row.name}/{member}", self._incarnation(member)
        begins = {TP(o.topic, o.partition): o.from_offset for o in mine}
        tx.add(Filler(row.name, number, name, who, pack_offsets(begins)))
        tx.add(
            Contribution(
                *(row.name, number, name, who, row.epoch, row.head, -1, "[]", "{}"),
                *(sum(o.rows for o in mine), 0, 1, "h"),
            )
        )
        for o in mine:
            tx.add(ContributedOffset(row.name, number, name, o.topic, o.partition, o.from_offset, o.to_offset, o.rows))


def records(tp: TP, start: int, stop: int) -> Batch:
    """Records whose value tells topic, partition and offset; every third without key, every fifth with headers."""
    offsets = range(start, stop)
    columns = [
        pa.array([None if o % 3 == 0 else b"k%d" % (o % 7) for o in offsets], pa.binary()),
        pa.array([f"{tp.topic}:{tp.partition}:{o}".encode() for o in offsets], pa.binary()),
        pa.array([tp.topic] * len(offsets), pa.string()),
        pa.array(np.full(len(offsets), tp.partition, np.int32)),
        pa.array(np.arange(start, stop, dtype=np.int64)),
        pa.array(np.arange(start, stop, dtype=np.int64) * 1000 + 1_700_000_000_000_000, pa.timestamp("us", tz="UTC")),
        pa.array(np.zeros(len(offsets), np.int32)),
        pa.array([[{"key": "n", "value": b"%d" % o}] if o % 5 == 0 else None for o in offsets], HEADERS),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return Batch(batch, (Run(tp, 0, len(offsets), start, stop),))


__all__ = ["Landing", "records"]
