"""What is in an Iceberg table at a path, by its own files: without Spark, and with no code of what writes or mends it (SPEC K6)."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from crkafka_core.segments import rows as parquet
from crkafka_core.segments.storage import Storage
from crkafka_core.tables.log import DataFile
from crkafka_core.tables.stamp import LogEntry

_METADATA = re.compile(r"metadata/v(?P<version>\d+)(\.gz)?\.metadata\.json(\.gz)?")
_STAMP = "crkafka"
"""Of ours, in a snapshot's summary."""
_DATA, _POSITIONS = 0, 1
"""Kinds of files: rows, and which rows of other files are deleted. A third kind deletes by values."""
_DELETED = 2
"""Status of a file that a snapshot has taken away."""
_NUMBERS = ("int", "long")
_KNOWN = (2, 3)
"""Versions of Iceberg's format. In the first, commits have no numbers."""


class OnlySpark(Exception):
    """The table has what is not read here."""


class Unreadable(Exception):
    """A file of the table is there, and is damaged."""


class IcebergFiles:
    """The table's metadata at one moment. Its files are looked at when they are asked for."""

    def __init__(self, storage: Storage, about: Mapping[str, Any], *, by_id: bool) -> None:
        """`by_id`: SQL knows its versions by the ids of snapshots, and not by their numbers."""
        self._storage, self._about, self._by_id = storage, about, by_id
        self._snapshots: dict[int, Any] = {s["snapshot-id"]: s for s in about.get("snapshots") or ()}
        head = (about.get("refs") or {}).get("main", {}).get("snapshot-id", about.get("current-snapshot-id"))
        self._head = self._snapshots.get(head)
        schema = next(s for s in about["schemas"] if s["schema-id"] == about["current-schema-id"])
        self._columns = {f["id"]: (f["name"], f["type"]) for f in schema["fields"]}

    @classmethod
    def open(cls, storage: Storage, *, by_id: bool) -> IcebergFiles | None:
        """By its newest metadata; None where there is no table."""
        found = (_METADATA.fullmatch(stored.path) for stored in storage.list("metadata"))
        newest = max((m for m in found if m is not None), key=lambda m: int(m["version"]), default=None)
        if newest is None:
            return None
        with storage.open_read(newest[0]) as source:
            text = source.read()
        try:
            about = json.loads(gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text)
            if about["format-version"] not in _KNOWN:
                raise OnlySpark(f"version {about['format-version']} of Iceberg's format is not read here")
            return cls(storage, about, by_id=by_id)
        except (ValueError, KeyError, TypeError, StopIteration, OSError, EOFError, zlib.error) as error:
            raise Unreadable(f"{newest[0]} cannot be read: {error!r}") from error

    @property
    def version(self) -> str:
        """As SQL would know it."""
        if self._by_id:
            return "" if self._head is None else str(self._head["snapshot-id"])
        return str(self._about["last-sequence-number"])

    def reaches(self, version: str) -> bool:
        """Whether it is at this version, or at a later one. One that is known by its id may have expired, with all of ours before it."""
        if not self._by_id:
            return int(version) <= int(self.version)
        ours = any(_STAMP in snapshot["summary"] for snapshot in self._line())
        return self._named(version) is not None or not (int(version) in self._snapshots or ours or self._head is None)

    def since(self, version: str, ours: Collection[str] = ()) -> list[LogEntry]:
        """What was committed after a version, oldest first. `ours`: versions of which nobody asks who made them."""
        seen: list[LogEntry] = []
        for snapshot in self._line():
            name = self._name(snapshot)
            if name == version:
                break
            if version and not self._by_id and int(name) < int(version):
                seen.append(LogEntry(name, None, True))  # the state of that version was left behind
                break
            summary = snapshot["summary"]
            changes = summary["operation"] != "replace" and summary.get("changed-partition-count") != "0"
            if name in ours:
                seen.append(LogEntry(name, None, False))
            else:
                seen.append(LogEntry.told(name, summary.get(_STAMP), changes_rows=changes))
        else:
            if self._by_id and version and int(version) in self._snapshots:
                seen.append(LogEntry(version, None, True))
        return seen[::-1]

    def settled(self, uid: str, table: str) -> int:
        """Up to which version of a raw table commits of others are accounted for."""
        stamp = (self._about.get("properties") or {}).get(f"crkafka.stamp.{uid}.{table}")
        return int(json.loads(stamp)["settled"]) if stamp else 0

    def touched(self, version: str, column: str) -> range | None:
        """From the least to the greatest value of a column in files that a version has brought or taken; None where nothing tells."""
        files = self._brought_or_taken(version, deletes=True)
        if files is None or any(column not in f.lowest or column not in f.highest for f in files):
            return None
        first, last = (
            min((f.lowest[column] for f in files), default=0),
            max((f.highest[column] for f in files), default=-1),
        )
        return range(first, last + 1)

    def changed_files(self, version: str) -> list[DataFile] | None:
        """Files that a version has brought or taken; none where it only deleted rows. None: nobody knows."""
        snapshot = self._named(version)
        if snapshot is not None and snapshot["summary"]["operation"] == "delete":
            return []
        return self._brought_or_taken(version, deletes=False)

    def has_other(self, field: pa.Field) -> bool:
        """Whether a column of a file is not the table's column of that name, which was dropped then, and added anew."""
        told = (field.metadata or {}).get(b"PARQUET:field_id")
        return told is not None and any(n == field.name and i != int(told) for i, (n, _) in self._columns.items())

    def files(self) -> list[DataFile]:
        """Those of this version."""
        entries = [e for e in self._entries(self._head) if e["status"] != _DELETED]
        kinds = {e["data_file"]["content"] for e in entries}
        forms = {str(e["data_file"]["file_format"]).upper() for e in entries}
        if not kinds <= {_DATA, _POSITIONS} or forms - {"PARQUET"}:
            raise OnlySpark("it has files, or rows that are deleted beside files, in a form that only Spark reads")
        marked: dict[str, set[int]] = {}
        for entry in entries:
            if entry["data_file"]["content"] == _POSITIONS:
                file = self._relative(entry["data_file"]["file_path"])
                for batch in parquet.batches(self._storage, file, ["file_path", "pos"], only=True):
                    for row in batch.to_pylist():
                        marked.setdefault(self._relative(row["file_path"]), set()).add(row["pos"])
        found = [self._file(e["data_file"]) for e in entries if e["data_file"]["content"] == _DATA]
        return [_without(file, marked.get(file.path, set())) for file in found]

    def _line(self) -> Iterator[Any]:
        """The snapshots that led to this state, latest first; as far back as none is expired."""
        at = self._head
        while at is not None:
            yield at
            at = self._snapshots.get(at.get("parent-snapshot-id"))

    def _name(self, snapshot: Any) -> str:
        return str(snapshot["snapshot-id" if self._by_id else "sequence-number"])

    def _named(self, version: str) -> Any | None:
        return next((s for s in self._line() if self._name(s) == version), None)

    def _brought_or_taken(self, version: str, *, deletes: bool) -> list[DataFile] | None:
        """`deletes`: with files that only tell which rows are deleted, and nothing of these rows."""
        snapshot = self._named(version)
        if snapshot is None:
            return None
        id = snapshot["snapshot-id"]
        found = [e for e in self._entries(snapshot, of=id) if e["status"] and e["snapshot_id"] in (None, id)]
        return [self._file(e["data_file"]) for e in found if deletes or e["data_file"]["content"] == _DATA]

    def _entries(self, snapshot: Any, of: int | None = None) -> Iterator[Any]:
        """What the manifests of a snapshot say. `of`: only those that this snapshot has written."""
        if snapshot is None:
            return
        for manifest in self._avro(snapshot["manifest-list"]):
            if of in (None, manifest["added_snapshot_id"]):
                yield from self._avro(manifest["manifest_path"])

    def _avro(self, path: str) -> list[Any]:
        try:
            import fastavro
        except ImportError as error:
            raise OnlySpark('its manifests are read with fastavro (pip install "crkafka[iceberg]")') from error
        with self._storage.open_read(self._relative(path)) as source:
            try:
                return list(fastavro.reader(source))
            except Exception as error:  # of many kinds
                if "codec" in str(error):  # a library that is not installed
                    raise OnlySpark(f"its manifests cannot be read: {error}") from error
                raise Unreadable(f"{self._relative(path)} cannot be read: {error!r}") from error

    @cached_property
    def _folder(self) -> str:
        return _plain(str(self._about["location"]).rstrip("/"))

    def _relative(self, path: str) -> str:
        if not _plain(path).startswith(f"{self._folder}/"):
            raise OnlySpark(f"{path} lies outside of its folder")
        return _plain(path)[len(self._folder) + 1 :]

    def _file(self, about: Any) -> DataFile:
        lowest, highest = (self._bounds(about.get(name)) for name in ("lower_bounds", "upper_bounds"))
        path = self._relative(about["file_path"])
        return DataFile(path, about["file_size_in_bytes"], about["record_count"], lowest, highest, {})

    def _bounds(self, told: Any) -> dict[str, Any]:
        """By column, of those that are compared here."""
        found: dict[str, Any] = {}
        for each in told or ():
            name, kind = self._columns.get(each["key"], ("", ""))
            if kind == "string":
                found[name] = each["value"].decode(errors="replace")
            elif kind in _NUMBERS:
                found[name] = int.from_bytes(each["value"], "little", signed=True)
        return found


def _without(file: DataFile, gone: set[int]) -> DataFile:
    if not gone or file.rows is None:
        return file
    kept = [at not in gone for at in range(max(gone) + 1)]
    return DataFile(file.path, file.bytes, file.rows - len(gone), file.lowest, file.highest, {}, kept)


def _plain(uri: str) -> str:
    """A location without what programs write differently before it."""
    return re.sub(r"^(file:(//)?|s3[an]?://)", "", uri)
