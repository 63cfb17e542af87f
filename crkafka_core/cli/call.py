"""One call of the command line: which configuration, who calls, and how it answers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from crkafka_core import logs
from crkafka_core.config import RegionConfig
from crkafka_core.model.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_FILE = Path("region.yaml")
MOST = 2**63 - 1
"""Of whatever is a number in SQL."""


@dataclass(frozen=True)
class Call:
    """What the options before and after the verb say."""

    config_file: Path | None = None
    region_name: str | None = None

    @property
    def file(self) -> Path | None:
        """The file that was named, by the environment too, or region.yaml if it is here."""
        named = os.environ.get("CRKAFKA_CONFIG")
        return self.config_file or (Path(named) if named else DEFAULT_FILE if DEFAULT_FILE.exists() else None)

    def config(self) -> RegionConfig:
        """The configuration."""
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
        "-r", "--region", "region_name", metavar="NAME", help="Which region of the file, if several."
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
    """Adds -c and -r after the verb too, and passes the loaded configuration as first argument."""

    @functools.wraps(command)
    def wrapped(config_file: Path | None, region_name: str | None, **options: Any) -> Any:
        return command(called(config_file, region_name).config(), **options)

    return config_options(wrapped)


def called(config_file: Path | None, region_name: str | None) -> Call:
    """The call, by the options after the verb and those before it."""
    call = click.get_current_context().find_object(Call) or Call()
    return replace(call, config_file=config_file or call.config_file, region_name=region_name or call.region_name)


def json_option(command: F) -> F:
    """Adds --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
