"""Data files of an Iceberg table: a new file as its manifest has it, and what a manifest has as a file of the port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crkafka_core.lake.iceberg import avro, values
from crkafka_core.lake.iceberg.avro import Entry, Manifest
from crkafka_core.lake.iceberg.columns import Schema
from crkafka_core.lake.iceberg.marks import Deletes
from crkafka_core.lake.iceberg.metadata import Folder
from crkafka_core.lake.iceberg.partitions import Partitioning
from crkafka_core.lake.port import DataFile, NewFile


@dataclass(frozen=True)
class IcebergFile(DataFile):
    """With the manifest that lists it, so that a commit finds it again without reading others."""

    manifest: str = field(default="", compare=False)

    __hash__ = DataFile.__hash__


def new_entry(file: NewFile, folder: Folder, schema: Schema, partitioning: Partitioning) -> dict[str, Any]:
    """A file as a manifest has it."""
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

    def __init__(self, folder: Folder, schema: Schema, specs: Mapping[int, Partitioning], deletes: Deletes) -> None:
        self._folder, self._specs, self._deletes = folder, specs, deletes
        self._columns = {each["id"]: (each["name"], each["type"]) for each in schema["fields"]}

    def file(self, manifest: Manifest, entry: Entry) -> IcebergFile:
        file = entry["data_file"]
        return IcebergFile(
            path=self._folder.name(file["file_path"]),
            bytes=file["file_size_in_bytes"],
            rows=file["record_count"],
            lowest=self._bounds(file.get("lower_bounds")),
            highest=self._bounds(file.get("upper_bounds")),
            nulls=self._named(file.get("null_value_counts")),
            values=self._specs[manifest["partition_spec_id"]].values(file["partition"]),
            marks=self._deletes.marks(file["file_path"], entry["sequence_number"]),
            manifest=manifest["manifest_path"],
        )

    def _named(self, pairs: Any) -> dict[str, Any]:
        return {self._columns[n][0]: value for n, value in avro.as_map(pairs).items() if n in self._columns}

    def _bounds(self, pairs: Any) -> dict[str, Any]:
        found = {}
        for number, content in avro.as_map(pairs).items():
            name, kind = self._columns.get(number, ("", None))
            if isinstance(kind, str) and (value := values.from_bytes(content, kind)) is not None:
                found[name] = value
        return found
