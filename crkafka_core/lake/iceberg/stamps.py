"""Stamps in an Iceberg table: in the summary of a snapshot, and as a property of the table, which outlives the snapshot (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crkafka_core.lake.iceberg.manifests import NextManifests
from crkafka_core.lake.iceberg.metadata import Metadata, SnapshotEntry
from crkafka_core.lake.port import Stamp

SUMMARY = "crkafka"
_PROPERTY = "crkafka.stamp."
_OWNER = "crkafka.owner"
_NUMBERS = ("permit", "token", "checkpoint", "settled", "version")


def state(stamp: Stamp) -> dict[str, str]:
    """As properties of the table. One of two regions keeps the stamps of both."""
    kept = {f"{_PROPERTY}{stamp.uid}.{stamp.table}": text(stamp)} if stamp.permit else {}
    return {_OWNER: str(stamp.owner), **kept}


def owner(metadata: Metadata) -> int | None:
    number = metadata.properties.get(_OWNER)
    return int(number) if number and number.isdigit() else None


def text(stamp: Stamp) -> str:
    return json.dumps(vars(stamp), separators=(",", ":"))


def parsed(json_text: str | None) -> Stamp | None:
    """None for what is no stamp: a person may write anything there."""
    try:
        content = json.loads(json_text or "")
        numbers = {name: int(content[name]) for name in _NUMBERS}
        return Stamp(uid=str(content["uid"]), table=str(content["table"]), **numbers)
    except (ValueError, KeyError, TypeError):
        return None


def of(snapshot: SnapshotEntry) -> Stamp | None:
    return parsed(snapshot.get("summary", {}).get(SUMMARY))


def last(metadata: Metadata, line: list[SnapshotEntry], uid: str, table: str) -> Stamp | None:
    """The latest of this region and table, among commits that lead to a version by these snapshots."""
    numbers, stamps = {int(each["sequence-number"]) for each in line}, list(map(of, line))
    kept = parsed(metadata.properties.get(f"{_PROPERTY}{uid}.{table}"))
    # The property may be of a commit before which a user has gone back.
    if kept is not None and (kept.version in numbers or kept.version < min(numbers, default=1)):
        stamps.append(kept)
    ours = [s for s in stamps if s is not None and s.permit and (s.uid, s.table) == (uid, table)]
    return max(ours, key=lambda stamp: stamp.version, default=None)


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
    counts = {f"added-{name}": added[part] for name, part in _PARTS.items()}
    counts |= {f"{_REMOVED.get(name, 'removed')}-{name}": removed[part] for name, part in _PARTS.items()}
    counts = {name: value for name, value in counts.items() if value} | {
        name: int(known[name]) + added[part] - removed[part] for name, part in totals.items() if name in known
    }
    appends = not (removed["files"] or added["delete_files"] or removed["delete_files"])
    operation = "append" if appends else "overwrite" if added["files"] else "delete"
    return {
        "operation": operation if changes_rows else "replace",
        **{name: str(value) for name, value in counts.items()},
        "total-equality-deletes": "0",
        **{f"{SUMMARY}.{name}": str(value) for name, value in info.items()},
        SUMMARY: text(stamp),
    }
