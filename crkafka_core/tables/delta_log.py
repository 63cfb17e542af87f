"""A Delta table's log, written without Spark: a commit counts only directly after the snapshot that it was made for.

What deltalake 1.6 does by itself is not enough, seen in trials: with its own retries two programs that make one table both
succeed, and a file that an OPTIMIZE has just replaced is removed a second time. So it is never let try again by itself
(`max_commit_retries=0`); whoever is refused looks anew. Nothing can come between the look and the commit, not even the first.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from crkafka_core.config.location import arrow_url, split_endpoint
from crkafka_core.lake.folder import folder_of
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import Moved, TableUnavailable
from crkafka_core.model.errors import ConfigError, CrkafkaError, Refused
from crkafka_core.model.rows import Table
from crkafka_core.segments import read_footer
from crkafka_core.segments.errors import SegmentMissing, without_secrets
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import log_end
from crkafka_core.tables.file_statistics import NewFile
from crkafka_core.tables.log import DataFile
from crkafka_core.tables.stamp import MAINTAIN, Facts, LogEntry, Stamp

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_log = logging.getLogger(__name__)
_PLAIN_WRITER = 2
"""Up to this version of its protocol nothing has to be written that we do not write."""
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

    def create(self, stamp: Stamp, schema: pa.Schema, properties: Mapping[str, str] | None = None) -> None:
        """Make the table, without rows and without a number: those are committed on a snapshot. Raises `Moved` if it is there.

        With properties from the start: deltalake's way to set them later holds Python's lock while it waits for the object store.
        """
        lake = _deltalake()
        try:
            lake.DeltaTable.create(
                self.uri,
                lake.Schema.from_arrow(schema),
                mode="error",
                configuration=dict(properties or {}),
                storage_options=self._options,
                commit_properties=commit_properties(replace(stamp, number=0)),
                raise_if_key_not_exists=False,  # a property of ours is none of Delta's
            )
        except lake.exceptions.CommitFailedError as error:
            raise Moved(f"Table {self.table.name} was made by somebody else.") from error
        except (lake.exceptions.DeltaError, OSError) as error:
            if "already exists" in str(error):
                raise Moved(f"Table {self.table.name} is there already.") from error
            raise self.trouble(error) from error

    def writes_alone(self, delta: DeltaTable) -> bool:
        """Whether CLUSTER BY has brought features that deltalake refuses, none that asks more of a commit, and we can make it ourselves."""
        features = set(delta.protocol().writer_features or ())
        return self.folder.puts_new and features <= log_end.CLUSTERED and not features <= {"appendOnly", "invariants"}

    def checkpoint(self, version: int) -> None:
        """Write a checkpoint of the log, and clean it, as deltalake does beside its own commits; they count, whatever becomes of it."""
        lake = _deltalake()
        try:
            delta = self._open(version)
            delta.create_checkpoint()
            if str(delta.metadata().configuration.get("delta.enableExpiredLogCleanup")).lower() != "false":
                delta.cleanup_metadata()
        except (lake.exceptions.DeltaError, OSError) as error:
            _log.warning("no checkpoint of the log of table %s: %s", self.table.name, self.trouble(error))

    def storage(self) -> Storage:
        """The table's folder, whether there is a table or not."""
        return self.folder

    def about(self, version: int) -> dict[str, Any] | None:
        """What a commit says of itself; None when the log has been cleaned of it."""
        return log_end.commit_info(self.folder, version)

    def append_only(self) -> Refused:
        """Rows have to leave, and the table's own setting forbids it."""
        return Refused(
            f"Table {self.table.name} at {self.table.path} has the property delta.appendOnly: superseded rows cannot leave it.",
            hint=f"ALTER TABLE delta.`{self.table.path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false'); it is tried again.",
        )

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

    @property
    def storage(self) -> Storage:
        """Where its files lie."""
        return self._log.storage()

    def reaches(self, version: str) -> bool:
        """Whether it is this version, or a later one."""
        return int(version) <= self.version

    def facts(self, app: str) -> Facts:
        return Facts(app, lambda key: self._delta.transaction_version(key) or 0)

    @cached_property
    def partition_columns(self) -> list[str]:
        return list(self._delta.metadata().partition_columns)

    def property(self, name: str) -> str:
        """Of the table's own; empty when it has none of this name."""
        return str(self._delta.metadata().configuration.get(name) or "")

    @cached_property
    def columns(self) -> set[str]:
        """Without those that have another name in the table's files."""
        fields = {field["name"]: field["metadata"] for field in json.loads(self.schema)["fields"]}
        return {name for name, about in fields.items() if about.get("delta.columnMapping.physicalName", name) == name}

    @cached_property
    def schema(self) -> str:
        """Of its columns, as the log has it, and as Spark reads it."""
        return self._delta.schema().to_json()

    @cached_property
    def plain(self) -> bool:
        """Whether files of a folder that we get to can come with nothing but what we write of them."""
        return self._log.folder.is_local and self._delta.protocol().min_writer_version <= _PLAIN_WRITER

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

    def untouched_since(self, version: int) -> bool:
        later = map(self._log.about, range(version + 1, self.version + 1))  # no further than to the first that has
        return all(about is not None and not _changed(about) for about in later)

    def files(self) -> list[DataFile]:
        marked = self._deletion_vectors()
        rows = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        return [self._file(row, marked) for row in rows]

    def _file(self, row: Mapping[str, Any], marked: Mapping[str, list[bool]]) -> DataFile:
        path, rows = unquote(row["path"]), row.get("num_records")
        if rows is None:  # a table's properties may leave it out of the log's checkpoints
            with suppress(SegmentMissing):  # of an older version, and vacuumed
                rows = read_footer.row_count(self._log.storage(), path)
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

    def counts(self, column: str, least: int, greatest: int) -> dict[int, int] | None:
        """Rows by the value of a column, of values from `least` to `greatest`; None where what the log says of its files does not tell."""
        if self._deletion_vectors():
            return None
        files = pa.table(self._delta.get_add_actions(flatten=True))

        def said(name: str) -> list[Any]:
            return files[name].to_pylist() if name in files.column_names else [None] * files.num_rows

        if column in self.partition_columns:
            low = high = said(f"partition.{column}")
            nulls = [0] * files.num_rows
        else:
            low, high, nulls = (said(f"{kind}.{column}") for kind in ("min", "max", "null_count"))
        counts: Counter[int] = Counter()
        for rows, first, last, empty in zip(said("num_records"), low, high, nulls, strict=True):
            if first is not None and last is not None and (last < least or first > greatest):
                continue
            if rows is None or first is None or first != last or empty != 0:
                return None
            counts[first] += rows
        return dict(counts)

    def take(self, files: Sequence[NewFile], stamp: Stamp, about: Mapping[str, object]) -> int:
        """Add files to a table that Spark writes, under the stamp's number; the new version. Raises `Moved` if there is a later one."""
        return self._commit(files, (), stamp, {stamp.app: stamp.number}, about)

    def exchange(
        self,
        add: Collection[NewFile],
        remove: Collection[DataFile],
        stamp: Stamp,
        number: int,
        about: Mapping[str, object],
    ) -> int:
        """Put files in the place of others, under a number of the stamp's transactions; the new version. Raises `Moved`, as they do."""
        return self._commit(add, remove, stamp, {stamp.app: number}, about)

    def _commit(
        self,
        add: Iterable[NewFile],
        remove: Collection[DataFile],
        stamp: Stamp,
        facts: Mapping[str, int],
        about: Mapping[str, object],
    ) -> int:
        if self._log.writes_alone(self._delta):
            return self._commit_clustered(add, remove, stamp.to_json(**about), facts)
        lake = _deltalake()
        from deltalake.transaction import AddAction, RemoveAction

        now = int(time.time() * 1000)
        added = [AddAction(file.name, file.size, {}, now, True, file.statistics) for file in add]
        removed = [RemoveAction(file.path, True, now, file.bytes, dict(file.partition_values)) for file in remove]
        try:
            self._delta.create_write_transaction(
                [*added, *removed],
                mode="append",
                schema=self._delta.schema(),
                partition_by=self.partition_columns,
                commit_properties=commit_properties(stamp, facts, about),
            )
        except lake.exceptions.CommitFailedError as error:
            if "append-only" in str(error):
                raise self._log.append_only() from error
            if "nsupported" in str(error):
                raise self._log.trouble(error) from error
            raise Moved(f"Table {stamp.table} has changed since version {self.version}.") from error
        except (lake.exceptions.DeltaError, OSError) as error:
            raise self._log.trouble(error) from error
        return self.version + 1

    def _commit_clustered(
        self,
        add: Iterable[NewFile],
        remove: Collection[DataFile],
        said: str,
        facts: Mapping[str, int],
    ) -> int:
        """Without deltalake, which refuses such a table; as it does, a commit counts only if there is none of its number."""
        log, version = self._log, self.version + 1
        if remove and self.property("delta.appendOnly").lower() == "true":
            raise log.append_only()
        if not log_end.append(log.folder, version, said, facts, add, remove):
            raise Moved(f"Table {log.table.name} has changed since version {self.version}.")
        if log_end.checkpoint_is_due(version, self._delta.metadata().configuration):
            log.checkpoint(version)
        return version


def bounds(file: DataFile, column: str) -> tuple[int, int] | None:
    """The least and the greatest whole number of a column in a file; None where the log does not tell."""
    inside = file.partition_values.get(column)
    low, high = (inside, inside) if inside is not None else (file.lowest.get(column), file.highest.get(column))
    return None if low is None or high is None else (int(low), int(high))


def log_of(region: Handle, table: Table) -> DeltaLog:
    """The log of a Delta table, reached by the region's `storage_options`."""
    return DeltaLog(table, region.config.resolve().storage_options)


def commit_properties(
    stamp: Stamp, facts: Mapping[str, int] | None = None, about: Mapping[str, object] | None = None
) -> CommitProperties:
    """The stamp for Delta's history, facts as transactions of the log, and no retry by the library."""
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={"userMetadata": stamp.to_json(**about or {})},
        max_commit_retries=0,
        app_transactions=[Transaction(app, value) for app, value in facts.items()] if facts else None,
    )


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
