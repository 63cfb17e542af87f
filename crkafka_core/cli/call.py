"""The options that verbs share, and what they mean: the configuration, --json, and the question before something is destroyed."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from crkafka_core import logs
from crkafka_core.config import RegionConfig
from crkafka_core.model.errors import ConfigError, Refused

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_FILE = Path("region.yaml")
MOST = 2**63 - 1
"""Of any number in SQL."""


@dataclass(frozen=True)
class Call:
    """The configuration that the options name, before or after the verb."""

    config_file: Path | None = None
    region_name: str | None = None

    @property
    def file(self) -> Path | None:
        """The file of -c, else of $CRKAFKA_CONFIG, else region.yaml in the current folder if it exists."""
        named = os.environ.get("CRKAFKA_CONFIG")
        return self.config_file or (Path(named) if named else DEFAULT_FILE if DEFAULT_FILE.exists() else None)

    def config(self) -> RegionConfig:
        """Load the configuration."""
        file = self.file
        if file is None:
            raise ConfigError(
                f"There is no {DEFAULT_FILE} in {Path.cwd()}.",
                hint="Name a configuration with -c FILE or $CRKAFKA_CONFIG.",
            )
        config = RegionConfig.load(file, region=self.region_name)
        logs.about(config.region)
        return config


def config_options(command: F) -> F:
    """Adds -c and -r."""
    command = click.option(
        "-r", "--region", "region_name", metavar="NAME", help="A region of the file, if it has several."
    )(command)
    return click.option(
        "-c",
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The region's configuration.",
    )(command)


def with_config(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds -c and -r after the verb, and passes the loaded configuration as first argument."""

    @functools.wraps(command)
    def wrapped(config_file: Path | None, region_name: str | None, **options: Any) -> Any:
        return command(called(config_file, region_name).config(), **options)

    return config_options(wrapped)


def called(config_file: Path | None, region_name: str | None) -> Call:
    """The call; options after the verb go before those in front of it."""
    call = click.get_current_context().find_object(Call) or Call()
    return replace(call, config_file=config_file or call.config_file, region_name=region_name or call.region_name)


def number(least: float, most: float = MOST, *, of: type[int] | type[float] = int) -> Callable[[Any], float]:
    """Converts an option to a number within bounds, or refuses it by a sentence."""

    def convert(text: Any) -> float:
        try:
            value = of(text)
        except ValueError:
            raise click.BadParameter(f"{text!r} is not a number") from None
        if least <= value <= most:
            return value
        # The bound of SQL is named only to a person who exceeds it.
        bounds = (
            f"from {least} to {most}" if most != MOST else f"at most {MOST}" if value > MOST else f"at least {least}"
        )
        raise click.BadParameter(f"must be {bounds}, not {text}")

    return convert


def json_option(command: F) -> F:
    """Adds --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def yes_option(command: F) -> F:
    """Adds --yes."""
    return click.option("--yes", is_flag=True, help="Do it without asking.")(command)


def confirm(what: str, *, yes: bool) -> None:
    """Ask before something is destroyed: a question on a terminal, `--yes` everywhere else."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what} Say --yes to do it.")
    if not click.confirm(f"{what} Go on?", err=True):
        raise Refused("Nothing was done.")
