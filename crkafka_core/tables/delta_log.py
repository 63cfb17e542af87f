"""A Delta table's log by deltalake, as `verify` reads it: its files, and the commits in it (SPEC K6)."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from crkafka_core.config.location import arrow_url, split_endpoint
from crkafka_core.lake.folder import folder_of
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import TableUnavailable
from crkafka_core.model.errors import ConfigError, CrkafkaError, Refused
from crkafka_core.model.rows import Table
from crkafka_core.segments import read_footer
from crkafka_core.segments.errors import SegmentMissing, without_secrets
from crkafka_core.tables.log import DataFile
from crkafka_core.tables.stamp import MAINTAIN, Facts, LogEntry, Stamp

if TYPE_CHECKING:
    from deltalake import DeltaTable

_log = logging.getLogger(__name__)
HARMLESS = (
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


def changes_rows(operation: str) -> bool:
    """Whether a commit of this kind may add or remove rows."""
    return operation != "CREATE TABLE" and not operation.startswith(HARMLESS)


def _changed(about: Mapping[str, Any]) -> bool:
    """Whether the commit may have, by what it says of itself."""
    told = str(about.get("userMetadata") or "")
    ours = Stamp.from_json(told) is not None and json.loads(told).get("kind") == MAINTAIN
    return not ours and changes_rows(str(about.get("operation", "")))


class VersionGone(CrkafkaError):
    """The log has been cleaned of a version. Reaction: refuse to go back to it, and say what to do."""


class DeltaLog:
    """By the path of the table."""

    def __init__(self, table: Table, storage_options: Mapping[str, str]) -> None:
        self.table = table
        self.uri = arrow_url(table.path)
        self.folder = folder_of(table.path, storage_options)
        self._options = _options(storage_options) if self.uri.startswith("s3://") else {}

    def snapshot(self) -> Snapshot | None:
        delta = self.load()
        return None if delta is None else Snapshot(self, delta)

    def at(self, version: str) -> Snapshot:
        """The table as it was. Raises `VersionGone` when the log has been cleaned of that version."""
        lake = _deltalake()
        try:
            return Snapshot(self, self._open(int(version)))
        except (lake.exceptions.DeltaError, OSError) as error:
            raise VersionGone(f"Version {version} of table {self.table.name} cannot be read any more.") from error

    def _open(self, version: int | None) -> DeltaTable:
        table: DeltaTable = _deltalake().DeltaTable(self.uri, version=version, storage_options=self._options)
        return table

    def load(self) -> DeltaTable | None:
        """What the log says of all files: it takes the longer the more there are. None where there is no table."""
        lake = _deltalake()
        try:
            return self._open(None)
        except lake.exceptions.TableNotFoundError:
            return None
        except (lake.exceptions.DeltaError, OSError) as error:
            raise self.trouble(error) from error

    def about(self, version: int) -> dict[str, Any] | None:
        """What a commit says of itself; None when the log has been cleaned of it."""
        try:
            with self.folder.open_read(f"_delta_log/{version:020d}.json") as source:
                actions = [json.loads(line) for line in source.read().splitlines() if line]
        except SegmentMissing:
            return None
        found: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        return found

    def trouble(self, error: Exception) -> CrkafkaError:
        """What the library said, as an error with the table's name."""
        said = without_secrets((str(error).splitlines() or [type(error).__name__])[0][:400])
        name = f"Table {self.table.name} at {self.table.path}"
        if any(word in said for word in ("unsupported", "Unsupported", "not supported", "feature")):
            return Refused(
                f"{name} has a feature with which its log cannot be written without Spark: {said}.",
                hint="Drop the feature (ALTER TABLE … DROP FEATURE), or declare the table at another path.",
            )
        return TableUnavailable(f"{name} could not be read or written: {said}.", hint="It is tried again.")


