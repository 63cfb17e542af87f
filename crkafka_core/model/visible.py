"""Texts that others had a part in, for a terminal: names, reasons and client ids command nothing there."""

from __future__ import annotations


def visible(text: str) -> str:
    """The text with characters shown that would command a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """The same, and no text can look like the line after it."""
    return visible(text).replace("\n", "\\n")
