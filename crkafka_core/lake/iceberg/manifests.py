"""Manifests of a snapshot, and those of the next one: files added and removed, small manifests merged.

A commit rewrites the manifests that list removed files, and adds one for new files. So that they stay few, ten manifests with about
the same count of files become one: a commit reads and writes about a hundred entries at most, whatever the table has.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from crkafka_core.lake.iceberg import avro
from crkafka_core.lake.iceberg.avro import ADDED, DELETED, EXISTING, Entry, Manifest
from crkafka_core.lake.iceberg.metadata import Folder, Metadata, SnapshotEntry

_MERGED_AT_ONCE = 10
"""From so many manifests with fewer than ten files, or ten to a hundred, on they are merged."""
_LARGE_LIMIT = 50
"""The same of larger ones, each of which takes longer to merge."""
_DATA_MANIFEST, _DELETE_MANIFEST = 0, 1


class Manifests:
    """What a snapshot lists; read when it is needed."""

    def __init__(self, folder: Folder, metadata: Metadata, head: SnapshotEntry | None) -> None:
        self._folder, self.metadata, self._head = folder, metadata, head
        self._read: dict[str, list[Entry]] = {}

    @cached_property
    def all(self) -> list[Manifest]:
        listed = avro.read(self._folder.read(self._head["manifest-list"])) if self._head else []
        for manifest in listed:  # a table that was once of format version 1 has manifests of that time
            for kind in ("added", "existing", "deleted"):
                manifest.setdefault(f"{kind}_files_count", manifest.pop(f"{kind}_data_files_count", None))
        return [{"content": _DATA_MANIFEST, "sequence_number": 0, "min_sequence_number": 0, **each} for each in listed]

    def of(self, content: int) -> list[Manifest]:
        return [each for each in self.all if each["content"] == content and _live(each)]

    def live(self, content: int) -> Iterator[tuple[Manifest, Entry]]:
        """Entries of data files or of delete files, each with its manifest."""
        manifests = self.of(_DELETE_MANIFEST if content else _DATA_MANIFEST)
        for manifest, entries in zip(manifests, self._folder.storage.each(self.entries, manifests), strict=True):
            for entry in entries:
                yield manifest, entry

    def find(self, paths: Collection[str], near: Collection[str]) -> dict[str, tuple[Manifest, Entry]]:
        """Data files by their path as the table has it. `near`: manifests that are likely to list them, which are read first."""
        entries: dict[str, tuple[Manifest, Entry]] = {}
        for manifest in sorted(self.of(_DATA_MANIFEST), key=lambda each: each["manifest_path"] not in near):
            if len(entries) == len(paths):
                break
            for entry in self.entries(manifest):
                if entry["data_file"]["file_path"] in paths:
                    entries[entry["data_file"]["file_path"]] = manifest, entry
        return entries

    def entries(self, manifest: Manifest) -> list[Entry]:
        """Those that are not deleted, with the numbers that they have from their manifest; never changed."""
        path = manifest["manifest_path"]
        if path in self._read:
            return self._read[path]
        entries = [e for e in avro.read(self._folder.read(path)) if e["status"] != DELETED]
        row_id = manifest.get("first_row_id")
        for entry in entries:
            for key in ("sequence_number", "file_sequence_number"):
                if entry.get(key) is None:
                    entry[key] = manifest["sequence_number"] or 0
            if entry.get("snapshot_id") is None:
                entry["snapshot_id"] = manifest["added_snapshot_id"]
            file = entry["data_file"]
            file.setdefault("content", avro.DATA)
            if row_id is not None and file.get("first_row_id") is None:
                file["first_row_id"], row_id = row_id, row_id + file["record_count"]
        self._read[path] = entries
        return entries


def _live(manifest: Manifest) -> int:
    """How many files it lists that are there. A count that is missing stands for some."""
    counts = manifest.get("added_files_count"), manifest.get("existing_files_count")
    return 1 if None in counts else sum(map(int, counts))  # type: ignore[arg-type]


def _file_key(entry: Entry) -> str:
    """Deletion vectors of several files lie in one."""
    file = entry["data_file"]
    return f"{file['file_path']}@{file.get('content_offset') or 0}"


def _counts(file: Mapping[str, Any]) -> Counter[str]:
    """What a file is in the summary of a snapshot that adds or removes it."""
    kinds = ("files", "rows") if file["content"] == avro.DATA else ("delete_files", "marks")
    return Counter({kinds[0]: 1, kinds[1]: file["record_count"], "bytes": file["file_size_in_bytes"]})


@dataclass
class NextManifests:
    """The manifests of a snapshot that is being made. `write` puts them; nothing refers to them before the commit."""

    before: Manifests
    folder: Folder
    snapshot: int
    """Its id."""
    sequence: int
    token: str = field(default_factory=lambda: str(uuid.uuid4()))
    added: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    written: list[tuple[str, bytes]] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    """Files that the commit has put besides."""
    _new: list[Manifest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._kept = [each for each in self.before.all if _live(each)]

    def add(self, files: Sequence[Mapping[str, Any]], spec_id: int) -> None:
        if not files:
            return
        for file in files:
            self.added.update(_counts(file))
        self._add_manifest([{"status": ADDED, "snapshot_id": self.snapshot, "data_file": f} for f in files], spec_id)

    def remove(self, listed: Iterable[tuple[Manifest, Entry]]) -> None:
        gone: dict[str, set[str]] = defaultdict(set)
        manifests = {}
        for manifest, entry in listed:
            gone[manifest["manifest_path"]].add(_file_key(entry))
            manifests[manifest["manifest_path"]] = manifest
        for path, manifest in manifests.items():
            entries = []
            for entry in self.before.entries(manifest):
                if _file_key(entry) in gone[path]:
                    self.removed.update(_counts(entry["data_file"]))
                    entries.append({**entry, "status": DELETED, "snapshot_id": self.snapshot})
                else:
                    entries.append({**entry, "status": EXISTING})
            self._add_manifest(entries, manifest["partition_spec_id"])
        self._kept = [each for each in self._kept if each["manifest_path"] not in manifests]

    def write(self, parent: int | None) -> tuple[str, int]:
        """Put all of it; the path of the manifest list, and how many row ids it has given away (format version 3)."""
        kept = self._merged(self._kept)
        manifests, ids = [*self._new, *kept], 0
        version, first = self.before.metadata.format_version, int(self.before.metadata.content.get("next-row-id") or 0)
        for manifest in manifests if version >= 3 else ():
            if manifest["content"] == _DATA_MANIFEST and manifest.get("first_row_id") is None:
                manifest["first_row_id"] = first + ids
                ids += manifest["added_rows_count"] + manifest["existing_rows_count"]
        header = {"snapshot-id": str(self.snapshot), "sequence-number": str(self.sequence)}
        header["format-version"] = str(version)
        if parent is not None:
            header["parent-snapshot-id"] = str(parent)
        name = f"metadata/snap-{self.snapshot}-1-{self.token}.avro"
        self.written.append((name, avro.write(avro.list_schema(version), manifests, header)))
        self.folder.storage.put_together(self.written)
        return self.folder.uri(name), ids

    def discard(self) -> None:
        """After a refusal: nothing refers to these files."""
        for name in (*(name for name, _ in self.written), *self.beside):
            self.folder.storage.delete(name)

    def _merged(self, manifests: list[Manifest]) -> list[Manifest]:
        """At most one merge of each kind in a commit, of the smallest."""
        groups: dict[tuple[int, int], dict[int, list[Manifest]]] = defaultdict(lambda: defaultdict(list))
        for each in manifests:
            tier = len(str(_live(each))) - 1
            groups[each["content"], each["partition_spec_id"]][tier].append(each)
        gone: set[str] = set()
        for (_, spec_id), tiers in groups.items():
            for tier, peers in sorted(tiers.items()):
                if len(peers) >= (_MERGED_AT_ONCE if tier < 2 else _LARGE_LIMIT):
                    oldest = peers[-_MERGED_AT_ONCE:]
                    entries = [{**e, "status": EXISTING} for each in oldest for e in self.before.entries(each)]
                    self._add_manifest(entries, spec_id)
                    gone |= {each["manifest_path"] for each in oldest}
                    break
        return [each for each in manifests if each["manifest_path"] not in gone]

    def _add_manifest(self, entries: list[Entry], spec_id: int) -> None:
        metadata = self.before.metadata
        partitioning = metadata.partitioning(spec_id)
        content = _DATA_MANIFEST if entries[0]["data_file"]["content"] == avro.DATA else _DELETE_MANIFEST
        for entry in entries:
            file = entry["data_file"]
            entry["data_file"] = {**file, "partition": partitioning.again(file["partition"])}
        header = {
            "schema": json.dumps(metadata.schema),
            "partition-spec": json.dumps(partitioning.fields),
            "partition-spec-id": str(spec_id),
            "format-version": str(metadata.format_version),
            "content": "deletes" if content else "data",
        }
        text = avro.write(partitioning.schema(metadata.format_version), entries, header)
        name = f"metadata/{self.token}-m{len(self.written)}.avro"
        self.written.append((name, text))
        counts = dict[str, int]()
        for kind, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED)):
            rows = [entry["data_file"]["record_count"] for entry in entries if entry["status"] == status]
            counts |= {f"{kind}_files_count": len(rows), f"{kind}_rows_count": sum(rows)}
        live = [e.get("sequence_number") or self.sequence for e in entries if e["status"] != DELETED]
        self._new.append(
            {
                "manifest_path": self.folder.uri(name),
                "manifest_length": len(text),
                "partition_spec_id": spec_id,
                "content": content,
                "sequence_number": self.sequence,
                "min_sequence_number": min(live, default=self.sequence),
                "added_snapshot_id": self.snapshot,
                **counts,
                "partitions": partitioning.summary([e["data_file"]["partition"] for e in entries]),
            }
        )
