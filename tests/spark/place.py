"""Where tables and segments of a test lie: folders of this machine, or, with `CRKAFKA_TABLES=s3`, a bucket of an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from crkafka_core.config.location import library_options
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

IN_S3 = os.environ.get("CRKAFKA_TABLES") == "s3"
SECRETS = {f"LAKE_{name.upper()}": name for name in ("access_key", "secret_key")}
"""Variable of the environment → the `storage_options` that refer to it."""


@dataclass(frozen=True)
class Place:
    folder: Path
    """Of this machine: the control plane is always here."""
    root: str
    """Tables and segments are below it."""
    options: Mapping[str, str]
    """`storage_options`, as a configuration has them."""

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def landing(self, tables: Sequence[Mapping[str, Any]], **keys: Any) -> Landing:
        """Two partitions, unless said otherwise."""
        given = {"partitions": 2, "storage": self.path("segments"), "storage_options": dict(self.options), **keys}
        return Landing(MemoryStore(), self.folder, tables=list(tables), **given)


def lake(landing: Landing, path: str) -> DeltaTable:
    """A table as a program sees it that knows nothing of us."""
    options = library_options(path, landing.config.resolve().storage_options)
    return DeltaTable(path, storage_options=options)
