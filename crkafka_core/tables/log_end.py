"""How a Delta table's log ends, known from our own last commit: as long as nobody has committed since, the next goes directly behind it.

deltalake reads what the log says of all files before each commit, 0.2 s where there are 20,000 (docs/clients.md C-P12). What a commit
that only adds files needs to know is little, and our last one has left it as it was: protocol, columns, the numbers of our commits.
A commit counts by its file alone, which is made whole and only if there is none of its number. So nothing can come between here either.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.segments.local import LocalStorage
from crkafka_core.segments.storage import Storage
from crkafka_core.tables.file_statistics import NewFile
from crkafka_core.tables.log import DataFile

PLAIN_WRITER = 2
"""Up to this version of its protocol nothing has to be written that we do not write."""
CLUSTERED = {"appendOnly", "invariants", "domainMetadata", "clustering"}
"""Features of a table after CLUSTER BY. deltalake refuses the last two; they ask no more of a commit that brings or takes files than
bounds of columns, and to leave alone what the log says of the table.
"""
_USUAL_INTERVAL = 100


@dataclass(frozen=True)
class End:
    """The last commit, which is ours."""

    version: int
    said: str
    """Its metadata, with a token that no other commit has."""
    facts: Mapping[str, int]
    """Transactions of the log that it has set."""
    schema: str
    """Of its columns, as the log has it."""
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]

    @property
    def checkpoint_is_due(self) -> bool:
        """With the next commit: deltalake makes that one."""
        return checkpoint_is_due(self.version + 1, self.properties)


def checkpoint_is_due(version: int, properties: Mapping[str, str]) -> bool:
    """With this commit, as deltalake counts: it writes a checkpoint of the log then, and cleans it."""
    return (version + 1) % int(properties.get("delta.checkpointInterval") or _USUAL_INTERVAL) == 0


_known: dict[str, End] = {}
"""By the table's address."""


def known(uri: str, folder: Storage) -> End | None:
    """The end of the log, if it is still there and still the end."""
    end = _known.get(uri)
    if end is None:
        return None
    told = commit_info(folder, end.version)
    if told is not None and told.get("userMetadata") == end.said and not folder.exists(_file_of(end.version + 1)):
        return end
    _known.pop(uri, None)
    return None


def remember(uri: str, folder: Storage, end: End) -> None:
    """After a commit of ours, to a table of a plain protocol."""
    if isinstance(folder, LocalStorage):
        _known[uri] = end


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
    leaving: Iterable[DataFile] = (),
    changes_rows: bool = True,
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
    actions += ({"remove": _removed(file, changes_rows)} for file in leaving)
    text = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)
    return folder.put_new(_file_of(version), text.encode())


def _added(file: NewFile) -> dict[str, Any]:
    return {
        "path": quote(file.name),
        "partitionValues": {},
        "size": file.size,
        "modificationTime": _now(),
        "dataChange": file.changes_rows,
        "stats": file.statistics,
    }


def _removed(file: DataFile, changes_rows: bool) -> dict[str, Any]:
    return {
        "path": quote(file.path),
        "deletionTimestamp": _now(),
        "dataChange": changes_rows,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition_values),
        "size": file.bytes,
    }


def _file_of(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _now() -> int:
    return int(time.time() * 1000)
