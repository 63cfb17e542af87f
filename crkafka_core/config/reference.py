"""References, `${env:NAME}`, `${env:NAME:default}`, `${file:path}`, and keeping what they stand for out of texts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from crkafka_core.model.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(?P<kind>[a-z]+):(?P<what>[^}]*)\}")
_OPEN = re.compile(r"\$\{[^}]*(\}|$)")
_SECRET_KEY = re.compile(
    r"password|passwd|passphrase|secret|token|credential|api[._-]?key|access[._-]?key$|key[._]pem|jaas|private[._-]?key$",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(r"(\.url|_url|\.location|\.file|\.provider|\.class|\.header|endpoint|\.id)$", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*://[^\s:/@]*):(?P<password>[^\s@/]+)@")
_ASSIGNED = re.compile(
    r"(?P<head>[\w.-]*(?:password|passwd|passphrase|secret|token|ssl\.key\.pem)[\w.-]*['\"]?\s*[=:]\s*)(?P<value>'[^']*'|\"[^\"]*\"|[^\s,;&})]+)",
    re.IGNORECASE,
)
_HIDDEN = "***"
_known: set[str] = set()
"""Secrets that this process has resolved; `redact` removes them from any text."""


def has_reference(text: str) -> bool:
    """Whether a `${…}` is in the text."""
    return _OPEN.search(text) is not None


def is_secret_key(key: str) -> bool:
    """Whether a property of this name holds a secret."""
    return _SECRET_KEY.search(key) is not None and _NO_SECRET.search(key) is None


def url_password(url: str) -> str:
    """The password inside a URL, or nothing."""
    match = _URL_PASSWORD.search(url)
    return match["password"] if match else ""


def check(text: str) -> str:
    """The text, if each `${…}` in it can be read; else ValueError."""
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
        return "${file:" + str(base / Path(match["what"]).expanduser()) + "}"

    return _REFERENCE.sub(absolute, text)


def resolve(text: str, key: str, env: Mapping[str, str] | None = None) -> str:
    """What the text stands for in this process; what a secret key or a file holds is remembered for `redact`."""
    value = _REFERENCE.sub(_reader(key, os.environ if env is None else env), text)
    if is_secret_key(key):
        remember(value)
    password = url_password(value)
    if password:
        remember(password)
    return value


def _reader(key: str, env: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    def read(match: re.Match[str]) -> str:
        if match["kind"] == "file":
            return _read_file(match["what"], key)
        name, colon, default = match["what"].partition(":")
        if name in env:
            return env[name]
        if colon:
            return default
        raise ConfigError(
            f"{key} needs the environment variable {name}, which is not set in this process.",
            hint=f"Set {name} where this process is started, or write a default: ${{env:{name}:…}}.",
        )

    return read


def _read_file(path: str, key: str) -> str:
    try:
        text = Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(
            f"{key} is to be read from {path}, which cannot be read here ({reason}).",
            hint="Put the file on each machine that connects.",
        ) from None
    remember(text)
    return text


def remember(secret: str) -> None:
    """Have `redact` remove this text from now on. Very short ones are left out: they would eat ordinary words."""
    if len(secret) >= 4:
        _known.add(secret)


def redact(text: str) -> str:
    """The text without resolved secrets, passwords in URLs, and values of password-like properties."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    text = _URL_PASSWORD.sub(lambda m: f"{m['head']}:{_HIDDEN}@", text)
    return _ASSIGNED.sub(lambda m: m["head"] + _HIDDEN, text)
