"""Stamps in an Iceberg table: in the summary of the snapshot, and as a property of the table, which outlives the snapshot (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Iterator

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
