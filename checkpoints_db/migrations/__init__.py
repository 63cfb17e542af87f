"""Versions of the schema, oldest first; as data, so that a check needs neither Alembic nor a folder."""

from __future__ import annotations

VERSIONS: tuple[str, ...] = ("0001",)
"""Every revision there is; a test holds it to the files in `versions`."""

VERSION_TABLE = "crkafka_version"
"""Ours by name: Dagster, or whoever else has Alembic in the same database, has an `alembic_version`."""

HEAD = VERSIONS[-1]
"""The version that this program reads and writes."""
