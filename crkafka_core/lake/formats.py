"""Table formats by their names: a format is one module behind the port, and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from crkafka_core.config.location import in_catalog
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import TableLog
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table

FORMATS = {"delta": "crkafka_core.lake.delta", "iceberg": "crkafka_core.lake.iceberg"}
"""Format → the module, loaded when a table needs it. Its `open_table` takes a name, a path, `storage_options` and Spark's settings."""

Open = Callable[[str, str, Mapping[str, str], Mapping[str, str]], TableLog]
Logs = Callable[[Handle, Table], TableLog]
"""Opens a table's log."""


def open_log(region: Handle, table: Table) -> TableLog:
    """The log of a declared table."""
    return opened(region.config, table)


def opened(config: RegionConfig, table: Table) -> TableLog:
    """The log of a table, where there is no more of its region than the configuration."""
    known = config.resolve()
    try:
        open_table: Open = import_module(FORMATS[table.format]).open_table
        return open_table(table.name, table.path, known.storage_options, known.spark_conf)
    except ImportError as error:
        extra = f"{table.format}-catalogs" if in_catalog(table.path) else table.format
        raise ConfigError(
            f"Table {table.name} is {table.format}, and the package {error.name} is not installed.",
            hint=f"pip install 'crkafka[{extra}]'.",
        ) from error
