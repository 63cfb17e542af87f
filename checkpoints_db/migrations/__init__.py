"""Versions of the schema, oldest first; as data, so that a check needs neither Alembic nor a folder."""

from __future__ import annotations

VERSIONS: tuple[str, ...] = ("0001",)
"""All revisions; a test compares them with the files in `versions`."""

VERSION_TABLE = "crkafka_version"
"""Not `alembic_version`, which Dagster or another program in the same database may have."""

HEAD = VERSIONS[-1]
"""The version that this program reads and writes."""
