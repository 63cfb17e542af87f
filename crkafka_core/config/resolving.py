"""Resolves references in the process that connects, and remembers secrets, so that no text shows them (SPEC U2)."""

from __future__ import annotations

import json
import logging
import os
import re
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from crkafka_core.config import reference, secret
from crkafka_core.model import redaction
from crkafka_core.model.errors import ConfigError

_PUBLIC = (".bootstrap.servers", ".metadata.broker.list", ".group.id")
"""Keys whose values are not secret, even from a file: errors have to show them."""
_LIST = re.compile(r",(?=\s*[A-Za-z][\w+.-]*://)")
"""Separator of a list of URLs."""
_NO_HOST = re.compile(r"[@/?#\s]")


@dataclass(frozen=True)
class Resolved:
    """A configuration with its references resolved: never written, logged or sent. Its repr shows no secrets."""

    control_plane: str = field(repr=False)
    storage: str
    storage_options: dict[str, str] = field(repr=False)
    kafka: dict[str, str] = field(repr=False)
    spark: str | None = field(repr=False)
    spark_conf: dict[str, str] = field(repr=False)


def resolve(text: str, key: str, env: Mapping[str, str] | None = None) -> str:
    """The text with the values of its references in this process. In a URL a reference is one part: its value is percent-quoted as user,
    password or parameter, and refused as host if it would end the host's name."""
    known = os.environ if env is None else env
    masked, references = reference.mask(text)

    def filled(part: str, convert: Callable[[str, str], str] = lambda value, _: value) -> str:
        return reference.unmask(part, references, lambda written: convert(_read(written, key, known), written))

    def quoted(value: str, _: str) -> str:
        return quote(value, safe="")

    def host(value: str, written: str) -> str:
        if _NO_HOST.search(value):
            raise ConfigError(
                f"{key}: {written} is in the place of a URL's host, and has characters that a host cannot have.",
                hint="Write one reference for each part: scheme://${env:USER}:${env:PASSWORD}@${env:HOST}/….",
            )
        return value

    parts = []
    for each in _LIST.split(masked):
        if "://" in each:
            url = secret.Url.of(each)
            each = filled(url.before) + filled(url.userinfo, quoted) + filled(url.host, host) + filled(url.path)
            parts.append(each + filled(url.parameters, quoted))
        else:
            parts.append(filled(each))
    value = ",".join(parts)
    _remember_in(key, value)
    if any("@" in secret.Url.of(each).host for each in _LIST.split(value)):
        raise ConfigError(
            f"{key} has an @ in its user or password that is not percent-quoted, so that what follows it would be taken for the host.",
            hint="Write %40 for it; or give the password alone as ${env:NAME} inside the URL, which is quoted by itself.",
        )
    return value


_KAFKA = "kafka."
_READ: dict[tuple[bool, str], tuple[str, str]] = {}
"""(whether it was for Kafka, value read from a file) → the file, and the key for which it was read."""


def read_again(value: str, *, kafka: bool) -> str:
    """The present content of the file that this value was read from; the value itself without such a file. `kafka`: for Kafka or for the
    database, whose values may be equal by chance while only one file changes."""
    path, key = _READ.get((kafka, value), ("", ""))
    try:
        return _read_file(path, key) if path else value
    except ConfigError:
        return value


_TOKENS = 100
_tokens: deque[set[str]] = deque()


def remember(text: str) -> None:
    """Make `redact` remove a secret from now on, in all spellings of libraries."""
    for form in _forms(text):
        if redaction.remember(form):
            install()


def remember_token(text: str) -> None:
    """The same for a token, which expires: only the last hundred are remembered."""
    remember(text)
    _tokens.append(_forms(text))
    if len(_tokens) > _TOKENS:
        redaction.forget(_tokens.popleft().difference(*_tokens))


def _forms(text: str) -> set[str]:
    spellings = set()
    for plain in {text, unquote(text)}:
        spellings |= {plain, quote(plain), quote(plain, safe=""), quote_plus(plain)}
        spellings |= {json.dumps(plain)[1:-1], repr(plain)[1:-1]}
    return spellings


def _remember_in(key: str, value: str) -> None:
    if secret.is_secret_key(key):
        remember(value)
        return
    for _, part in secret.secrets_in(value):
        remember(part)
    for each in _LIST.split(value):
        userinfo, at, _ = each.partition("://")[2].partition("?")[0].rpartition("@")
        if at:  # an unquoted password may have an @
            remember(userinfo.partition(":")[2])


@cache
def install() -> None:
    """Redact all log records of this process, of any library, before handlers see them; called when the first secret is resolved."""
    make = logging.getLogRecordFactory()

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made: logging.LogRecord = make(*args, **kwargs)
        try:
            text = made.getMessage()
        except Exception:  # a wrong format is the handler's to report, as ever
            return made
        clean = redaction.redact_values(text)
        if clean != text:
            made.msg, made.args = clean, ()
        if made.exc_info and made.exc_info[0] is not None and not made.exc_text:
            text = "".join(traceback.format_exception(*made.exc_info)).rstrip("\n")
            made.exc_text = redaction.redact(text)
            if redaction.redact_values(text) != text:  # a formatter of its own would write it again
                made.exc_info = None
        return made

    logging.setLogRecordFactory(record)


def _read(written: str, key: str, env: Mapping[str, str]) -> str:
    kind, name, default = reference.parts(written)
    if kind == "file":
        return _read_file(name, key)
    if name in env:
        return env[name]
    if default is not None:
        return default
    other = "" if secret.is_secret_key(key) else f", or write a default: ${{env:{name}:…}}"
    hint = f"Set {name} where this process is started{other}."
    raise ConfigError(f"{key} needs the environment variable {name}, which is not set in this process.", hint=hint)


def _read_file(path: str, key: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:  # ValueError: not text, or a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else "not text"
        of_dev = Path(path).name == "bootstrap.servers"
        hint = "`crkafka dev up` writes this one." if of_dev else "Put the file on each machine that connects."
        raise ConfigError(
            f"{key} is to be read from {path}, which cannot be read here ({reason}).", hint=hint
        ) from None
    _READ[key.startswith(_KAFKA), text] = (path, key)
    if not key.endswith(_PUBLIC):
        remember(text)
    return text
