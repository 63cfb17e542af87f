"""Asks before something is destroyed: a question on a terminal, `--yes` everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from crkafka_core.model.errors import Refused

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(command: F) -> F:
    """Adds --yes."""
    return click.option("--yes", is_flag=True, help="Do it without asking.")(command)


def confirm(what: str, *, yes: bool) -> None:
    """Go on only if a person agrees."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what} Say --yes to do it.")
    if not click.confirm(f"{what} Go on?", err=True):
        raise Refused("Nothing was done.")
