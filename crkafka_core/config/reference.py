"""Syntax of references: `${env:NAME}`, `${env:NAME:default}`, `${file:path}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

_REFERENCE = re.compile(r"\$\{(?P<kind>[a-z]+):(?P<what>[^}]*)\}")
_OPEN = re.compile(r"\$\{[^}]*(\}|$)")
_MASK = 0xE000
"""First of Unicode's private characters, which replace references while a text is parsed."""
_MASKED = re.compile("[\ue000-\uf8ff]")


def has_reference(text: str) -> bool:
    return _OPEN.search(text) is not None


def is_one(text: str) -> bool:
    """Whether the text is exactly one reference."""
    return _REFERENCE.fullmatch(text) is not None


def is_whole(text: str) -> bool:
    """Whether the text is exactly one reference, without a default."""
    return is_one(text) and not any(True for _ in defaults(text))


def defaults(text: str) -> Iterator[str]:
    """The defaults of the references in the text."""
    for match in _REFERENCE.finditer(text):
        default = parts(match[0])[2]
        if default is not None:
            yield default


def with_defaults(text: str) -> str:
    """The text with the defaults of its references, as if no variable were set."""

    def one(match: re.Match[str]) -> str:
        default = parts(match[0])[2]
        return match[0] if default is None else default

    return _REFERENCE.sub(one, text)


def check(text: str) -> str:
    """The text, if each `${…}` in it is a reference, and it has no masking characters; else ValueError."""
    if _MASKED.search(text):
        raise ValueError("has a character of Unicode's private area, which means nothing here; write another one")
    for match in _OPEN.finditer(text):
        whole = _REFERENCE.fullmatch(match[0])
        if whole is None or whole["kind"] not in ("env", "file") or not whole["what"].strip(":"):
            raise ValueError("a reference is written ${env:NAME}, ${env:NAME:default} or ${file:path}; this one is not")
    return text


def anchor(text: str, base: Path) -> str:
    """The text with relative paths of `${file:…}` made absolute."""

    def absolute(match: re.Match[str]) -> str:
        if match["kind"] != "file":
            return match[0]
        return "${file:" + str(base / expanded(match["what"])) + "}"

    return _REFERENCE.sub(absolute, text)


def expanded(path: str) -> Path:
    """The path with its leading `~` expanded."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"{path!r} begins with a home folder that is not known here; write the whole path") from None


def mask(text: str) -> tuple[str, list[str]]:
    """The text with one character in place of each reference, whose values must not be parsed; and the references."""
    references: list[str] = []

    def one(match: re.Match[str]) -> str:
        references.append(match[0])
        return chr(_MASK + len(references) - 1)

    return _REFERENCE.sub(one, text), references


def unmask(text: str, references: Sequence[str], value: Callable[[str], str] = lambda reference: reference) -> str:
    return _MASKED.sub(lambda m: value(references[ord(m[0]) - _MASK]), text)


def parts(reference: str) -> tuple[str, str, str | None]:
    """Kind, name or path, and default of one reference."""
    match = _REFERENCE.fullmatch(reference)
    assert match is not None
    if match["kind"] == "file":
        return "file", match["what"], None
    name, colon, default = match["what"].partition(":")
    return "env", name, default if colon else None
