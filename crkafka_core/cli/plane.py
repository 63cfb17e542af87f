"""Opens a region's control plane for a verb, without anything of Kafka or Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from crkafka_core.config import RegionConfig
from crkafka_core.plane import stores
from crkafka_core.plane.transact import ControlPlane


@contextmanager
def control_plane(config: RegionConfig) -> Iterator[ControlPlane]:
    """Closed at the end of the block."""
    store = stores.open_store(config.resolved_control_plane())
    try:
        yield ControlPlane(store, config.region)
    finally:
        store.close()
