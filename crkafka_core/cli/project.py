"""`new` and `schema`: a starter project, and the JSON schema of a region's configuration for editors."""

from __future__ import annotations

import re
import shlex
from importlib import resources
from pathlib import Path
from typing import Any

import click

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
"""In the package → in the project. What imports Dagster's side is not a module here, below it."""
_SCHEMA = "region.schema.json"
"""Which the first line of region.yaml names."""
_IGNORED = "var/\n__pycache__/\n.tmp_dagster_home_*/\nspark-warehouse/\n"


def new(folder: Path) -> list[Path]:
    """Write the files of a starter project into a folder that has none of them; the region is called like the folder."""
    name = folder.absolute().name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(f"{name!r} is not a name for a region.", hint="Letters, digits, dot, underscore and hyphen.")
    targets = [folder / file for file in (*_FILES.values(), _SCHEMA, ".gitignore")]
    try:
        for target in targets:
            if target.exists():
                raise ConfigError(f"{target} is there already.", hint="Choose a folder of its own: crkafka new NAME.")
        folder.mkdir(parents=True, exist_ok=True)
        for file, target_name in _FILES.items():
            text = (resources.files("crkafka_core.starter") / file).read_text(encoding="utf-8")
            (folder / target_name).write_text(text.replace("PROJECT", name), encoding="utf-8")
        (folder / _SCHEMA).write_text(schema(), encoding="utf-8")
        (folder / ".gitignore").write_text(_IGNORED, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}.", hint="Choose another folder.") from None
    return targets


def schema() -> str:
    """The JSON schema of a region's configuration."""
    from crkafka_core.config import schema as of_config

    return of_config.text()


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
    here = f"cd {shlex.quote(str(folder))}; " if folder.absolute() != Path.cwd() else ""
    print(f"next: {here}crkafka dev up --topic orders:4; then as {folder / 'README.md'} says")


@click.command("schema")
def _schema() -> None:
    """Print the JSON schema of a region's configuration, for editors.

    \b
    Example, with this first line in region.yaml:
      # yaml-language-server: $schema=region.schema.json
      crkafka schema > region.schema.json
    """
    click.echo(schema(), nl=False)


COMMANDS: dict[str, Any] = {"new": _new, "schema": _schema}
