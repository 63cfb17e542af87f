"""One Delta table by its path: looks at its log, makes it, cleans it up."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from crkafka_core.config.location import library_options
from crkafka_core.lake.delta import state as states
from crkafka_core.lake.delta.columns import deltalake, in_files, protocol_of, schema_text
from crkafka_core.lake.delta.snapshot import VECTORS, DeltaSnapshot, actions_of_stamp, commit_info
from crkafka_core.lake.delta.state import NOTHING, State
from crkafka_core.lake.formats import folder_of, put_version
from crkafka_core.lake.port import KEYS, CannotCommit, Moved, Part, Stamp, TableLog, TableUnavailable
from crkafka_core.lake.vectors import vector_file
from crkafka_core.segments.errors import first_line

_log = logging.getLogger(__name__)
_known: dict[str, State] = {}
"""The last state of each table that this process has seen, by its address."""
_IN_LOG = re.compile(r"_delta_log/(\d{20})\.(json|checkpoint)")
_INTERVAL = 100
"""Commits between two checkpoints of the log, where the table's own properties do not say."""
_LEAST_AGE_S = 86_400
"""Files younger than this stay."""


def open_table(name: str, path: str, options: Mapping[str, str], conf: Mapping[str, str]) -> TableLog:
    return DeltaTable(name, path, options)


