"""Texts that others had a part in, for a terminal: names, reasons and client ids command nothing there."""

from __future__ import annotations

import json
from typing import Any


def visible(text: str) -> str:
    """The text with characters shown that would command a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """The same, and no text can look like the line after it."""
    return visible(text).replace("\n", "\\n")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON that a person can read too, letters of all languages as they are; the rest is escaped as JSON does it, which by itself leaves
    C1's controls to the terminal.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return "".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)
