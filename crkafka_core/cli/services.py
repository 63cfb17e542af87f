"""`new`: a starter project. `dev`: a real Kafka and PostgreSQL in one folder, for a first look. `jars`: Spark's jars for tables."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Collection
from importlib import resources
from pathlib import Path

import click

from crkafka_core.cli.call import COMMANDS, DEFAULT_FILE, PATH, json_option, number
from crkafka_core.cli.output import note, print_json, progress
from crkafka_core.config.topics import NO_TOPIC, is_topic
from crkafka_core.dev import jars as sets
from crkafka_core.dev import services
from crkafka_core.model.errors import ConfigError

_FILES = ("region.yaml", "order.schema.json", "produce.py", "read.py", "definitions.txt", "pyproject.toml", "README.md")
"""Files of the package. definitions.txt becomes a module, which imports Dagster's side, so it is none of the core."""
_SCHEMA = "region.schema.json"
"""The first line of region.yaml names it."""


def new(folder: Path) -> list[Path]:
    """Write the files of a starter project into a folder that has none of them; the folder gives the region its name."""
    from crkafka_core.config import schema

    name = folder.absolute().name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(f"{name!r} is not a name for a region.", hint="Letters, digits, dot, underscore and hyphen.")
    written = {folder / file.replace("definitions.txt", "definitions.py"): file for file in _FILES}
    targets = [*written, folder / _SCHEMA, folder / ".gitignore"]
    try:
        for target in targets:
            if target.exists():
                raise ConfigError(f"{target} exists already.", hint="Choose a folder of its own: crkafka new NAME.")
        folder.mkdir(parents=True, exist_ok=True)
        for target, file in written.items():
            text = (resources.files("crkafka_core.starter") / file).read_text(encoding="utf-8")
            target.write_text(text.replace("PROJECT", name), encoding="utf-8")
        (folder / _SCHEMA).write_text(schema.text(), encoding="utf-8")
        ignored = "var/\n__pycache__/\n.tmp_dagster_home_*/\nspark-warehouse/\n"
        (folder / ".gitignore").write_text(ignored, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}.", hint="Choose another folder.") from None
    return targets


@click.command("new")
@click.argument("folder", type=PATH, metavar="[NAME]", default="orders")
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


MOST_PARTITIONS = 10_000
"""Kafka creates no more at once."""
_PORT = "Port of Kafka, such as 9092, when its folder is made [default: any free port]."
_PATH, _ABOUT = click.Path(path_type=Path, file_okay=False), "Folder of the services and their data."
_FOLDER = click.option("--folder", type=_PATH, default=services.DEFAULT_FOLDER, help=_ABOUT)


@click.group("dev", invoke_without_command=False)
def _dev() -> None:
    """A real Kafka and PostgreSQL in one folder, for a first look."""


@_dev.command("up")
@_FOLDER
@click.option("--brokers", type=number(1), metavar="N", default=1, help="One or three.")
@click.option("--port", type=number(1, 65535), metavar="N", help=_PORT)
@click.option("--postgres", is_flag=True, help="Also PostgreSQL: pip install 'crkafka[services]'.")
@click.option("--topic", "topics", multiple=True, metavar="NAME:PARTITIONS", help="Make a topic, unless it exists.")
@json_option
def _up(folder: Path, brokers: int, port: int | None, postgres: bool, topics: tuple[str, ...], as_json: bool) -> None:
    """Start the services that do not run yet; safe to repeat."""
    with progress("starting", quiet=as_json) as say:
        wanted = dict(_topic(t) for t in topics)
        state = services.up(folder, brokers=brokers, postgres=postgres, port=port or 0, topics=wanted, progress=say)
    print(services.as_json(state) if as_json else services.describe(state))
    if not as_json and folder == services.DEFAULT_FOLDER and not DEFAULT_FILE.exists():
        note("next: `crkafka new .` writes a project here that uses it")


@_dev.command("down")
@_FOLDER
@json_option
def _down(folder: Path, as_json: bool) -> None:
    """Stop the services of the folder; their data stays."""
    with progress("stopping", quiet=as_json) as say:
        state = services.down(folder, progress=say)
    print(services.as_json(state) if as_json else services.describe(state))
    if not as_json and state.services:
        note("all services have ended; `crkafka dev up` starts them again with their data")


@_dev.command("status")
@_FOLDER
@json_option
def _status(folder: Path, as_json: bool) -> int:
    """Services of the folder and whether they run; exit code 3 if one does not."""
    state = services.status(folder)
    print(services.as_json(state) if as_json else services.describe(state))
    return 0 if state.running else 3


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    if not name or not (partitions or "4").isdecimal() or not 1 <= int(partitions or 4) <= MOST_PARTITIONS:
        raise click.BadParameter(f"{text!r} is no NAME:PARTITIONS, such as orders:4", param_hint="--topic")
    if not is_topic(name):
        raise click.BadParameter(f"{name!r} {NO_TOPIC}", param_hint="--topic")
    return name, int(partitions or 4)


_SETS = {"delta": sets.DELTA, "iceberg": sets.ICEBERG, "s3": sets.S3A}


def jars(folder: Path, names: Collection[str] = tuple(_SETS)) -> list[Path]:
    """Copy the jars of these table formats, and of tables in S3, into a folder; a file whose hash differs is refused."""
    brought = []
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(set(names)):
        files = _SETS[name].jars()
        _SETS[name].verify()  # cached files too
        brought += [Path(shutil.copy(jar, folder)).resolve() for jar in files]
    return brought


@click.command("jars")
@click.argument("folder", type=_PATH)
@click.argument("names", nargs=-1, metavar="[delta] [iceberg] [s3]", type=click.Choice(list(_SETS)))
@json_option
def _jars(folder: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Copy the jars that Spark needs for tables into FOLDER, each compared with its hash, and print the line of `host.conf` for them.

    Needs Java, but no configuration.
    """
    with progress("fetching jars", quiet=as_json):
        brought = jars(folder, names or tuple(_SETS))
    if as_json:
        print_json([str(jar) for jar in brought])
    else:
        print(f"host: {{conf: {{spark.jars: '{','.join(map(str, brought))}'}}}}")


COMMANDS.update(new=_new, dev=_dev, jars=_jars)
