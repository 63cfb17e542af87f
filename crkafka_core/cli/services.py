"""`dev up`, `dev down`, `dev status`: a real Kafka and PostgreSQL in one folder, for a first look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from crkafka_core.cli.call import DEFAULT_FILE, json_option
from crkafka_core.cli.output import note
from crkafka_core.cli.progress import progress
from crkafka_core.config.topic import NO_TOPIC, is_topic
from crkafka_core.dev import services
from crkafka_core.dev.services import Status

MOST_PARTITIONS = 10_000
"""More of them Kafka does not make at once."""
_FOLDER = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=services.DEFAULT_FOLDER,
    show_default=True,
    help="Where all of it lives.",
)


@click.group("dev", invoke_without_command=False)
def _dev() -> None:
    """A real Kafka and PostgreSQL in one folder, for a first look."""


@_dev.command("up")
@_FOLDER
@click.option("--brokers", type=int, default=1, show_default=True, help="One or three.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Kafka's, such as 9092; when its folder is made. Any that is free."
)
@click.option("--postgres", is_flag=True, help="Also PostgreSQL: pip install 'crkafka[services]'.")
@click.option("--topic", "topics", multiple=True, metavar="NAME:PARTITIONS", help="Make a topic, if it is not there.")
@json_option
def _up(folder: Path, brokers: int, port: int | None, postgres: bool, topics: tuple[str, ...], as_json: bool) -> None:
    """Start what does not run yet; safe to repeat."""
    with progress("starting", quiet=as_json) as say:
        wanted = dict(_topic(t) for t in topics)
        state = services.up(folder, brokers=brokers, postgres=postgres, port=port or 0, topics=wanted, progress=say)
    _print(state, as_json)
    if not as_json and folder == services.DEFAULT_FOLDER and not DEFAULT_FILE.exists():
        note("next: `crkafka new .` writes a project here that uses it")


@_dev.command("down")
@_FOLDER
@json_option
def _down(folder: Path, as_json: bool) -> None:
    """Stop everything in the folder; the data stays."""
    with progress("stopping", quiet=as_json) as say:
        state = services.down(folder, progress=say)
    _print(state, as_json)
    if not as_json and state.services:
        note("all of it has ended; its data stays, and `crkafka dev up` goes on with it")


@_dev.command("status")
@_FOLDER
@json_option
def _status(folder: Path, as_json: bool) -> int:
    """What runs in the folder; exit code 3 if not everything does."""
    state = services.status(folder)
    _print(state, as_json)
    return 0 if state.running else 3


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    if not name or not (partitions or "4").isdecimal() or not 1 <= int(partitions or 4) <= MOST_PARTITIONS:
        raise click.BadParameter(f"{text!r} is no NAME:PARTITIONS, such as orders:4", param_hint="--topic")
    if not is_topic(name):
        raise click.BadParameter(f"{name!r} {NO_TOPIC}", param_hint="--topic")
    return name, int(partitions or 4)


def _print(state: Status, as_json: bool) -> None:
    print(services.as_json(state) if as_json else services.describe(state))


COMMANDS: dict[str, Any] = {"dev": _dev}
