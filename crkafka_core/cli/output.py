"""What a verb prints: JSON when asked, tables for people on a terminal, aligned text in a pipe."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crkafka_core import logs
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region
from crkafka_core.model.visible import json_text, one_line, visible

if TYPE_CHECKING:
    from rich.text import Text


def print_json(value: Any) -> None:
    """One JSON document; columns that hold JSON come as what they hold."""
    print(json_text(plain(value), indent=2))


def plain(value: Any) -> Any:
    """A value as JSON has it."""
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
    """Rows below column names; numbers to the right."""
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
    """Names and values, one line each; those without a value are left out."""
    filled = [(name, _cell(value)) for name, value in pairs if value not in (None, "", ())]
    width = max((len(name) for name, _ in filled), default=0)
    for name, text in filled:
        # What goes on in the next line stands below its value, so that it looks like no other name's.
        print(f"{name.ljust(width)}  {visible(text)}".replace("\n", "\n" + " " * (width + 2)))


def note(text: str, level: str = "INFO") -> None:
    """Something beside the answer, on stderr, if there is anybody to read it."""
    with suppress(OSError):
        print(logs.log_line(text, level), file=sys.stderr, flush=True)


def tell_refused(text: str) -> None:
    """One refusal of several, of which the worst ends the verb."""
    note(text, "ERROR")


def shown(value: object) -> Text:
    """A value for `rich`, which would take brackets in a plain string for markup of its own."""
    from rich.text import Text

    return Text(visible(str(value)))


def moment(at: float) -> str:
    """A time of the control plane for a person, in this machine's zone."""
    if not at:
        return ""
    return dt.datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """A length of time for a person."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def phase_for(region: Region, now: float) -> str:
    """The phase, and for how long: a region that runs does so since its last resume, whatever cuts it has made."""
    since = region.resumed_at if region.phase is Phase.RUNNING else region.phase_since
    return f"{region.phase} for {span(max(0.0, now - since))}"


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
    """What a person may mend: rights, space, a folder that was deleted. Empty for anything else."""
    if error.errno == errno.ENOENT and not _folder_exists():
        return "The current folder is no longer there. Change to another one."
    if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
        return ""
    if error.filename is None:
        return f"What is printed cannot be written: {error.strerror}."
    return (
        f"{error.filename} cannot be used: {error.strerror}. May this user read and write it, and is there space left?"
    )


def _folder_exists() -> bool:
    try:
        return bool(Path.cwd())
    except OSError:
        return False
