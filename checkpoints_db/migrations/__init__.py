"""Versions of the schema, oldest first; as data, so that a check needs neither Alembic nor a folder."""

from __future__ import annotations

VERSIONS: tuple[str, ...] = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "0006",
    "0007",
    "0008",
    "0009",
    "0010",
    "0011",
    "0012",
    "0013",
)
"""Every revision there is; a test holds it to the files in `versions`."""

VERSION_TABLE = "crkafka_version"
"""Ours by name: Dagster, or whoever else has Alembic in the same database, has an `alembic_version`."""

HEAD = VERSIONS[-1]
"""The version that this program reads and writes."""
