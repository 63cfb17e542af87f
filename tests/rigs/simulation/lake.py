"""Simulated tables as any process finds them: one that takes files by a log of its own, and one that Spark writes."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.lake.columns import RAW
from crkafka_core.lake.port import (
    CHECKPOINT,
    NO_CHANGE,
    Change,
    DataFile,
    LogEntry,
    Moved,
    NewFile,
    Part,
    Stamp,
    TableUnavailable,
)
from crkafka_core.lake.road import Means
from crkafka_core.model.offsets import TP
from crkafka_core.model.segment import SegmentName
from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.segments.storage import Output, Storage
from tests.rigs.simulation.fetched import ROW_BYTES
from tests.rigs.simulation.storage import Disk, SimulatedStorage, Tuple

if TYPE_CHECKING:
    from tests.rigs.simulation.scheduler import Owner
    from tests.rigs.simulation.world import World


@dataclass(frozen=True)
class Version:
    files: Mapping[str, DataFile]
    stamps: Mapping[int, Stamp]
    """By owner."""
    owner: int
    entry: LogEntry


@dataclass
class Lake:
    """A table's folder, with its log and its files; or, where Spark writes it, rows by checkpoint and the highest number so far."""

    name: str
    versions: list[Version] = field(default_factory=list)
    disk: Disk = field(default_factory=dict)
    checkpoints: dict[str, int] = field(default_factory=dict)
    """File → the checkpoint of its rows."""
    number: int = 0
    written: dict[int, tuple[Tuple, ...]] = field(default_factory=dict)

    def write(self, number: int, rows: dict[int, tuple[Tuple, ...]], remove: set[int]) -> bool:
        """Overwrite whole checkpoints, atomically; a number that is not new is refused."""
        if number <= self.number:
            return False
        self.number = number
        self.written = {c: r for c, r in self.written.items() if c not in remove} | rows
        return True

    def rows(self) -> dict[int, list[Tuple]]:
        """By checkpoint, as a reader of the table finds them."""
        rows = {checkpoint: list(rows) for checkpoint, rows in self.written.items()}
        for path in self.versions[-1].files if self.versions else ():
            rows.setdefault(self.checkpoints[path], []).extend(self.disk.get(path) or ())
        return rows


class LakeStorage(SimulatedStorage):
    """The folder of a table, as one process reaches it."""

    def __init__(self, world: World, owner: Owner, lake: Lake) -> None:
        super().__init__(world, owner)
        self.url, self._lake = f"sim://lake/{lake.name}", lake

    @property
    def disk(self) -> Disk:
        return self._lake.disk

    def open_read(self, path: str) -> pa.NativeFile:
        self.reach()
        held = self.disk.get(path)
        if held is None:
            raise SegmentMissing(f"{path} is not there.")
        bounds = tuple((tp.topic, tp.partition, offset) for tp, (offset, _) in held)
        return pa.BufferReader(_parquet(bounds, self._lake.checkpoints[path]))

    def own(self, source: Storage, path: str, name: str) -> int:
        self.reach(writes=True)
        assert isinstance(source, SimulatedStorage)
        rows, segment = source.disk.get(path), SegmentName.parse(path)
        if rows is None or segment is None:
            raise SegmentMissing(f"{path} is not there.")
        self.disk[name], self._lake.checkpoints[name] = rows, segment.number
        return ROW_BYTES * len(rows)

    def open_write(self, path: str) -> Output:
        """What was read from Kafka again."""
        return _Written(self, path)

    def delete(self, path: str) -> bool:
        self.reach()
        return self.disk.pop(path, self) is not self


class _Written(Output):
    def __init__(self, storage: LakeStorage, path: str) -> None:
        self._storage, self._path, self._data = storage, path, io.BytesIO()

    def write(self, data: memoryview) -> None:
        self._data.write(data)

    def close(self) -> None:
        self._storage.reach(writes=True)
        rows = pq.read_table(pa.BufferReader(self._data.getvalue())).to_pylist()
        held = tuple((TP(r["topic"], r["partition"]), (r["offset"], int(r["value"]))) for r in rows)
        self._storage.disk[self._path] = held
        self._storage._lake.checkpoints[self._path] = rows[0][CHECKPOINT]

    def discard(self) -> None:
        """There is nothing yet."""


