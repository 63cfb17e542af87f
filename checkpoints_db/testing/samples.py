"""Sample rows with values that break databases (near 2⁶³, 249 characters, quotes, other alphabets), and expectations of the suites."""

from __future__ import annotations

import dataclasses
import time
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

from crkafka_core.model.rows import MergedOffset, Region, Row

R = TypeVar("R", bound=Row)

REGION = "o'r\"ders; -- «Größe» 订单 %s :x {y}"
"""A region's name that must be data everywhere, never part of a statement."""
TOPIC = "t" * 249
"""The longest name that Kafka allows."""
HUGE = 2**63 - 1
TEXT = "line one\nline 'two' \"three\" \\ %(x)s ${HOME} 😀 \u00e4\u4e2d\u0301"


def region(name: str = REGION, **changes: Any) -> Region:
    """A new region."""
    return dataclasses.replace(Region(name=name, uid="0a1b", region_index=1), **changes)


def sample(row: type[R], number: int, *, of: str = REGION) -> R:
    """A row whose every column has a telling value, different for each number."""
    hints = typing.get_type_hints(row)
    values: dict[str, Any] = {}
    for index, field in enumerate(dataclasses.fields(row)):
        values[field.name] = _value(hints[field.name], field.name, number, index)
    if "region" in values:
        values["region"] = of
    if "topic" in values:
        values["topic"] = TOPIC
    return row(**values)


def _value(kind: type[Any], name: str, number: int, index: int) -> Any:
    if issubclass(kind, StrEnum):
        members = list(kind)
        return members[(number + index) % len(members)]
    if kind is bool:
        return bool((number + index) % 2)
    if kind is int:
        return HUGE - number * 64 - index
    if kind is float:
        return 1_750_000_000.125 + number + index
    return f"{name} {number} {TEXT}"


def offsets(checkpoint: int, count: int, *, of: str = REGION) -> list[MergedOffset]:
    """Merged offsets of many partitions."""
    return [
        MergedOffset(
            of, checkpoint, f"topic-{index % 50:03d}", index // 50, "id", index, index + 10, 10, f"m/{index % 100}"
        )
        for index in range(count)
    ]


@contextmanager
def raises(*errors: type[BaseException]) -> Iterator[None]:
    """The block must raise one of these."""
    try:
        yield
    except errors:
        return
    raise AssertionError(f"nothing was raised; expected {', '.join(error.__name__ for error in errors)}")


def eventually(true: Callable[[], bool], *, within: float, what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.01)
