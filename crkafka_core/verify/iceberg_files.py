"""Files and commits of an Iceberg table at a path, without Spark; shares no code with what writes or repairs tables (SPEC K6)."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from crkafka_core.lake.port import CHECKPOINT
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.storage import Storage
from crkafka_core.verify.entries import DataFile, LogEntry

_METADATA = re.compile(r"metadata/v(?P<version>\d+)(\.gz)?\.metadata\.json(\.gz)?")
_STAMP = "crkafka"
"""The key of our stamp in a snapshot's summary."""
_DATA, _POSITIONS = 0, 1
"""Kinds of files: rows, and which rows of other files are deleted. A third kind deletes by values."""
_DELETED = 2
"""Status of a manifest's entry whose file the snapshot removed."""
_NUMBERS = ("int", "long")
_KNOWN = (2, 3)
"""Versions of Iceberg's format. In the first, commits have no numbers."""


class OnlySpark(Exception):
    """The table uses a feature that only Spark reads."""


class Unreadable(Exception):
    """A file of the table is damaged."""


class IcebergFiles:
    """The table's metadata at one moment. Manifests are read on demand."""

    def __init__(self, storage: Storage, about: Mapping[str, Any]) -> None:
        self._storage, self._about = storage, about
        self._snapshots: dict[int, Any] = {s["snapshot-id"]: s for s in about.get("snapshots") or ()}
        head = (about.get("refs") or {}).get("main", {}).get("snapshot-id", about.get("current-snapshot-id"))
        self._head = self._snapshots.get(head)
        schema = next(s for s in about["schemas"] if s["schema-id"] == about["current-schema-id"])
        self._columns = {f["id"]: (f["name"], f["type"]) for f in schema["fields"]}

    @classmethod
    def open(cls, storage: Storage) -> IcebergFiles | None:
        """The table by its newest metadata; None if there is no table."""
        matches = (_METADATA.fullmatch(stored.path) for stored in storage.list("metadata"))
        newest = max((m for m in matches if m is not None), key=lambda m: int(m["version"]), default=None)
        if newest is None:
            return None
        with storage.open_read(newest[0]) as source:
            text = source.read()
        try:
            about = json.loads(gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text)
            if about["format-version"] not in _KNOWN:
                raise OnlySpark(f"version {about['format-version']} of Iceberg's format is not read here")
            return cls(storage, about)
        except (ValueError, KeyError, TypeError, StopIteration, OSError, EOFError, zlib.error) as error:
            raise Unreadable(f"{newest[0]} cannot be read: {error!r}") from error

    @property
    def version(self) -> str:
        """The last sequence number, which is the version in SQL."""
        return str(self._about["last-sequence-number"])

    def settled(self, uid: str, table: str) -> int:
        """The version up to which commits of other programs are accounted for."""
        stamp = (self._about.get("properties") or {}).get(f"crkafka.stamp.{uid}.{table}")
        return int(json.loads(stamp)["settled"]) if stamp else 0

    def since(self, version: str) -> list[LogEntry]:
        """Commits after a version, oldest first."""
        known, entries = int(version or 0), list[LogEntry]()
        for snapshot in self._line():
            number, summary = int(snapshot["sequence-number"]), snapshot["summary"]
            if number == known:
                break
            if number < known:
                entries.append(LogEntry(str(number), "", 0, True))  # the state of that version was left behind
                break
            harmless = summary["operation"] in ("replace", "delete") or summary.get("changed-partition-count") == "0"
            entries.append(LogEntry.of(str(number), summary.get(_STAMP), changes_rows=not harmless))
        return entries[::-1]

    def has_other(self, field: pa.Field) -> bool:
        """Whether a file's column is another than the table's of that name, which was dropped and added again."""
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        return number is not None and any(n == field.name and i != int(number) for i, (n, _) in self._columns.items())

    def files(self) -> list[DataFile]:
        """Data files of this version."""
        entries = [e for e in self._entries() if e["status"] != _DELETED]
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
        files = [self._file(e["data_file"]) for e in entries if e["data_file"]["content"] == _DATA]
        return [_without(file, marked.get(file.path, set())) for file in files]

    def _line(self) -> Iterator[Any]:
        """Snapshots from the current one back through its parents, up to the first that is expired."""
        at = self._head
        while at is not None:
            yield at
            at = self._snapshots.get(at.get("parent-snapshot-id"))

    def _entries(self) -> Iterator[Any]:
        """Entries of this version's manifests."""
        for manifest in self._avro(self._head["manifest-list"]) if self._head is not None else ():
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
        lowest = {}
        for each in about.get("lower_bounds") or ():
            name, kind = self._columns.get(each["key"], ("", ""))
            if name == CHECKPOINT and kind in _NUMBERS:
                lowest[name] = int.from_bytes(each["value"], "little", signed=True)
        return DataFile(self._relative(about["file_path"]), lowest)


def _without(file: DataFile, gone: set[int]) -> DataFile:
    return replace(file, kept=[at not in gone for at in range(max(gone) + 1)]) if gone else file


def _plain(uri: str) -> str:
    """A location without its scheme, which programs write in several ways."""
    return re.sub(r"^(file:(//)?|s3[an]?://)", "", uri)
