"""How every process of ours logs: to stderr, as lines or as JSON, at a level that one variable sets (SPEC X8).

`CRKAFKA_LOG` (a level) and `CRKAFKA_LOG_FORMAT` (`text`, `json`) hold for the command line; hosts pass both on to members.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType

from crkafka_core.model.errors import ConfigError
from crkafka_core.model.redaction import redact_values
from crkafka_core.model.visible import json_text, one_line, visible

_log = logging.getLogger(__name__)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
FORMATS = ("text", "json")
_region = ""
"""Which JSON names."""
MOST = 32 * 2**20
"""Bytes of a member's log file; what is older is beside it, in `.1`."""


def level(default: str, env: Mapping[str, str] = os.environ) -> str:
    """The level that `CRKAFKA_LOG` names, or the default."""
    return _one_of("CRKAFKA_LOG", env.get("CRKAFKA_LOG", "").upper() or default, LEVELS)


def form(env: Mapping[str, str] = os.environ) -> str:
    """The format that `CRKAFKA_LOG_FORMAT` names."""
    return _one_of("CRKAFKA_LOG_FORMAT", env.get("CRKAFKA_LOG_FORMAT", "").lower() or "text", FORMATS)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ConfigError(f"{name} is {value!r}.", hint=f"It is one of {', '.join(known)}.")
    return value


def begin(level: str, form: str, *, who: str = "", force: bool = False) -> None:
    """Log to stderr from now on; `who` is a member's name. A program that logs already keeps its own handlers, unless `force`."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(_Json(who))
    elif who:
        name = who.replace("%", "%%")
        handler.setFormatter(_Text(f"%(asctime)s %(levelname)s {name} %(threadName)s %(name)s: %(message)s"))
    else:
        handler.setFormatter(_Text(logging.BASIC_FORMAT))
    if who:
        about(who.rpartition("/")[0])
    logging.basicConfig(level=level, handlers=[handler], force=force)
    # Python would print warnings, and an error that nobody caught, past the log, with all that they say.
    logging.captureWarnings(True)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _unraisable
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _thread_failed
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _process_failed


def about(region: str) -> None:
    """From here on this process works for this region: its JSON says so."""
    global _region
    _region = region


def in_one_voice() -> None:
    """Of lines, leave out who logs: what is told beside them on the same terminal does not name it either."""
    for handler in logging.getLogger().handlers:
        if type(handler.formatter) is _Text:
            handler.setFormatter(_Sentence())


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and failed.exc_type is not SystemExit:
        name = failed.thread.name if failed.thread else "?"
        _log.critical("the thread %s ends", name, exc_info=failed.exc_value)


def _unraisable(failed: sys.UnraisableHookArgs) -> None:
    if failed.exc_value is not None:
        _log.error("%s %r", failed.err_msg or "an error ended in", failed.object, exc_info=failed.exc_value)


def _process_failed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _log.critical("this process ends", exc_info=(kind, error, trace))


def log_line(text: str, level: str = "INFO") -> str:
    """What a program prints for whoever follows it, as one of its logs where those are JSON: who reads them meets no other lines."""
    text = redact_values(text)
    if os.environ.get("CRKAFKA_LOG_FORMAT", "").lower() != "json":
        return visible(text)
    return _Json("").format(logging.LogRecord("crkafka", logging.getLevelName(level), "", 0, "%s", (text,), None))


class _Text(logging.Formatter):
    """Lines; what others had a part in commands no terminal, and makes no line of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


class _Sentence(_Text):
    """For a terminal where sentences of ours stand already: no name of a module."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {super().format(record)}"


class _Json(logging.Formatter):
    """One object a line."""

    def __init__(self, who: str) -> None:
        super().__init__()
        self._who = who

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if _region:
            fields["region"] = _region
        if self._who:
            fields["member"] = self._who
        if record.exc_text or record.exc_info:  # the text is there already where secrets were removed from it
            fields["exception"] = record.exc_text or self.formatException(record.exc_info)  # type: ignore[arg-type]
        return json_text(fields)


def cap(file: Path, most: int = MOST) -> None:
    """Empty a log file that has grown too long; the process that appends to it goes on unaware."""
    try:
        if file.stat().st_size <= most:
            return
        old = file.with_name(f"{file.name}.1")
        old.touch(mode=0o600)
        shutil.copy2(file, old)
        os.truncate(file, 0)
    except FileNotFoundError:
        return  # its process ends, and took it along
    except OSError as error:
        _log.warning("%s cannot be begun anew: %s", file, error)
