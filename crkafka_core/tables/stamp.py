"""What every commit of ours carries inside a table, and what a table's history tells by it (SPEC K6, G6, G10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from crkafka_core.model.errors import LeaseLost
from crkafka_core.model.rows import TableCommit

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


class Dropped(LeaseLost):
    """The table itself did not take a commit: a later number is there (docs/clients.md C-P5). Reaction: stop; the later writer goes on."""


def dropped(stamp: Stamp) -> Dropped:
    return Dropped(
        f"Table {stamp.table} did not take commit {stamp.number}: a later one is there.",
        hint="Stop; the later writer goes on.",
    )
