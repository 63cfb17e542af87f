"""Database errors: which ones a retry may cure, how long to retry, and the error for a person."""

from __future__ import annotations

import random
import re
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from checkpoints_db.address import Address
from crkafka_core.model.errors import ServiceUnavailable

T = TypeVar("T")
_BUSY = ("database is locked", "database table is locked", "database schema is locked", "locking protocol")
_BROKEN = ("not a database", "malformed")
_FOREVER = ("readonly database", "unable to open database file", *_BROKEN)
_NO_TABLE = ("no such table", "no such column", "has no column named")
_UNDEFINED = {"42P01", "42703", "42883"}
READ_ONLY = "25006"
"""State of an error for a write in a session that takes none."""
_HELD = "55P03"
"""PostgreSQL answers, and a wait for a lock timed out."""
_TRANSIENT = {"40001", "40P01", "57P01", "57P02", "57P03", "57P05", "53300", "53400", "55000", "25P03", "25P04"}
_TRANSIENT |= {_HELD, READ_ONLY}
"""Serialization, deadlock, lock not available, shutdowns, too many connections, a server that is read-only for now, a transaction that
the server ended for idling."""
_REFUSED = ("28", "3D")
"""Classes of a wrong password and a missing database, which no retry cures."""
_NO_RIGHT = "42501"
"""A missing right, or a row of another role's region."""
_REFUSALS = ("authentication failed", "no pg_hba.conf entry", "not permitted to log in", "no password supplied")
_MISSING = re.compile(r'FATAL: +(role|database) ".*" does not exist')
"""During a connection, psycopg gives PostgreSQL's text and no state."""
_BEFORE = re.compile(r".*(?:failed: |FATAL: +)", re.DOTALL)
_AFTER = re.compile(r"\s+Is the server running.*", re.DOTALL)
_NUMBER = re.compile(r"\[Errno -?\d+\] ")
"""Text of PostgreSQL's client around the reason: the address it tried, for each of them, and a guess."""


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
        return state in _TRANSIENT or state.startswith("08")
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return True
    text = str(error.orig).lower()
    if any(word in text for word in _FOREVER + _NO_TABLE) or is_refusal(error):
        return False
    return isinstance(error, OperationalError) or any(word in text for word in _BUSY)


def is_unreachable(error: BaseException) -> bool:
    """Whether the database cannot be used, for now or permanently."""
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
    """Whether the file is not a SQLite database, or is damaged."""
    original = getattr(error, "orig", error)
    return isinstance(original, sqlite3.DatabaseError) and any(word in str(original).lower() for word in _BROKEN)


def is_refusal(error: BaseException) -> bool:
    """Whether the database answered and refused us."""
    text, state = str(getattr(error, "orig", error)), sqlstate(error)
    by_text = any(word in text for word in _REFUSALS) or _MISSING.search(text) is not None
    return by_text or state[:2] in _REFUSED or state == _NO_RIGHT


def is_schema(error: BaseException) -> bool:
    """Whether a table or column is missing."""
    if not isinstance(error, DBAPIError) and not _of_the_driver(error):
        return False
    original = getattr(error, "orig", error)
    return sqlstate(error) in _UNDEFINED or any(word in str(original).lower() for word in _NO_TABLE)


def _of_the_driver(error: BaseException) -> bool:
    """Whether an error came from a driver directly, as in the watches. psycopg is imported only if it is used."""
    psycopg: Any = sys.modules.get("psycopg")
    return isinstance(error, sqlite3.Error) or (psycopg is not None and isinstance(error, psycopg.Error))


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's code of an error, or empty."""
    original: Any = getattr(error, "orig", error)
    return getattr(original, "sqlstate", None) or ""


@dataclass(frozen=True)
class Patience:
    """How long a transaction is retried, and the pauses between."""

    bound: float = 10.0
    """Seconds after which the error is raised."""
    first: float = 0.002
    longest: float = 0.25


def retried(patience: Patience, once: Callable[[float], T], explained: Callable[[Exception], Exception]) -> T:
    """Call `once`, with the seconds that are left, again after transient errors, with jitter; the last error as `explained`."""
    end, pause = time.monotonic() + patience.bound, patience.first
    while True:
        try:
            return once(max(0.0, end - time.monotonic()))
        except Exception as error:
            left = end - time.monotonic()
            if left <= 0 or not is_transient(error):
                raise explained(error) from cause(error)
        time.sleep(min(left, pause * random.uniform(0.5, 1.5)))
        pause = min(2 * pause, patience.longest)


def cause(error: Exception) -> BaseException | None:
    """The cause to chain: none for a database's errors, whose texts may have secrets."""
    return None if is_schema(error) or is_unreachable(error) else error.__cause__


def unavailable(address: Address, error: BaseException) -> ServiceUnavailable:
    """The error for a person, without secrets: the database does not answer, or answers and refuses."""
    text = address.without_secrets(str(getattr(error, "orig", None) or error)).strip()
    reason = _AFTER.sub("", _BEFORE.sub("", _NUMBER.sub("", text))).strip().rstrip(".") or type(error).__name__
    what, hint = f"does not answer: {reason}", "Check that it runs and can be reached."
    if is_no_database(error):
        what = "is not a SQLite database, or is damaged"
        hint = "Name another file in control_plane, or restore this one."
    elif "unable to open database file" in text or "readonly database" in text:
        what = f"cannot be used: {reason}"
        hint = "Is the file gone, is it a folder, or may this user not read and write it and its folder?"
    elif "disk is full" in text or "No space left" in text:
        what, hint = f"cannot be written: {reason}", "Free some space on its disk."
    elif sqlstate(error) == _HELD:
        what = f"is locked by another session: {reason}"
        hint = "pg_stat_activity and pg_locks name it: an idle transaction, or pg_dump, which a migration waits for."
    elif sqlstate(error) == READ_ONLY:
        what = f"takes no writes now: {reason}"
        hint = "Is it a replica, or read-only for maintenance? It is tried again."
    elif sqlstate(error) == _NO_RIGHT:
        what = f"does not let this user do that: {reason}"
        hint = "docs/security.md lists what each role may do, and how a region is granted to a user."
    elif is_refusal(error):
        what, hint = f"answers, but refuses: {reason}", "Check user, password and database in control_plane."
    return ServiceUnavailable(f"The control plane {address} {what}.", hint=hint)