class Snapshot:
    """One version of the table."""

    def __init__(self, log: DeltaLog, delta: DeltaTable) -> None:
        self._log, self._delta = log, delta
        self.version: int = delta.version()

    @property
    def at(self) -> str:
        """As Spark's `versionAsOf` takes it."""
        return str(self.version)

    def reaches(self, version: str) -> bool:
        """Whether it is this version, or a later one."""
        return int(version) <= self.version

    def facts(self, app: str) -> Facts:
        return Facts(app, lambda key: self._delta.transaction_version(key) or 0)

    def since(self, version: str, ours: Collection[str] = ()) -> list[LogEntry]:
        """`ours`: versions of which nobody asks who made them; they are not looked at."""
        known = int(version) if version else -1
        if known >= self.version:
            return []
        # Not by deltalake's `history`: it holds Python's lock while it waits for the object store.
        seen = []
        for number in range(known + 1, self.version + 1):
            if str(number) in ours:
                seen.append(LogEntry(str(number), None, False))
            elif (about := self._log.about(number)) is not None:
                seen.append(LogEntry.told(str(number), about.get("userMetadata"), changes_rows=_changed(about)))
        return seen

    def touched(self, version: str, column: str) -> range | None:
        """From the least to the greatest value of a column in files that a version has brought or taken; None: the log does not tell."""
        found = self._brought_or_taken(version)
        if found is None:
            return None
        known = [each for file in found if (each := bounds(file, column)) is not None]
        if len(known) < len(found):
            return None
        return range(min((low for low, _ in known), default=0), max((high for _, high in known), default=-1) + 1)

    def changed_files(self, version: str) -> list[DataFile] | None:
        about = self._log.about(int(version))
        return [] if about is not None and about.get("operation") == "DELETE" else self._brought_or_taken(version)

    def _brought_or_taken(self, version: str) -> list[DataFile] | None:
        number = int(version)
        try:
            before, after = ([] if n < 0 else self._log.at(str(n)).files() for n in (number - 1, number))
        except VersionGone:
            return None
        there, then = ({(f.path, f.rows): f for f in files} for files in (before, after))
        return [(there | then)[key] for key in there.keys() ^ then.keys()]

    def files(self) -> list[DataFile]:
        marked = self._deletion_vectors()
        rows = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        return [self._file(row, marked) for row in rows]

    def _file(self, row: Mapping[str, Any], marked: Mapping[str, list[bool]]) -> DataFile:
        path, rows = unquote(row["path"]), row.get("num_records")
        if rows is None:  # a table's properties may leave it out of the log's checkpoints
            with suppress(SegmentMissing):  # of an older version, and vacuumed
                rows = read_footer.row_count(self._log.folder, path)
        kept = next((flags for uri, flags in marked.items() if uri.endswith("/" + path)), None)
        if kept is not None and rows is not None:
            rows -= kept.count(False)
        return DataFile(
            path, row["size_bytes"], rows, _part(row, "min."), _part(row, "max."), _part(row, "partition."), kept
        )

    def _deletion_vectors(self) -> dict[str, list[bool]]:
        if "deletionVectors" not in (self._delta.protocol().reader_features or []):
            return {}
        rows = pa.table(self._delta.deletion_vectors()).to_pylist()
        return {unquote(row["filepath"]): row["selection_vector"] for row in rows}


def bounds(file: DataFile, column: str) -> tuple[int, int] | None:
    """The least and the greatest whole number of a column in a file; None where the log does not tell."""
    inside = file.partition_values.get(column)
    low, high = (inside, inside) if inside is not None else (file.lowest.get(column), file.highest.get(column))
    return None if low is None or high is None else (int(low), int(high))


def log_of(region: Handle, table: Table) -> DeltaLog:
    """The log of a Delta table, reached by the region's `storage_options`."""
    return DeltaLog(table, region.config.resolve().storage_options)


def _part(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in row.items() if name.startswith(prefix) and value is not None}


def _options(storage: Mapping[str, str]) -> dict[str, str]:
    """The region's `storage_options` in deltalake's words; what is not given the environment says."""
    scheme, place = split_endpoint(storage)
    words = {
        "AWS_ENDPOINT_URL": f"{scheme or 'https'}://{place}" if place else "",
        "AWS_ALLOW_HTTP": "true" if scheme == "http" else "",
        "AWS_REGION": storage.get("region", ""),
        "AWS_ACCESS_KEY_ID": storage.get("access_key", ""),
        "AWS_SECRET_ACCESS_KEY": storage.get("secret_key", ""),
        "AWS_SESSION_TOKEN": storage.get("session_token", ""),
        "conditional_put": "etag",
    }
    return {key: value for key, value in words.items() if value}


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        raise ConfigError("Delta tables need the package deltalake.", hint="pip install 'crkafka[delta]'") from error
    return deltalake
