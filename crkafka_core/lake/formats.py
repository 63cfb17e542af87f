"""Table formats by their names, and a table's folder: a format is one module behind the port, and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from crkafka_core.config.location import in_catalog, store_of
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import TableLog, Unknown
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table
from crkafka_core.segments.errors import SegmentMissing, StorageUnavailable
from crkafka_core.segments.storage import Storage

FORMATS = {"delta": "crkafka_core.lake.delta.table", "iceberg": "crkafka_core.lake.iceberg"}
"""Format → the module, loaded when a table needs it. Its `open_table` takes a name, a path, `storage_options` and Spark's settings."""
Open = Callable[[str, str, Mapping[str, str], Mapping[str, str]], TableLog]
Logs = Callable[[Handle, Table], TableLog]
"""Opens a table's log."""


def open_log(region: Handle, table: Table) -> TableLog:
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


def folder_of(path: str, options: Mapping[str, str]) -> Storage:
    """A table's folder. Its files may be links to segments, and have the same readers."""
    usable = {key: value for key, value in options.items() if key != "mode" or store_of(path).local}
    return Storage.open(path, usable)


def content_of(folder: Storage, path: str) -> bytes:
    with folder.open_read(path) as source:
        return bytes(source.read())


def put_version(folder: Storage, path: str, content: bytes) -> bool:
    """Put a version of a table's log if there is none of its name; False: it is another writer's. Raises `Unknown` without an answer.

    A storage's client tries again by itself after an answer that got lost, and is refused for its own first try: a version with this
    very content is ours, so each writer's content has to be its own.
    """
    try:
        return folder.put_new(path, content) or content_of(folder, path) == content
    except (SegmentMissing, StorageUnavailable) as error:
        raise Unknown(f"{folder.uri(path)} may be written or not: {error}") from error
