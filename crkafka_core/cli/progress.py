"""Shows what a long verb is doing: a spinner on a terminal, a line per step in a pipe; always on stderr."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from crkafka_core.cli.output import shown
from crkafka_core.model.visible import visible

Say = Callable[[str], None]


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Say]:
    """Gives a function that is told each step in a few words."""
    if quiet:
        yield lambda step: None
    elif sys.stderr.isatty():
        with Console(stderr=True).status(shown(what)) as status:
            yield lambda step: status.update(shown(f"{what}: {step}"))
    else:
        began, last = time.monotonic(), [""]

        def say(step: str) -> None:
            words = re.sub(r"[\d.,]+", "", step)  # the same words with other numbers are no new step
            if words != last[0]:
                last[0] = words
                print(f"{visible(step)} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)

        yield say
