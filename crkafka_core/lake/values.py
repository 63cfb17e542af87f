"""Tables by a value of the record, `each: {header: …}` and `each: {field: …}`: which record comes into which of them (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.config import sections, template
from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import GOOD
from crkafka_core.config.template import OF_VALUE
from crkafka_core.decode.cursor import placed
from crkafka_core.decode.json_bulk import JsonBulk
from crkafka_core.lake.partitions import parted
from crkafka_core.lake.port import Part
from crkafka_core.lake.transform import NULLABLE, Rows, Run, Transform
from crkafka_core.model.errors import CrkafkaError

_OUTPUT = "crkafka_output"


class NewValues(CrkafkaError):
    """Records have values without a table. Reaction: `templates.declare_values`, and make the files again."""

    def __init__(self, shape: str, values: Sequence[str]) -> None:
        super().__init__(f"Records have values without a table: {', '.join(values)}.")
        self.shape, self.values = shape, tuple(values)

    def __reduce__(self) -> tuple[type[NewValues], tuple[str, tuple[str, ...]]]:
        return type(self), (self.shape, self.values)


@dataclass(frozen=True)
class ByValue(Transform):
    """Records as they are, to an output for each value; `good` gets those without a value, and those whose value has no table."""

    template: TableConfig
    shape: str
    values: frozenset[str]
    """Values that have a table."""
    taken: Mapping[str, str]
    """Tables beside which a further value needs a name and a place, as `templates.taken` gives them."""
    room: int
    """Tables that may still be declared."""

    def schemas(self) -> Mapping[str, pa.Schema]:
        return dict.fromkeys([GOOD, *(OF_VALUE + value for value in sorted(self.values))], NULLABLE)

    def open(self) -> Run:
        by = self.template.each
        assert isinstance(by, sections.ByValue)
        value_of = FieldOf(by.field) if by.field else HeaderOf(by.header or "")

        def by_value(records: pa.RecordBatch) -> Rows:
            records = records.cast(NULLABLE)
            values = value_of(records)
            names = pc.unique(values.drop_null()).to_pylist()
            if self.room and (new := [v for v in names if v not in self.values and self._placed(v)]):
                raise NewValues(self.shape, sorted(new))
            known = pc.is_in(values, pa.array(sorted(self.values), pa.string()))
            to = pc.if_else(known, pc.binary_join_element_wise(OF_VALUE, values, ""), GOOD)
            by_output = parted(records.append_column(_OUTPUT, to), (Part(_OUTPUT),))
            return {output: part.select(NULLABLE.names) for (output,), part in by_output}

        return by_value

    def set_aside(self, records: pa.RecordBatch, reason: str) -> Rows:
        return {GOOD: records.cast(NULLABLE)}

    def _placed(self, value: str) -> bool:
        return template.placed(self.template, value, self.taken) is not None


@dataclass(frozen=True)
class HeaderOf:
    """The value of the last header of a name, as text; null where a record has none, or one that is not UTF-8."""

    name: str

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        headers = records.column("headers")
        row_of, flat = pc.list_parent_indices(headers).to_numpy(), pc.list_flatten(headers)
        named = pc.fill_null(pc.equal(pc.struct_field(flat, "key"), self.name), False)
        values = pc.struct_field(flat, "value").filter(named).dictionary_encode()
        texts = [_text(value) for value in values.dictionary.to_pylist()]
        place = np.full(records.num_rows, -1, np.int64)
        place[row_of[named.to_numpy(zero_copy_only=False)]] = values.indices.fill_null(
            -1
        ).to_numpy()  # the last one stays
        return pa.array(texts, pa.string()).take(pa.array(place, mask=place < 0))


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


class FieldOf:
    """The value of a field at the top of a record's JSON object: its text, or a whole number or boolean as JSON writes it; else null."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bulk = JsonBulk.of(pa.struct([pa.field(name, pa.string())]))

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        given = records.column("value")
        rows = np.flatnonzero(given.is_valid().to_numpy(zero_copy_only=False))
        present = given.take(pa.array(rows)) if given.null_count else given
        assert self._bulk is not None and len(present) == len(rows)
        values = pc.struct_field(self._bulk(present), 0)
        if values.null_count:  # what Arrow's parser refuses, or has as null
            left = values.is_null()
            alone = [self._alone(value) for value in present.filter(left).to_pylist()]
            values = pc.replace_with_mask(values, left, pa.array(alone, pa.string()))
        return placed([values], [rows], len(given), pa.string())

    def _alone(self, value: bytes) -> str | None:
        with suppress(ValueError, RecursionError):
            decoded = json.loads(value)
            given = decoded.get(self._name) if isinstance(decoded, dict) else None
            text = json.dumps(given) if isinstance(given, bool | int) else given
            if isinstance(text, str):
                text.encode()  # a half of a pair of surrogates is no text
                return text
        return None
