"""One version of a Delta table, and the commit that follows it directly."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from crkafka_core.lake import port, vectors
from crkafka_core.lake.delta import state as states
from crkafka_core.lake.delta.columns import in_files, protocol_of, schema_text
from crkafka_core.lake.delta.state import AddedFile, State
from crkafka_core.lake.formats import content_of
from crkafka_core.lake.vectors import Positions

if TYPE_CHECKING:
    from crkafka_core.lake.delta.table import DeltaTable

_FEATURES = {
    "deletionVectors",
    "timestampNtz",
    "columnMapping",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",  # which deltalake adds with any property that it sets; a column of this type is refused
    "appendOnly",
    "invariants",
    "changeDataFeed",
    "checkConstraints",
    "generatedColumns",
    "identityColumns",
    "domainMetadata",
    "clustering",
    "inCommitTimestamp",
}
"""With which we can write, as long as what they are for is not used, or asks no more than we write."""
VECTORS = "delta.enableDeletionVectors"
_ANY = (0, 2**63 - 1)
_OWNER = "crkafka"
_STATE = ("token", "checkpoint", "settled", "version")


class DeltaSnapshot(port.Snapshot):
    def __init__(self, table: DeltaTable, state: State) -> None:
        self._table, self._state = table, state
        self._name = f"Table {table.name} at {table.path}"
        self.version = state.version
        self.at = str(state.version)
        self.schema = in_files(str(state.metadata["schemaString"]))
        self.parts: Sequence[port.Part] = [port.Part(column) for column in state.metadata.get("partitionColumns") or ()]
        self.properties = state.properties

    def stamp(self, uid: str, table: str) -> port.Stamp | None:
        known, app = self._state.transactions, f"crkafka/{uid}/{table}"
        if not known.get(app):
            return None
        token, checkpoint, settled, version = (known.get(f"{app}/{name}", 0) for name in _STATE)
        return port.Stamp(uid, table, known[app], token, checkpoint, settled - 1, version)

    def owner(self) -> int | None:
        return self._state.transactions.get(_OWNER)

    def since(self, version: int) -> Sequence[port.LogEntry] | None:
        texts = [(n, states.read_commit(self._table.storage, n)) for n in range(version + 1, self.version + 1)]
        return None if any(text is None for _, text in texts) else [_entry(n, text) for n, text in texts if text]

    def files(self) -> Iterable[port.DataFile]:
        for added in self._state.files.values():
            file = added.file
            if vector := added.marked:
                read = partial(vectors.delta_vector, vector, partial(content_of, self._table.storage))
                stored = [name] if (name := vectors.vector_file(vector)) else []
                file = replace(file, marks=Positions(states.key_of(added.action), read, vector["cardinality"], stored))
            yield file

    def commit(self, stamp: port.Stamp, change: port.Change = port.NO_CHANGE) -> DeltaSnapshot:
        add, remove, marks, changes_rows = change.add, change.remove, change.marks, change.changes_rows
        self._check(bool(remove or marks) and changes_rows)
        now = max(int(time.time() * 1000), (self._in_commit_time() or 0) + 1)
        about = commit_info(now, "WRITE" if changes_rows else "OPTIMIZE", stamp, change.info)
        about |= {} if self._in_commit_time() is None else {"inCommitTimestamp": now}
        by_path = {added.file.path: added for added in self._state.files.values()} if remove or marks else {}
        if lost := [file.path for file in (*remove, *marks) if file.path not in by_path]:
            raise ValueError(f"not in version {self.version}: {lost[:3]}")
        vector_file, described = self._vectors(add, marks)
        metadata: list[Mapping[str, Any]] = []
        if (schema := change.schema) is not None:
            metadata = [{"metaData": {**self._state.metadata, "schemaString": self._evolved(schema)}}]
            if (protocol := protocol_of(schema, self._state.protocol)) != self._state.protocol:
                metadata.append({"protocol": protocol})
        gone = {"deletionTimestamp": now, "extendedFileMetadata": True}
        leaving = [by_path[file.path] for file in (*remove, *marks)]
        actions: list[Mapping[str, Any]] = [
            {"commitInfo": about},
            *metadata,
            *actions_of_stamp(stamp, self.version + 1),
            *({"remove": _again(added, changes_rows, added.marked) | gone} for added in leaving),
            *({"add": _added(file, now, changes_rows, described.get(file.path))} for file in add),
            *({"add": _marked(by_path[file.path], now, changes_rows, described.get(file.path))} for file in marks),
        ]
        try:
            return DeltaSnapshot(self._table, self._table.put(self._state, actions))
        except port.Moved:
            if vector_file:
                self._table.storage.delete(vector_file)
            raise

    def _vectors(
        self, add: Sequence[port.NewFile], marks: Mapping[port.DataFile, Collection[int]]
    ) -> tuple[str, Mapping[str, vectors.Descriptor]]:
        """Put one file with the deletion vectors of a commit; its name, and the descriptor of each data file's vector by its path."""
        wanted = {file.path: file.marks for file in add if isinstance(file, port.DataFile)}
        wanted |= {file.path: new for file, new in marks.items()}
        filled = {path: positions for path, positions in wanted.items() if positions}
        if not filled:
            return "", {}
        if str(self.properties.get(VECTORS)).lower() != "true":
            raise port.CannotCommit(
                f"Rows of table {self._table.name} at {self._table.path} cannot be marked: it has no deletion vectors.",
                hint=f"ALTER TABLE delta.`{self._table.path}` SET TBLPROPERTIES ('{VECTORS}' = 'true'); it is tried again.",
            )
        name, content, described = vectors.delta_file([*filled.values()])
        self._table.storage.put_together([(name, content)])
        return name, dict(zip(filled, described, strict=True))

    def _evolved(self, schema: pa.Schema) -> str:
        """The log's schema with the added columns; existing columns keep their metadata."""
        if str(self.properties.get("delta.columnMapping.mode", "none")).lower() != "none":
            raise port.CannotCommit(
                f"{self._name} has column mapping: columns cannot be added to it without Spark.",
                hint="ALTER TABLE … ADD COLUMNS in Spark; it is tried again.",
            )
        present = {field["name"]: field for field in self._state.fields}
        wanted = json.loads(schema_text(schema))
        for field in wanted["fields"]:
            name = field["name"]
            if name in present and self.schema.field(name).type == schema.field(name).type:
                field.update(present[name])
        return json.dumps(wanted)

    def _in_commit_time(self) -> int | None:
        """The last one's; None where commits do not have their time in them."""
        if str(self.properties.get("delta.enableInCommitTimestamps")).lower() != "true":
            return None
        return int(states.about(states.actions_of(self._state.last)).get("inCommitTimestamp", 0))

    def _check(self, removes: bool) -> None:
        """Refuse what asks more of a commit than we write."""
        table, properties = self._table, self.properties
        if removes and str(properties.get("delta.appendOnly")).lower() == "true":
            raise port.CannotCommit(
                f"{self._name} has the property delta.appendOnly: superseded rows cannot leave it.",
                hint=f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false'); it is tried again.",
            )
        protocol = self._state.protocol
        features = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())} - _FEATURES
        used = [key for key in properties if key.startswith("delta.constraints.")]
        asks = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
        used += [key for field in self._state.fields for key in asks if key in (field.get("metadata") or {})]
        used += ["delta.columnMapping.mode = id"] if properties.get("delta.columnMapping.mode") == "id" else []
        if features or used or int(protocol.get("minWriterVersion", 0)) > 7:
            raise port.CannotCommit(
                f"{self._name} has a feature with which its log cannot be written without Spark: {', '.join(sorted([*features, *used]))}.",
                hint="Drop the feature (ALTER TABLE … DROP FEATURE), or declare the table at another path.",
            )


