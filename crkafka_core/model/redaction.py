"""Removes secrets from texts: those that this process has resolved by their value, others by their place (SPEC U2)."""

from __future__ import annotations

import re
from collections.abc import Collection

_URL_PASSWORD = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*://[^\s:/@]*):(?P<password>[^\s@]+)@")
_ASSIGNED = re.compile(
    r"(?P<head>[\w.-]*(?:password|passwd|passphrase|secret|token|account\.key|ssl\.key\.pem)[\w.-]*['\"]?\s*[=:]\s*)"
    r"(?P<value>'[^']*'|\"[^\"]*\"|[^\s,;&})]+)",
    re.IGNORECASE,
)
_HIDDEN = "***"
_SHORTEST = 4
"""Least length of a secret that is removed by its value: a shorter one may be part of ordinary words."""
_known: set[str] = set()
"""Remembered secrets. Other threads change it: iterate over a copy."""


def remember(secret: str) -> bool:
    """Remove this secret by value from now on; False if it is too short for that."""
    if len(secret) < _SHORTEST:
        return False
    _known.add(secret)
    return True


def forget(secrets: Collection[str]) -> None:
    """Drop secrets that are no longer used."""
    _known.difference_update(secrets)


def redact(text: str) -> str:
    """The text without remembered secrets, passwords in URLs, and values of password-like properties."""
    text = redact_values(text)
    text = _URL_PASSWORD.sub(lambda m: f"{m['head']}:{_HIDDEN}@", text)
    return _ASSIGNED.sub(lambda m: m["head"] + _HIDDEN, text)


def redact_values(text: str) -> str:
    """The text without remembered secrets; for our own texts, in which `token: …` may be part of a sentence."""
    known = tuple(_known)
    if any(secret in text for secret in known):
        for secret in sorted(known, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
    return text


def conceal(error: BaseException) -> BaseException:
    """The error without remembered secrets, in its causes too; a RuntimeError in its place if they cannot be removed."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        at = waiting.pop()
        if at is None or at in seen:
            continue
        seen.append(at)
        at.args = tuple(redact_values(a) if isinstance(a, str) else a for a in at.args)
        waiting += [at.__cause__, at.__context__]
    shows = any(redact_values(f"{at}{at!r}") != f"{at}{at!r}" for at in seen)
    return RuntimeError(redact_values(f"{type(error).__name__}: {error}")) if shows else error
