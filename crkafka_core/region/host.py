"""The host that a region's configuration names, found by entry point: the Spark room is above this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from crkafka_core.region.region import Region

GROUP = "crkafka.host"


class Host(Protocol):
    """Starts members, watches them, starts them anew."""

    def begin(self) -> None: ...

    def join(self, timeout: float | None = None) -> bool:
        """Until the region is idle and all members have ended; whether that came to pass."""

    def end(self) -> None: ...


Opener = Callable[["Region", Path | None], Host]


def open_host(region: Region, logs: Path | None = None) -> Host:
    """Spark or local processes, as `host:` says; nothing is started yet."""
    kind = "processes" if region.config.host.spark is None else "spark"
    opener: Opener = next(iter(entry_points(group=GROUP, name=kind))).load()
    return opener(region, logs)


@contextmanager
def hosting(region: Region, logs: Path | None = None) -> Iterator[Host]:
    """Members run until the block ends."""
    host = open_host(region, logs)
    host.begin()
    try:
        yield host
    finally:
        host.end()
