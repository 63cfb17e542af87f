"""Stamps in an Iceberg table: in the summary of a snapshot, and as a property of the table, which outlives the snapshot (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from crkafka_core.lake.iceberg.manifests import Counts, NextManifests
from crkafka_core.lake.iceberg.metadata import Metadata, SnapshotEntry
from crkafka_core.lake.port import Stamp

SUMMARY = "crkafka"
_PROPERTY = "crkafka.stamp."
_OWNER = "crkafka.owner"
_NUMBERS = ("permit", "token", "checkpoint", "settled", "version")


def state(stamp: Stamp) -> dict[str, str]:
    """As properties of the table. One of two regions keeps the stamps of both."""
    made = {_OWNER: str(stamp.owner)}
    return made | {f"{_PROPERTY}{stamp.uid}.{stamp.table}": text(stamp)} if stamp.permit else made


def owner(metadata: Metadata) -> int | None:
    found = metadata.properties.get(_OWNER)
    return int(found) if found and found.isdigit() else None


def text(stamp: Stamp) -> str:
    return json.dumps(vars(stamp), separators=(",", ":"))


def parsed(found: str | None) -> Stamp | None:
    """None for what is no stamp: a person may write anything there."""
    try:
        content = json.loads(found or "")
        numbers = {name: int(content[name]) for name in _NUMBERS}
        return Stamp(uid=str(content["uid"]), table=str(content["table"]), **numbers)
    except (ValueError, KeyError, TypeError):
        return None


def of(snapshot: SnapshotEntry) -> Stamp | None:
    return parsed(snapshot.get("summary", {}).get(SUMMARY))


def last(metadata: Metadata, line: list[SnapshotEntry], uid: str, table: str) -> Stamp | None:
    """The latest of this region and table, among commits that lead to a version by these snapshots."""
    ours = (s for s in _leading(metadata, line, f"{_PROPERTY}{uid}.{table}") if (s.uid, s.table) == (uid, table))
    return max((s for s in ours if s.permit), key=lambda stamp: stamp.version, default=None)


def _leading(metadata: Metadata, line: list[SnapshotEntry], key: str) -> Iterator[Stamp]:
    """The property may be of a commit before which a user has gone back."""
    numbers = {int(each["sequence-number"]) for each in line}
    stamp = parsed(metadata.properties.get(key))
    if stamp is not None and (stamp.version in numbers or stamp.version < min(numbers, default=1)):
        yield stamp
    yield from filter(None, map(of, line))


_PARTS = {
    "data-files": "files",
    "records": "rows",
    "files-size": "bytes",
    "delete-files": "delete_files",
    "position-delete-files": "delete_files",
    "position-deletes": "marks",
}
"""Endings of names in a summary: what they count."""
_REMOVED = {"data-files": "deleted", "records": "deleted"}
"""How their names begin where they leave the table; others are `removed`."""


def summary(
    then: NextManifests, before: SnapshotEntry | None, stamp: Stamp, info: Mapping[str, Any], *, changes_rows: bool
) -> dict[str, str]:
    """What readers and people learn of a commit without its manifests. Totals go on from those of the snapshot before, if it has them."""
    added, removed = then.added, then.removed
    totals = {f"total-{name}": part for name, part in _PARTS.items() if name != "position-delete-files"}
    known = dict.fromkeys(totals, "0") if before is None else before.get("summary", {})
    counts = {f"added-{name}": getattr(added, part) for name, part in _PARTS.items()}
    counts |= {f"{_REMOVED.get(name, 'removed')}-{name}": getattr(removed, part) for name, part in _PARTS.items()}
    counts = {name: value for name, value in counts.items() if value} | {
        name: int(known[name]) + getattr(added, part) - getattr(removed, part)
        for name, part in totals.items()
        if name in known
    }
    return {
        "operation": _operation(added, removed) if changes_rows else "replace",
        **{name: str(value) for name, value in counts.items()},
        "total-equality-deletes": "0",
        **{f"{SUMMARY}.{name}": str(value) for name, value in info.items()},
        SUMMARY: text(stamp),
    }


def _operation(added: Counts, removed: Counts) -> str:
    if not removed.files and not added.delete_files and not removed.delete_files:
        return "append"
    return "overwrite" if added.files else "delete"
