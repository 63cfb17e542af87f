"""Iceberg behind the port: metadata and manifests are read and written here, at a path or in a catalog, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from crkafka_core.config.catalogs import warehouse
from crkafka_core.config.location import in_catalog
from crkafka_core.lake.formats import folder_of
from crkafka_core.lake.port import TableLog


def open_table(name: str, path: str, options: Mapping[str, str], conf: Mapping[str, str]) -> TableLog:
    """A declared table: at a path, in a folder that is a catalog, or in a catalog that pyiceberg reaches. `conf` names the catalog."""
    catalog, _, identifier = path.partition(".")
    folder = warehouse(catalog, conf)
    if in_catalog(path) and folder is None:
        from crkafka_core.lake.iceberg.catalog import CatalogLog, open_catalog

        return CatalogLog(open_catalog(catalog, conf, options), identifier, options, name)
    from crkafka_core.lake.iceberg.path import PathLog

    at = f"{folder.rstrip('/')}/{identifier.replace('.', '/')}" if in_catalog(path) and folder else path
    return PathLog(folder_of(at, options), name)
