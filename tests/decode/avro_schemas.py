"""Makes Avro schemas, what they become, and the columns and values that go with them."""

from __future__ import annotations

import copy
import io
import itertools
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import pyarrow as pa

from tests.decode.in_bulk import a_fraction, a_text, a_whole, some

UTC = pa.timestamp("us", tz="UTC")
PLAIN: dict[str, Any] = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
LOGICAL: list[tuple[dict[str, Any], Any]] = [
    ({"type": "long", "logicalType": "timestamp-millis"}, UTC),
    ({"type": "long", "logicalType": "timestamp-micros"}, UTC),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us")),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
    ({"type": "int", "logicalType": "date"}, pa.date32()),
    ({"type": "int", "logicalType": "time-millis"}, pa.string()),
    ({"type": "long", "logicalType": "time-micros"}, pa.string()),
    ({"type": "string", "logicalType": "uuid"}, pa.string()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(38, 2)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 3}, pa.decimal128(10, 3)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4}, pa.decimal128(38, 0)),
    ({"type": "long", "logicalType": "timestamp-nanos"}, pa.int64()),
]
DEFAULTS: list[tuple[Any, Any]] = [
    ("long", 7),
    (["null", "string"], None),
    (LOGICAL[0][0], 5),
    ("bytes", "ÿ"),
    ({"type": "array", "items": "string"}, ["a"]),
    ("int", 1.5),
]
ODD = [
    pa.int8(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    UTC,
    pa.decimal128(20, 0),
    pa.date32(),
]


class Schemas:
    """Makes schemas, and the columns and values that go with them."""

    def __init__(self, random: Random) -> None:
        self.random, self._names = random, (f"n{i}" for i in itertools.count())
        self.odd = random.random() < 0.3
        """Whether there is also what cannot be read in bulk."""

    def record(self, depth: int = 0) -> dict[str, Any]:
        fields = [self.field(depth) for _ in range(self.random.randint(1, 6 - 2 * depth))]
        return {"type": "record", "name": next(self._names), "fields": fields}

    def field(self, depth: int) -> dict[str, Any]:
        return {"name": next(self._names), "type": self.type(depth)}

    def type(self, depth: int, union: bool = True) -> Any:
        way = self.random.randrange(24)
        if union and way < 6:
            one = self.type(depth, union=False)
            return [one] if one == "null" else some(self.random, ["null", one], [one, "null"], [one])
        if way < 14:
            return self.random.choice(list(PLAIN))
        if way < 18:
            return copy.deepcopy(self.random.choice(LOGICAL if self.odd else LOGICAL[:-1])[0])
        if way == 18:
            return {"type": "enum", "name": next(self._names), "symbols": ["A", "B", "C"]}
        if way == 19:
            return {"type": "fixed", "name": next(self._names), "size": some(self.random, 1, 16)}
        if depth < 2 and way < 22:
            return self.record(depth + 1)
        if depth < 2 and way == 22:
            items = self.type(depth + 1)
            return {"type": "array", "items": "long" if no_bytes(items) else items}
        several = [["string", "long"]] if union else []
        return some(self.random, "long", *([*several, {"type": "map", "values": "long"}] if self.odd else []))

    def kind(self, schema: Any) -> pa.DataType:
        if isinstance(schema, list):
            return self.kind(next((s for s in schema if s != "null"), "null"))
        if self.odd and self.random.random() < 0.05:
            return self.random.choice(ODD)
        for each, kind in LOGICAL:
            if each == schema:
                return kind
        name = schema if isinstance(schema, str) else schema["type"]
        if name == "record":
            fields = [f for f in schema["fields"] if self.random.random() < 0.95] or schema["fields"]
            return pa.struct(
                [pa.field(f["name"], self.kind(f["type"]), nullable=self.random.random() < 0.7) for f in fields]
            )
        if name == "array":
            return pa.list_(self.kind(schema["items"]))
        if name == "map":
            return pa.map_(pa.string(), self.kind(schema["values"]))
        return PLAIN.get(name, pa.string() if name == "enum" else pa.binary())

    def value(self, schema: Any) -> Any:
        random = self.random
        if isinstance(schema, list):
            return self.value(random.choice(schema))
        name = schema if isinstance(schema, str) else schema["type"]
        if isinstance(schema, dict) and "logicalType" in schema:
            return self._logical(schema, schema["logicalType"])
        return {
            "null": lambda: None,
            "boolean": lambda: random.random() < 0.5,
            "int": lambda: a_whole(random, 32),
            "long": lambda: a_whole(random, 64),
            "float": lambda: some(random, 1.5, -0.0, float("nan"), float("-inf"), 3.25),
            "double": lambda: a_fraction(random),
            "string": lambda: a_text(random),
            "bytes": lambda: some(random, a_text(random).encode(), b"\xff\xfe", b"\xed\xa0\x80"),
            "enum": lambda: random.choice(schema["symbols"]),
            "fixed": lambda: some(random, b"a", b"\xff") * schema["size"],
            "array": lambda: [self.value(schema["items"]) for _ in range(some(random, 0, 1, 2, 5))],
            "map": lambda: {a_text(random): self.value(schema["values"]) for _ in range(2)},
            "record": lambda: {f["name"]: self.value(f["type"]) for f in schema["fields"]},
        }[name]()

    def _logical(self, schema: Any, logical: str) -> Any:
        random = self.random
        if "timestamp" in logical:
            return some(random, a_whole(random, 64), a_whole(random, 48), 1_700_000_000_000, 0)
        if logical == "date":
            return some(random, a_whole(random, 32), random.randrange(-719_162, 2_932_897), 2_932_897, -719_163)
        if logical == "time-millis":
            return some(random, random.randrange(86_400_000), 20_000, 86_400_000, -1)
        if logical == "time-micros":
            return some(random, random.randrange(86_400_000_000), 20_000_000, 0, -5)
        if logical == "uuid":
            return some(random, str(uuid.UUID(int=random.randrange(2**128))), uuid.UUID(int=5).hex, "x", "")
        end = 10 ** schema["precision"]
        return Decimal(some(random, 0, -1, 1, random.randrange(-end + 1, end))).scaleb(-schema.get("scale", 0))

    def evolved(self, writer: dict[str, Any]) -> dict[str, Any]:
        """What readers make of it: other orders, wider types, new fields; now and then what does not go together."""
        latest = copy.deepcopy(writer)
        for each in self._records(latest):
            if self.random.random() < 0.4:
                self.random.shuffle(each["fields"])
            gone = self.random.choice(each["fields"])
            if self.random.random() < 0.3 and not any(name in json.dumps(gone) for name in ("array", "map")):
                each["fields"].remove(gone)  # past a list fastavro goes as often as damaged bytes say, without an end
            if self.random.random() < 0.4:
                default = self.random.choice(DEFAULTS if self.odd else DEFAULTS[:-1])
                each["fields"].append({"name": next(self._names), "type": default[0], "default": default[1]})
            if self.odd and self.random.random() < 0.1:
                each["fields"].append({"name": next(self._names), "type": "long", "aliases": ["n1"]})
            for one in each["fields"]:
                one["type"] = self._wider(one["type"])
        return latest

    def _records(self, schema: Any) -> Iterator[dict[str, Any]]:
        if isinstance(schema, list):
            for each in schema:
                yield from self._records(each)
        elif isinstance(schema, dict) and schema["type"] == "record":
            for each in schema["fields"]:
                yield from self._records(each["type"])
            yield schema

    def _wider(self, schema: Any) -> Any:
        if self.random.random() < 0.6:
            return schema
        if isinstance(schema, list):
            return some(
                self.random,
                schema[::-1],
                [s for s in schema if s != "null"] or schema,
                ["null", *(s for s in schema if s != "null")],
            )
        if isinstance(schema, dict) and schema["type"] == "array" and self.random.random() < 0.7:
            return {**schema, "items": self._wider(schema["items"])}
        if self.random.random() < 0.3 and schema != "null":
            return ["null", schema]
        if isinstance(schema, dict) and schema["type"] == "enum":
            return {
                **schema,
                "symbols": ["B", "A", "C", "D"][: 2 if self.odd else 4],
                **some(self.random, {}, {"default": "A"}),
            }
        wider = {"int": ["long", "double", "float"], "long": ["double", "float"], "float": ["double"]}
        wider |= {"string": ["bytes"], "bytes": ["string"]} | ({"double": ["string"]} if self.odd else {})
        return self.random.choice(wider[schema]) if isinstance(schema, str) and schema in wider else schema


def no_bytes(schema: Any) -> bool:
    """Of such a list fastavro reads as many items as damaged bytes say, without an end."""
    record = isinstance(schema, dict) and schema["type"] == "record"
    return all(no_bytes(f["type"]) for f in schema["fields"]) if record else schema == "null"


def encoded(schema: Any, value: Any) -> bytes | None:
    """As raw numbers and texts, so that also such are written as no reader takes."""
    out = io.BytesIO()
    try:
        fastavro.schemaless_writer(out, schema, value)
    except (ValueError, TypeError, OverflowError, AttributeError):
        return None
    return out.getvalue()


def bare(schema: Any) -> Any:
    """Without logical types but for decimals: the same bytes."""
    if isinstance(schema, list):
        return [bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") not in (None, "decimal"):
        return schema["type"]
    inside = {key: bare(schema[key]) for key in ("items", "values") if key in schema}
    if "fields" in schema:
        inside["fields"] = [{**f, "type": bare(f["type"])} for f in schema["fields"]]
    return {**schema, **inside}