def _entry(version: int, text: bytes) -> port.LogEntry:
    actions = states.actions_of(text)
    about = states.about(actions)
    changes = [
        (kind, what)
        for action in actions
        for kind, what in action.items()
        if kind in ("add", "remove") and what.get("dataChange")
    ]
    added = [AddedFile(what).file.numbers or _ANY for kind, what in changes if kind == "add"]
    touched = None
    if added and about.get("operation") != "DELETE":  # which copies what it does not delete
        touched = (min(low for low, _ in added), max(high for _, high in added))
    return port.LogEntry(version, _stamp_in(about.get("userMetadata"), version), bool(changes), touched)


def _stamp_in(text: str | None, version: int) -> port.Stamp | None:
    try:
        content = json.loads(text or "")
        who = content["crkafka"]
        numbers = who["number"], who["token"], content["checkpoint"], content["settled"]
        return port.Stamp(who["uid"], who["table"], *numbers, version)
    except (ValueError, KeyError, TypeError):
        return None


def commit_info(now: int, operation: str, stamp: port.Stamp, info: Mapping[str, Any]) -> dict[str, Any]:
    """The commit in the table's history; `actions_of_stamp` has the stamp as state."""
    who = {"uid": stamp.uid, "table": stamp.table, "number": stamp.permit, "token": stamp.token}
    content = {"crkafka": who, "checkpoint": stamp.checkpoint, "settled": stamp.settled, **info}
    return {
        "timestamp": now,
        "operation": operation,
        "operationParameters": {"mode": "Append", "partitionBy": "[]"} if operation == "WRITE" else {},
        "engineInfo": "crkafka",
        "userMetadata": json.dumps(content),
        "txnId": str(uuid.uuid4()),  # unique, so that `put_version` recognises its own file
    }


