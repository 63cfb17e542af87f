"""Where a control plane is: a URL made absolute, with the driver we use, and shown without its password."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from crkafka_core.model.errors import ConfigError

_EXAMPLES = "Write sqlite:///var/crkafka.db or postgresql://user@host/database."


@dataclass(frozen=True)
class Address:
    """A control plane's URL, understood."""

    url: URL
    path: Path | None
    """The SQLite file; None for PostgreSQL and for SQLite in memory."""

    @property
    def postgres(self) -> bool:
        return self.url.get_backend_name() == "postgresql"

    @property
    def names_a_schema(self) -> bool:
        """Whether the URL itself says in which schema of PostgreSQL the tables are."""
        return "search_path" in str(self.url.query.get("options", ""))

    @property
    def in_memory(self) -> bool:
        return not self.postgres and self.path is None

    def __str__(self) -> str:
        shown = {key: "***" for key in self.url.query if _is_secret(key)}
        text = self.url.update_query_dict(shown).render_as_string(hide_password=True)
        return text if self.postgres else unquote(text)  # a path as it is written

    def without_secrets(self, text: str) -> str:
        """The text of an error, in which a password of the URL is never repeated."""
        secrets = [self.url.password, *(v for k, v in self.url.query.items() if _is_secret(k))]
        for secret in secrets:
            if isinstance(secret, str) and secret:
                text = text.replace(secret, "***")
        return " ".join(text.split())


def _is_secret(parameter: str) -> bool:
    return "password" in parameter.lower()


def parse(text: str) -> Address:
    """Understand a URL; a relative SQLite path is relative to the current folder, now."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        # The text is not repeated: it may hold a password.
        raise ConfigError("The control plane's URL cannot be read.", hint=_EXAMPLES) from error
    backend = url.get_backend_name()
    if backend == "sqlite":
        return _sqlite(url, text)
    if backend in {"postgresql", "postgres"}:
        return _postgres(url)
    raise ConfigError(f"A control plane on {backend!r} is not supported.", hint=_EXAMPLES)


def _sqlite(url: URL, text: str) -> Address:
    if url.drivername not in {"sqlite", "sqlite+pysqlite"}:
        raise ConfigError(f"The SQLite driver of {url.drivername!r} is not supported.", hint=_EXAMPLES)
    if url.host:
        raise ConfigError("A SQLite URL has three slashes, and four before an absolute path.", hint=_EXAMPLES)
    if url.query or "?" in text:
        raise ConfigError("A SQLite URL of a control plane takes no options after a question mark.", hint=_EXAMPLES)
    if not url.database or url.database == ":memory:":
        return Address(url, None)
    # As it is written, wherever else it is read: SQLAlchemy 2.1 takes %20 for a space, and 2.0 does not.
    path = Path(text.partition(":///")[2]).expanduser().absolute()
    return Address(url.set(database=str(path)), path)


def _postgres(url: URL) -> Address:
    driver = url.drivername.partition("+")[2]
    if driver not in {"", "psycopg"}:
        raise ConfigError(
            f"The control plane reaches PostgreSQL by psycopg 3, not by {driver!r}.",
            hint="Write postgresql+psycopg://…",
        )
    if importlib.util.find_spec("psycopg") is None:
        raise ConfigError(
            "PostgreSQL needs the driver psycopg, which is not installed.", hint="pip install 'crkafka[postgres]'"
        )
    _check_options(url)
    return Address(url.set(drivername="postgresql+psycopg"), None)


def _check_options(url: URL) -> None:
    """Refuse one that PostgreSQL's client does not know, such as a misspelt `sslmode`: it would be told of at each connection."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    try:
        make_conninfo(**dict.fromkeys(url.query, "1"))
    except ProgrammingError as error:
        raise ConfigError(
            f"The control plane's URL cannot be used: {str(error).strip()}.",
            hint="Look at what follows its question mark.",
        ) from None
    seconds = url.query.get("connect_timeout", "1")
    if not isinstance(seconds, str) or not seconds.lstrip("-").isdecimal():
        raise ConfigError("The control plane's URL cannot be used: connect_timeout is a whole number of seconds.")
