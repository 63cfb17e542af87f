"""What a control plane must offer: typed rows, and transactions that hold the region's row.

All rules live in `crkafka_core.plane`, once, over this interface; a database only keeps rows. `checkpoints_db` implements
it on SQLAlchemy, the tests implement it in memory, and the compliance suite holds both to the same behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from crkafka_core.model.rows import Region, Row

R = TypeVar("R", bound=Row)
T = TypeVar("T")

Op = Literal["=", "!=", "<", "<=", ">", ">=", "in"]
Cond = tuple[str, Op, Any]
"""(column, operator, value); several conditions are joined by *and*."""


def own_key(row: type[Row]) -> tuple[str, ...]:
    """The columns of the key that a reader is asked for: it knows the region itself."""
    return row.KEY if row.SHARED else tuple(name for name in row.KEY if name != row.REGION)


class Reader(Protocol):
    """A consistent snapshot of one region's rows; of rows that are `SHARED` between regions, of all."""

    def region(self) -> Region:
        """The region's own row; raises `NoSuchRegion` when there is none."""

    def now(self) -> float:
        """Database time, in seconds since 1970; the only clock for deadlines (SPEC G4)."""

    def get(self, row: type[R], *key: Any) -> R | None:
        """The row with this key, in the order of `own_key(row)`."""

    def select(
        self, row: type[R], *where: Cond, order: Sequence[str] = (), desc: bool = False, limit: int | None = None
    ) -> list[R]:
        """Rows that meet all conditions; ordered by the columns of `order`, else by primary key."""

    def column(
        self,
        row: type[R],
        name: str,
        *where: Cond,
        order: Sequence[str] = (),
        desc: bool = False,
        limit: int | None = None,
    ) -> list[Any]:
        """As `select`, but only the values of one column of text or numbers: to list ids, no archive is read."""

    def count(self, row: type[R], *where: Cond) -> int: ...

    def line(self, checkpoint: int, *, after: int = 0) -> list[int]:
        """Ids from `checkpoint` back along parents, excluding `after` and birth, oldest first; one query (SPEC C5).

        Stops at birth, at `after`, or at an id below `after`; says nothing about whether `after` is on the line.
        """


class Tx(Reader, Protocol):
    """A transaction that has locked its region's row first (SPEC G7); commits as a whole or not at all."""

    def region(self) -> Region:
        """The locked row, with the changes of this transaction."""

    def set_region(self, **changes: Any) -> Region:
        """Change columns of the locked row; raises `version` by one per transaction in which anything changed."""

    def put(self, *rows: Row) -> None:
        """Insert or replace by primary key, in bulk (rows of one call may be of one type only)."""

    def add(self, *rows: Row) -> None:
        """Insert in bulk; an existing primary key is an error (`KeyExists`)."""

    def delete(self, row: type[Row], *where: Cond) -> int:
        """Delete what meets all conditions, of this region alone; the number of rows."""


class KeyExists(Exception):
    """`Tx.add` found the primary key taken."""


@dataclass(frozen=True)
class Place:
    """Where the rows of a control plane lie: what tells a database from its copy (SPEC T3)."""

    key: str
    """The same however the database is reached, and another for a copy of it at another place. Holds no secret."""
    shown: str
    """For people, without a password."""


class Store(Protocol):
    """A database of rows. Safe to use from several threads and processes."""

    def place(self) -> Place:
        """Where it is."""

    def run(self, region: str, work: Callable[[Tx], T]) -> T:
        """Run `work` in a transaction on the region; raises `NoSuchRegion` when there is no such row.

        Deadlocks, serialization failures, a busy file and a lost connection are retried with jitter and a bound, also
        when the outcome of the commit is unknown: every `work` finds its own earlier effect by reading. When the bound
        is reached: `ServiceUnavailable`. An exception of `work` rolls back and is raised as it is.
        """

    def create(self, region: Region, work: Callable[[Tx], T]) -> T:
        """As `run`, but inserts the region's row first if there is none."""

    def read(self, region: str) -> AbstractContextManager[Reader]:
        """A read-only snapshot of a region, which need not exist; takes no lock and waits for none."""

    def wait(self, region: str, version: int, timeout: float) -> int:
        """Return as soon as the region's version differs from `version`, at the latest after `timeout` seconds; the version.

        Cheap when idle. May return early. Raises `ServiceUnavailable` when the database is not there.
        """

    def regions(self) -> list[Region]:
        """All regions, by name."""

    def close(self) -> None: ...


Opener = Callable[[str], Store]
"""The entry point group `crkafka.control_plane` maps the scheme of a URL to one of these."""
