"""Decodes a batch in bulk, and one by one where bulk decoding refuses; each row comes out decoded or with a reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.decode.cursor import placed
from crkafka_core.decode.decoders import Bulk, Decoder, Opened
from crkafka_core.decode.fitting import Fit, Misfit, fitter, nullable
from crkafka_core.model.errors import CrkafkaError, Refused

VALUE, DECODED_KEY, REASON = "crkafka_decoded", "crkafka_decoded_key", "reason"
"""Columns that decoding adds: two structs, and the reason of an undecodable record."""
_ONE_BY_ONE = 64
"""Most values that are decoded one by one if bulk decoding refuses them all; more are halved and tried again."""
NULL = "the value is null"
NO_KEY = "the record has no key, and the table has one row for each"


Decoded = tuple[pa.Array, list[str | None]]
"""Structs, null where a value is not decoded; and the reason of each row that has one."""


class BadRecord(Refused):
    """An undecodable record with `on_bad_record: stop`. Reaction: correct the schema, or keep or skip such records."""


@dataclass
class Columns:
    """Decodes one column of the record, `value` or `key`, into one type."""

    column: str
    decoder: Decoder
    kind: pa.DataType
    """Type of the column, with required parts not nullable. The result is nullable throughout: an undecodable row is null."""

    def __post_init__(self) -> None:
        self._opened: Opened = self.decoder.open(self.kind)
        self._bulk: Bulk | None = getattr(self._opened, "bulk", None)
        self._fit: Fit = fitter(self.kind)
        self.kind = nullable(self.kind)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """A struct and a reason for each row. A null value is null without a reason."""
        values, topics, present = batch.column(self.column), batch.column("topic"), None
        if values.null_count:
            present = pc.indices_nonzero(pc.is_valid(values))
            values, topics = values.take(present), topics.take(present)
        parts = list(self._in_parts(values, topics)) if len(values) else []
        rows = pa.concat_arrays([array for array, _ in parts]) if parts else pa.array([], self.kind)
        reasons = [reason for _, why in parts for reason in why]
        if present is None:
            return rows, reasons
        spread: list[str | None] = [None] * batch.num_rows
        for row, reason in zip(present.to_pylist(), reasons, strict=True):
            spread[row] = reason
        return placed([rows], [present.to_numpy()], batch.num_rows, self.kind), spread

    def _in_parts(self, values: pa.Array, topics: pa.Array) -> Iterator[Decoded]:
        """The values in bulk; if that is refused, each half alone, and a small part one by one."""
        many: pa.Array | None = None
        if self._bulk is not None:
            with suppress(pa.ArrowException):
                many = self._bulk(values)
        if many is not None:
            yield self._completed(many, values, topics)
        elif self._bulk is None or len(values) <= _ONE_BY_ONE:
            rows, why = self._one_by_one(values.to_pylist(), topics.to_pylist())
            yield _as_array(rows, why, self.kind), why
        else:
            half = len(values) // 2
            yield from self._in_parts(values[:half], topics[:half])
            yield from self._in_parts(values[half:], topics[half:])

    def _completed(self, many: pa.Array, values: pa.Array, topics: pa.Array) -> Decoded:
        """The values decoded in bulk, completed with the others one by one."""
        why: list[str | None] = [None] * len(values)
        if many.null_count:
            left = pc.indices_nonzero(many.is_null()).cast(pa.int64())  # numpy concatenates only its own integers
            rows, of_left = self._one_by_one(values.take(left).to_pylist(), topics.take(left).to_pylist())
            alone = _as_array(rows, of_left, self.kind)
            many = placed([many, alone], [np.arange(len(values)), left.to_numpy()], len(values), self.kind)
            for row, reason in zip(left.to_pylist(), of_left, strict=True):
                why[row] = reason
        return many, why

    def _one_by_one(self, values: Sequence[bytes], topics: Sequence[str]) -> tuple[list[Any], list[str | None]]:
        rows: list[Any] = []
        reasons: list[str | None] = []
        for value, topic in zip(values, topics, strict=True):
            try:
                rows.append(self._fit(self._opened(value, topic)))
                reasons.append(None)
            except (OSError, CrkafkaError, MemoryError):
                raise  # an outage: the record may be good (fault 80)
            except Exception as error:
                rows.append(None)
                reasons.append(str(error if isinstance(error, Misfit) else f"{type(error).__name__}: {error}")[:500])
        return rows, reasons


def _as_array(rows: list[Any], reasons: list[str | None], kind: pa.DataType) -> pa.Array:
    """Rows as an array; a row that does not fit the type is null, with its reason, and the others stay."""
    try:
        return pa.array(rows, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(rows) == 1:
            reasons[0] = f"{type(error).__name__}: {error}"[:500]
            return pa.nulls(1, kind)
    half = len(rows) // 2
    before, after = reasons[:half], reasons[half:]
    parts = [_as_array(rows[:half], before, kind), _as_array(rows[half:], after, kind)]
    reasons[:] = before + after
    return pa.concat_arrays(parts)


def decode_batch(
    batch: pa.RecordBatch, value: Columns, key: Columns | None, *, tombstones: bool, stop: bool, keyed: bool = False
) -> pa.RecordBatch:
    """The batch with columns of decoded structs and of reasons; a row with a reason has neither a decoded value nor key.

    `tombstones`: a null value is not bad. `stop`: the first bad record raises. `keyed`: a record without a key is bad.
    """
    decoded, reasons = value.decode(batch)
    if not tombstones:
        nulls = pc.is_null(batch.column(value.column)).to_pylist()
        reasons = [NULL if null else reason for null, reason in zip(nulls, reasons, strict=True)]
    if keyed and (keys := batch.column("key")).null_count:
        lacking = pc.is_null(keys).to_pylist()
        reasons = [NO_KEY if none and reason is None else reason for none, reason in zip(lacking, reasons, strict=True)]
    columns, added = [*batch.columns, decoded], [*batch.schema.names, VALUE]
    if key is not None:
        keys_decoded, why = key.decode(batch)
        reasons = [
            one if one is not None else other and f"key: {other}" for one, other in zip(reasons, why, strict=True)
        ]
        columns.append(keys_decoded)
        added.append(DECODED_KEY)
    bad = next((row for row, reason in enumerate(reasons) if reason is not None), None) if stop else None
    if bad is not None:
        raise refuse_record(batch.slice(bad, 1), str(reasons[bad]))
    columns.append(pa.array(reasons, pa.string()))
    return pa.RecordBatch.from_arrays(columns, names=[*added, REASON])


def refuse_record(batch: pa.RecordBatch, reason: str) -> BadRecord:
    """The error for the first record of a batch."""
    topic, partition, offset = (batch.column(c)[0].as_py() for c in ("topic", "partition", "offset"))
    return BadRecord(
        f"Record {topic}[{partition}]@{offset} cannot be decoded: {reason}.",
        hint="Correct the schema, or keep such records as dead letters, or skip them (on_bad_record).",
    )
