"""An Iceberg table at a plain path, in Hadoop's layout: a version is metadata/vN.metadata.json, put if there is none of that name."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import time

import pyarrow as pa

from crkafka_core.config.location import hadoop_url
from crkafka_core.lake.formats import content_of, put_version
from crkafka_core.lake.iceberg import columns, partitions
from crkafka_core.lake.iceberg import metadata as tables
from crkafka_core.lake.iceberg.metadata import Metadata, Update
from crkafka_core.lake.iceberg.table import IcebergLog, IcebergSnapshot
from crkafka_core.lake.port import CannotCommit, Moved, Part, Stamp, TableUnavailable
from crkafka_core.segments.errors import SegmentMissing, StorageUnavailable
from crkafka_core.segments.storage import Storage

_FOLDER = "metadata"
_HINT = f"{_FOLDER}/version-hint.text"
_VERSION = re.compile(rf"{_FOLDER}/v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_AT_ONCE_S = 60.0
"""A commit so soon after its look needs no listing: its name cannot have been taken and deleted meanwhile."""


@dataclass(frozen=True)
class _Version:
    """A version's number and file."""

    number: int
    file: str
    seen: float = field(default_factory=lambda: time(), compare=False)
    """When a look has seen it, by this machine's clock."""


class PathLog(IcebergLog):
    """`storage`: the table's folder, with `put_new`. `name`: of the table, for people."""

    def __init__(self, storage: Storage, name: str = "") -> None:
        self.storage, self.name = storage, name or storage.url
        if not storage.puts_new:
            raise CannotCommit(
                f"{storage.url} cannot write a file only if it is new, so two writers of a table could not be told apart.",
                hint="Use a folder, s3://…, abfss://… or gs://…, or a catalog.",
            )

    def newest(self) -> tuple[Metadata, _Version] | None:
        """By the hint, and on from there; by a listing where the hint is missing or leads nowhere."""
        try:
            hint = self._hint()
            last = None if hint is None else self._after(hint - 1)
            if last is None:
                last = max(self._listed(), key=lambda each: each.number, default=None)
            if last is None:
                return None
            while (later := self._after(last.number)) is not None:
                last = later
            return self._read(last), last
        except StorageUnavailable as error:
            raise TableUnavailable(error.message, hint=error.hint) from error

    def create(
        self, schema: pa.Schema, parts: Sequence[Part], stamp: Stamp, properties: Mapping[str, str]
    ) -> IcebergSnapshot:
        if self.newest() is not None:
            raise Moved(f"There is a table at {self.storage.url} already.")
        first = columns.new_schema(schema)
        # As Hadoop's file systems name it, by which Spark reads a table at a path; other readers take that too.
        location = hadoop_url(self.storage.url)
        base = tables.empty(location, first, partitions.new_spec(parts, first), properties)
        return IcebergSnapshot(self, base, _Version(0, ""), None).commit(stamp)

    def put(self, base: Metadata, at: _Version, updates: Sequence[Update]) -> tuple[Metadata, _Version]:
        file = f"{base.location}/{at.file}" if at.file else ""
        content = tables.applied(base, updates, file)
        then, number = Metadata(content), at.number + 1
        zipped = ".gz" if then.properties.get("write.metadata.compression-codec", "none").lower() == "gzip" else ""
        made = _Version(number, f"{_FOLDER}/v{number}{zipped}.metadata.json")
        text = json.dumps(content, separators=(",", ":")).encode()
        if not put_version(self.storage, made.file, gzip.compress(text) if zipped else text):
            raise Moved(f"Version {made.number} of {self.name} was made by another writer.")
        self._check_in_line(at, made, then)
        self.storage.put(_HINT, str(made.number).encode(), durable=False)
        return then, made

    def _check_in_line(self, before: _Version, made: _Version, then: Metadata) -> None:
        """Refuse a version that is put long after others were, whose names have been deleted meanwhile, or in another table at this path.

        The usual case needs no listing: the look was just before, the hint names its version, and none comes after this one.
        """
        at_once = 0 <= time() - before.seen < _AT_ONCE_S
        if at_once and (self._hint() or 0) == before.number and self._after(made.number) is None:
            return
        versions = self._listed()
        last = max(versions, key=lambda each: each.number)
        if last.number == made.number:
            in_line = not before.number or any(each.number == before.number for each in versions)
        else:
            latest = self._read(last)
            in_line = latest.uuid == then.uuid and (then.head or {}).get("snapshot-id") in latest.snapshots
        if not in_line:
            self.storage.delete(made.file)
            raise Moved(f"{self.name} is at version {last.number}, long after version {before.number}.")

    def _hint(self) -> int | None:
        try:
            return int(content_of(self.storage, _HINT))
        except (SegmentMissing, ValueError):
            return None

    def _after(self, number: int) -> _Version | None:
        for name in (f"{_FOLDER}/v{number + 1}.metadata.json", f"{_FOLDER}/v{number + 1}.gz.metadata.json"):
            if self.storage.exists(name):
                return _Version(number + 1, name)
        return None

    def _listed(self) -> list[_Version]:
        matches = (_VERSION.fullmatch(each.path) for each in self.storage.list(_FOLDER))
        return [_Version(int(match[1]), match[0]) for match in matches if match]

    def _read(self, version: _Version) -> Metadata:
        text = content_of(self.storage, version.file)
        return Metadata(json.loads(gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text))
