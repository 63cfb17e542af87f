"""Files and commits of a Delta table, by deltalake and the log's entries; shares no code with what writes or repairs tables (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from crkafka_core.config.location import library_options
from crkafka_core.lake.folder import folder_of
from crkafka_core.lake.port import CHECKPOINT, TableUnavailable
from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.errors import SegmentMissing, first_line
from crkafka_core.verify.entries import DataFile, LogEntry

if TYPE_CHECKING:
    from deltalake import DeltaTable

_HARMLESS = (
    "CREATE TABLE",
    "OPTIMIZE",
    "VACUUM",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "ADD CONSTRAINT",
    "COMPUTE STATS",
    "REORG",
    "FSCK",
    "CLUSTER BY",
    "DROP CONSTRAINT",
    "ADD COLUMN",
    "RENAME COLUMN",
    "CHANGE COLUMN",
    "REMOVE COLUMN MAPPING",
    "UPDATE FIELD METADATA",
    "UPDATE TABLE METADATA",
    "UPGRADE PROTOCOL",
    "ADD FEATURE",
    "DROP FEATURE",
    "Empty Commit",  # of DROP FEATURE
    "ROW TRACKING",
    "DOMAIN METADATA",
)
"""Beginnings of operations that change no rows, as Delta and delta-rs name them."""


class DeltaFiles:
    """One version of a table at a path."""

    def __init__(self, path: str, options: Mapping[str, str], delta: DeltaTable) -> None:
        self._folder, self._delta = folder_of(path, options), delta
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
        """The version up to which commits of other programs are accounted for."""
        return (self._delta.transaction_version(f"crkafka/{uid}/{table}/settled") or 0) - 1

    def since(self, version: str) -> list[LogEntry]:
        """Commits after a version, oldest first, without those that the log was cleaned of."""
        # Not by deltalake's `history`: it holds Python's lock while it waits for the object store.
        numbers = range((int(version) if version else -1) + 1, int(self.version) + 1)
        return [entry for number in numbers if (entry := self._entry(number)) is not None]

    def _entry(self, version: int) -> LogEntry | None:
        try:
            with self._folder.open_read(f"_delta_log/{version:020d}.json") as source:
                actions = [json.loads(line) for line in source.read().splitlines() if line]
        except SegmentMissing:
            return None
        about: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        operation = str(about.get("operation", ""))
        files = any(name in action for action in actions for name in ("add", "remove"))
        changes = files and operation != "DELETE" and not operation.startswith(_HARMLESS)
        return LogEntry.of(str(version), about.get("userMetadata"), changes_rows=changes)

    def files(self) -> list[DataFile]:
        """Data files of this version."""
        marked = self._deletion_vectors()
        return [_file(row, marked) for row in pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()]

    def _deletion_vectors(self) -> dict[str, list[bool]]:
        if "deletionVectors" not in (self._delta.protocol().reader_features or []):
            return {}
        rows = pa.table(self._delta.deletion_vectors()).to_pylist()
        return {unquote(row["filepath"]): row["selection_vector"] for row in rows}


def _file(row: Mapping[str, Any], marked: Mapping[str, list[bool]]) -> DataFile:
    path, first = unquote(row["path"]), row.get(f"min.{CHECKPOINT}")
    kept = next((flags for uri, flags in marked.items() if uri.endswith("/" + path)), None)
    return DataFile(path, {} if first is None else {CHECKPOINT: first}, kept)
