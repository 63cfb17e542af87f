"""Avro files of Iceberg's format versions 2 and 3: manifests, which list files, and manifest lists, which list manifests."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import fastavro

Entry = dict[str, Any]
"""A file in a manifest, as Avro has it: status, snapshot_id, sequence_number, file_sequence_number, data_file."""
Manifest = dict[str, Any]
"""A manifest in a manifest list."""

EXISTING, ADDED, DELETED = 0, 1, 2
"""Status of an entry."""
DATA, POSITIONS, EQUALITY = 0, 1, 2
"""Content of a file; a manifest's is `DATA`, or 1 for both kinds of deletes."""
_NO_DEFAULT: Any = object()


def field(name: str, kind: Any, number: int, default: Any = _NO_DEFAULT) -> dict[str, Any]:
    """An Avro field with Iceberg's id."""
    made = {"name": name, "type": kind, "field-id": number}
    return made if default is _NO_DEFAULT else {**made, "default": default}


def optional(name: str, kind: Any, number: int) -> dict[str, Any]:
    return field(name, ["null", kind], number, None)


def _map(name: str, kind: str, number: int, key: int) -> dict[str, Any]:
    """A map from field id to a value; Iceberg writes it as a list of pairs."""
    pair = [field("key", "int", key), field("value", kind, key + 1)]
    pairs = {"type": "record", "name": f"k{key}_v{key + 1}", "fields": pair}
    return optional(name, {"type": "array", "logicalType": "map", "items": pairs}, number)


def _list(name: str, kind: str, number: int, element: int) -> dict[str, Any]:
    return optional(name, {"type": "array", "items": kind, "element-id": element}, number)


def _entries(partition: Sequence[Mapping[str, Any]], version: int) -> dict[str, Any]:
    file = [
        field("content", "int", 134),
        field("file_path", "string", 100),
        field("file_format", "string", 101),
        field("partition", {"type": "record", "name": "r102", "fields": list(partition)}, 102),
        field("record_count", "long", 103),
        field("file_size_in_bytes", "long", 104),
        _map("column_sizes", "long", 108, 117),
        _map("value_counts", "long", 109, 119),
        _map("null_value_counts", "long", 110, 121),
        _map("nan_value_counts", "long", 137, 138),
        _map("lower_bounds", "bytes", 125, 126),
        _map("upper_bounds", "bytes", 128, 129),
        optional("key_metadata", "bytes", 131),
        _list("split_offsets", "long", 132, 133),
        _list("equality_ids", "int", 135, 136),
        optional("sort_order_id", "int", 140),
        optional("referenced_data_file", "string", 143),
    ]
    if version >= 3:
        file += [
            optional("first_row_id", "long", 142),
            optional("content_offset", "long", 144),
            optional("content_size_in_bytes", "long", 145),
        ]
    fields = [
        field("status", "int", 0),
        optional("snapshot_id", "long", 1),
        optional("sequence_number", "long", 3),
        optional("file_sequence_number", "long", 4),
        field("data_file", {"type": "record", "name": "r2", "fields": file}, 2),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


@cache
def _list_schema(version: int) -> Any:
    summary = [
        field("contains_null", "boolean", 509),
        optional("contains_nan", "boolean", 518),
        optional("lower_bound", "bytes", 510),
        optional("upper_bound", "bytes", 511),
    ]
    summaries = {
        "type": "array",
        "items": {"type": "record", "name": "r508", "fields": summary},
        "element-id": 508,
    }
    fields = [
        field("manifest_path", "string", 500),
        field("manifest_length", "long", 501),
        field("partition_spec_id", "int", 502),
        field("content", "int", 517),
        field("sequence_number", "long", 515),
        field("min_sequence_number", "long", 516),
        field("added_snapshot_id", "long", 503),
        field("added_files_count", "int", 504),
        field("existing_files_count", "int", 505),
        field("deleted_files_count", "int", 506),
        field("added_rows_count", "long", 512),
        field("existing_rows_count", "long", 513),
        field("deleted_rows_count", "long", 514),
        optional("partitions", summaries, 507),
        optional("key_metadata", "bytes", 519),
    ]
    if version >= 3:
        fields.append(optional("first_row_id", "long", 520))
    return fastavro.parse_schema({"type": "record", "name": "manifest_file", "fields": fields})


def manifest_schema(partition: Sequence[Mapping[str, Any]], version: int) -> Any:
    """Of a manifest whose files have these fields as their partition."""
    return _manifest_schema(json.dumps(partition), version)


@lru_cache(maxsize=128)
def _manifest_schema(partition: str, version: int) -> Any:
    """Kept, since parsing it takes longer than writing a manifest by it."""
    return fastavro.parse_schema(_entries(json.loads(partition), version))


def write_list(manifests: Iterable[Manifest], version: int, header: Mapping[str, str]) -> bytes:
    return write(_list_schema(version), manifests, {**header, "format-version": str(version)})


def write(schema: Any, records: Iterable[Mapping[str, Any]], header: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="deflate", metadata=dict(header))
    return out.getvalue()


def read(content: bytes) -> list[dict[str, Any]]:
    records: Any = fastavro.reader(io.BytesIO(content))
    return list(records)


def as_map(pairs: Any) -> dict[int, Any]:
    """A map as Iceberg's Avro has it, by field id; None is empty."""
    return {pair["key"]: pair["value"] for pair in pairs or ()}


def as_pairs(values: Mapping[int, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in values.items()]
