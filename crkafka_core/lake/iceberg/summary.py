"""A snapshot's summary: what readers and people are told of a commit without its manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crkafka_core.lake.iceberg import stamps
from crkafka_core.lake.iceberg.manifests import Counts, NextManifests
from crkafka_core.lake.iceberg.metadata import SnapshotEntry
from crkafka_core.lake.port import Stamp

_ADDED = {
    "added-data-files": "files",
    "added-records": "rows",
    "added-files-size": "bytes",
    "added-delete-files": "delete_files",
    "added-position-delete-files": "delete_files",
    "added-position-deletes": "marks",
}
_REMOVED = {
    "deleted-data-files": "files",
    "deleted-records": "rows",
    "removed-files-size": "bytes",
    "removed-delete-files": "delete_files",
    "removed-position-delete-files": "delete_files",
    "removed-position-deletes": "marks",
}
_TOTALS = {
    "total-data-files": "files",
    "total-records": "rows",
    "total-files-size": "bytes",
    "total-delete-files": "delete_files",
    "total-position-deletes": "marks",
}


def of(
    then: NextManifests, before: SnapshotEntry | None, stamp: Stamp, info: Mapping[str, Any], *, changes_rows: bool
) -> dict[str, str]:
    """Totals go on from those of the snapshot before, if it has them."""
    added, removed = then.added, then.removed
    known = dict.fromkeys(_TOTALS, "0") if before is None else before.get("summary", {})
    totals = {
        name: int(known[name]) + getattr(added, part) - getattr(removed, part)
        for name, part in _TOTALS.items()
        if name in known
    }
    changes = {name: getattr(added, part) for name, part in _ADDED.items()}
    changes |= {name: getattr(removed, part) for name, part in _REMOVED.items()}
    counts = {name: value for name, value in changes.items() if value} | totals
    told = {f"{stamps.SUMMARY}.{name}": str(value) for name, value in info.items()}
    return {
        "operation": _operation(added, removed) if changes_rows else "replace",
        **{name: str(value) for name, value in counts.items()},
        "total-equality-deletes": "0",
        **told,
        stamps.SUMMARY: stamps.text(stamp),
    }


def _operation(added: Counts, removed: Counts) -> str:
    if not removed.files and not added.delete_files and not removed.delete_files:
        return "append"
    return "overwrite" if added.files else "delete"
