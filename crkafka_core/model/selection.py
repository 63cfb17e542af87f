"""Selection of records of checkpoints by topic, partition, offset and time (SPEC K3)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from crkafka_core.model.errors import ConfigError

Moment = dt.datetime | str | int
"""ISO 8601, a datetime, or milliseconds since 1970; without a zone it is UTC."""

_MILLIS = re.compile(r"(?![0-9]{8}$)-?[0-9]+")
"""Milliseconds as a text; eight digits are a date of ISO 8601."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Between:
    """A half-open interval; None: no bound."""

    start: int | None = None
    stop: int | None = None

    def touches(self, first: int, stop: int) -> bool:
        """Whether [first, stop) overlaps the interval."""
        return (self.start is None or stop > self.start) and (self.stop is None or first < self.stop)


Erased = tuple[int, str, int, tuple[int, ...]]
"""Checkpoint, topic, partition, and offsets of erased records."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions that all hold for a selected record; None and an open interval are no condition."""

    topics: tuple[str, ...] | None = None
    partitions: tuple[int, ...] | None = None
    offsets: Between = Between()
    times: Between = Between()
    """Microseconds since 1970."""
    erased: tuple[Erased, ...] = ()
    """Erased records, which are never selected."""

    @classmethod
    def of(
        cls,
        topics: Collection[str] | None = None,
        partitions: Collection[int] | None = None,
        from_offset: int | None = None,
        to_offset: int | None = None,
        from_time: Moment | None = None,
        to_time: Moment | None = None,
    ) -> Selection:
        """A selection from arguments; `from` bounds are inclusive, `to` bounds exclusive."""
        if isinstance(topics, str):
            raise ConfigError(f"topics has to be a list, not the text {topics!r}.", hint=f"Write [{topics!r}].")
        return cls(
            None if topics is None else tuple(sorted(set(topics))),
            None if partitions is None else tuple(sorted(set(partitions))),
            Between(from_offset, to_offset),
            Between(micros(from_time), micros(to_time)),
        )

    @property
    def everything(self) -> bool:
        return self == EVERYTHING

    def may_hold(self, topic: str, partition: int, first: int, stop: int) -> bool:
        """Whether records [first, stop) of a partition may be selected; their times are unknown here."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and self.offsets.touches(first, stop)
        )

    def within(self, checkpoint: int) -> Selection:
        """The selection for records of this checkpoint: in a topic that was made again, an offset is of several records."""
        if not self.erased:
            return self
        return replace(self, erased=tuple(e for e in self.erased if e[0] == checkpoint))


EVERYTHING = Selection()


def micros(moment: Moment | None) -> int | None:
    if moment is None:
        return None
    if isinstance(moment, str) and _MILLIS.fullmatch(moment.strip()):
        moment = int(moment)
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment * 1000
    try:
        moment = dt.datetime.fromisoformat(moment.strip()) if isinstance(moment, str) else moment
    except ValueError:
        raise _no_time(moment) from None
    if not isinstance(moment, dt.datetime):
        raise _no_time(moment)
    known = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return (known - _EPOCH) // dt.timedelta(microseconds=1)


def _no_time(given: object) -> ConfigError:
    forms = "ISO 8601, such as 2026-01-31T08:00:00Z, a datetime, or whole milliseconds since 1970"
    return ConfigError(f"A time is {forms}; not {given!r}.")
