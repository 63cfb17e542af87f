"""Table formats by their names: a format is one module behind the port, and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import TableLog
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table
from crkafka_core.plane import tables

FORMATS: dict[str, tuple[str, str]] = {
    "delta": ("crkafka_core.lake.delta.table", "DeltaTable"),
    "iceberg": ("crkafka_core.lake.iceberg.path", "PathTable"),
}
"""Format → the module, loaded when a table needs it, and what in it makes a `TableLog` of a name, a path and `storage_options`."""

Logs = Callable[[Handle, Table], TableLog]
"""Opens a table's log."""


def on_the_road(region: Handle, name: str) -> bool:
    """Whether a table is written here, without Spark."""
    return not region.plane.read(lambda reader, _: tables.needs_spark(tables.of(reader, name)))


def open_log(region: Handle, table: Table) -> TableLog:
    """The log of a declared table."""
    module, name = FORMATS[table.format]
    try:
        made: Callable[[str, str, Mapping[str, str]], TableLog] = getattr(import_module(module), name)
    except ImportError as error:
        raise ConfigError(
            f"Table {table.name} is {table.format}, and the package {error.name} is not installed.",
            hint=f"pip install 'crkafka[{table.format}]'.",
        ) from error
    return made(table.name, table.path, region.config.resolve().storage_options)
