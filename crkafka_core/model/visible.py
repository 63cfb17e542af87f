"""Texts with foreign parts (names, reasons, client ids) made safe for a terminal."""

from __future__ import annotations

import json
from typing import Any


def visible(text: str) -> str:
    """The text with control characters, which could command a terminal, shown as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """The same with line breaks escaped, so that no text can imitate another line."""
    return visible(text).replace("\n", "\\n")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON with letters of all languages unescaped, and all control characters escaped, those of C1 too, which `json.dumps` leaves."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return "".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)
