"""Files and commits of a table at one version, read from its log; shares no code with what writes or repairs tables (SPEC K6)."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from crkafka_core.config.location import library_options
from crkafka_core.lake.formats import folder_of
from crkafka_core.lake.port import CHECKPOINT, TableUnavailable
from crkafka_core.model.errors import ConfigError
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.errors import SegmentMissing, first_line
from crkafka_core.segments.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable

_HARMLESS = re.compile(
    "CREATE TABLE|OPTIMIZE|VACUUM|(UN)?SET TBLPROPERTIES|(ADD|DROP) CONSTRAINT|COMPUTE STATS|REORG|FSCK|CLUSTER BY|"
    "(ADD|RENAME|CHANGE) COLUMN|REMOVE COLUMN MAPPING|UPDATE (FIELD|TABLE) METADATA|UPGRADE PROTOCOL|(ADD|DROP) FEATURE|"
    "Empty Commit|ROW TRACKING|DOMAIN METADATA"
)
"""Beginnings of operations that change no rows, as Delta and delta-rs name them; `Empty Commit` is part of DROP FEATURE."""
_METADATA = re.compile(r"metadata/v(?P<version>\d+)(\.gz)?\.metadata\.json(\.gz)?")
_DATA, _POSITIONS = 0, 1
"""Iceberg's kinds of files: rows, and which rows of other files are deleted. A third kind deletes by values."""
_DELETED = 2
"""Status of a manifest's entry whose file the snapshot removed."""
_KNOWN = (2, 3)
"""Versions of Iceberg's format. In the first, commits have no numbers."""


class NotCompared(Exception):
    """Why a table is not compared, for a note."""


class Unreadable(Exception):
    """A file of the table is damaged."""


@dataclass(frozen=True)
class DataFile:
    """One data file of a version."""

    path: str
    """Relative to the table."""
    least: int | None
    """The least checkpoint of its rows, where the log has it."""
    kept: Sequence[bool] | None = None
    """For each row up to the last one marked as deleted beside the file: whether it is kept. None: no row is marked."""


@dataclass(frozen=True)
class LogEntry:
    """One commit in a table's log."""

    version: str
    uid: str
    """The uid of the region that made it; empty if another program did."""
    permit: int
    changes_rows: bool
    """It adds rows or removes files. A commit that only marks rows as deleted does not count: the remaining rows show it."""

    @classmethod
    def of(cls, version: str, text: str | None, *, changes_rows: bool) -> LogEntry:
        """`text`: the stamp in the commit's metadata, as JSON."""
        try:
            read = json.loads(text or "")
            stamp = read.get("crkafka", read)  # in Iceberg the stamp is all
            return cls(version, str(stamp["uid"]), int(stamp.get("number", stamp.get("permit"))), changes_rows)
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(version, "", 0, changes_rows)


def other_columns(file: DataFile) -> NotCompared:
    return NotCompared(f"the file {file.path} lacks columns that tell its rows")


