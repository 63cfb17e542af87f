"""A table's metadata as Iceberg's JSON has it: questions about one version of it, and the next version by updates (SPEC K6).

Updates are those of Iceberg's REST catalogs. At a path `applied` makes the next metadata of them; a catalog gets them as they are.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crkafka_core.lake.formats import content_of
from crkafka_core.lake.iceberg.columns import Schema, last_id
from crkafka_core.lake.iceberg.partitions import Partitioning
from crkafka_core.lake.port import CannotCommit
from crkafka_core.segments.storage import Storage

Update = dict[str, Any]
SnapshotEntry = dict[str, Any]
MAIN = "main"
_SCHEME = re.compile(r"^(file:(//)?(?=/)|s3[an]?://)")


class Metadata:
    """One version of a table's metadata; never changed."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.format_version: int = content["format-version"]
        self.uuid: str = content["table-uuid"]
        self.location: str = content["location"].rstrip("/")
        self.properties: Mapping[str, str] = content.get("properties") or {}
        self.snapshots: Mapping[int, SnapshotEntry] = {s["snapshot-id"]: s for s in content.get("snapshots") or ()}
        self.refs: Mapping[str, Mapping[str, Any]] = content.get("refs") or {}
        head = self.refs.get(MAIN, {}).get("snapshot-id", content.get("current-snapshot-id"))
        self.head: SnapshotEntry | None = self.snapshots.get(head)
        self.last_sequence: int = content.get("last-sequence-number", 0)
        self._partitionings: dict[int, Partitioning] = {}

    @property
    def schema(self) -> Schema:
        return self._current("schemas", "schema-id", "current-schema-id")

    @property
    def spec(self) -> dict[str, Any]:
        return self._current("partition-specs", "spec-id", "default-spec-id")

    def partitioning(self, spec_id: int) -> Partitioning:
        if spec_id not in self._partitionings:
            spec = next(each for each in self.content["partition-specs"] if each["spec-id"] == spec_id)
            self._partitionings[spec_id] = Partitioning(spec, [*self.content["schemas"], self.schema])
        return self._partitionings[spec_id]

    def line(self, head: SnapshotEntry | None = None) -> Iterator[SnapshotEntry]:
        """The snapshots that led to this version, latest first; as far back as none is forgotten."""
        at = head or self.head
        while at is not None:
            yield at
            at = self.snapshots.get(at.get("parent-snapshot-id", -1))

    def _current(self, kind: str, key: str, current: str) -> dict[str, Any]:
        return next(dict(each) for each in self.content[kind] if each[key] == self.content[current])


def empty(location: str, schema: Schema, spec: Mapping[str, Any], properties: Mapping[str, str]) -> Metadata:
    return Metadata(
        {
            "format-version": 2,
            "table-uuid": str(uuid.uuid4()),
            "location": location,
            "last-sequence-number": 0,
            "last-updated-ms": int(time.time() * 1000),
            "last-column-id": last_id(schema),
            "current-schema-id": schema["schema-id"],
            "schemas": [schema],
            "default-spec-id": spec["spec-id"],
            "partition-specs": [spec],
            "last-partition-id": max((each["field-id"] for each in spec["fields"]), default=999),
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": dict(properties),
            "snapshots": [],
            "refs": {},
            "snapshot-log": [],
            "metadata-log": [],
        }
    )


def applied(before: Metadata, updates: Sequence[Update], file: str) -> dict[str, Any]:
    """The next metadata. `file`: where the metadata of before is; empty for a new table."""
    then = dict(before.content)

    def add(kind: str, *entries: Mapping[str, Any]) -> None:
        then[kind] = [*(then.get(kind) or ()), *entries]

    for update in updates:
        match update["action"]:
            case "add-schema":
                add("schemas", update["schema"])
                then["last-column-id"] = max(then["last-column-id"], update["last-column-id"])
            case "set-current-schema":
                then["current-schema-id"] = update["schema-id"]
            case "add-snapshot":
                snapshot = update["snapshot"]
                add("snapshots", snapshot)
                then["last-sequence-number"] = snapshot["sequence-number"]
                then["last-updated-ms"] = snapshot["timestamp-ms"]
                if "added-rows" in snapshot:
                    then["next-row-id"] = snapshot["first-row-id"] + snapshot["added-rows"]
            case "set-snapshot-ref":
                ref = {key: value for key, value in update.items() if key not in ("action", "ref-name")}
                then["refs"] = {**(then.get("refs") or {}), update["ref-name"]: ref}
                if update["ref-name"] == MAIN:
                    then["current-snapshot-id"] = update["snapshot-id"]
                    add("snapshot-log", {"timestamp-ms": then["last-updated-ms"], "snapshot-id": ref["snapshot-id"]})
            case "set-properties":
                then["properties"] = {**(then.get("properties") or {}), **update["updates"]}
            case "remove-snapshots":
                gone = set(update["snapshot-ids"])
                for kind in {"snapshots", "snapshot-log", "statistics", "partition-statistics"} & then.keys():
                    then[kind] = [each for each in then[kind] if each["snapshot-id"] not in gone]
            case other:
                raise ValueError(f"no update of metadata: {other}")
    if file:
        add("metadata-log", {"timestamp-ms": before.content["last-updated-ms"], "metadata-file": file})
        then["metadata-log"] = then["metadata-log"][-100:]
    return then


class Folder:
    """The folder of a table: paths as its metadata has them, and the files behind them; names are relative to it, as the port has them."""

    def __init__(self, storage: Storage, location: str) -> None:
        self.storage, self.location = storage, location.rstrip("/")
        self._prefix = f"{_bare(self.location)}/"

    def uri(self, name: str) -> str:
        return f"{self.location}/{name}"

    def name(self, path: str) -> str:
        bare = _bare(path)
        if not bare.startswith(self._prefix):
            raise CannotCommit(
                f"The table at {self.location} has a file outside of its folder: {path}.",
                hint="Let its data be written where the table is (write.data.path), and let rewrite_data_files bring it there.",
            )
        return bare[len(self._prefix) :]

    def holds(self, path: str) -> bool:
        return _bare(path).startswith(self._prefix)

    def read(self, path: str) -> bytes:
        return content_of(self.storage, self.name(path))


def _bare(path: str) -> str:
    """Without what programs write differently before one and the same path."""
    return _SCHEME.sub("", path)
