"""The program behind the command `crkafka`: an interrupt while its modules are imported gives no traceback either."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

INTERRUPTED = 130
COLLECTED_AFTER = 50_000
"""New objects after which garbage is looked for. With Python's 700 that takes a tenth of the time of a short verb, mostly in imports."""


def main(arguments: Sequence[str] | None = None) -> None:
    gc.set_threshold(COLLECTED_AFTER)
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
    finally:
        gc.freeze()  # else Python looks twice for garbage among all classes and functions while it ends


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
