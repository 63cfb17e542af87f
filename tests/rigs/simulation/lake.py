"""Simulated tables as any process finds them: one that adopts files by a log of its own, and one that Spark writes."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from crkafka_core.model.rows import Table
from crkafka_core.segments.batch import SEGMENT
from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import files
from crkafka_core.tables.files import Added
from crkafka_core.tables.log import DataFile, Logs, Moved, TableUnavailable
from crkafka_core.tables.stamp import Facts, LogEntry, Stamp
from tests.rigs.simulation.history import Violation
from tests.rigs.simulation.storage import ROW_BYTES, Disk, SimulatedStorage, Tuple

if TYPE_CHECKING:
    from tests.rigs.simulation.scheduler import Owner
    from tests.rigs.simulation.world import World


@dataclass(frozen=True)
class Version:
    """What one commit made of a table."""

    files: Mapping[str, DataFile]
    facts: Mapping[str, int]
    entry: LogEntry


@dataclass
class Lake:
    """A table's folder, with its log and its files; or, where Spark writes it, rows by checkpoint and the highest number so far."""

    name: str
    versions: list[Version] = field(default_factory=list)
    disk: Disk = field(default_factory=dict)
    number: int = 0
    written: dict[int, tuple[Tuple, ...]] = field(default_factory=dict)

    def write(self, number: int, rows: dict[int, tuple[Tuple, ...]], remove: set[int]) -> bool:
        """Overwrite whole checkpoints, atomically; a number that is not new is refused (docs/clients.md C-P5)."""
        if number <= self.number:
            return False
        self.number = number
        self.written = {c: r for c, r in self.written.items() if c not in remove} | rows
        return True

    def names(self) -> set[str]:
        """Of all files that were ever in it."""
        return {path for version in self.versions for path in version.files}

    def rows(self, uid: str) -> dict[int, list[Tuple]]:
        """By checkpoint, as a reader of the table finds them."""
        found = {checkpoint: list(rows) for checkpoint, rows in self.written.items()}
        for path in self.versions[-1].files if self.versions else ():
            checkpoint = files.checkpoint_of(path, uid)
            assert checkpoint is not None, path
            found.setdefault(checkpoint, []).extend(self.disk.get(path) or ())
        return found


class LakeStorage(SimulatedStorage):
    """The folder of a table, as one process reaches it."""

    def __init__(self, world: World, owner: Owner, lake: Lake) -> None:
        super().__init__(world, owner)
        self.url, self._lake = f"sim://lake/{lake.name}", lake

    @property
    def disk(self) -> Disk:
        return self._lake.disk

    def open_read(self, path: str) -> pa.NativeFile:
        """With what tells the rows: those of a file whose name does not tell them are counted (SPEC K6)."""
        self.reach()
        held = self.disk.get(path)
        if held is None:
            raise SegmentMissing(f"{path} is not there.")
        out = io.BytesIO()
        topics, partitions = [tp.topic for tp, _ in held], [tp.partition for tp, _ in held]
        columns = {"topic": topics, "partition": partitions, "offset": [offset for _, (offset, _) in held]}
        pq.write_table(pa.table(columns | {"timestamp": pa.nulls(len(held), pa.timestamp("us"))}), out)
        return pa.BufferReader(out.getvalue())

    def own(self, source: Storage, path: str, name: str) -> int:
        self.reach(writes=True)
        assert isinstance(source, SimulatedStorage)
        rows = source.disk.get(path)
        if rows is None:
            raise SegmentMissing(f"{path} is not there.")
        self.disk[name] = rows
        return ROW_BYTES * len(rows)


def reach(world: World, owner: Owner, table: str) -> None:
    """Others move before it is done; and now and then it is not known whether it was."""
    world.scheduler.give_way()
    if world.faults.strikes(owner, "lake fails"):
        raise TableUnavailable(f"Table {table} does not answer.")


class SimulatedLog:
    """Of one table, as one process reaches it."""

    def __init__(self, world: World, owner: Owner, lake: Lake, table: Table) -> None:
        self.table, self.lake = table, lake
        self.reuses_names = world.plan.seed % 2 == 0  # as Delta does, and Iceberg does not
        self._world, self._owner = world, owner

    def reach(self) -> None:
        reach(self._world, self._owner, self.table.name)

    def snapshot(self) -> SimulatedSnapshot | None:
        self.reach()
        return SimulatedSnapshot(self, len(self.lake.versions) - 1) if self.lake.versions else None

    def create(self, stamp: Stamp) -> None:
        self.reach()
        self._world.changes(self._owner, f"table {self.table.name}")
        if self.lake.versions:
            raise Moved(f"Table {self.table.name} is there already.")
        self.lake.versions.append(Version({}, {}, LogEntry("0", stamp, False)))

    def storage(self, stamp: Stamp | None = None) -> Storage:
        return LakeStorage(self._world, self._owner, self.lake)


class SimulatedSnapshot:
    """One version of it."""

    def __init__(self, log: SimulatedLog, version: int) -> None:
        self.partition_columns, self.columns = list[str](), set(SEGMENT.names)
        self.version, self.at = version, str(version)
        self._log, self._made = log, log.lake.versions[version]

    def facts(self, app: str) -> Facts:
        return Facts(app, lambda key: self._made.facts.get(key, 0))

    def since(self, version: str, ours: Collection[str] = ()) -> list[LogEntry]:
        return [v.entry for v in self._log.lake.versions[int(version or -1) + 1 : self.version + 1]]

    def untouched_since(self, version: int) -> bool:
        return not any(entry.changes_rows for entry in self.since(str(version)))

    def changed_files(self, version: str) -> list[DataFile] | None:
        """Nobody but us commits there."""
        return []

    def files(self) -> list[DataFile]:
        return list(self._made.files.values())

    def check_removable(self, files: Collection[DataFile]) -> None:
        """All of them are."""

    def commit(
        self,
        add: Sequence[Added],
        remove: Collection[DataFile],
        stamp: Stamp,
        about: Mapping[str, object],
        *,
        holds: int = 0,
    ) -> int:
        log, lake, version = self._log, self._log.lake, self.version + 1
        log.reach()
        log._world.changes(log._owner, f"table {lake.name}")
        if len(lake.versions) > version:
            raise Moved(f"Table {lake.name} has changed since version {self.version}.")
        if not log.reuses_names and (again := {file.name for file in add} & lake.names()):
            log._world.fail(Violation("K6", f"table {lake.name} has had files of these names: {sorted(again)}"))
        gone = {file.path for file in remove}
        there = {path: file for path, file in self._made.files.items() if path not in gone}
        there |= {added.name: _data_file(added) for added in add}
        facts = {**self._made.facts, **stamp.facts(holds, version)}
        lake.versions.append(Version(there, facts, LogEntry(str(version), stamp, True)))
        log.reach()
        return version


def logs(world: World, owner: Owner) -> Logs:
    """What opens the log of a table for a process."""
    return lambda region, table: SimulatedLog(world, owner, world.lake(table.name), table)


def _data_file(added: Added) -> DataFile:
    bounds = added.bounds
    both = zip(("topic", "partition", "offset"), (bounds.topics, bounds.partitions, bounds.offsets), strict=True)
    least, greatest = {}, {}
    for column, (low, high) in both:
        least[column], greatest[column] = low, high
    return DataFile(added.name, added.size, bounds.rows, least, greatest, {})
