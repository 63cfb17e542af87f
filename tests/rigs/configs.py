"""The configuration of a region for tests that reach none of its services."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crkafka_core.config import RegionConfig

NOWHERE = {"bootstrap.servers": "localhost:1", "group.id": "g"}


def configured(folder: Path = Path("/not-used"), **keys: Any) -> RegionConfig:
    """What a region needs to have, and these keys; control plane and segments lie in the folder."""
    needed = {"region": "orders", "control_plane": "sqlite:///crkafka.db", "storage": "segments"}
    return RegionConfig.of(base=folder, **{**needed, "topics": ["orders"], "kafka": NOWHERE, **keys})
