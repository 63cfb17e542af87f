"""Delta behind the port: its log is read and written here, without Spark; deltalake writes checkpoints of the log, and vacuums."""

from __future__ import annotations

from collections.abc import Mapping

from crkafka_core.lake.delta.table import DeltaTable as DeltaTable
from crkafka_core.lake.port import TableLog


def open_table(name: str, path: str, options: Mapping[str, str], conf: Mapping[str, str]) -> TableLog:
    """A declared table at a path. `options`: of the storage."""
    return DeltaTable(name, path, options)
