"""A table format in memory: all that a format has to bring is here, and one line that names it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from crkafka_core.lake.port import NO_CHANGE, Change, DataFile, LogEntry, Moved, NewFile, Part, Stamp
from crkafka_core.segments.storage import Storage

LOGS: dict[str, list[Version]] = {}
"""Every table's versions, by its path."""
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Version:
    files: Mapping[str, DataFile]
    schema: pa.Schema
    stamps: Mapping[int, Stamp]
    """By owner."""
    owner: int | None
    entry: LogEntry


@dataclass
class ToyTable:
    name: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    placed_late = False
    widens = True

    def __post_init__(self) -> None:
        self.storage = Storage.open(self.path)

    @property
    def versions(self) -> list[Version]:
        return LOGS.setdefault(self.path, [])

    def look(self, version: str = "") -> ToySnapshot | None:
        at = int(version or len(self.versions) - 1)
        return ToySnapshot(self, at) if 0 <= at < len(self.versions) else None

    def stored(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def create(
        self, schema: pa.Schema, parts: Sequence[Part], stamp: Stamp, properties: Mapping[str, str]
    ) -> ToySnapshot:
        stamps = {stamp.owner: replace(stamp, version=0)} if stamp.permit else {}
        return self.put(-1, Version({}, schema, stamps, stamp.owner, LogEntry(0, stamp, False)))

    def put(self, after: int, version: Version) -> ToySnapshot:
        with _LOCK:
            if len(self.versions) != after + 1:
                raise Moved(f"{self.name} is at version {len(self.versions) - 1}, and not at {after}")
            self.versions.append(version)
        return ToySnapshot(self, after + 1)

    def expire(self, keep: Collection[int]) -> int:
        named = {path for version in self.versions for path in version.files}
        unnamed = [stored.path for stored in self.storage.list("") if stored.path not in named]
        return sum(map(self.storage.delete, unnamed))


class ToySnapshot:
    properties: Mapping[str, str] = {}
    parts: Sequence[Part] = ()

    def __init__(self, table: ToyTable, version: int) -> None:
        self.version, self.at = version, str(version)
        self._table, self._made = table, table.versions[version]
        self.schema = self._made.schema

    def stamp(self, uid: str, table: str) -> Stamp | None:
        return self._made.stamps.get(Stamp(uid, table, 0, 0, 0).owner)

    def owner(self) -> int | None:
        return self._made.owner

    def since(self, version: int) -> Sequence[LogEntry] | None:
        return [made.entry for made in self._table.versions[version + 1 : self.version + 1]]

    def files(self) -> Iterable[DataFile]:
        return list(self._made.files.values())

    def commit(self, stamp: Stamp, change: Change = NO_CHANGE) -> ToySnapshot:
        """A stamp of no region is a commit of others."""
        told = stamp if stamp.uid else None
        made, version = self._made, self.version + 1
        there = dict(made.files)
        for file in change.remove:
            assert there.pop(file.path) == file
        for old, new in change.marks.items():
            there[old.path] = replace(old, marks=new)
        for file in change.add:
            assert file.path not in there
            there[file.path] = DataFile(**{key: getattr(file, key) for key in NewFile.__dataclass_fields__})
        stamps, owner = dict(made.stamps), made.owner
        if told is not None:
            owner = told.owner
            stamps |= {owner: replace(told, version=version)} if told.permit else {}
        held = list(
            itertools.chain.from_iterable(file.numbers or () for file in there.values() if file.path not in made.files)
        )
        touched = (min(held), max(held)) if held and told is None else None
        entry = LogEntry(version, told, change.changes_rows, touched)
        return self._table.put(self.version, Version(there, change.schema or made.schema, stamps, owner, entry))
