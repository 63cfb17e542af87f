"""Data files of an Iceberg table and the rows that are deleted beside them: as a manifest has them, and as the port has them (SPEC K6).

Rows are deleted by position deletes of format version 2. A commit that marks more rows of a file writes all of its marks again and
removes the file with the old ones: a reader opens one file of marks for each data file. What others wrote is read too: a file of
deletes for several data files, and the deletion vectors of format version 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.lake import vectors
from crkafka_core.lake.iceberg import avro, values
from crkafka_core.lake.iceberg.avro import Entry, Manifest
from crkafka_core.lake.iceberg.columns import Schema
from crkafka_core.lake.iceberg.manifests import Manifests
from crkafka_core.lake.iceberg.metadata import Folder, Metadata
from crkafka_core.lake.iceberg.partitions import Partitioning
from crkafka_core.lake.port import CannotCommit, DataFile, NewFile
from crkafka_core.lake.vectors import Positions, as_array
from crkafka_core.segments import rows

_PATH, _POSITION = 2147483546, 2147483545
"""Iceberg's ids of the columns of a file of position deletes."""


_SCHEMA = pa.schema(
    [
        pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})
        for name, kind, number in (("file_path", pa.string(), _PATH), ("pos", pa.int64(), _POSITION))
    ]
)


@dataclass(frozen=True)
class Source:
    """A place where marks of one data file are."""

    path: str
    """Of the file of deletes, as the table has it."""
    file: str
    """The data file, as the table has it."""
    shared: bool
    """It has marks of other data files too."""
    vector: tuple[int, int] | None = None
    """Where in the file a deletion vector is, and its size."""
    sequence: int = field(default=0, compare=False)
    rows: int = field(default=0, compare=False)
    """How many marks the file has."""
    listed: tuple[Manifest, Entry] | None = field(default=None, compare=False, repr=False)

    def read(self, folder: Folder) -> npt.NDArray[np.int64]:
        if self.vector is not None:
            with folder.storage.open_read(folder.name(self.path)) as source:
                source.seek(self.vector[0])
                return vectors.parsed(source.read(self.vector[1]))
        positions = [
            batch.column("pos").filter(pc.equal(batch.column("file_path"), self.file)).to_numpy()
            for batch in rows.batches(folder.storage, folder.name(self.path), ["file_path", "pos"], only=True)
        ]
        return np.concatenate(positions) if positions else np.empty(0, np.int64)


class Deletes:
    """All marks of a snapshot, by the data file that they are of."""

    def __init__(self, folder: Folder, manifests: Manifests) -> None:
        self._folder, self._manifests = folder, manifests

    def of(self, path: str, sequence: int) -> list[Source]:
        """`sequence`: of the data file; older marks are of a file of this name that has left the table."""
        return [source for source in self._by_file.get(path, ()) if source.sequence >= sequence]

    def marks(self, path: str, sequence: int) -> Positions | None:
        sources = self.of(path, sequence)
        if not sources:
            return None
        (first, *others) = sources
        count = None if others or first.shared else first.rows
        stored = {self._folder.name(source.path) for source in sources}

        def read() -> npt.NDArray[np.int64]:
            return np.unique(np.concatenate([source.read(self._folder) for source in sources]))

        return Positions(frozenset(sources), read, count, stored)

    @cached_property
    def _by_file(self) -> dict[str, list[Source]]:
        sources: dict[str, list[Source]] = defaultdict(list)
        for manifest, entry in self._manifests.live(avro.POSITIONS):
            for source in self._sources(manifest, entry):
                sources[source.file].append(source)
        return sources

    def _sources(self, manifest: Manifest, entry: Entry) -> Iterator[Source]:
        file = entry["data_file"]
        if file["content"] == avro.EQUALITY:
            raise CannotCommit(
                f"The table at {self._folder.location} has equality deletes, which another program wrote.",
                hint="CALL catalog.system.rewrite_data_files(…) in Spark, then the table goes on by itself.",
            )
        path, listed = file["file_path"], (manifest, entry)
        about = {"sequence": entry["sequence_number"], "rows": file["record_count"], "listed": listed}
        if str(file["file_format"]).upper() == "PUFFIN":
            vector = file["content_offset"], file["content_size_in_bytes"]
            yield Source(path, file["referenced_data_file"], False, vector, **about)
        elif (only := _only(file)) is not None:
            yield Source(path, only, False, **about)
        else:
            names: set[str] = set()
            for batch in rows.batches(self._folder.storage, self._folder.name(path), ["file_path"], only=True):
                names |= set(batch.column(0).unique().to_pylist())
            yield from (Source(path, name, True, **about) for name in names)


