"""The files of the project whose comments, doc strings and pages cite rules and facts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "crkafka",
    "crkafka_core",
    "checkpoints_db",
    "dagster_project",
    "pyspark_crkafka",
    "tests",
    "bench",
    "docs",
    "examples",
)
SUFFIXES = (".py", ".md", ".c", ".sql", ".toml", ".yaml", ".txt")


def sources() -> Iterator[Path]:
    """All of them but the tests that search them, whose patterns are no citations."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.parent != Path(__file__).parent and "node_modules" not in path.parts:
                yield path
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md"))
