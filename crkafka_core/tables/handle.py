"""What the functions that write and read need of a region: its configuration and its control plane."""

from __future__ import annotations

from typing import Protocol

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.plane.transact import ControlPlane


class Handle(Protocol):
    """Anything that has both; `crkafka_core.region.Region` does."""

    @property
    def config(self) -> RegionConfig: ...

    @property
    def plane(self) -> ControlPlane: ...
