"""An Iceberg table's log, written in the Java process of a session: a commit counts only directly after the metadata that it was made for.

Iceberg's own commits try again by themselves on whatever is there by then. So the new snapshot is only *applied* by it, which
writes manifests and nothing that counts, and the metadata with the snapshot, and with what the table keeps of our last commit, is
put by one compare-and-set of the catalog on the very metadata that was looked at (docs/clients.md C-P14). Branches are not needed
for it, and a crash leaves none.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import Table
from crkafka_core.segments.errors import without_secrets
from crkafka_core.segments.storage import Storage
from crkafka_core.spark import iceberg_catalog
from crkafka_core.spark.iceberg_catalog import STAMP, TIDY
from crkafka_core.spark.schema import with_checkpoint
from crkafka_core.tables.files import Added, Bounds
from crkafka_core.tables.log import DataFile, Moved, Snapshot, TableLog, TableUnavailable, storage_of
from crkafka_core.tables.stamp import Facts, LogEntry, Stamp

_MADE_BY = "crkafka.stamp"
_NAMES = "schema.name-mapping.default"
_MAIN = "main"
_KEY, _TIME = ("topic", "partition", "offset"), "timestamp"
_BOUNDS = [f"readable_metrics.`{column}`.{end}_bound" for end in ("lower", "upper") for column in _KEY]
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_POSITIONS, _EQUALITY = 1, 2
"""Kinds of files that mark rows as deleted."""


class IcebergLog(TableLog):
    """A classic session is needed: through Connect there is no Java process to talk to."""

    reuses_names = False
    """Whoever expires snapshots removes what a snapshot once removed, by its name alone."""

    def __init__(self, spark: SparkSession, table: Table, storage_options: Mapping[str, str]) -> None:
        self.spark, self.table, self.options = spark, table, storage_options
        self.name = iceberg_catalog.named(spark, table.path)
        self.java = _Java(spark)

    def snapshot(self) -> IcebergSnapshot | None:
        there = self._load()
        return None if there is None else IcebergSnapshot(there, self)

    def _load(self) -> Any | None:
        with self.translated_errors():
            try:
                found = self.java.load(self.name)
                found.refresh()
            except AnalysisException as error:
                if (error.getCondition() or "") in ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"):
                    return None
                raise
            except Py4JJavaError as error:
                if _kind(error) == "NoSuchTableException":  # a catalog that keeps tables in memory still has it
                    return None
                raise
        return found

    def create(self, stamp: Stamp) -> None:
        """Not by SQL: its first statement of a session takes seconds."""
        made_by = Stamp(stamp.uid, stamp.table, 0, stamp.token).to_json()
        with self.translated_errors():
            try:
                self.java.create(
                    self.name, with_checkpoint().json(), {"format-version": "2", TIDY: "true", _MADE_BY: made_by}
                )
            except AnalysisException as error:
                if (error.getCondition() or "") == "TABLE_OR_VIEW_ALREADY_EXISTS":
                    raise Moved(f"Table {self.table.name} was made by somebody else.") from error
                raise
            except Py4JJavaError as error:
                if _kind(error) == "CommitFailedException" and self._load() is None:  # no lock was to be had, for one
                    raise self._trouble(_said(error)) from error
                if _kind(error) in ("AlreadyExistsException", "CommitFailedException"):
                    raise Moved(f"Table {self.table.name} was made by somebody else.") from error
                raise

    def storage(self, stamp: Stamp | None = None) -> Storage:
        """The table's folder. A catalog says where it is only of a table that is there: with a stamp it is made then."""
        if iceberg_catalog.is_path(self.table.path):
            return storage_of(self.table.path, self.options)
        found = self._load()
        if found is None and stamp is not None:
            with suppress(Moved):
                self.create(stamp)
            found = self._load()
        if found is None:
            raise Refused(
                f"Table {self.table.name} is not in its catalog as {self.table.path}.", hint="Was it dropped?"
            )
        return storage_of(_folder(found), self.options)

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """What Java said, as an error with the table's name."""
        try:
            yield
        except Py4JJavaError as error:
            if _kind(error) == "CommitFailedException":
                raise Moved(f"Table {self.table.name} has changed since it was looked at.") from error
            raise self._trouble(_said(error)) from error
        except AnalysisException as error:
            raise self._trouble(str(error)) from error

    def _trouble(self, text: str) -> TableUnavailable:
        said = without_secrets((text.splitlines() or ["?"])[0][:400])
        return TableUnavailable(
            f"Table {self.table.name} at {self.table.path} could not be read or written: {said}.",
            hint="It is tried again.",
        )


