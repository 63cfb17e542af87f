"""One version of a Delta table, and the commit that follows it directly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from crkafka_core.lake.delta import state as states
from crkafka_core.lake.delta.state import AddedFile, State
from crkafka_core.lake.port import (
    CannotCommit,
    DataFile,
    LogEntry,
    Marks,
    NewFile,
    Part,
    Snapshot,
    Stamp,
)
from crkafka_core.model.errors import ConfigError

if TYPE_CHECKING:
    from crkafka_core.lake.delta.table import DeltaTable

_READ_FEATURES = {"deletionVectors", "timestampNtz", "columnMapping", "v2Checkpoint", "vacuumProtocolCheck"}
_FEATURES = _READ_FEATURES | {
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
_ANY = 2**63 - 1
_OWNER = "crkafka"
_STATE = ("token", "checkpoint", "settled", "version")


class DeltaSnapshot(Snapshot):
    """A `Snapshot`."""

    def __init__(self, table: DeltaTable, state: State) -> None:
        self._table, self._state = table, state
        self.version = state.version
        self.at = str(state.version)
        self.schema = in_files(str(state.metadata["schemaString"]))
        self.parts: Sequence[Part] = [Part(column) for column in state.metadata.get("partitionColumns") or ()]
        self.properties = state.properties

    def stamp(self, uid: str, table: str) -> Stamp | None:
        known, app = self._state.transactions, f"crkafka/{uid}/{table}"
        if not known.get(app):
            return None
        token, checkpoint, settled, version = (known.get(f"{app}/{name}", 0) for name in _STATE)
        return Stamp(uid, table, known[app], token, checkpoint, settled - 1, version)

    def owner(self) -> int | None:
        return self._state.transactions.get(_OWNER)

    def since(self, version: int) -> Sequence[LogEntry] | None:
        texts = [(n, states.read_commit(self._table.storage, n)) for n in range(version + 1, self.version + 1)]
        return None if any(text is None for _, text in texts) else [_entry(n, text) for n, text in texts if text]

    def files(self, numbers: tuple[int, int] | None = None) -> Iterable[DataFile]:
        marked: Mapping[str, list[bool]] | None = None
        for added in self._state.files.values():
            file = added.file
            held = file.numbers
            if numbers is not None and held is not None and (held[1] < numbers[0] or held[0] > numbers[1]):
                continue
            if file.marks is not None:
                marked = self._table.marks(self.version) if marked is None else marked
                kept = next((flags for uri, flags in marked.items() if uri.endswith("/" + added.action["path"])), [])
                file = replace(file, marks=Marks(tuple(i for i, there in enumerate(kept) if not there)))
            yield file

    def commit(
        self,
        add: Sequence[NewFile],
        remove: Collection[DataFile],
        stamp: Stamp,
        *,
        marks: Mapping[DataFile, Marks] | None = None,
        schema: pa.Schema | None = None,
        changes_rows: bool = True,
        info: Mapping[str, Any] | None = None,
        keep: Callable[[], Collection[int]] = tuple,
    ) -> DeltaSnapshot:
        if marks:
            raise CannotCommit(f"Table {self._table.name}: rows of a Delta table are not marked by us.")
        self._check(bool(remove) and changes_rows)
        now = max(int(time.time() * 1000), (self._in_commit_time() or 0) + 1)
        about = commit_info(now, "WRITE" if changes_rows else "OPTIMIZE", stamp, info or {})
        about |= {} if self._in_commit_time() is None else {"inCommitTimestamp": now}
        by_path = {added.file.path: added for added in self._state.files.values()} if remove else {}
        if lost := [file.path for file in remove if file.path not in by_path]:
            raise ValueError(f"not in version {self.version}: {lost[:3]}")
        metadata = []
        if schema is not None:
            metadata = [{"metaData": {**self._state.metadata, "schemaString": schema_text(schema)}}]
        actions: list[Mapping[str, Any]] = [
            {"commitInfo": about},
            *metadata,
            *actions_of_stamp(stamp, self.version + 1),
            *({"remove": _removed(by_path[file.path], now, changes_rows)} for file in remove),
            *({"add": _added(file, now, changes_rows)} for file in add),
        ]
        return DeltaSnapshot(self._table, self._table.put(self._state, actions))

    def _in_commit_time(self) -> int | None:
        """The last one's; None where commits do not have their time in them."""
        if str(self.properties.get("delta.enableInCommitTimestamps")).lower() != "true":
            return None
        last: dict[str, Any] = next(
            (a["commitInfo"] for a in states.actions_of(self._state.last) if "commitInfo" in a), {}
        )
        return int(last.get("inCommitTimestamp", 0))

    def _check(self, removes: bool) -> None:
        """Refuse what asks more of a commit than we write."""
        table, properties = self._table, self.properties
        name = f"Table {table.name} at {table.path}"
        if removes and str(properties.get("delta.appendOnly")).lower() == "true":
            raise CannotCommit(
                f"{name} has the property delta.appendOnly: superseded rows cannot leave it.",
                hint=f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false'); it is tried again.",
            )
        protocol = self._state.protocol
        features = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())} - _FEATURES
        used = [key for key in properties if key.startswith("delta.constraints.")]
        asks = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
        used += [key for field in self._state.fields for key in asks if key in (field.get("metadata") or {})]
        used += ["delta.columnMapping.mode = id"] if properties.get("delta.columnMapping.mode") == "id" else []
        if features or used or int(protocol.get("minWriterVersion", 0)) > 7:
            raise CannotCommit(
                f"{name} has a feature with which its log cannot be written without Spark: {', '.join(sorted([*features, *used]))}.",
                hint="Drop the feature (ALTER TABLE … DROP FEATURE), or declare the table at another path.",
            )


