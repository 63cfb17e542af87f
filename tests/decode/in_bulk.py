"""What decodes in bulk against what decodes one by one: the same values, the same reasons."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from crkafka_core.decode.batch import Columns
from crkafka_core.decode.decoders import Decoder


def batch_of(values: list[bytes | None], begin: int = 0) -> pa.RecordBatch:
    """`begin`: so many rows are in front of it in the same buffers."""
    whole = pa.array([b"in front"] * begin + values, pa.binary())
    return pa.RecordBatch.from_arrays([whole[begin:], pa.array(["orders"] * len(values))], names=["value", "topic"])


def same_both_ways(decoder: Decoder, kind: pa.DataType, values: list[bytes | None], begin: int = 0) -> int:
    """How many of the values were decoded in bulk, after it was seen that both ways give the same."""
    batch = batch_of(values, begin)
    many, alone = Columns("value", decoder, kind), Columns("value", decoder, kind)
    bulk, alone._bulk, by_itself = many._bulk, None, [0]
    if bulk is not None:

        def counted(given: pa.Array) -> pa.Array:
            structs = bulk(given)
            structs.validate(full=True)
            by_itself[0] += len(structs) - structs.null_count
            return structs

        many._bulk = counted
    structs, reasons = many.decode(batch)
    right, why = alone.decode(batch)
    differing = [row for row in zip(values, reasons, why, strict=True) if row[1] != row[2]]
    assert not differing, differing
    assert structs.type == right.type
    structs.validate(full=True)
    # As text: a number that is none is the same as another, and -0.0 is not 0.0.
    rows = zip(values, map(repr, structs.to_pylist()), map(repr, right.to_pylist()), strict=True)
    wrong = [row for row in rows if row[1] != row[2]]
    assert not wrong, wrong
    return by_itself[0]


def left_to_python(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The values that are decoded one by one from now on."""
    alone, one_by_one = [], Columns._one_by_one

    def seen(columns: Columns, values: list[bytes], topics: list[str]) -> Any:
        alone.extend(values)
        return one_by_one(columns, values, topics)

    monkeypatch.setattr(Columns, "_one_by_one", seen)
    return alone


def damaged(random: Random, value: bytes) -> bytes | None:
    """Cut off, longer, with a byte or a bit changed, or gone; mostly as it was."""
    at = random.randrange(len(value)) if value else 0
    spoiled = bytearray(value)
    way = random.randrange(14)
    if way == 0:
        return value[:at]
    if way == 1:
        return value + bytes(random.randrange(256) for _ in range(random.randint(1, 3)))
    if way == 2 and value:
        spoiled[at] ^= 1 << random.randrange(8)
    if way == 3 and value:
        spoiled[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
    if way == 4:
        return random.choice([None, b"", value[at:], b"\xff" * 12, value[:at] + b"\x80" * 9 + b"\x02" + value[at:]])
    return bytes(spoiled)


def some(random: Random, *choices: Any) -> Any:
    return random.choice(choices)


def a_text(random: Random) -> str:
    return some(random, "", "a", "ü", "日本語", "\0", "x" * 200, "hello world", "\U0001f600")


def a_whole(random: Random, bits: int) -> int:
    end = 1 << (bits - 1)
    return some(random, 0, -1, 1, end - 1, -end, random.randrange(-end, end), random.randrange(-200, 200))


def a_fraction(random: Random) -> float:
    return some(random, 0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 5e-324, random.uniform(-1e9, 1e9))