@lru_cache(maxsize=1024)
def _parquet(records: tuple[tuple[str, int, int], ...], checkpoint: int) -> bytes:
    """A file with a footer that tells the bounds of these."""
    out, columns = io.BytesIO(), list(zip(*records, strict=True))
    arrays = [pa.array(columns[0]), pa.array(columns[1], pa.int32()), pa.array(columns[2], pa.int64())]
    numbers = pa.array([checkpoint] * len(records), pa.int64())
    pq.write_table(pa.table([*arrays, numbers], names=["topic", "partition", "offset", CHECKPOINT]), out)
    return out.getvalue()


def batch_of(rows: Sequence[Tuple]) -> pa.RecordBatch:
    """Records as Kafka gives them."""
    tps, records = [tp for tp, _ in rows], [record for _, record in rows]
    columns: dict[str, Any] = {
        "topic": [tp.topic for tp in tps],
        "partition": [tp.partition for tp in tps],
        "offset": [offset for offset, _ in records],
        "value": [str(value).encode() for _, value in records],
    }
    fields = [field for field in RAW if field.name != CHECKPOINT]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns.get(f.name, [None] * len(rows)), f.type) for f in fields], schema=pa.schema(fields)
    )


def reach(world: World, owner: Owner, table: str) -> None:
    """Others move before it is done; and now and then it is not known whether it was."""
    world.scheduler.give_way()
    if world.faults.strikes(owner, "lake fails"):
        raise TableUnavailable(f"Table {table} does not answer.")


class SimulatedLog:
    """Of one table, as one process reaches it."""

    placed_late = False
    widens = True

    def __init__(self, world: World, owner: Owner, lake: Lake) -> None:
        self.lake = lake
        self.storage: Storage = LakeStorage(world, owner, lake)
        self._world, self._owner = world, owner

    def reach(self) -> None:
        reach(self._world, self._owner, self.lake.name)

    def look(self, version: str = "") -> SimulatedSnapshot | None:
        self.reach()
        return SimulatedSnapshot(self, len(self.lake.versions) - 1) if self.lake.versions else None

    def stored(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def create(
        self, schema: pa.Schema, parts: Sequence[Part], stamp: Stamp, properties: Mapping[str, str]
    ) -> SimulatedSnapshot:
        self.reach()
        return self.put(-1, Version({}, {}, stamp.owner, LogEntry(0, stamp, False)))

    def put(self, after: int, version: Version) -> SimulatedSnapshot:
        self._world.changes(self._owner, f"table {self.lake.name}")
        if len(self.lake.versions) != after + 1:
            raise Moved(f"Table {self.lake.name} has changed since version {after}.")
        self.lake.versions.append(version)
        self.reach()
        return SimulatedSnapshot(self, after + 1)

    def expire(self, keep: Collection[int]) -> int:
        return 0


class SimulatedSnapshot:
    schema = RAW
    parts: Sequence[Part] = ()
    properties: Mapping[str, str] = {}

    def __init__(self, log: SimulatedLog, version: int) -> None:
        self.version, self.at = version, str(version)
        self._log, self._made = log, log.lake.versions[version]

    def stamp(self, uid: str, table: str) -> Stamp | None:
        return self._made.stamps.get(Stamp(uid, table, 0, 0, 0).owner)

    def owner(self) -> int | None:
        return self._made.owner

    def since(self, version: int) -> Sequence[LogEntry] | None:
        return [made.entry for made in self._log.lake.versions[version + 1 : self.version + 1]]

    def files(self) -> Iterable[DataFile]:
        return list(self._made.files.values())

    def commit(self, stamp: Stamp, change: Change = NO_CHANGE) -> SimulatedSnapshot:
        self._log.reach()
        gone, made = {file.path for file in change.remove}, self._made
        files = {path: file for path, file in made.files.items() if path not in gone}
        for file in change.add:
            files[file.path] = DataFile(**{name: getattr(file, name) for name in NewFile.__dataclass_fields__})
        stamps = {**made.stamps, stamp.owner: replace(stamp, version=self.version + 1)} if stamp.permit else made.stamps
        entry = LogEntry(self.version + 1, stamp, change.changes_rows)
        return self._log.put(self.version, Version(files, stamps, stamp.owner, entry))


def means(world: World, owner: Owner) -> Means:
    """What a process writes tables with."""
    return Means(lambda _, table: SimulatedLog(world, owner, world.lake(table.name)))