@lru_cache(maxsize=1024)
def in_files(text: str) -> pa.Schema:
    """The columns of a schema of the log, by the names that they have in the table's files (column mapping)."""
    found = pa.schema(deltalake().Schema.from_json(text).to_arrow())
    told = {field["name"]: field.get("metadata") or {} for field in json.loads(text)["fields"]}
    return pa.schema([f.with_name(told[f.name].get("delta.columnMapping.physicalName", f.name)) for f in found])


def schema_text(schema: pa.Schema) -> str:
    """As Delta's log has it."""
    return str(deltalake().Schema.from_arrow(schema).to_json())


def deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        raise ConfigError("Delta tables need the package deltalake.", hint="pip install 'crkafka[delta]'") from error
    return deltalake


def _entry(version: int, text: bytes) -> LogEntry:
    actions = states.actions_of(text)
    about: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    stamp = _stamp_in(about.get("userMetadata"), version)
    changing = [
        kind_[1] for a in actions for kind_ in a.items() if kind_[0] in ("add", "remove") and kind_[1].get("dataChange")
    ]
    operation = str(about.get("operation", ""))
    added = [AddedFile(a["add"]).file.numbers for a in actions if "add" in a and a["add"].get("dataChange")]
    touched = None
    if added and operation != "DELETE":  # which copies what it does not delete
        known = [numbers for numbers in added if numbers is not None]
        bounds = [low for low, _ in known], [high for _, high in known]
        touched = (min(bounds[0]), max(bounds[1])) if len(known) == len(added) else (0, _ANY)
    return LogEntry(version, stamp, bool(changing), touched, operation)


def _stamp_in(text: str | None, version: int) -> Stamp | None:
    try:
        told = json.loads(text or "")
        who = told["crkafka"]
        return Stamp(
            who["uid"], who["table"], who["number"], who["token"], told["checkpoint"], told["settled"], version
        )
    except (ValueError, KeyError, TypeError):
        return None


def commit_info(now: int, operation: str, stamp: Stamp, info: Mapping[str, Any]) -> dict[str, Any]:
    """For people and for who reads the history; the stamp as state is `actions_of_stamp`."""
    who = {"uid": stamp.uid, "table": stamp.table, "number": stamp.permit, "token": stamp.token}
    told = {"crkafka": who, "checkpoint": stamp.checkpoint, "settled": stamp.settled, **info}
    return {
        "timestamp": now,
        "operation": operation,
        "operationParameters": {"mode": "Append", "partitionBy": "[]"} if operation == "WRITE" else {},
        "engineInfo": "crkafka",
        "userMetadata": json.dumps(told),
    }


def actions_of_stamp(stamp: Stamp, version: int) -> list[dict[str, Any]]:
    """What a table keeps of its last commit, as transactions of its log: they outlive the log's own commits (docs/clients.md C-P13)."""
    app = f"crkafka/{stamp.uid}/{stamp.table}"
    told = {_OWNER: stamp.owner}
    if stamp.permit:
        values = (stamp.token, stamp.checkpoint, stamp.settled + 1, version)
        told |= {app: stamp.permit, **{f"{app}/{name}": value for name, value in zip(_STATE, values, strict=True)}}
    return [{"txn": {"appId": key, "version": value}} for key, value in told.items()]


def written(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """As a commit of the log."""
    return "\n".join(json.dumps(action, ensure_ascii=False) for action in actions).encode()


def _added(file: NewFile, now: int, changes_rows: bool) -> dict[str, Any]:
    lowest, highest = (
        {name: told for name, value in bounds.items() if (told := _in_stats(value, up=up)) is not None}
        for bounds, up in ((file.lowest, False), (file.highest, True))
    )
    both = lowest.keys() & highest.keys()
    stats = {
        "numRecords": file.rows,
        "minValues": {name: lowest[name] for name in lowest if name in both},
        "maxValues": {name: highest[name] for name in highest if name in both},
        "nullCount": dict(file.nulls),
    }
    return {
        "path": quote(file.path),
        "partitionValues": {name: None if value is None else str(value) for name, value in file.values.items()},
        "size": file.bytes,
        "modificationTime": now,
        "dataChange": changes_rows,
        "stats": json.dumps(stats, ensure_ascii=False),
    }


def _removed(added: AddedFile, now: int, changes_rows: bool) -> dict[str, Any]:
    action = added.action
    vector = {"deletionVector": action["deletionVector"]} if added.marked else {}
    return {
        "path": action["path"],
        "deletionTimestamp": now,
        "dataChange": changes_rows,
        "extendedFileMetadata": True,
        "partitionValues": dict(action.get("partitionValues") or {}),
        "size": action["size"],
        **vector,
    }


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
