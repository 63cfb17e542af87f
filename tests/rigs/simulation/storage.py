"""Simulated shared storage: one disk that all processes see, each through its own connection that may be full or slow."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.model.offsets import TP
from crkafka_core.model.segment import ClosedSegment, SegmentName, Span
from crkafka_core.segments.batch import Batch
from crkafka_core.segments.errors import SegmentExists, SegmentMissing, StorageUnavailable
from crkafka_core.segments.storage import Output, Storage, Stored
from tests.rigs.simulation.broker import Record
from tests.rigs.simulation.fetched import ROW_BYTES, Fetched

if TYPE_CHECKING:
    from tests.rigs.simulation.member import SimulatedMember
    from tests.rigs.simulation.scheduler import Owner
    from tests.rigs.simulation.world import World

Tuple = tuple[TP, Record]
Disk = dict[str, tuple[Tuple, ...] | None]
"""Path → what a closed segment holds; None while it is being written."""


class SimulatedStorage(Storage):
    url = "sim://segments"
    is_local = False

    def __init__(self, world: World, owner: Owner) -> None:
        self._world = world
        self._owner = owner

    @property
    def disk(self) -> Disk:
        return self._world.disk

    def reach(self, *, writes: bool = False) -> None:
        """Others move before it is done; a full disk takes nothing."""
        self._world.scheduler.give_way()
        if writes:
            self._world.changes(self._owner, "files")
        if writes and self._world.faults.storage_fails(self._owner):
            raise StorageUnavailable("The disk is full.")

    def uri(self, path: str) -> str:
        return f"{self.url}/{path}"

    def check(self, *, tables: bool = False) -> None:
        self.reach(writes=True)

    def exists(self, path: str) -> bool:
        self.reach()
        return path in self.disk

    def open_read(self, path: str) -> pa.NativeFile:
        """A small file, or a closed segment, of which only the footer is read."""
        self.reach()
        held = self.disk.get(path)
        if held is not None:
            return pa.BufferReader(parquet(len(held)))
        if path not in self._world.files:
            raise SegmentMissing(f"{path} is not there.")
        return pa.BufferReader(self._world.files[path])

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.reach(writes=True)
        self._world.files[path] = data

    def own(self, source: Storage, path: str, name: str) -> int:
        raise NotImplementedError("segments are adopted by tables")

    def open_write(self, path: str) -> Output:
        raise NotImplementedError("segments are written by SimulatedWriter")

    def delete(self, path: str) -> bool:
        self.reach()
        self._world.changes(self._owner, path)
        self._world.judged(partial(self._world.oracle.deletes, self._owner, path))
        return self.disk.pop(path, self) is not self

    def list(self, prefix: str) -> Iterator[Stored]:
        self.reach()
        return iter([Stored(path, 1) for path in self.disk if path.startswith(prefix)])

    def delete_folder(self, prefix: str) -> None:
        for stored in list(self.list(prefix)):
            self.delete(stored.path)


class SimulatedWriter:
    """An open segment: its rows are on the disk once it is closed."""

    def __init__(self, world: World, owner: SimulatedMember, storage: SimulatedStorage, path: str) -> None:
        name = SegmentName.parse(path)
        assert name is not None, path
        self.name, self.path = name, path
        self._world, self._owner, self._storage = world, owner, storage
        self._tuples: list[Tuple] = []
        self._spans: dict[TP, Span] = {}
        self._closed: ClosedSegment | None = None
        storage.reach(writes=True)
        if path in storage.disk:
            raise SegmentExists(f"{path} is written twice")
        storage.disk[path], owner.begun = None, name

    @property
    def bytes(self) -> int:
        return ROW_BYTES * len(self._tuples)

    def write(self, batch: Batch) -> None:
        if self._world.faults.storage_fails(self._owner):
            self._storage.reach(writes=True)
        assert isinstance(batch, Fetched)
        for run in batch.runs:
            records = batch.of(run)
            self._world.judged(partial(self._judge, run.tp, records))
            self._tuples += [(run.tp, record) for record in records]
            last = self._spans.get(run.tp)
            rows = len(records) + (last.rows if last is not None else 0)
            self._owner.written[run.tp] = run.next
            self._spans[run.tp] = Span(run.tp, last.first if last is not None else run.first, run.next, rows)

    def _judge(self, tp: TP, records: list[Record]) -> None:
        owner = self._owner
        self._world.oracle.submitted(owner, self.name, tp, records, owner.written.get(tp, owner.left_off.get(tp)))

    def close(self, topic_ids: Mapping[str, str] | None = None, merged: int = 0) -> ClosedSegment:
        if self._closed is None:
            self._storage.reach(writes=True)
            self._world.judged(lambda: self._world.oracle.not_collected(self.name))
            self._storage.disk[self.path] = tuple(self._tuples)
            rows = len(self._tuples)
            self._closed = ClosedSegment(self.path, rows, self.bytes, f"h{rows}", tuple(self._spans.values()))
            self._storage.reach()
        return self._closed

    def discard(self) -> None:
        if self._closed is None and not self._owner.dead:
            self._storage.disk.pop(self.path, None)


@lru_cache(maxsize=256)
def parquet(rows: int) -> bytes:
    """A file with a footer that tells so many rows: all that is read of a simulated one."""
    out = io.BytesIO()
    pq.write_table(pa.table({"timestamp": pa.nulls(rows, pa.timestamp("us"))}), out)
    return out.getvalue()