def actions_of_stamp(stamp: port.Stamp, version: int) -> list[dict[str, Any]]:
    """What a table keeps of its last commit, as transactions of its log: they outlive the log's own commits (docs/clients.md C-P13)."""
    app = f"crkafka/{stamp.uid}/{stamp.table}"
    content = {_OWNER: stamp.owner}
    if stamp.permit:
        values = (stamp.token, stamp.checkpoint, stamp.settled + 1, version)
        content |= {app: stamp.permit, **{f"{app}/{name}": value for name, value in zip(_STATE, values, strict=True)}}
    return [{"txn": {"appId": key, "version": value}} for key, value in content.items()]


def _file(path: str, size: int, parts: Mapping[str, Any], changes_rows: bool, vector: Any) -> dict[str, Any]:
    """What an `add` and a `remove` have in common."""
    made = {"path": path, "size": size, "partitionValues": dict(parts), "dataChange": changes_rows}
    return made | ({"deletionVector": vector} if vector else {})


def _added(
    file: port.NewFile, now: int, changes_rows: bool, vector: vectors.Descriptor | None = None
) -> dict[str, Any]:
    lowest, highest = (
        {name: text for name, value in bounds.items() if (text := _in_stats(value, up=up)) is not None}
        for bounds, up in ((file.lowest, False), (file.highest, True))
    )
    stats = {
        "numRecords": file.rows,
        "minValues": {name: lowest[name] for name in lowest if name in highest},
        "maxValues": {name: highest[name] for name in highest if name in lowest},
        "nullCount": dict(file.nulls),
        **({"tightBounds": False} if vector else {}),
    }
    parts = {name: _in_path(value) for name, value in file.values.items()}
    made = _file(quote(file.path), file.bytes, parts, changes_rows, vector)
    return made | {"modificationTime": now, "stats": json.dumps(stats, ensure_ascii=False)}


def _marked(added: AddedFile, now: int, changes_rows: bool, vector: vectors.Descriptor | None) -> dict[str, Any]:
    """A file of the table with other marks; None: with none."""
    stats = {**json.loads(added.action.get("stats") or "{}"), "tightBounds": vector is None}
    again = _again(added, changes_rows, vector)
    return again | {"modificationTime": now, "stats": json.dumps(stats, ensure_ascii=False)}


def _again(added: AddedFile, changes_rows: bool, vector: Any) -> dict[str, Any]:
    action = added.action
    return _file(action["path"], action["size"], action.get("partitionValues") or {}, changes_rows, vector)


def _in_path(value: Any) -> str | None:
    """A partition's value as the log has it; times in UTC."""
    if isinstance(value, bytes):
        raise port.CannotCommit("Delta has no partitions by bytes.", hint="Leave the column out of partition_by.")
    if isinstance(value, datetime):
        at = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return f"{at.year:04d}-{at:%m-%d %H:%M:%S.%f}"
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _in_stats(value: Any, *, up: bool) -> Any:
    """As the log's statistics have it; None for types whose text another reader might take for another value."""
    if isinstance(value, datetime):
        try:
            at = value.astimezone(UTC) if value.tzinfo else value
            at = at + timedelta(microseconds=999) if up else at  # they tell times by the millisecond
        except OverflowError:  # the last microsecond of the year 9999, which many write for "never"
            return None
        return f"{at.year:04d}-{at:%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
    if isinstance(value, date):
        return value.isoformat()
    return value if type(value) is int or isinstance(value, str) else None
