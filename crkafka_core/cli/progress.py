"""Shows what a long verb is doing, on stderr: a spinner on a terminal; in a pipe, and as JSON, a line per step and now and then one."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from crkafka_core import logs
from crkafka_core.cli.output import note, shown
from crkafka_core.still import telling

if TYPE_CHECKING:
    from rich.text import Text

Say = Callable[[str], None]


class _Now:
    """What stands beside the spinner, each time that it is drawn."""

    def __init__(self, what: str) -> None:
        self._what, self._step, self._began = what, "", time.monotonic()

    def say(self, step: str) -> None:
        self._step = step

    def __rich__(self) -> Text:
        at = f"{self._what}: {self._step}" if self._step else self._what
        return shown(f"{at} ({time.monotonic() - self._began:.0f} s)")


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Say]:
    """Gives a function that is told each step in a few words."""
    if quiet:
        yield lambda step: None
    elif sys.stderr.isatty() and logs.form() == "text":
        from rich.console import Console

        now = _Now(what)
        with Console(stderr=True).status(now):
            yield now.say
    else:
        began, last = time.monotonic(), [what]

        def line(text: str) -> None:
            note(f"{text} ({time.monotonic() - began:.1f} s)")

        def say(step: str) -> None:
            before, last[0] = last[0], step
            if _words(step) != _words(before):
                line(step)

        with telling(line, lambda _: f"still at: {last[0]}"):
            yield say


def _words(step: str) -> str:
    """The same words with other numbers are not a new step."""
    return re.sub(r"[\d.,]+", "", step)
