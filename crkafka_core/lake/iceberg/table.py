"""A version of an Iceberg table and commits on it; what differs between a path and a catalog is how updates are put (SPEC K6).

A commit writes manifests and a manifest list under new names, which count for nothing yet. Then one compare-and-set puts the new
snapshot, the stamp as a property, a changed schema, and what of the older snapshots is forgotten.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import pyarrow as pa

from crkafka_core.lake import port
from crkafka_core.lake.iceberg import avro, columns, expiry, files, partitions, stamps
from crkafka_core.lake.iceberg.files import Deletes, Source
from crkafka_core.lake.iceberg.manifests import Manifests, NextManifests
from crkafka_core.lake.iceberg.metadata import MAIN, Folder, Metadata, SnapshotEntry, Update
from crkafka_core.lake.vectors import Positions
from crkafka_core.segments.storage import Storage


class IcebergLog(port.TableLog, ABC):
    """What a path and a catalog have in common."""

    name: str
    """For people."""
    storage: Storage

    def stored(self, schema: pa.Schema) -> pa.Schema:
        return columns.to_arrow(columns.new_schema(schema))

    @abstractmethod
    def newest(self) -> tuple[Metadata, Any] | None:
        """The table's metadata now, and what `put` compares with, which has its `file`; None if there is no table."""

    @abstractmethod
    def put(self, base: Metadata, at: Any, updates: Sequence[Update]) -> tuple[Metadata, Any]:
        """The next metadata, if nothing came after `base`. Raises `Moved`, `Unknown` or `CannotCommit`."""

    def look(self, version: str = "") -> IcebergSnapshot | None:
        newest = self._newest_writable()
        if newest is None:
            return None
        metadata, at = newest
        head = metadata.head
        if version:
            head = next((s for s in metadata.snapshots.values() if s["sequence-number"] == int(version)), None)
            if head is None:
                return None
        return IcebergSnapshot(self, metadata, at, head)

    def expire(self, keep: Collection[int]) -> int:
        before = time.time() - _KEPT_S
        newest = self._newest_writable()
        if newest is None:
            return 0
        metadata, at = newest
        if gone := expiry.by_age(metadata, keep, before):
            metadata, at = self.put(metadata, at, [{"action": "remove-snapshots", "snapshot-ids": gone}])
        folder = Folder(self.storage, metadata.location)
        return expiry.delete_unreferenced(folder, metadata, at.file, before)

    def _newest_writable(self) -> tuple[Metadata, Any] | None:
        """The table now; refused where these commits could not keep what it has."""
        newest = self.newest()
        if newest is None:
            return None
        metadata, _ = newest
        if metadata.format_version not in (2, 3):
            raise port.CannotCommit(
                f"{self.name} is of Iceberg's format version {metadata.format_version}; versions 2 and 3 are written.",
                hint="In Spark: ALTER TABLE … SET TBLPROPERTIES ('format-version' = '2').",
            )
        if "encryption.key-id" in metadata.properties:
            raise port.CannotCommit(f"{self.name} is encrypted by Iceberg.", hint="Write it with Spark.")
        return newest


