"""Redacts all log records of this process, of any library, before handlers see them (SPEC U2)."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from crkafka_core.model.redaction import redact, redact_values

_installed = False


def install() -> None:
    """Install the redaction once; called when the first secret is resolved."""
    global _installed
    if not _installed:
        _installed = True
        logging.setLogRecordFactory(_redacting(logging.getLogRecordFactory()))


def _redacting(make: Any) -> Any:
    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made: logging.LogRecord = make(*args, **kwargs)
        try:
            text = made.getMessage()
        except Exception:  # a wrong format is the handler's to report, as ever
            return made
        clean = redact_values(text)
        if clean != text:
            made.msg, made.args = clean, ()
        if made.exc_info and made.exc_info[0] is not None and not made.exc_text:
            text = "".join(traceback.format_exception(*made.exc_info)).rstrip("\n")
            made.exc_text = redact(text)
            if redact_values(text) != text:  # a formatter of its own would write it again
                made.exc_info = None
        return made

    return record
