"""The port to a table's format: look at one version of its log, and commit on exactly that version (SPEC K6).

A format is one module that implements `TableLog` and `Snapshot`, and one line in `lake/formats.py`. A commit is a compare-and-set: it
counts only directly after the snapshot that it was made on, and retries nothing. The caller looks again and decides again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import pyarrow as pa

from crkafka_core.model.errors import ConfigError, CrkafkaError, Refused, ServiceUnavailable
from crkafka_core.segments.batch import CHECKPOINT as CHECKPOINT
from crkafka_core.segments.storage import Storage

KEYS = "crkafka.keys"
"""Property of a table with one row for each key: the columns of the key. A format makes it so that rows can be marked."""


class Moved(CrkafkaError):
    """Another commit came after the snapshot. Reaction: look again; nothing of this commit is in the table."""


class Unknown(CrkafkaError):
    """The commit may or may not be in the table: the storage or catalog gave no answer. Reaction: look again, and read the stamp."""


class TableUnavailable(ServiceUnavailable):
    """The table's storage or catalog does not answer. Reaction: wait and try again."""


class CannotCommit(Refused):
    """The table has a feature that this way of writing cannot keep. Reaction: a person removes it, or `check` names another way."""


def needed(package: str, use: str, extra: str) -> Any:
    """A package that comes with an extra of crkafka. `use`: what takes it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"{use} needs the package {package}, which is not installed.", hint=f"pip install 'crkafka[{extra}]'"
        ) from error


@dataclass(frozen=True)
class Part:
    """One partition field: a transform of a column, as Iceberg names them."""

    column: str
    transform: str = "identity"
    """identity, year, month, day, hour, bucket or truncate."""
    width: int = 0
    """Of bucket and truncate."""

    def __str__(self) -> str:
        """As `partition_by` has it."""
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({f'{self.width}, ' if self.width else ''}{self.column})"


@dataclass(frozen=True)
class Stamp:
    """The region, table and permit of a commit. Kept as state of the table, so it outlives the commit's own entry in the log."""

    uid: str
    """Of the region."""
    table: str
    permit: int
    """The permit's number; it only grows for a table. 0: of a commit that has none (making the table, a compaction)."""
    token: int
    """The mark of the permit's token (`mark_of`): distinguishes two attempts with one number."""
    checkpoint: int
    """The checkpoint that the table has acknowledged with this commit."""
    settled: int = -1
    """Up to this version of the table commits of others are accounted for; those after it are reported until a repair settles them."""
    version: int = 0
    """The version of the table that the commit made; set by the format."""

    @property
    def owner(self) -> int:
        """The mark of the region and its table."""
        return mark_of(f"{self.uid}/{self.table}")


def mark_of(text: str) -> int:
    """A text as a positive number of 63 bits: all that a transaction of Delta's log can hold."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class NewFile:
    """A data file that a commit adds. The log gets all of it from here; nothing reads the file's footer again."""

    path: str
    """Relative to the table's folder."""
    bytes: int
    rows: int
    lowest: Mapping[str, Any] = field(default_factory=dict)
    """Column → the least value; exact, since engines answer `min()` from it."""
    highest: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    """Partition column or field name → value."""


@dataclass(frozen=True)
class DataFile(NewFile):
    """A data file of a snapshot. (path, marks) is its identity: a file with other marks is another file to a commit."""

    marks: Collection[int] | None = None
    """Rows that are deleted beside the file: positions from its first row, as in Delta's and Iceberg's deletion vectors."""

    def __hash__(self) -> int:
        return hash(self.path)

    @property
    def live(self) -> int:
        """Rows without the marked ones."""
        return self.rows - len(self.marks or ())

    @property
    def numbers(self) -> tuple[int, int] | None:
        """The lowest and highest checkpoint of its rows; None if the log does not have them."""
        if CHECKPOINT in self.lowest and CHECKPOINT in self.highest:
            return int(self.lowest[CHECKPOINT]), int(self.highest[CHECKPOINT])
        return None

    def may_have(self, first: int, last: int) -> bool:
        """Whether it may have rows of checkpoints in [first, last]."""
        low, high = self.numbers or (first, last)
        return low <= last and high >= first


@dataclass(frozen=True)
class LogEntry:
    version: int
    stamp: Stamp | None
    """None: not made by crkafka."""
    changes_rows: bool
    touched: tuple[int, int] | None = None
    """The lowest and highest checkpoint in the files that it added; None: it added none, or only deleted rows by its own account."""


@dataclass(frozen=True)
class Change:
    """What a commit does to the files of a snapshot."""

    add: Sequence[NewFile] = ()
    """A `DataFile` comes with its marks."""
    remove: Collection[DataFile] = ()
    marks: Mapping[DataFile, Collection[int]] = field(default_factory=dict)
    """Marks to set, in place of the present ones."""
    schema: pa.Schema | None = None
    """The table's columns from this commit on: added columns, widened types."""
    changes_rows: bool = True
    """False for a compaction."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """For people, in the log."""
    keep: Callable[[], Collection[int]] = tuple
    """Versions that stay; asked where a commit forgets old ones so that the log stays small."""


NO_CHANGE = Change()


class Snapshot(Protocol):
    version: int
    """Grows with each commit of any program."""
    at: str
    """The name by which a reader asks for this very version."""
    schema: pa.Schema
    """The columns as they are named in the table's files."""
    parts: Sequence[Part]
    properties: Mapping[str, str]

    def stamp(self, uid: str, table: str) -> Stamp | None:
        """The last stamp of this region and table that leads to this version, also when its log entry is cleaned away."""

    def owner(self) -> int | None:
        """`Stamp.owner` of the last stamp of any region and table, permit or not; None: no commit of ours ever was."""

    def since(self, version: int) -> Sequence[LogEntry] | None:
        """Commits after `version`, oldest first; None if the log no longer has all of them."""

    def files(self) -> Iterable[DataFile]: ...

    def commit(self, stamp: Stamp, change: Change = NO_CHANGE) -> Snapshot:
        """Commit directly after this snapshot; the snapshot that it made. Raises `Moved`, `Unknown` or `CannotCommit`.

        The stamp becomes state of the table; one without a permit is only in the commit's own entry (`since`).
        """


class TableLog(Protocol):
    storage: Storage
    """The folder of its data files."""
    placed_late: bool = False
    """Where the folder is, is known once the table is made: its catalog chooses."""
    widens: bool = True
    """A column may get a wider type, as int becomes long."""

    def look(self, version: str = "") -> Snapshot | None:
        """The table now, or at a version (`Snapshot.version`); None if there is no table, or the version is gone."""

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """The columns with the types that the table will have for them. Raises `CannotCommit` for a type that the format lacks."""

    def create(self, schema: pa.Schema, parts: Sequence[Part], stamp: Stamp, properties: Mapping[str, str]) -> Snapshot:
        """Make the table without rows; a stamp without a permit is its owner's, in the first version. Raises `Moved` if it exists."""

    def expire(self, keep: Collection[int]) -> int:
        """Forget versions and delete unreferenced files that are older than the table's retention, but keep these versions and the current
        one; the number of deleted files. Metadata is deleted by age, never by count (SPEC K6).
        """
