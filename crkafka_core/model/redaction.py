"""Keeps what is secret out of texts: what this process has resolved, by its value, and the rest by its place (SPEC U2)."""

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
"""Shorter secrets are hidden by their place alone: by value they would eat ordinary words."""
_known: set[str] = set()
"""Gone through by its copy alone: other threads change it meanwhile."""


def remember(secret: str) -> bool:
    """Have `redact` remove this text from now on; whether it is long enough for that."""
    if len(secret) < _SHORTEST:
        return False
    _known.add(secret)
    return True


def forget(secrets: Collection[str]) -> None:
    """What nobody uses any more."""
    _known.difference_update(secrets)


def redact(text: str) -> str:
    """The text without remembered secrets, passwords in URLs, and values of password-like properties."""
    text = redact_values(text)
    text = _URL_PASSWORD.sub(lambda m: f"{m['head']}:{_HIDDEN}@", text)
    return _ASSIGNED.sub(lambda m: m["head"] + _HIDDEN, text)


def redact_values(text: str) -> str:
    """The text without remembered secrets; for texts of ours, in which a sentence such as `token: …` is meant."""
    known = tuple(_known)
    if any(secret in text for secret in known):
        for secret in sorted(known, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
    return text


def conceal(error: BaseException) -> BaseException:
    """The error, with remembered secrets gone from it and from what caused it; another one in its place where that cannot be done."""
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