class IcebergSnapshot(Snapshot):
    """The table's metadata at one moment."""

    def __init__(self, table: Any, log: IcebergLog) -> None:
        self._table, self._log = table, log
        self._operations = table.operations()
        self._base = self._operations.current()
        self._head = self._base.currentSnapshot()
        self._properties = self._base.properties()
        self._known_as: dict[str, str] = {}
        """Relative path → as the table has it."""
        if self._base.formatVersion() < 2:
            raise Refused(
                f"Table {log.table.name} at {log.table.path} is of Iceberg's format version 1, whose commits have no numbers.",
                hint=f"ALTER TABLE {log.name} SET TBLPROPERTIES ('format-version' = '2').",
            )
        last = int(self._base.lastSequenceNumber())
        # Where a user went back to an older snapshot, nothing has got a number: it is told from all that was there before.
        self.version = last if self._head is None or self._head.sequenceNumber() == last else last + 1

    @property
    def at(self) -> str:
        """As Spark's `versionAsOf` takes it."""
        return "" if self._head is None else str(self._head.snapshotId())

    @cached_property
    def partition_columns(self) -> list[str]:
        return [field.name() for field in self._table.spec().fields()]

    @cached_property
    def columns(self) -> set[str]:
        return {field.name() for field in self._base.schema().columns()}

    def facts(self, app: str) -> Facts:
        """Of the last commit under this application id: properties of the table, set by the commit itself."""
        return Facts(app, lambda key: int(self._properties.get(key) or 0))

    def _line(self) -> Iterator[tuple[int, Any]]:
        """The snapshots that led to this state, latest first, with their numbers; as far back as none is expired."""
        at = self._head
        while at is not None:
            yield int(at.sequenceNumber()), at
            parent = at.parentId()
            at = None if parent is None else self._base.snapshot(parent)

    def since(self, version: str, ours: Collection[str] = ()) -> list[LogEntry]:
        known = int(version) if version else -1
        if known >= self.version:
            return []
        seen: list[LogEntry] = []
        for number, at in self._line():
            if number <= known:
                if number < known:  # the state of that version was left behind
                    seen.append(LogEntry(str(number), None, True))
                break
            if str(number) in ours:
                seen.append(LogEntry(str(number), None, False))
            else:
                said, operation = at.summary().get(STAMP), at.operation()
                seen.append(LogEntry.told(str(number), said, changes_rows=operation != "replace"))
        if not version:
            seen.append(LogEntry("0", Stamp.from_json(self._properties.get(_MADE_BY)), False))
        return seen[::-1]

    def untouched_since(self, version: int) -> bool:
        """Whether nobody has changed rows after a version; what is expired may have."""
        for number, at in self._line():
            if number <= version:
                return number == version
            if at.operation() != "replace":
                return False
        return False

    def changed_files(self, version: str) -> list[DataFile] | None:
        at = next((at for number, at in self._line() if str(number) == version), None)
        if at is None:
            return None
        if at.operation() == "delete":
            return []
        columns = [f"data_file.{name}" for name in ("content", "file_path", "file_size_in_bytes", "record_count")]
        with self._log.translated_errors():
            entries = self._log.spark.read.table(f"{self._log.name}.all_entries")
            entries = entries.where(f"snapshot_id = {at.snapshotId()} AND status > 0")
            rows = entries.selectExpr(*columns, *_BOUNDS).collect()
        return [self._file(row, ()) for row in rows if not row[0]]

    def files(self) -> list[DataFile]:
        """The files of this version, by one query of the session: through Java they would come one by one."""
        if self._head is None:
            return []
        with self._log.translated_errors():
            rows = (
                self._metadata("files")
                .selectExpr("content", "file_path", "file_size_in_bytes", "record_count", *_BOUNDS)
                .collect()
            )
        kinds = {row[0] for row in rows}
        if _EQUALITY in kinds:
            raise Refused(
                f"Table {self._log.table.name} at {self._log.table.path} has equality deletes, which somebody else wrote.",
                hint=f"CALL {self._log.name.split('.')[0]}.system.rewrite_data_files(…) in Spark, then it goes on by itself.",
            )
        marked = self._marked() if _POSITIONS in kinds else {}
        return [self._file(row, marked.get(row[1], ())) for row in rows if not row[0]]

    def _metadata(self, of: str) -> Any:
        return self._log.spark.read.option("versionAsOf", self.at).table(f"{self._log.name}.{of}")

    def _marked(self) -> dict[str, list[int]]:
        """Per file, the rows that are marked as deleted beside it."""
        marked: dict[str, list[int]] = {}
        with self._log.translated_errors():
            for path, at in self._metadata("position_deletes").select("file_path", "pos").collect():
                marked.setdefault(path, []).append(at)
        return marked

    def _file(self, row: Sequence[Any], gone: Collection[int]) -> DataFile:
        _, path, size, rows, *bounds = row
        least, greatest = (
            {c: v for c, v in zip(_KEY, part, strict=True) if v is not None} for part in (bounds[:3], bounds[3:])
        )
        kept = [at not in gone for at in range(max(gone) + 1)] if (gone := set(gone)) else None
        return DataFile(self._relative(path), size, rows - len(gone), least, greatest, {}, kept)

    def _relative(self, path: str) -> str:
        folder, whole = _arrow(_folder(self._table)), _arrow(path)
        if not whole.startswith(f"{folder}/"):
            raise Refused(
                f"Table {self._log.table.name} at {self._log.table.path} has a file outside of its folder: {path}.",
                hint="Let its data be written where the table is (write.data.path), and rewrite_data_files bring it there.",
            )
        found = whole[len(folder) + 1 :]
        self._known_as[found] = path
        return found

    def check_removable(self, files: Collection[DataFile]) -> None:
        """All are: what marks rows of a file that is gone marks nothing."""

    def commit(
        self,
        add: Sequence[Added],
        remove: Collection[DataFile],
        stamp: Stamp,
        about: Mapping[str, object],
        *,
        holds: int = 0,
    ) -> int:
        java = self._log.java
        with self._log.translated_errors():
            names = java.NameMappingParser.toJson(java.MappingUtil.create(self._base.schema()))
            names = self._properties.get(_NAMES) or names
            update = self._update(add, remove)
            update.set(STAMP, stamp.to_json(**about))
            made = update.apply()
            if self._operations.current() != self._base:
                raise Moved(f"Table {stamp.table} has changed since version {self.version}.")
            number = int(made.sequenceNumber())
            keeps = java.HashMap()
            for key, value in {**stamp.facts(holds, number), _NAMES: names}.items():
                keeps.put(key, str(value))
            then = java.TableMetadata.buildFrom(self._base).setBranchSnapshot(made, _MAIN).setProperties(keeps)
            self._operations.commit(self._base, then.build())
        return number

    def _update(self, add: Sequence[Added], remove: Collection[DataFile]) -> Any:
        """Only appended to where nothing leaves: that is what a stream reads on from."""
        made = [self._data_file(file) for file in add]
        if not remove:
            update = self._table.newAppend()
            for file in made:
                update.appendFile(file)
            return update
        update = self._table.newOverwrite()
        for gone in remove:  # by its path alone it would stay, without a word
            known = self._builder(self._known_as[gone.path], gone.bytes)
            update.deleteFile(known.withRecordCount(gone.rows or 0).build())
        for file in made:
            update.addFile(file)
        return update

    def _data_file(self, file: Added) -> Any:
        """With what is known of its rows; Java would read the footer of each once more, and in an object store wait for it."""
        java, parts = self._log.java, self._table.spec()
        about = {
            "spec-id": parts.specId(),
            "content": "data",
            "file-format": "parquet",
            "file-path": f"{_folder(self._table)}/{file.name}",
            "file-size-in-bytes": file.size,
            "record-count": file.bounds.rows,
            "partition": [],
            "sort-order-id": 0,
            **_statistics(file.bounds, self._numbers),
        }
        return java.ContentFileParser.fromJson(java.json.readTree(json.dumps(about)), parts)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Of the columns whose bounds are told."""
        schema = self._base.schema()
        return {name: int(schema.findField(name).fieldId()) for name in (*_KEY, _TIME)}

    def _builder(self, path: str, size: int) -> Any:
        builder = self._log.java.DataFiles.builder(self._table.spec())
        return builder.withPath(path).withFormat("parquet").withFileSizeInBytes(size)


class _Java:
    """The classes of Iceberg that are used. Each look-up of one by name is several calls, so they are kept."""

    def __init__(self, spark: SparkSession) -> None:
        self._session: Any = getattr(spark, "_jsparkSession")  # noqa: B009
        machine: Any = getattr(spark, "_jvm")  # noqa: B009
        self._sessions = machine.org.apache.spark.sql.classic.SparkSession
        iceberg = machine.org.apache.iceberg
        self._util = iceberg.spark.Spark3Util
        self.HashMap = machine.java.util.HashMap
        self.TableMetadata, self.DataFiles = iceberg.TableMetadata, iceberg.DataFiles
        self.MappingUtil, self.NameMappingParser = iceberg.mapping.MappingUtil, iceberg.mapping.NameMappingParser
        self.ContentFileParser, self.json = iceberg.ContentFileParser, iceberg.util.JsonUtil.mapper()
        self._data_type = machine.org.apache.spark.sql.types.DataType
        transform = machine.org.apache.spark.sql.connector.expressions.Transform
        gateway: Any = getattr(spark.sparkContext, "_gateway")  # noqa: B009
        self._no_partitions = gateway.new_array(transform, 0)

    def load(self, name: str) -> Any:
        self._make_session_active()
        return self._util.loadIcebergTable(self._session, name)

    def create(self, name: str, schema: str, properties: Mapping[str, str]) -> None:
        """Without partitions. `schema`: as Spark has it in JSON."""
        self._make_session_active()
        at, options = self._util.catalogAndIdentifier(self._session, name), self.HashMap()
        for key, value in {"provider": "iceberg", **properties}.items():
            options.put(key, value)
        at.catalog().createTable(at.identifier(), self._data_type.fromJson(schema), self._no_partitions, options)

    def _make_session_active(self) -> None:
        """A name is looked up with the settings of this thread's session; another one does not know the catalog."""
        self._sessions.setActiveSession(self._session)


