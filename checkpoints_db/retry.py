"""Which database errors another try may cure, and how long to try."""

from __future__ import annotations

import random
import re
import sqlite3
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

_BUSY = ("database is locked", "database table is locked", "database schema is locked", "locking protocol")
_BROKEN = ("not a database", "malformed")
_FOREVER = ("readonly database", "unable to open database file", *_BROKEN)
_NO_TABLE = ("no such table", "no such column", "has no column named")
_UNDEFINED = {"42P01", "42703", "42883"}
_READ_ONLY = "25006"
_HELD = "55P03"
_TRANSIENT = {
    "40001",
    "40P01",
    _HELD,
    "57P01",
    "57P02",
    "57P03",
    "57P05",
    "53300",
    "53400",
    _READ_ONLY,
    "55000",
    "25P03",
    "25P04",
}
"""Serialization, deadlock, lock not available, shutdowns, too many connections, a server that is read-only for now, a
transaction that stood still for so long that the server ended it."""
_REFUSED = ("28", "3D")
"""Wrong password, no such database: waiting mends neither."""
_NO_RIGHT = "42501"
"""A right that the role lacks, or a row of a region that is not its own."""
_REFUSALS = ("authentication failed", "no pg_hba.conf entry", "not permitted to log in", "no password supplied")
_NOT_THERE = re.compile(r'FATAL: +(role|database) ".*" does not exist')
"""While connecting, psycopg gives no state but PostgreSQL's words."""


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction, run again from the start, may succeed."""
    if isinstance(error, PoolTimeout):
        return True
    if isinstance(error, sqlite3.OperationalError):
        return any(word in str(error).lower() for word in _BUSY)
    if not isinstance(error, DBAPIError):
        return False
    state = sqlstate(error)
    if state:
        return state in _TRANSIENT or state[:2] == "08"
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return True
    text = str(error.orig).lower()
    if any(word in text for word in _FOREVER + _NO_TABLE) or is_refusal(error):
        return False
    return isinstance(error, OperationalError) or any(word in text for word in _BUSY)


def is_unreachable(error: BaseException) -> bool:
    """Whether the database is not there for us, be it for now or for good."""
    if is_transient(error):
        return True
    if _of_the_driver(error):
        return not is_schema(error)
    if is_no_database(error):
        return True
    if not isinstance(error, DBAPIError):
        return False
    state = sqlstate(error)
    if state:
        return state[:2] in _REFUSED or state == _NO_RIGHT or state[:2] in {"53", "57", "58"}
    return isinstance(error, OperationalError) and not is_schema(error)


def is_no_database(error: BaseException) -> bool:
    """Whether the file is something else than a database of SQLite, or damaged."""
    original = getattr(error, "orig", error)
    return isinstance(original, sqlite3.DatabaseError) and any(word in str(original).lower() for word in _BROKEN)


def is_refusal(error: BaseException) -> bool:
    """Whether the database answered, and did not let us in."""
    text = str(getattr(error, "orig", error))
    return (
        sqlstate(error)[:2] in _REFUSED
        or is_right(error)
        or any(word in text for word in _REFUSALS)
        or _NOT_THERE.search(text) is not None
    )


def is_right(error: BaseException) -> bool:
    """Whether this user may not do that."""
    return sqlstate(error) == _NO_RIGHT


def is_read_only(error: BaseException) -> bool:
    """Whether PostgreSQL takes no writes in this session."""
    return sqlstate(error) == _READ_ONLY


def is_held(error: BaseException) -> bool:
    """Whether PostgreSQL answers, and a lock did not come in time."""
    return sqlstate(error) == _HELD


def is_schema(error: BaseException) -> bool:
    """Whether a table or column is missing."""
    if not isinstance(error, DBAPIError) and not _of_the_driver(error):
        return False
    original = getattr(error, "orig", error)
    return sqlstate(error) in _UNDEFINED or any(word in str(original).lower() for word in _NO_TABLE)


def _of_the_driver(error: BaseException) -> bool:
    """Whether it came straight from a driver, as where we listen and watch; psycopg is there only if it is used."""
    psycopg: Any = sys.modules.get("psycopg")
    return isinstance(error, sqlite3.Error) or (psycopg is not None and isinstance(error, psycopg.Error))


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's five characters, or nothing."""
    original: Any = getattr(error, "orig", error)
    return getattr(original, "sqlstate", None) or ""


@dataclass(frozen=True)
class Patience:
    """How long a transaction is tried again, and the pauses between."""

    bound: float = 10.0
    """Seconds; past it the error is the caller's."""
    first: float = 0.002
    longest: float = 0.25


@dataclass
class Tries:
    """The tries of one transaction."""

    patience: Patience
    started: float = field(default_factory=time.monotonic)
    failed: int = 0

    @property
    def left(self) -> float:
        """Seconds until the bound."""
        return max(0.0, self.started + self.patience.bound - time.monotonic())

    def pause(self) -> bool:
        """Pause, with jitter; False once the bound is reached."""
        left = self.left
        if left <= 0:
            return False
        pause = min(self.patience.first * 2**self.failed, self.patience.longest)
        self.failed = min(self.failed + 1, 30)
        time.sleep(min(left, pause * random.uniform(0.5, 1.5)))
        return True
