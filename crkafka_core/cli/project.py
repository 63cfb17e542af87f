"""`new`: writes a starter project."""

from __future__ import annotations

import re
import shlex
from importlib import resources
from pathlib import Path

import click

from crkafka_core.cli.call import COMMANDS
from crkafka_core.config import schema
from crkafka_core.model.errors import ConfigError

_FILES = {
    "region.yaml": "region.yaml",
    "order.schema.json": "order.schema.json",
    "produce.py": "produce.py",
    "read.py": "read.py",
    "definitions.txt": "definitions.py",
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
}
"""File of the package → file of the project. definitions.txt imports Dagster's side, so it is no module of the core."""
_SCHEMA = "region.schema.json"
"""The first line of region.yaml names it."""
_IGNORED = "var/\n__pycache__/\n.tmp_dagster_home_*/\nspark-warehouse/\n"


def new(folder: Path) -> list[Path]:
    """Write the files of a starter project into a folder that has none of them; the folder gives the region its name."""
    name = folder.absolute().name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(f"{name!r} is not a name for a region.", hint="Letters, digits, dot, underscore and hyphen.")
    targets = [folder / file for file in (*_FILES.values(), _SCHEMA, ".gitignore")]
    try:
        for target in targets:
            if target.exists():
                raise ConfigError(f"{target} exists already.", hint="Choose a folder of its own: crkafka new NAME.")
        folder.mkdir(parents=True, exist_ok=True)
        for file, target_name in _FILES.items():
            text = (resources.files("crkafka_core.starter") / file).read_text(encoding="utf-8")
            (folder / target_name).write_text(text.replace("PROJECT", name), encoding="utf-8")
        (folder / _SCHEMA).write_text(schema.text(), encoding="utf-8")
        (folder / ".gitignore").write_text(_IGNORED, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}.", hint="Choose another folder.") from None
    return targets


@click.command("new")
@click.argument("folder", type=click.Path(path_type=Path), metavar="[NAME]", default="orders")
def _new(folder: Path) -> None:
    """Write a starter project: a region, a producer, a raw and a typed table with dead letters, a Dagster definition.

    \b
    Example:
      crkafka new shop && cd shop
      crkafka dev up --topic orders:4
    """
    for path in new(folder):
        print(path)
    change = f"cd {shlex.quote(str(folder))}; " if folder.absolute() != Path.cwd() else ""
    print(f"next: {change}crkafka dev up --topic orders:4; then follow {folder / 'README.md'}")


COMMANDS["new"] = _new
