"""Commits to a Delta table's log that deltalake refuses to make: each is one file, made whole and only if there is none of its number."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.segments.storage import Storage
from crkafka_core.tables.file_statistics import NewFile
from crkafka_core.tables.log import DataFile

CLUSTERED = {"appendOnly", "invariants", "domainMetadata", "clustering"}
"""Features of a table after CLUSTER BY. deltalake refuses the last two; they ask no more of a commit that brings or takes files than
bounds of columns, and to leave alone what the log says of the table.
"""
_USUAL_INTERVAL = 100


def checkpoint_is_due(version: int, properties: Mapping[str, str]) -> bool:
    """With this commit, as deltalake counts: it writes a checkpoint of the log then, and cleans it."""
    return (version + 1) % int(properties.get("delta.checkpointInterval") or _USUAL_INTERVAL) == 0


def commit_info(folder: Storage, version: int) -> dict[str, Any] | None:
    """What a commit says of itself; None when the log has been cleaned of it."""
    try:
        with folder.open_read(_file_of(version)) as source:
            actions = [json.loads(line) for line in source.read().splitlines() if line]
    except SegmentMissing:
        return None
    found: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    return found


def append(
    folder: Storage,
    version: int,
    said: str,
    facts: Mapping[str, int],
    files: Iterable[NewFile],
    leaving: Iterable[DataFile],
) -> bool:
    """Commit this very version, with files that come and that leave; False: somebody else was quicker."""
    info = {
        "timestamp": _now(),
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "engineInfo": "crkafka",
        "userMetadata": said,
    }
    actions: list[Mapping[str, Any]] = [{"commitInfo": info}]
    actions += ({"txn": {"appId": app, "version": number}} for app, number in facts.items())
    actions += ({"add": _added(file)} for file in files)
    actions += ({"remove": _removed(file)} for file in leaving)
    text = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)
    return folder.put_new(_file_of(version), text.encode())


def _added(file: NewFile) -> dict[str, Any]:
    return {
        "path": quote(file.name),
        "partitionValues": {},
        "size": file.size,
        "modificationTime": _now(),
        "dataChange": True,
        "stats": file.statistics,
    }


def _removed(file: DataFile) -> dict[str, Any]:
    return {
        "path": quote(file.path),
        "deletionTimestamp": _now(),
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition_values),
        "size": file.bytes,
    }


def _file_of(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _now() -> int:
    return int(time.time() * 1000)
