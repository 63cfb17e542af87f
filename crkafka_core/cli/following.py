"""The lines that `crkafka host` prints while it runs: each event of its region, and what the region waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from crkafka_core.cli.output import Say, moment
from crkafka_core.config import redact
from crkafka_core.control import Reader
from crkafka_core.model import rows
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.model.visible import one_line
from crkafka_core.plane import epochs, events, settling, tables
from crkafka_core.region import Region

WAITED = 20.0
"""Seconds in which a region usually settles; after a longer wait the reason is printed."""


class Follower:
    """Follows one region, turn by turn; the control plane may be away for a while."""

    def __init__(self, region: Region, tell: Say, *, logs: Path | None, why: Callable[[], str]) -> None:
        """`logs`: folder of the members' logs; `why`: reason of a wait that SQL does not know."""
        self._region, self._tell, self._why = region, tell, why
        self._more = f"members log to {logs}" if logs else "members log here"
        self._seen = -1
        self._waits_since = 0.0
        """Begin of the last wait that was printed."""
        self._fences: set[tuple[int, str]] = set()
        """(epoch, table) of the fences that were printed."""
        self._away = False

    def turn(self, stop: threading.Event) -> Phase | None:
        """Print new events, then wait for more; the region's phase, None while the control plane is away."""
        try:
            row = self._news()
            since, what = self._region.plane.read(waits)
            if what and since != self._waits_since:
                self._waits_since = since
                self._tell(f"waiting for {WAITED:.0f} s: {self._why() or what}; {self._more}")
            if row.phase is Phase.REWINDING and self._region.config.host.spark is None:
                self._fence(row.epoch)
            self._away = False
            self._region.plane.wait(row.version, 0.5)
        except ServiceUnavailable as error:
            if not self._away:
                self._tell(redact(str(error)))
            self._away = True
            stop.wait(1.0)
            return None
        return row.phase

    def _news(self) -> rows.Region:
        if self._seen < 0:
            self._seen = max((e.seq for e in self._region.plane.read(lambda r, row: events.last(r, 1))), default=0)
            self._tell(f"hosting region {self._region.config.region}; Ctrl-C makes a last cut and ends it")
        fresh, row = self._region.plane.read(lambda reader, row: (events.since(reader, self._seen), row))
        for event in fresh:
            self._seen = event.seq
            if not quiet(event):
                self._tell(line(event))
        return row

    def _fence(self, epoch: int) -> None:
        """Name the tables that no process here can fence: a host without Spark fences only those that need none, by its feeder."""

        def unfed(reader: Reader, _: rows.Region) -> list[str]:
            owed = [each for each in epochs.unfenced(reader) if tables.needs_spark(each)]
            return [each.name for each in owed if not tables.feeder_of(reader, each)]

        for table in self._region.plane.read(unfed):
            if (epoch, table) not in self._fences:
                self._fences.add((epoch, table))
                to_do = "by Dagster, or by `crkafka reset --to head`"
                self._tell(f"the region waits for table {table} to follow the rewind: {to_do}")


def waits(reader: Reader, row: rows.Region) -> tuple[float, str]:
    """Begin and reason of a wait for members that is longer than `WAITED`; (0, "") without one."""
    slow = row.phase in (Phase.BIRTH, Phase.RESETTING) and reader.now() - row.phase_since >= WAITED
    return (row.phase_since, settling.unready(reader, row)) if slow else (0.0, "")


def quiet(event: rows.Event) -> bool:
    """Whether an event is not printed: an opened cut is reported by its merge."""
    return event.kind == "cut opened"


def line(event: rows.Event) -> str:
    """An event as one line."""
    where = f" checkpoint {event.checkpoint}" if event.checkpoint else ""
    who = " ".join(dict.fromkeys(w for w in (event.member, event.by) if w))
    text = f": {event.text}" if event.text else ""
    return one_line(f"{moment(event.at)} {event.kind}{where}{text}{f' ({who})' if who else ''}")
