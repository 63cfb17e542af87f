"""What every commit of ours carries inside a table, and what a table's history tells by it (SPEC K6, G6, G10)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

from crkafka_core.model.errors import LeaseLost, Refused, WentBack
from crkafka_core.model.rows import Table, TableCommit
from crkafka_core.plane.tables import FILES

SETTLES = "settles"
"""Of a mend: up to which version of the table it has put right what others did."""
MAINTAIN = "maintain"
"""Kind of a commit of ours that changes no rows, and has no number."""
PUT_BACK = "put back"
"""Kind of a commit of ours that makes the table what it was in an older version."""


@dataclass(frozen=True)
class Stamp:
    """Whose commit it is and which number SQL gave it."""

    uid: str
    table: str
    number: int
    token: str

    @classmethod
    def of(cls, uid: str, commit: TableCommit) -> Stamp:
        return cls(uid, commit.table, commit.number, commit.token)

    @property
    def app(self) -> str:
        """The application id of the table's own transactions: each number of it is committed once, in order (docs/clients.md C-P5)."""
        return app_of(self.uid, self.table)

    def to_json(self, **about: object) -> str:
        """With `about` for people: which checkpoints, how many rows."""
        who = {"uid": self.uid, "table": self.table, "number": self.number, "token": self.token}
        return json.dumps({"crkafka": who, **about})

    @classmethod
    def from_json(cls, text: str | None) -> Stamp | None:
        try:
            told = json.loads(text or "")
            who = told.get("crkafka", told)  # of a raw Iceberg table the stamp is all
            return cls(who["uid"], who["table"], who.get("number", who.get("permit")), str(who["token"]))
        except (ValueError, KeyError, TypeError):
            return None


def app_of(uid: str, table: str) -> str:
    """The application id of a region's commits to one of its tables."""
    return f"crkafka/{uid}/{table}"


def mark(text: str) -> int:
    """A text as a positive number of 63 bits: a transaction of Delta's log has no other value."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class Facts:
    """What a table itself says of our last commit to it, whatever became of its log since. Each is looked up when it is asked for."""

    def __init__(self, app: str, of: Callable[[str], int]) -> None:
        self._app, self._of = app, of

    @cached_property
    def number(self) -> int:
        """0: there is none."""
        return self._of(self._app)

    @cached_property
    def settled(self) -> int:
        """Up to which version of a raw table commits of others are accounted for."""
        return self._of(self._app + "/settled") - 1


@dataclass(frozen=True)
class LogEntry:
    """One commit found in a table."""

    version: str
    stamp: Stamp | None
    """None: not made by us."""
    changes_rows: bool
    back_to: str | None = None
    """Of one of ours that has put the table back: to which version; empty: to none of its rows."""
    settles: str = ""
    """Of a mend of ours: up to which version it has put right what others did; empty: it does not say."""
    left_behind: bool = False
    """It does not lead to the current version any more: somebody else has gone back to before it."""

    def is_of(self, uid: str, table: str) -> bool:
        """Whether this region has made it, for this table."""
        return self.stamp is not None and (self.stamp.uid, self.stamp.table) == (uid, table)

    @classmethod
    def told(cls, version: str, text: str | None, *, changes_rows: bool) -> LogEntry:
        """By what our commits carry, if it is one."""
        stamp = Stamp.from_json(text)
        about = json.loads(text) if text and stamp is not None else {}
        back_to = about.get("to") if about.get("kind") == PUT_BACK else None
        return cls(version, stamp, changes_rows, back_to, about.get(SETTLES, ""))


@dataclass(frozen=True)
class History:
    """What a table says of itself, at one look."""

    version: str
    """The current one; empty: there is no table."""
    seen: tuple[LogEntry, ...] = ()
    """Commits after the version that was asked for, oldest first."""
    unknown: bool = False
    """The version that was asked for is not among those of which the table knows."""


class Dropped(LeaseLost):
    """The table itself did not take a commit: a later number is there (docs/clients.md C-P5). Reaction: stop; the later writer goes on."""


class OtherRegion(Refused):
    """The table holds another region's rows (SPEC G6). Reaction: another path, or adopt them."""


def dropped(stamp: Stamp) -> Dropped:
    return Dropped(
        f"Table {stamp.table} did not take commit {stamp.number}: a later one is there.",
        hint="Stop; the later writer goes on.",
    )


def check_there(table: Table, version: str) -> None:
    """A table that has acknowledged rows and is not there is not made anew in silence: its folder may only not be mounted here."""
    ordered = table.format == "delta" or table.layout == FILES  # else it is the id of a snapshot of Iceberg
    if table.version and (not version or (ordered and int(version) < int(table.version))):
        there = f"is at version {version}" if version else "is not there"
        raise Refused(
            f"Table {table.name} at {table.path} {there}, and version {table.version} of it was acknowledged.",
            hint="Is its folder mounted on this machine? If it is lost: `crkafka tables undeclare`, and declare it at another path.",
        )


def check_newest(table: Table, history: History, number: int) -> None:
    """Refuse a table that does not know of the acknowledged version and shows an older commit of ours last. `number`: of the
    commit that made that version; it may have been expired, but then so is what came before it.
    """
    shown = [s.stamp.number for s in history.seen if s.stamp is not None]
    if history.unknown and shown and shown[-1] < number:
        raise older_copy(table, shown[-1], number)


def older_copy(table: Table, shown: int, acknowledged: int) -> Refused:
    """The last commit of ours that a table shows is before the one that was acknowledged last."""
    return Refused(
        f"Table {table.name} at {table.path} shows commit {shown} of this region, and commit {acknowledged} was acknowledged: an "
        "older copy of it was put back, or another table is there.",
        hint="Put the newer one back; if it is gone for good: `crkafka tables undeclare`, and declare it at another path.",
    )


def check_owner(table: Table, seen: Collection[LogEntry], uid: str) -> None:
    """Refuse a table whose last commit of ours is another region's, or another table's of this region (SPEC G6)."""
    stamps = [s.stamp for s in seen if s.stamp is not None]
    if stamps and (stamps[-1].uid, stamps[-1].table) != (uid, table.name):
        raise other_owner(table, stamps[-1], uid)


def other_owner(table: Table, stamp: Stamp | None, uid: str) -> OtherRegion:
    """Where the table's log has been cleaned of the stamp, only that it is another's is known."""
    whose = "others"
    if stamp is not None:
        whose = f"table {stamp.table} of this region" if stamp.uid == uid else f"region uid {stamp.uid}"
    return OtherRegion(
        f"Table {table.name} at {table.path} holds rows of {whose}; this region is {uid}.",
        hint="Two regions of one name are two regions, and two tables are two: name another path.",
    )


def check_known(table: Table, seen: Collection[LogEntry], highest: int) -> None:
    """A number that SQL never issued means that SQL went back in time (SPEC G10)."""
    unknown = [s.stamp.number for s in seen if s.stamp is not None and s.stamp.number > highest]
    if unknown:
        raise WentBack(
            f"Table {table.name} of region {table.region} has commit {max(unknown)}; the control plane never issued one above {highest}.",
            hint="Restore a newer backup, or `crkafka start --restored rewind`: what was lost leaves the tables and is read again.",
        )
