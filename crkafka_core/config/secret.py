"""Secrets in a configuration, found by parsing its values; each must be written as one whole reference (SPEC U2). A secret is the value of
a key with such a name (`sasl.password`, `fs.azure.account.key.…`), the password in a URL, a parameter of a URL (`?password=…`, `;token=…`),
an assignment inside a text (`-DkeyStorePassword=…`), or a private key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from crkafka_core.config import reference

WORDS = (
    r"passw(or)?d|passphrase|passcode|(^|[._-])(pwd|pw|pass|sig)($|[._-])|pgpass|secret|token|credential|cookie|api[._-]?key|account[._-]?key|access[._-]?key$"
    r"|encryption[._-]?key($|[.]list)|(storage|customer|shared)[._-]?key$|(^|[._-])auth$|key[._-]pem|jaas|private[._-]?key$|(^|[._-])sas($|[._-])|connection[._-]?string|user[._-]?info|authorization|signature"
)
"""Regular expression for names of secrets; also used by Java."""
_SECRET_KEY = re.compile(WORDS, re.IGNORECASE)
_NO_SECRET = re.compile(
    r"(\.url|_url|\.location|\.file|\.provider|\.class|\.header|endpoint|\.id|\.type)$", re.IGNORECASE
)
_URL = re.compile(r"(.*?://)([^:/@?#]*(?::[^@]*)?@)?([^/?#;]*)([^?;]*)(.*)", re.DOTALL)
_CONNECT = re.compile(r"(sc://)([^:/@?#;]*(?::[^@;]*)?@)?([^/?#;]*)([^?;]*)(.*)", re.DOTALL)
"""Spark Connect's URL without a login, whose parameters may have an @: `sc://host:15002/;user_id=me@home`."""
_PARAMETER = re.compile(r"[?&;#](?P<name>[^=&;?#]+)=(?P<value>[^&;#]*)")
_ASSIGNED = re.compile(
    r"(?:^|[\s,;&\"'{(])(?:-D|--)?(?P<name>[\w.-]+)(?:\s*=\s*|:\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&})]*)"
)
_JSON = re.compile(
    r"[\"'](?P<name>[\w.-]+)[\"']\s*:\s*(?!null|true|false)(?P<value>\"[^\"]*\"|'[^']*'|\[[^\]]*\]|[^\s,}\]]+)"
)
_ORACLE = re.compile(r"jdbc:oracle:\w+:[^/@]*/(?P<password>[^@]*)@", re.IGNORECASE)
_PEM = "PRIVATE KEY-----"
_NAME_OF_A_KEY = "arn:"
"""Prefix of `fs.s3a.encryption.key` for a key in KMS: its name, and no secret."""
_HOW = "write ${env:NAME} or ${file:path} as the whole of it, without a default"


@dataclass(frozen=True)
class Url:
    """A URL in five parts; a text that is not a URL is all in `before`."""

    before: str
    """Up to and including `://`."""
    userinfo: str = ""
    """Up to and including the `@`. As in SQLAlchemy, a password may have a slash."""
    host: str = ""
    path: str = ""
    parameters: str = ""
    """From the first `?`, or the first `;` of a Connect or JDBC URL."""

    @classmethod
    def of(cls, text: str) -> Url:
        match = _CONNECT.match(text) or _URL.match(text)
        return cls(*(match.group(i) or "" for i in range(1, 6))) if match else cls(text)


def is_secret_key(key: str) -> bool:
    """Whether the value of a property with this name is a secret."""
    return _SECRET_KEY.search(key) is not None and _NO_SECRET.search(key) is None


def secrets_in(text: str) -> Iterator[tuple[str, str]]:
    """Secrets inside a text, also in defaults of its references: what each is, and its text."""
    yield from _secrets_in(text)
    if (meant := reference.with_defaults(text)) != text:
        yield from _secrets_in(meant)


def _secrets_in(text: str) -> Iterator[tuple[str, str]]:
    masked, references = reference.mask(text)
    url = Url.of(masked)
    urls = [Url.of(masked[mark.start() :]) for mark in re.finditer(r"[\w+.-]*://", masked)]  # a list may have several
    passwords = [each.userinfo.removesuffix("@").partition(":")[2] for each in urls]
    for password in (*passwords, *(match["password"] for match in _ORACLE.finditer(masked))):
        if password:
            yield "the password", reference.unmask(password, references)
    if _PEM in masked:
        yield "a private key", text
    for match in _PARAMETER.finditer(url.path + url.parameters):
        if is_secret_key(unquote(match["name"])):
            yield unquote(match["name"]), reference.unmask(match["value"], references)
    for pattern in (_ASSIGNED, _JSON):
        for match in pattern.finditer(unquote(masked)):
            if is_secret_key(match["name"]):
                yield match["name"], reference.unmask(match["value"].strip("\"'"), references)


def check(key: str, value: str) -> str:
    """The value, if its references are valid and no secret in it is in clear; else a ValueError without the value."""
    reference.check(value)
    if is_secret_key(key):
        if value and not reference.is_whole(value) and not value.startswith(_NAME_OF_A_KEY):
            raise ValueError(_clear(value, "is a secret"))
        return value
    for name, part in secrets_in(value):
        if part and not reference.is_whole(part):
            raise ValueError(_clear(part, f"{name} in it is a secret"))
    return value


def check_no_login(key: str, value: str) -> str:
    """The value, if it is an address without a login: one would be taken for a part of the host's name, and sent to DNS."""
    check(key, value)
    if Url.of(reference.mask(reference.with_defaults(value))[0]).userinfo:
        raise ValueError("has a user or password in front of the host, where this address takes none; leave it out")
    return value


def check_none(key: str, value: str) -> str:
    """The value, if it has no secret, not even as a reference: it is stored in SQL."""
    check(key, value)
    for name, _ in secrets_in(value):
        raise ValueError(f"{name} does not belong in a path, which SQL keeps; put it into options, as ${{env:NAME}}")
    return value


def _clear(value: str, what: str) -> str:
    if not reference.has_reference(value):
        return f"{what} written in clear; {_HOW}"
    if reference.is_one(value):
        return f"{what} whose reference has a default, which is a secret in clear; {_HOW}"
    return f"{what} mixed of a reference and text; {_HOW}"