class IcebergSnapshot(port.Snapshot):
    """One version of a table, by one version of its metadata."""

    def __init__(self, log: IcebergLog, metadata: Metadata, put_on: Any, head: SnapshotEntry | None) -> None:
        """`put_on`: what the log compares with at a commit."""
        self.log, self.metadata, self._put_on, self._head = log, metadata, put_on, head
        number, last = (int(head["sequence-number"]) if head else 0), metadata.last_sequence
        # Where a user went back to an older snapshot, no number stands for that: it is the next one.
        self.version = number if number == last or head is not metadata.head else last + 1
        self.at = str(head["snapshot-id"]) if head else ""
        self.properties = metadata.properties
        self._schema = metadata.schema
        self.schema = columns.to_arrow(self._schema)
        self.parts = partitions.parts_of(metadata.spec, self._schema)

    def stamp(self, uid: str, table: str) -> port.Stamp | None:
        return stamps.last(self.metadata, [*self._line()], uid, table)

    def owner(self) -> int | None:
        return stamps.owner(self.metadata)

    def since(self, version: int) -> Sequence[port.LogEntry] | None:
        """With an entry without a number of its own where a user went back to before that version."""
        entries: list[port.LogEntry] = []
        reached = self.version if self._head is None else self.version + 1
        for each in self._line():
            number = int(each["sequence-number"])
            if number <= version:
                if number < version:
                    entries.append(port.LogEntry(number, None, True))
                return entries[::-1]
            entries.append(self._entry(number, each))
            reached = number
        return entries[::-1] if reached <= max(version + 1, 1) else None

    def files(self) -> Iterable[port.DataFile]:
        reader = files.Reader(self._folder, self.metadata, self._deletes)
        return (reader.file(manifest, entry) for manifest, entry in self._manifests.live(avro.DATA))

    def commit(self, stamp: port.Stamp, change: port.Change = port.NO_CHANGE) -> IcebergSnapshot:
        if self._head is not self.metadata.head:
            raise port.Moved(f"{self.log.name} has gone on since version {self.version}.")
        number = self.metadata.last_sequence + 1
        then = NextManifests(self._manifests, self._folder, secrets.randbits(63), number)
        updates, evolved = self._schema_updates(change.schema)
        self._remove(then, change.remove, change.marks)
        self._add(then, change.add, evolved)
        stamp = replace(stamp, version=number)
        summary = stamps.summary(then, self._head, stamp, change.info, changes_rows=change.changes_rows)
        made = self._write(then, summary, evolved["schema-id"])
        properties, before = stamps.state(stamp), self.properties.get(columns.NAME_MAPPING)
        if before is None or evolved is not self._schema:
            properties[columns.NAME_MAPPING] = columns.name_mapping(evolved, before)
        main = {"action": "set-snapshot-ref", "ref-name": MAIN, "type": "branch", "snapshot-id": then.snapshot}
        updates += [{"action": "add-snapshot", "snapshot": made}, main]
        if port.KEYS in self.properties and stamp.permit:
            # Others' expiry leaves the version to which the next commit of a table with one row for each key may go back.
            updates.append({**main, "ref-name": "crkafka", "type": "tag"})
        updates.append({"action": "set-properties", "updates": properties})
        if forgotten := expiry.by_count(self.metadata, change.keep):
            updates.append({"action": "remove-snapshots", "snapshot-ids": forgotten})
        try:
            metadata, at = self.log.put(self.metadata, self._put_on, updates)
        except port.Moved:
            then.discard()
            raise
        return IcebergSnapshot(self.log, metadata, at, metadata.head)

    def _remove(
        self, then: NextManifests, gone: Collection[port.DataFile], marks: Mapping[port.DataFile, Collection[int]]
    ) -> None:
        """Files that leave the table, and marks that leave it with them or are replaced."""
        wanted = {self._folder.uri(file.path): file for file in (*gone, *marks)}
        near = {file.manifest for file in wanted.values() if isinstance(file, files.IcebergFile)}
        listed = self._manifests.find(wanted.keys(), near) if wanted else {}
        changed = [
            path
            for path, file in wanted.items()
            if path not in listed or file.marks != self._deletes.marks(path, listed[path][1]["sequence_number"])
        ]
        if changed:
            raise port.Moved(
                f"{self.log.name} does not have {len(changed)} files any more, with their marks, that are to change."
            )
        sources = [s for path, (_, entry) in listed.items() for s in self._deletes.of(path, entry["sequence_number"])]
        leaving = [listed[self._folder.uri(file.path)] for file in gone]
        then.remove([*leaving, *(s.listed for s in sources if s.listed and not s.shared)])
        new: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for file, rows in marks.items():
            manifest, entry = listed[self._folder.uri(file.path)]
            # Marks in a file that has marks of other files too can become more, and not fewer.
            before = file.marks or ()
            shared = isinstance(before, Positions) and any(s.shared for s in cast("frozenset[Source]", before.places))
            if shared and not set(before) <= set(rows):
                raise port.CannotCommit(
                    f"Marks of {file.path} lie in one file with those of others, which another program wrote.",
                    hint="CALL catalog.system.rewrite_position_delete_files(…) in Spark, then the table goes on by itself.",
                )
            new[manifest["partition_spec_id"]] += self._delete_files(then, entry["data_file"], rows)
        for spec_id, deletes in new.items():
            then.add(deletes, spec_id)

    def _add(self, then: NextManifests, new: Sequence[port.NewFile], schema: columns.Schema) -> None:
        """A file that comes back may have had marks."""
        if not new:
            return
        spec = self.metadata.partitioning(self.metadata.spec["spec-id"])
        entries = [files.new_entry(file, self._folder, schema, spec) for file in new]
        then.add(entries, spec.id)
        marked = [(e, f.marks) for e, f in zip(entries, new, strict=True) if isinstance(f, port.DataFile) and f.marks]
        then.add([each for entry, marks in marked for each in self._delete_files(then, entry, marks)], spec.id)

    def _delete_files(
        self, then: NextManifests, file: Mapping[str, Any], marks: Collection[int]
    ) -> list[dict[str, Any]]:
        """The file with the marks of a data file; none where it has no marks."""
        if not marks:
            return []
        if self.metadata.format_version > 2:
            raise port.CannotCommit(
                f"{self.log.name} is of Iceberg's format version {self.metadata.format_version}, where rows are marked by Spark alone.",
                hint="Let a table whose rows change be of version 2, which all readers know.",
            )
        name = f"data/{then.token}-deletes-{len(then.beside)}.parquet"
        then.beside.append(name)
        return [files.write_marks(self._folder, name, file["file_path"], marks, file["partition"])]

    def _write(self, then: NextManifests, summary: Mapping[str, str], schema_id: int) -> SnapshotEntry:
        """Put the manifests; the snapshot with them."""
        parent = None if self._head is None else int(self._head["snapshot-id"])
        listed, row_ids = then.write(parent)
        made = {
            "snapshot-id": then.snapshot,
            "sequence-number": then.sequence,
            "timestamp-ms": max(int(time.time() * 1000), int(self.metadata.content["last-updated-ms"])),
            "manifest-list": listed,
            "summary": summary,
            "schema-id": schema_id,
        }
        if parent is not None:
            made["parent-snapshot-id"] = parent
        if self.metadata.format_version >= 3:
            made |= {"first-row-id": int(self.metadata.content.get("next-row-id") or 0), "added-rows": row_ids}
        return made

    def _entry(self, number: int, snapshot: SnapshotEntry) -> port.LogEntry:
        operation = snapshot.get("summary", {}).get("operation", "")
        touched = None if operation == "delete" else self._touched(snapshot)
        return port.LogEntry(number, stamps.of(snapshot), operation != "replace", touched)

    def _touched(self, snapshot: SnapshotEntry) -> tuple[int, int] | None:
        """By the manifests that the snapshot made; a file without bounds may have rows of any checkpoint."""
        manifests, made = Manifests(self._folder, self.metadata, snapshot), snapshot["snapshot-id"]
        reader = files.Reader(self._folder, self.metadata, Deletes(self._folder, manifests))
        numbers = [
            reader.file(manifest, entry).numbers or _ANY
            for manifest in manifests.of(0)
            if manifest["added_snapshot_id"] == made and manifest["added_files_count"] != 0
            for entry in manifests.entries(manifest)
            if entry["status"] == avro.ADDED
        ]
        return (min(n[0] for n in numbers), max(n[1] for n in numbers)) if numbers else None

    def _line(self) -> Iterator[SnapshotEntry]:
        return self.metadata.line(self._head) if self._head else iter(())

    @cached_property
    def _folder(self) -> Folder:
        return Folder(self.log.storage, self.metadata.location)

    @cached_property
    def _manifests(self) -> Manifests:
        return Manifests(self._folder, self.metadata, self._head)

    @cached_property
    def _deletes(self) -> Deletes:
        return Deletes(self._folder, self._manifests)

    def _schema_updates(self, wanted: pa.Schema | None) -> tuple[list[Update], columns.Schema]:
        """How the schema gets into the table, and the one from this commit on."""
        last = int(self.metadata.content["last-column-id"])
        made = None if wanted is None else columns.evolved(self._schema, wanted, last)
        if made is None:
            return [], self._schema
        number = max(each["schema-id"] for each in self.metadata.content["schemas"]) + 1
        made = {**made, "schema-id": number}
        return [
            {"action": "add-schema", "schema": made, "last-column-id": max(last, columns.last_id(made))},
            {"action": "set-current-schema", "schema-id": number},
        ], made


_ANY = (0, 2**63 - 1)
_KEPT_S = 7 * 86_400.0
"""Seconds for which versions and unreferenced files are kept: readers need them, and a late writer must find its version's name taken."""
