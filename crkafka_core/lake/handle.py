"""What the functions that write and read need of a region: its configuration, its control plane, its segments, and time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.loop import THREADS, Runtime
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.segments.storage import Storage


class Handle(Protocol):
    """Anything that has them; `crkafka_core.region.Region` does."""

    @property
    def config(self) -> RegionConfig: ...

    @property
    def plane(self) -> ControlPlane: ...

    @property
    def runtime(self) -> Runtime: ...

    def storage(self) -> Storage:
        """Where the segments are."""


@dataclass(frozen=True)
class Opened:
    """A region whose control plane is open, and nothing else of it."""

    config: RegionConfig
    plane: ControlPlane
    runtime: Runtime = THREADS

    def storage(self) -> Storage:
        return Storage.of(self.config)
