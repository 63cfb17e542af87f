"""The state of a Delta table at one version of its log: replayed from its last checkpoint, then commit by commit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from crkafka_core.lake.formats import content_of
from crkafka_core.lake.port import CannotCommit, DataFile, TableUnavailable
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.errors import SegmentMissing
from crkafka_core.segments.storage import Storage

LOG = "_delta_log"
_CHECKPOINT = re.compile(LOG + r"/(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f]{8}-[0-9a-f-]{27})?\.parquet")
_ADD = ("path", "partitionValues", "size", "stats", "deletionVector")
"""Of an added file what a commit or a reader needs."""
Action = Mapping[str, Any]


class AddedFile:
    """An `add` of the log; its statistics are parsed on demand."""

    def __init__(self, action: Action) -> None:
        self.action = action
        self.marked = action.get("deletionVector")

    @cached_property
    def file(self) -> DataFile:
        """As the port has it, without marks."""
        stats = json.loads(self.action.get("stats") or "{}")
        path = unquote(self.action["path"])
        if "://" in path:
            raise CannotCommit(
                f"The table's log names a file outside of its folder: {path}.",
                hint="Is it a shallow clone? Write a deep one.",
            )
        parts = self.action.get("partitionValues") or {}
        lowest, highest = stats.get("minValues") or {}, stats.get("maxValues") or {}
        return DataFile(
            path,
            int(self.action["size"]),
            int(stats.get("numRecords", -1)),
            lowest,
            highest,
            stats.get("nullCount") or {},
            dict(parts),
        )


def key_of(action: Action) -> str:
    """By which an `add` and its `remove` find each other: a file with another deletion vector is another file to the log."""
    vector = action.get("deletionVector")
    unique = "" if not vector else f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"
    return f"{action['path']}#{unique}"


@dataclass(frozen=True)
class State:
    version: int
    last: bytes
    """The commit that made it."""
    protocol: Action
    metadata: Action
    transactions: Mapping[str, int]
    files: Mapping[str, AddedFile]

    def after(self, version: int, text: bytes) -> State:
        return _replayed(replace(self, version=version, last=text), actions_of(text))

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        return list(json.loads(self.metadata["schemaString"])["fields"])

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.get("configuration") or {}


NOTHING = State(-1, b"", {}, {}, {}, {})
"""Before the first version."""


def commit_path(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def read_commit(folder: Storage, version: int) -> bytes | None:
    """None: there is no such commit, or the log was cleaned of it."""
    try:
        return content_of(folder, commit_path(version))
    except SegmentMissing:
        return None


def actions_of(text: bytes) -> list[Action]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def about(actions: Iterable[Action]) -> Action:
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def load(folder: Storage, upto: int | None = None) -> State | None:
    """The newest version, or the one that is asked for; None: there is no table, or not this version of it any more."""
    names = [stored.path for stored in folder.list(LOG)]
    start, parts = _checkpoint(names, upto)
    state = NOTHING
    if start >= 0:
        state = _replayed(replace(state, version=start, last=read_commit(folder, start) or b""), _rows(folder, parts))
    while (upto is None or state.version < upto) and (text := read_commit(folder, state.version + 1)) is not None:
        state = state.after(state.version + 1, text)
    if state.version < 0 and any(name.endswith(".json") for name in names) and upto is None:
        raise TableUnavailable(
            f"The log of the Delta table at {folder.url} has neither its first commit nor a checkpoint that can be read.",
            hint="Is a part of its folder missing?",
        )
    return state if state.version >= 0 and (upto is None or state.version == upto) else None


def _checkpoint(names: Iterable[str], upto: int | None) -> tuple[int, list[str]]:
    """The newest one that is whole, not after a version; −1: there is none."""
    parts: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if (match := _CHECKPOINT.fullmatch(name)) is not None and (upto is None or int(match[1]) <= upto):
            parts.setdefault((int(match[1]), int(match[3] or 1)), []).append(name)
    whole = [(version, count, sorted(given)) for (version, count), given in parts.items() if len(given) >= count]
    version, count, files = max(whole, default=(-1, 0, []))
    return version, files[:count]


def _rows(folder: Storage, paths: Iterable[str]) -> list[Action]:
    actions: list[Action] = []
    named = [*(f"add.{name}" for name in _ADD), "metaData", "protocol", "txn", "sidecar"]
    for path in paths:
        for row in parquet.records(folder, path, named):
            actions += ({kind: _plain(value)} for kind, value in row.items() if value is not None)
    more = [a["sidecar"]["path"] for a in actions if "sidecar" in a]
    return actions + (_rows(folder, [f"{LOG}/_sidecars/{name}" for name in more]) if more else [])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if v is not None or k == "partitionValues"}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value


def _replayed(state: State, actions: Iterable[Action]) -> State:
    protocol, metadata = state.protocol, state.metadata
    transactions, files = dict(state.transactions), dict(state.files)
    for action in actions:
        for kind, what in action.items():
            if kind == "add":
                added = AddedFile({name: what.get(name) for name in _ADD})
                files[key_of(added.action)] = added
            elif kind == "remove":
                files.pop(key_of(what), None)
            elif kind == "txn":
                transactions[what["appId"]] = int(what["version"])
            elif kind == "metaData":
                metadata = what
            elif kind == "protocol":
                protocol = what
    return replace(state, protocol=protocol, metadata=metadata, transactions=transactions, files=files)