def _statistics(bounds: Bounds, numbers: Mapping[str, int]) -> dict[str, object]:
    """Least and greatest values, and that none is null, as Iceberg has them in JSON."""
    topics, times = (name.encode() for name in bounds.topics), bounds.times
    told = dict(zip(_KEY, (topics, _packed("<i", bounds.partitions), _packed("<q", bounds.offsets)), strict=True))
    if times is not None:
        told[_TIME] = _packed("<q", ((at - _EPOCH) // _MICROSECOND for at in times))
    keys = [numbers[name] for name in told]
    least, greatest = zip(*((low.hex(), high.hex()) for low, high in told.values()), strict=True)
    columns = {
        "value-counts": [bounds.rows] * len(keys),
        "null-value-counts": [0] * len(keys),
        "lower-bounds": least,
        "upper-bounds": greatest,
    }
    return {what: {"keys": keys, "values": values} for what, values in columns.items()}


def _packed(form: str, values: Iterable[int]) -> Iterator[bytes]:
    return (struct.pack(form, value) for value in values)


def _kind(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getSimpleName())


def _said(error: Py4JJavaError) -> str:
    return f"{_kind(error)}: {error.java_exception.getMessage()}"


def _folder(table: Any) -> str:
    return str(table.location()).rstrip("/")


def _arrow(uri: str) -> str:
    """A location as Arrow's file systems have it."""
    for ours in ("file://", "file:"):
        if uri.startswith(ours):
            return uri.removeprefix(ours)
    return uri.replace("s3a://", "s3://", 1)
