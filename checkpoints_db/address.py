"""Address of a control plane: its URL made absolute, with our driver, shown without its password; and its database's identity."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError

from crkafka_core.model.errors import ConfigError

_EXAMPLES = "Write sqlite:///var/crkafka.db or postgresql://user@host/database."


@dataclass(frozen=True)
class Address:
    """A control plane's parsed URL."""

    url: URL
    path: Path | None
    """The SQLite file; None for PostgreSQL and for SQLite in memory."""

    @property
    def postgres(self) -> bool:
        return self.url.get_backend_name() == "postgresql"

    @property
    def names_a_schema(self) -> bool:
        """Whether the URL sets the schema of the tables in PostgreSQL."""
        return "search_path" in str(self.url.query.get("options", ""))

    @property
    def in_memory(self) -> bool:
        return not self.postgres and self.path is None

    def __str__(self) -> str:
        shown = {key: "***" for key in self.url.query if "password" in key.lower()}
        text = self.url.update_query_dict(shown).render_as_string(hide_password=True)
        return text if self.postgres else unquote(text)  # the path as configured

    def without_secrets(self, text: str) -> str:
        """The text of an error without the URL's passwords."""
        secrets = [self.url.password, *(v for k, v in self.url.query.items() if "password" in k.lower())]
        for secret in secrets:
            if isinstance(secret, str) and secret:
                text = text.replace(secret, "***")
        return " ".join(text.split())


def parse(text: str) -> Address:
    """Parse a URL; a relative SQLite path is relative to the current folder."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        # Without the text, which may have a password.
        raise ConfigError("The control plane's URL cannot be read.", hint=_EXAMPLES) from error
    backend = url.get_backend_name()
    if backend in {"postgresql", "postgres"}:
        return _postgres(url)
    if backend != "sqlite":
        raise ConfigError(f"A control plane on {backend!r} is not supported.", hint=_EXAMPLES)
    if url.drivername not in {"sqlite", "sqlite+pysqlite"}:
        raise ConfigError(f"The SQLite driver of {url.drivername!r} is not supported.", hint=_EXAMPLES)
    if url.host:
        raise ConfigError("A SQLite URL has three slashes, and four before an absolute path.", hint=_EXAMPLES)
    if url.query or "?" in text:
        raise ConfigError("A SQLite URL of a control plane takes no options after a question mark.", hint=_EXAMPLES)
    if not url.database or url.database == ":memory:":
        return Address(url, None)
    # Taken literally: SQLAlchemy 2.1 reads %20 as a space, 2.0 does not.
    path = Path(text.partition(":///")[2]).expanduser().absolute()
    return Address(url.set(database=str(path)), path)


def _postgres(url: URL) -> Address:
    driver = url.drivername.partition("+")[2]
    if driver not in {"", "psycopg"}:
        hint = "Write postgresql+psycopg://…"
        raise ConfigError(f"The control plane reaches PostgreSQL by psycopg 3, not by {driver!r}.", hint=hint)
    if importlib.util.find_spec("psycopg") is None:
        text = "PostgreSQL needs the driver psycopg, which is not installed."
        raise ConfigError(text, hint="pip install 'crkafka[postgres]'")
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    try:  # an option that PostgreSQL's client does not know, such as a misspelt `sslmode`, before the first connection
        make_conninfo(**dict.fromkeys(url.query, "1"))
    except ProgrammingError as error:
        hint = "Look at what follows its question mark."
        raise ConfigError(f"The control plane's URL cannot be used: {str(error).strip()}.", hint=hint) from None
    seconds = url.query.get("connect_timeout", "1")
    if not isinstance(seconds, str) or not seconds.lstrip("-").isdecimal():
        raise ConfigError("The control plane's URL cannot be used: connect_timeout is a whole number of seconds.")
    return Address(url.set(drivername="postgresql+psycopg"), None)


def identity(address: Address, engine: Engine) -> str:
    """Identity of the database, which distinguishes it from its copies (SPEC T3): a file's path; of PostgreSQL the cluster's system
    identifier, which is another one after a dump is restored elsewhere, the database and the schema. Without the right to read that
    identifier: the oids of our tables, which also differ after a restore."""
    if not address.postgres:
        return "sqlite in memory" if address.path is None else f"sqlite:{address.path.resolve()}"
    with engine.connect() as connection:
        database, schema = connection.exec_driver_sql(
            "SELECT (SELECT oid FROM pg_database WHERE datname = current_database()), current_schema()"
        ).one()
        if connection.exec_driver_sql("SELECT has_function_privilege('pg_control_system()', 'EXECUTE')").scalar():
            system = connection.exec_driver_sql("SELECT system_identifier FROM pg_control_system()").scalar()
        else:
            system = connection.exec_driver_sql(
                "SELECT string_agg(oid::text, '.' ORDER BY relname) FROM pg_class WHERE relkind = 'r' "
                "AND relnamespace = current_schema()::regnamespace AND relname IN ('checkpoint', 'member', 'region')"
            ).scalar()
    return f"postgresql:{system}/{database}/{schema}"
