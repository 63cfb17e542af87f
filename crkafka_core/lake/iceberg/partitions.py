"""Partition specs of Iceberg: fields and their transforms, the partition of a file, and their summary in a manifest list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crkafka_core.lake.iceberg import avro
from crkafka_core.lake.iceberg.columns import Schema
from crkafka_core.lake.iceberg.values import is_bound, plain, to_bytes
from crkafka_core.lake.partitions import field_name
from crkafka_core.lake.port import CannotCommit, NewFile, Part

Spec = dict[str, Any]
_WITH_WIDTH = re.compile(r"(bucket|truncate)\[(\d+)\]")
_RESULTS = {"year": "int", "month": "int", "day": "date", "hour": "int", "bucket": "int"}
_NUMBERS = ("int", "date", "long", "timestamp", "timestamptz", "time")
_FIRST_FIELD = 1000
_AVRO: dict[str, Any] = {
    **{kind: kind for kind in ("boolean", "int", "long", "float", "double", "string")},
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    "binary": "bytes",
}


def new_spec(parts: Sequence[Part], schema: Schema) -> Spec:
    ids = {each["name"]: each["id"] for each in schema["fields"]}
    if missing := next((part.column for part in parts if part.column not in ids), None):
        raise CannotCommit(f"There is no column {missing} to partition by.", hint="Mend partition_by.")
    fields = [
        {
            "name": field_name(part),
            "transform": f"{part.transform}[{part.width}]" if part.width else part.transform,
            "source-id": ids[part.column],
            "field-id": number,
        }
        for number, part in enumerate(parts, _FIRST_FIELD)
    ]
    return {"spec-id": 0, "fields": fields}


def parts_of(spec: Spec, schema: Schema) -> list[Part]:
    """A field whose column was dropped is none any more."""
    names = {each["id"]: each["name"] for each in schema["fields"]}
    parts = []
    for each in spec["fields"]:
        if each["transform"] == "void":
            continue
        width = _WITH_WIDTH.fullmatch(each["transform"])
        transform, size = (width[1], int(width[2])) if width else (each["transform"], 0)
        if each["source-id"] not in names:
            raise CannotCommit(f"Partition field {each['name']} is of a nested column.", hint="Write with Spark.")
        parts.append(Part(names[each["source-id"]], transform, size))
    return parts


class Partitioning:
    """One spec of a table, with the types of its fields."""

    def __init__(self, spec: Spec, schemas: Iterable[Schema]) -> None:
        self.id: int = spec["spec-id"]
        self.fields: list[Mapping[str, Any]] = spec["fields"]
        types = {each["id"]: each["type"] for schema in schemas for each in schema["fields"]}
        self._kinds = [_result(each["transform"], types.get(each["source-id"], "int")) for each in self.fields]
        self._names = [_avro_name(each["name"]) for each in self.fields]

    def schema(self, version: int) -> Any:
        """Of manifests."""
        fields = [
            {**avro.optional(name, _avro_type(kind, name), each["field-id"]), "iceberg-field-name": each["name"]}
            for name, kind, each in zip(self._names, self._kinds, self.fields, strict=True)
        ]
        return avro.manifest_schema(json.dumps(fields), version)

    def partition(self, file: NewFile) -> dict[str, Any]:
        """The partition of a new file; refused if it does not have a value for each field."""
        made: dict[str, Any] = {}
        for name, kind, each in zip(self._names, self._kinds, self.fields, strict=True):
            if each["transform"] == "void":
                made[name] = None
                continue
            if each["name"] not in file.values:
                raise CannotCommit(
                    f"{file.path} has no value for the partition field {each['name']}.",
                    hint="The table's partitions have changed; the file is to be written again by the new ones.",
                )
            value = file.values[each["name"]]
            made[name] = plain(value, kind) if kind in _NUMBERS else value  # fastavro takes a decimal as Python has it
        return made

    def values(self, partition: Mapping[str, Any]) -> dict[str, Any]:
        """By the fields' own names, as `NewFile.values` has them."""
        pairs = zip(self._names, (each["name"] for each in self.fields), strict=True)
        return {name: partition.get(stored, partition.get(name)) for stored, name in pairs}

    def again(self, partition: Mapping[str, Any]) -> dict[str, Any]:
        """A partition that another program's manifest has, under the names that ours has."""
        return dict(zip(self._names, self.values(partition).values(), strict=True))

    def summary(self, partitions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Lowest and highest value of each field, by which readers skip whole manifests."""
        summaries = []
        for name, kind in zip(self._names, self._kinds, strict=True):
            values = [plain(each[name], kind) for each in partitions]
            bounds = [value for value in values if is_bound(value)]
            least, most = (to_bytes(pick(bounds), kind) if bounds else None for pick in (min, max))
            nan = any(value is not None and not is_bound(value) for value in values)
            about = {"contains_null": None in values, "contains_nan": nan}
            summaries.append({**about, "lower_bound": least, "upper_bound": most})
        return summaries


def _result(transform: str, source: Any) -> str:
    """The type of a transform's values."""
    if not isinstance(source, str):
        raise CannotCommit("A table partitioned by a column of columns is not written.", hint="Write with Spark.")
    return _RESULTS.get(transform.split("[")[0], source)


def _avro_type(kind: str, name: str) -> Any:
    if kind in _AVRO:
        return _AVRO[kind]
    if decimal := re.fullmatch(r"decimal\((\d+),\s*(-?\d+)\)", kind):
        digits, scale = int(decimal[1]), int(decimal[2])
        size = ((10**digits).bit_length()) // 8 + 1
        fixed = {"type": "fixed", "size": size, "name": f"fixed_{name}"}
        return {**fixed, "logicalType": "decimal", "precision": digits, "scale": scale}
    if fixed_size := re.fullmatch(r"fixed\[(\d+)\]", kind):
        return {"type": "fixed", "size": int(fixed_size[1]), "name": f"fixed_{name}"}
    if kind == "uuid":
        return {"type": "fixed", "size": 16, "name": f"uuid_{name}", "logicalType": "uuid"}
    raise CannotCommit(f"A table partitioned by {kind} is not written.", hint="Write with Spark.")


def _avro_name(name: str) -> str:
    """A name that Avro takes, as Iceberg's Java makes it."""
    made = "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"_x{ord(c):X}" for c in name)
    return f"_{made}" if made[:1].isdigit() else made
