"""The program behind the command `crkafka`: an interrupt while its modules are imported gives no traceback either."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w")  # the shell closes it on `>&-`
    sys.stderr = sys.stderr or nowhere.open("w")
    with _interrupts_end_at_once():
        from crkafka_core.cli.main import run
        from crkafka_core.cli.output import note
    try:
        sys.exit(run(arguments))
    except KeyboardInterrupt:
        note("interrupted", "WARNING")
        sys.exit(INTERRUPTED)


@contextmanager
def _interrupts_end_at_once() -> Iterator[None]:
    """An interrupt ends the process at once: a library that is being imported may swallow the exception."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