def _only(file: dict[str, Any]) -> str | None:
    """The one data file that a file of deletes is of; None: there may be several."""
    if file.get("referenced_data_file"):
        return str(file["referenced_data_file"])
    least, most = avro.as_map(file.get("lower_bounds")).get(_PATH), avro.as_map(file.get("upper_bounds")).get(_PATH)
    return least.decode() if least is not None and least == most else None


def write_marks(
    folder: Folder, name: str, path: str, positions: Collection[int], partition: dict[str, Any]
) -> dict[str, Any]:
    """A file of deletes for a data file, as a manifest has it."""
    array = as_array(positions)
    batch = pa.record_batch([pa.repeat(path, len(array)), pa.array(array)], schema=_SCHEMA)
    size = rows.write(folder.storage, name, [batch], compression="zstd")
    ends = [{_PATH: path.encode(), _POSITION: values.to_bytes(int(at), "long")} for at in (array[0], array[-1])]
    return {
        "content": avro.POSITIONS,
        "file_path": folder.uri(name),
        "file_format": "PARQUET",
        "partition": partition,
        "record_count": len(array),
        "file_size_in_bytes": size,
        "lower_bounds": avro.as_pairs(ends[0]),
        "upper_bounds": avro.as_pairs(ends[1]),
        "referenced_data_file": path,
    }


@dataclass(frozen=True)
class IcebergFile(DataFile):
    manifest: str = field(default="", compare=False)

    __hash__ = DataFile.__hash__


def new_entry(file: NewFile, folder: Folder, schema: Schema, partitioning: Partitioning) -> dict[str, Any]:
    columns = {each["name"]: (each["id"], each["type"]) for each in schema["fields"]}
    known = {name: columns[name] for name in columns if isinstance(columns[name][1], str)}
    nulls = {columns[name][0]: count for name, count in file.nulls.items() if name in columns}
    bounds = [
        {
            known[name][0]: values.to_bytes(value, known[name][1])
            for name, value in side.items()
            if name in known and values.is_bound(value)
        }
        for side in (file.lowest, file.highest)
    ]
    return {
        "content": avro.DATA,
        "file_path": folder.uri(file.path),
        "file_format": "PARQUET",
        "partition": partitioning.partition(file),
        "record_count": file.rows,
        "file_size_in_bytes": file.bytes,
        "value_counts": avro.as_pairs(dict.fromkeys(nulls, file.rows)),
        "null_value_counts": avro.as_pairs(nulls),
        "lower_bounds": avro.as_pairs(bounds[0]),
        "upper_bounds": avro.as_pairs(bounds[1]),
        "sort_order_id": 0,
    }


class Reader:
    """Makes files of the port from entries of manifests; one for each version of a table."""

    def __init__(self, folder: Folder, metadata: Metadata, deletes: Deletes) -> None:
        self._folder, self._metadata, self._deletes = folder, metadata, deletes
        self._columns = {each["id"]: (each["name"], each["type"]) for each in metadata.schema["fields"]}

    def file(self, manifest: Manifest, entry: Entry) -> IcebergFile:
        file = entry["data_file"]
        return IcebergFile(
            path=self._folder.name(file["file_path"]),
            bytes=file["file_size_in_bytes"],
            rows=file["record_count"],
            lowest=self._bounds(file.get("lower_bounds")),
            highest=self._bounds(file.get("upper_bounds")),
            nulls=self._named(file.get("null_value_counts")),
            values=self._metadata.partitioning(manifest["partition_spec_id"]).values(file["partition"]),
            marks=self._deletes.marks(file["file_path"], entry["sequence_number"]),
            manifest=manifest["manifest_path"],
        )

    def _named(self, pairs: Any) -> dict[str, Any]:
        return {self._columns[n][0]: value for n, value in avro.as_map(pairs).items() if n in self._columns}

    def _bounds(self, pairs: Any) -> dict[str, Any]:
        bounds = {}
        for number, content in avro.as_map(pairs).items():
            name, kind = self._columns.get(number, ("", None))
            if isinstance(kind, str) and (value := values.from_bytes(content, kind)) is not None:
                bounds[name] = value
        return bounds