class Snapshot(ABC):
    """One version of a table."""

    version: str
    """As SQL names it."""
    storage: Storage
    """The table's folder."""

    @abstractmethod
    def settled(self, uid: str, table: str) -> int:
        """The version up to which commits of other programs are accounted for."""

    @abstractmethod
    def since(self, version: str) -> list[LogEntry]:
        """Commits after a version, oldest first, without those that the log was cleaned of."""

    @abstractmethod
    def files(self) -> list[DataFile]:
        """Data files of this version."""

    def is_other(self, column: pa.Field) -> bool:
        """Whether a file's column is another than the table's of that name, which was dropped and added again."""
        return False

    def batches(self, file: DataFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of a file, without rows that are marked as deleted beside it."""
        try:
            for batch in parquet.batches(self.storage, file.path, columns, only=True, kept=file.kept):
                if any(map(self.is_other, batch.schema)):
                    raise parquet.OtherColumns(file.path)
                yield batch
        except parquet.OtherColumns as error:
            raise other_columns(file) from error
        except (pa.ArrowException, OSError) as error:
            raise Unreadable(f"{file.path} cannot be read: {error}") from error


class DeltaFiles(Snapshot):
    """A version of a Delta table at a path."""

    def __init__(self, path: str, options: Mapping[str, str], delta: DeltaTable) -> None:
        self.storage, self._delta = folder_of(path, options), delta
        self.version = str(delta.version())

    @classmethod
    def open(cls, path: str, options: Mapping[str, str]) -> DeltaFiles | None:
        """The current version; None if there is no table. `options`: of the storage."""
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError, TableNotFoundError
        except ImportError as error:
            raise ConfigError(
                "Delta tables need the package deltalake.", hint="pip install 'crkafka[delta]'"
            ) from error
        try:
            return cls(path, options, DeltaTable(path, storage_options=library_options(path, options)))
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            text = f"The table at {path} could not be read: {first_line(error)}."
            raise TableUnavailable(text, hint="It is tried again.") from error

    def settled(self, uid: str, table: str) -> int:
        return (self._delta.transaction_version(f"crkafka/{uid}/{table}/settled") or 0) - 1

    def since(self, version: str) -> list[LogEntry]:
        # Not by deltalake's `history`: it holds Python's lock while it waits for the object store.
        numbers = range((int(version) if version else -1) + 1, int(self.version) + 1)
        return [entry for number in numbers if (entry := self._entry(number)) is not None]

    def _entry(self, version: int) -> LogEntry | None:
        try:
            with self.storage.open_read(f"_delta_log/{version:020d}.json") as source:
                actions = [json.loads(line) for line in source.read().splitlines() if line]
        except SegmentMissing:
            return None
        about: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        operation = str(about.get("operation", ""))
        files = any(name in action for action in actions for name in ("add", "remove"))
        changes = files and operation != "DELETE" and not _HARMLESS.match(operation)
        return LogEntry.of(str(version), about.get("userMetadata"), changes_rows=changes)

    def files(self) -> list[DataFile]:
        kept: dict[str, list[bool]] = {}
        if "deletionVectors" in (self._delta.protocol().reader_features or []):
            marks = pa.table(self._delta.deletion_vectors()).to_pylist()
            kept = {unquote(row["filepath"]): row["selection_vector"] for row in marks}
        files = []
        for row in pa.table(self._delta.get_add_actions(flatten=True)).to_pylist():
            path = unquote(row["path"])
            flags = next((flags for uri, flags in kept.items() if uri.endswith("/" + path)), None)
            files.append(DataFile(path, row.get(f"min.{CHECKPOINT}"), flags))
        return files


class IcebergFiles(Snapshot):
    """A version of an Iceberg table by its metadata. Manifests are read on demand."""

    def __init__(self, storage: Storage, about: Mapping[str, Any]) -> None:
        self.storage, self._about = storage, about
        self._snapshots: dict[int, Any] = {s["snapshot-id"]: s for s in about.get("snapshots") or ()}
        head = (about.get("refs") or {}).get("main", {}).get("snapshot-id", about.get("current-snapshot-id"))
        self._head = self._snapshots.get(head)
        schema = next(s for s in about["schemas"] if s["schema-id"] == about["current-schema-id"])
        self._columns = {f["name"]: f["id"] for f in schema["fields"]}
        numbers = (f["id"] for f in schema["fields"] if f["name"] == CHECKPOINT and f["type"] in ("int", "long"))
        self._checkpoint = next(numbers, None)
        self._folder = _plain(str(about["location"]).rstrip("/")) + "/"
        self.version = str(about["last-sequence-number"])

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
                raise NotCompared(f"version {about['format-version']} of Iceberg's format is not read here")
            return cls(storage, about)
        except (ValueError, KeyError, TypeError, StopIteration, OSError, EOFError, zlib.error) as error:
            raise Unreadable(f"{newest[0]} cannot be read: {error!r}") from error

    def settled(self, uid: str, table: str) -> int:
        stamp = (self._about.get("properties") or {}).get(f"crkafka.stamp.{uid}.{table}")
        return int(json.loads(stamp)["settled"]) if stamp else 0

    def since(self, version: str) -> list[LogEntry]:
        known, entries, at = int(version or 0), list[LogEntry](), self._head
        while at is not None and (number := int(at["sequence-number"])) != known:
            if number < known:
                entries.append(LogEntry(str(number), "", 0, True))  # the state of that version was left behind
                break
            summary = at["summary"]
            harmless = summary["operation"] in ("replace", "delete") or summary.get("changed-partition-count") == "0"
            entries.append(LogEntry.of(str(number), summary.get("crkafka"), changes_rows=not harmless))
            at = self._snapshots.get(at.get("parent-snapshot-id"))  # None: expired
        return entries[::-1]

    def is_other(self, column: pa.Field) -> bool:
        number = (column.metadata or {}).get(b"PARQUET:field_id")
        return number is not None and self._columns.get(column.name, int(number)) != int(number)

    def files(self) -> list[DataFile]:
        manifests = self._avro(self._head["manifest-list"]) if self._head is not None else ()
        entries = [entry for manifest in manifests for entry in self._avro(manifest["manifest_path"])]
        files = [entry["data_file"] for entry in entries if entry["status"] != _DELETED]
        forms = {str(file["file_format"]).upper() for file in files}
        if not {file["content"] for file in files} <= {_DATA, _POSITIONS} or forms - {"PARQUET"}:
            raise NotCompared("it has files, or rows that are deleted beside files, in a form that only Spark reads")
        gone: dict[str, set[int]] = {}
        for marks in (self._relative(file["file_path"]) for file in files if file["content"] == _POSITIONS):
            for batch in parquet.batches(self.storage, marks, ["file_path", "pos"], only=True):
                for row in batch.to_pylist():
                    gone.setdefault(self._relative(row["file_path"]), set()).add(row["pos"])
        return [self._file(file, gone) for file in files if file["content"] == _DATA]

    def _file(self, about: Any, gone: Mapping[str, set[int]]) -> DataFile:
        """A data file without the rows that are gone."""
        path, bounds = self._relative(about["file_path"]), about.get("lower_bounds") or ()
        least = next((each["value"] for each in bounds if each["key"] == self._checkpoint), None)
        rows = gone.get(path)
        return DataFile(
            path,
            None if least is None else int.from_bytes(least, "little", signed=True),
            [at not in rows for at in range(max(rows) + 1)] if rows else None,
        )

    def _avro(self, path: str) -> list[Any]:
        try:
            import fastavro
        except ImportError as error:
            raise NotCompared('its manifests are read with fastavro (pip install "crkafka[iceberg]")') from error
        with self.storage.open_read(self._relative(path)) as source:
            try:
                return list(fastavro.reader(source))
            except Exception as error:  # of many kinds
                if "codec" in str(error):  # a library that is not installed
                    raise NotCompared(f"its manifests cannot be read: {error}") from error
                raise Unreadable(f"{self._relative(path)} cannot be read: {error!r}") from error

    def _relative(self, path: str) -> str:
        if not _plain(path).startswith(self._folder):
            raise NotCompared(f"{path} lies outside of its folder")
        return _plain(path).removeprefix(self._folder)


def _plain(uri: str) -> str:
    """A location without its scheme, which programs write in several ways."""
    return re.sub(r"^(file:(//)?|s3[an]?://)", "", uri)