class DeltaTable(TableLog):
    widens = False  # without a table feature that few readers know

    def __init__(self, name: str, path: str, options: Mapping[str, str]) -> None:
        self.name, self.path = name, path
        self.storage = folder_of(path, options)
        self._options = library_options(path, options)

    def look(self, version: str = "") -> DeltaSnapshot | None:
        state = states.load(self.storage, int(version)) if version else self._newest()
        return None if state is None else DeltaSnapshot(self, state)

    def _newest(self) -> State | None:
        """What was known, if it is still part of the log, and the commits since; else all of it is read."""
        state = _known.get(self.path)
        if state is None or states.read_commit(self.storage, state.version) != state.last:
            _known.pop(self.path, None)
            state = states.load(self.storage)
        while state is not None and (more := states.read_commit(self.storage, state.version + 1)) is not None:
            state = state.after(state.version + 1, more)
        if state is not None:
            _known[self.path] = state
        return state

    def stored(self, schema: pa.Schema) -> pa.Schema:
        return in_files(schema_text(schema))

    def create(
        self, schema: pa.Schema, parts: Sequence[Part], stamp: Stamp, properties: Mapping[str, str]
    ) -> DeltaSnapshot:
        if any(part.transform != "identity" for part in parts):
            raise CannotCommit(f"Table {self.name}: Delta has only partitions of whole columns.")
        now, marks = int(time.time() * 1000), KEYS in properties
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_text(schema),
            "partitionColumns": [part.column for part in parts],
            "configuration": {**properties, **({VECTORS: "true"} if marks else {})},
            "createdTime": now,
        }
        actions: list[Mapping[str, Any]] = [
            {"commitInfo": commit_info(now, "CREATE TABLE", stamp, {})},
            {"protocol": protocol_of(schema, {"minReaderVersion": 1, "minWriterVersion": 2}, marks=marks)},
            {"metaData": metadata},
            *actions_of_stamp(stamp, 0),
        ]
        return DeltaSnapshot(self, self.put(NOTHING, actions))

    def put(self, state: State, actions: Sequence[Mapping[str, Any]]) -> State:
        """Commit directly after this state. Raises `Moved` if there is such a commit, `Unknown` if the storage gave no answer."""
        if not self.storage.puts_new:
            raise CannotCommit(
                f"Table {self.name} at {self.path}: a Delta log cannot be written there without Spark.",
                hint="Only folders, S3, Azure and Google's store can put a file if there is none of its name.",
            )
        version = state.version + 1
        text = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions).encode()
        if not put_version(self.storage, states.commit_path(version), text):
            raise Moved(f"Table {self.name} has changed since version {state.version}.")
        _known[self.path] = after = state.after(version, text)
        if (version + 1) % int(after.properties.get("delta.checkpointInterval") or _INTERVAL) == 0:
            self._checkpoint(version)
        return after

    def _checkpoint(self, version: int) -> None:
        """Of the log, which is then cleaned of what is older than its retention; the commit counts, whatever becomes of it."""
        lake = deltalake()
        try:
            delta = lake.DeltaTable(self.path, version=version, storage_options=self._options)
            delta.create_checkpoint()
            if str(delta.metadata().configuration.get("delta.enableExpiredLogCleanup")).lower() != "false":
                delta.cleanup_metadata()
        except (lake.exceptions.DeltaError, OSError) as error:
            _log.warning("no checkpoint of the log of table %s: %s", self.name, first_line(error))

    def expire(self, keep: Collection[int]) -> int:
        lake = deltalake()
        try:
            delta = lake.DeltaTable(self.path, storage_options=self._options)
            kept = self._kept(keep) or None
            gone = delta.vacuum(dry_run=True, enforce_retention_duration=False, full=True, keep_versions=kept)
            retention = _hours(delta.metadata().configuration)
        except lake.exceptions.TableNotFoundError:
            return 0
        except (lake.exceptions.DeltaError, OSError) as error:
            raise TableUnavailable(
                f"Table {self.name} at {self.path} could not be read or written: {first_line(error)}.",
                hint="It is tried again.",
            ) from error
        # One that was just made may be of a commit under way, however short the table's own retention is (SPEC K6).
        before = time.time() - _LEAST_AGE_S
        stay = {each.path for each in self.storage.list("") if each.modified >= before} if gone else set()
        if vectors := {path for path in gone if path not in stay and path.endswith(".bin")}:
            stay |= self._vectors_in_use(vectors, min(keep, default=None), retention)
        # Not by deltalake, which refuses tables with CLUSTER BY.
        return sum(self.storage.delete(path) for path in gone if path not in stay)

    def _vectors_in_use(self, vectors: Collection[str], first: int | None, hours: int) -> set[str]:
        """Deletion vectors, which deltalake takes for files that no version has (docs/clients.md C-P21).

        Those of the newest version, and those that a commit took out of the table after the version `first`, or within the retention.
        """
        state = self._newest()
        if state is None:
            return set(vectors)
        used = {vector_file(added.marked) for added in state.files.values()}
        since = (time.time() - hours * 3600) * 1000
        for stored in self.storage.list("_delta_log"):
            matched = _IN_LOG.match(stored.path)
            if matched is None or matched[2] != "json":
                continue
            if stored.modified * 1000 < since and (first is None or int(matched[1]) <= first):
                continue
            for action in states.actions_of(states.read_commit(self.storage, int(matched[1])) or b""):
                used |= {vector_file((action.get("remove") or {}).get("deletionVector"))}
        return used

    def _kept(self, versions: Collection[int]) -> list[int]:
        """Those that the log still has: deltalake raises for another one."""
        log = [match for each in self.storage.list("_delta_log") if (match := _IN_LOG.match(each.path))]
        first = min((int(match[1]) for match in log if match[2] == "checkpoint"), default=0)
        commits = {int(match[1]) for match in log if match[2] == "json"}
        return sorted(v for v in versions if v in commits and (v >= first or 0 in commits))


_UNITS = {"hour": 1, "day": 24, "week": 168}
_RETENTION = re.compile(r"(?:interval\s+)?(\d+)\s+(hour|day|week)s?", re.IGNORECASE)


def _hours(properties: Mapping[str, str]) -> int:
    """For how long files stay that have left a table; for ever where its own words for that are not known here."""
    text = properties.get("delta.deletedFileRetentionDuration")
    matched = _RETENTION.fullmatch((text or "interval 7 days").strip())
    return int(matched[1]) * _UNITS[matched[2].lower()] if matched else 10**6
