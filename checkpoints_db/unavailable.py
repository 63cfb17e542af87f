"""Says in a sentence why a database is not there for us: it does not answer, or it does and refuses."""

from __future__ import annotations

import re

from checkpoints_db.address import Address
from checkpoints_db.retry import is_held, is_no_database, is_read_only, is_refusal, is_right
from crkafka_core.model.errors import ServiceUnavailable

_BEFORE = re.compile(r".*(?:failed: |FATAL: +)", re.DOTALL)
_AFTER = re.compile(r"\s+Is the server running.*", re.DOTALL)
_NUMBER = re.compile(r"\[Errno -?\d+\] ")
"""What PostgreSQL's client says around the reason: whom it tried to reach, once for each address, and a guess."""


def unavailable(address: Address, error: BaseException) -> ServiceUnavailable:
    """The error for a person; never a secret."""
    said = address.without_secrets(str(getattr(error, "orig", None) or error)).strip()
    reason = _AFTER.sub("", _BEFORE.sub("", _NUMBER.sub("", said))).strip().rstrip(".") or type(error).__name__
    what, hint = f"does not answer: {reason}", "Check that it runs and can be reached."
    if is_no_database(error):
        what = "is not a SQLite database, or is damaged"
        hint = "Name another file in control_plane, or restore this one."
    elif "unable to open database file" in said or "readonly database" in said:
        what = f"cannot be used: {reason}"
        hint = "Is the file gone, is it a folder, or may this user not read and write it and its folder?"
    elif "disk is full" in said or "No space left" in said:
        what, hint = f"cannot be written: {reason}", "Free some space on the disk that it lies on."
    elif is_held(error):
        what = f"is held by somebody else: {reason}"
        hint = "pg_stat_activity and pg_locks tell who: a transaction that stands still, or pg_dump, which a migration waits for."
    elif is_read_only(error):
        what = f"takes no writes now: {reason}"
        hint = "Is it a replica, or read-only for maintenance? It is tried again."
    elif is_right(error):
        what = f"does not let this user do that: {reason}"
        hint = "docs/security.md tells which role may do what, and how a region is given to a user."
    elif is_refusal(error):
        what, hint = f"answers, but refuses: {reason}", "Check user, password and database in control_plane."
    return ServiceUnavailable(f"The control plane {address} {what}.", hint=hint)
