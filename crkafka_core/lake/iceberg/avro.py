"""Avro files of Iceberg's format versions 2 and 3: manifests, which list files, and manifest lists, which list manifests."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping
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

_ENTRY = "status int 0, snapshot_id long? 1, sequence_number long? 3, file_sequence_number long? 4, data_file file 2"
"""Name, type and Iceberg's id of each field; `?`: it may be null. A map's number is the id of its keys, a list's that of its elements."""
_FILE = """
    content int 134, file_path string 100, file_format string 101, partition partition 102, record_count long 103,
    file_size_in_bytes long 104, column_sizes map117:long? 108, value_counts map119:long? 109,
    null_value_counts map121:long? 110, nan_value_counts map138:long? 137, lower_bounds map126:bytes? 125,
    upper_bounds map129:bytes? 128, key_metadata bytes? 131, split_offsets list133:long? 132,
    equality_ids list136:int? 135, sort_order_id int? 140, referenced_data_file string? 143"""
_FILE_OF_3 = ", first_row_id long? 142, content_offset long? 144, content_size_in_bytes long? 145"
_MANIFEST = """
    manifest_path string 500, manifest_length long 501, partition_spec_id int 502, content int 517,
    sequence_number long 515, min_sequence_number long 516, added_snapshot_id long 503, added_files_count int 504,
    existing_files_count int 505, deleted_files_count int 506, added_rows_count long 512,
    existing_rows_count long 513, deleted_rows_count long 514, partitions summaries? 507, key_metadata bytes? 519"""
_MANIFEST_OF_3 = ", first_row_id long? 520"
_SUMMARY = "contains_null boolean 509, contains_nan boolean? 518, lower_bound bytes? 510, upper_bound bytes? 511"
_NESTED = re.compile(r"(map|list)(\d+):(\w+)")


def optional(name: str, kind: Any, number: int) -> dict[str, Any]:
    """A field that may be null, with Iceberg's id."""
    return {"name": name, "type": ["null", kind], "field-id": number, "default": None}


def _record(name: str, text: str, **kinds: Any) -> dict[str, Any]:
    """A record with the fields of a text. `kinds`: the types to which it gives names of its own."""
    fields = []
    for field, words, number in map(str.split, text.split(",")):
        word = words.removesuffix("?")
        kind = _nested(*nested.groups()) if (nested := _NESTED.fullmatch(word)) else kinds.get(word, word)
        required = {"name": field, "type": kind, "field-id": int(number)}
        fields.append(optional(field, kind, int(number)) if words.endswith("?") else required)
    return {"type": "record", "name": name, "fields": fields}


def _nested(shape: str, number: str, kind: str) -> dict[str, Any]:
    """A list; or a map from field id to a value, which Iceberg writes as a list of pairs."""
    if shape == "list":
        return {"type": "array", "items": kind, "element-id": int(number)}
    value = int(number) + 1
    pair = _record(f"k{number}_v{value}", f"key int {number}, value {kind} {value}")
    return {"type": "array", "logicalType": "map", "items": pair}


@cache
def list_schema(version: int) -> Any:
    summaries = {"type": "array", "items": _record("r508", _SUMMARY), "element-id": 508}
    text = _MANIFEST + (_MANIFEST_OF_3 if version >= 3 else "")
    return fastavro.parse_schema(_record("manifest_file", text, summaries=summaries))


@lru_cache(maxsize=128)
def manifest_schema(partition: str, version: int) -> Any:
    """By the fields of the partition, in JSON. Kept, since parsing it takes longer than writing a manifest by it."""
    values = {"type": "record", "name": "r102", "fields": json.loads(partition)}
    file = _record("r2", _FILE + (_FILE_OF_3 if version >= 3 else ""), partition=values)
    return fastavro.parse_schema(_record("manifest_entry", _ENTRY, file=file))


def write(schema: Any, records: Iterable[Mapping[str, Any]], header: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="deflate", metadata=dict(header))
    return out.getvalue()


def read(content: bytes) -> list[dict[str, Any]]:
    records: Any = fastavro.reader(io.BytesIO(content))
    return list(records)


def as_map(pairs: Any) -> dict[int, Any]:
    return {pair["key"]: pair["value"] for pair in pairs or ()}


def as_pairs(values: Mapping[int, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in values.items()]
