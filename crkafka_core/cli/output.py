"""Output of a verb: its answer on stdout, as JSON, a table or aligned text; progress and notes on stderr."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crkafka_core import logs
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.visible import json_text, one_line, visible
from crkafka_core.still import telling

if TYPE_CHECKING:
    from rich.text import Text

    from crkafka_core.model.rows import Region
    from crkafka_core.plane.lateness import TableLag

Say = Callable[[str], None]
"""Receives each step of a long verb in a few words."""
_NUMBER = re.compile(r"[\d.,]+")
"""A step that differs only in numbers is the same one."""


def print_json(value: Any) -> None:
    """Print one JSON document; text columns of JSON are printed as the values in them."""
    print(json_text(plain(value), indent=2))


def plain(value: Any) -> Any:
    """A value as JSON: dataclasses become objects, enums their values, sets sorted lists."""
    if isinstance(value, TP):
        return {"topic": value.topic, "partition": value.partition}
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dict(_entry(f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return [plain(v) for v in sorted(value)]
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    return value


def _entry(name: str, value: Any) -> tuple[str, Any]:
    if name.endswith("_json") and isinstance(value, str):
        return name.removesuffix("_json"), json.loads(value) if value else None
    return name, plain(value)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", empty: str = "none"
) -> None:
    """Print rows below column names: a table on a terminal, aligned text in a pipe; numbers to the right."""
    cells = [[one_line(_cell(c)) for c in row] for row in rows]
    right = [bool(cells) and all(_number(row[i]) for row in cells) for i in range(len(columns))]
    if not cells:
        print(f"{title}: {empty}" if title else empty)
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
        for name, numeric in zip(columns, right, strict=True):
            table.add_column(name, justify="right" if numeric else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(c) for c in row))
        Console().print(table)
    else:
        if title:
            print(title)
        widths = [max(len(columns[i]), *(len(r[i]) for r in cells)) for i in range(len(columns))]
        for row in [list(columns), *cells]:
            aligned = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
            print("  ".join(aligned).rstrip())


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one line each; pairs without a value are left out."""
    filled = [(name, _cell(value)) for name, value in pairs if value not in (None, "", ())]
    width = max((len(name) for name, _ in filled), default=0)
    for name, text in filled:
        # Further lines of a value are indented below it, so that they do not look like another name.
        print(f"{name.ljust(width)}  {visible(text)}".replace("\n", "\n" + " " * (width + 2)))


def note(text: str, level: str = "INFO") -> None:
    with suppress(OSError):  # stderr may be closed
        print(logs.log_line(text, level), file=sys.stderr, flush=True)


class _Now:
    """The text beside the spinner, rebuilt at each drawing."""

    def __init__(self, what: str) -> None:
        self._what, self._at, self._began = what, what, time.monotonic()

    def say(self, step: str) -> None:
        self._at = f"{self._what}: {step}" if step else self._what

    def __rich__(self) -> Text:
        return shown(f"{self._at} ({time.monotonic() - self._began:.0f} s)")


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Say]:
    """Shows the steps of a long verb on stderr: a spinner on a terminal; in a pipe, and as JSON, a line for each step and now and then
    one that it still goes on."""
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
            if _NUMBER.sub("", step) != _NUMBER.sub("", before):
                line(step)

        with telling(line, lambda _: f"still at: {last[0]}"):
            yield say


def silent(step: str) -> None:
    """Ignores a step."""


def shown(value: object) -> Text:
    """A value for `rich`, which reads brackets in a plain string as markup."""
    from rich.text import Text

    return Text(visible(str(value)))


def moment(at: float) -> str:
    if not at:
        return ""
    return dt.datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def phase_for(region: Region, now: float) -> str:
    """The phase and its age; RUNNING counts from the last resume, not from the last cut."""
    since = region.resumed_at if region.phase is Phase.RUNNING else region.phase_since
    return f"{region.phase} for {span(max(0.0, now - since))}"


LAG = ("table", "format", "acknowledged", "waiting", "for")


def lag_cells(lag: TableLag) -> tuple[object, ...]:
    """Cells of a declared table below the columns `LAG`."""
    table, waits = lag.table, span(lag.seconds) if lag.waiting else "fresh"
    return table.name, table.format, table.acknowledged, lag.waiting, waits


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def _number(text: str) -> bool:
    return text == "–" or text.replace(",", "").lstrip("-").isdigit()


def of_the_machine(error: OSError) -> str:
    """A sentence for an error that a person can mend: rights, space, a deleted folder. Empty for any other."""
    if error.errno == errno.ENOENT:
        try:
            Path.cwd()
        except OSError:
            return "The current folder no longer exists. Change to another one."
    if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
        return ""
    if error.filename is None:
        return f"The answer cannot be written to stdout: {error.strerror}."
    return f"{error.filename} cannot be used: {error.strerror}. May this user read and write it, and has the disk space left?"
