"""What a format's own log has to offer, so that a table can adopt files by it; one implementation per format (SPEC K6).

A snapshot is looked at, and a commit counts only directly after it. Delta's is `delta_log`, which needs no Spark; Iceberg's is
`crkafka_core.spark.iceberg_log`, which works in the Java process of a session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from crkafka_core.lake.handle import Handle
from crkafka_core.model.errors import CrkafkaError, Refused, ServiceUnavailable
from crkafka_core.model.rows import Table
from crkafka_core.segments.storage import Storage
from crkafka_core.tables.files import Added
from crkafka_core.tables.stamp import Facts, LogEntry, Stamp


class Moved(CrkafkaError):
    """Somebody else has committed since the look. Reaction: look anew; nothing of ours is in the table."""


class NeedsSpark(Refused):
    """Only Spark can do this to the table. Reaction: `crkafka tables advance`, or Dagster's run."""


class MarkedRows(NeedsSpark):
    """A file has rows that are marked as deleted beside it. Reaction: let Spark write it anew, then again."""


class TableUnavailable(ServiceUnavailable):
    """The table's storage or catalog does not answer. Reaction: wait and try again."""


@dataclass(frozen=True)
class DataFile:
    """One file of the current version."""

    path: str
    """Relative to the table."""
    bytes: int
    rows: int | None
    lowest: Mapping[str, Any]
    """Per column, the least value, where the log tells."""
    highest: Mapping[str, Any]
    partition_values: Mapping[str, str | None]
    kept: Sequence[bool] | None = None
    """Where rows of it were marked as deleted beside it: for each row up to the last such one, whether it is there."""


class Snapshot(Protocol):
    """One version of the table. A commit on it is refused as soon as there is a later one."""

    version: int
    """Higher with each commit, whoever makes it."""

    @property
    def at(self) -> str:
        """How a reader names this very state; empty: it has no rows yet."""

    @property
    def partition_columns(self) -> list[str]: ...

    @property
    def columns(self) -> set[str]: ...

    def facts(self, app: str) -> Facts:
        """Of the last commit under this application id."""

    def since(self, version: str, ours: Collection[str] = ()) -> list[LogEntry]:
        """What was committed after a version, oldest first; all that the log still tells when the version is empty.

        `ours`: versions of which nobody asks who made them; they are not looked at.
        """

    def changed_files(self, version: str) -> list[DataFile] | None:
        """Files that a version has brought or taken; none where it only deleted rows, which their number tells. None: nobody knows."""

    def untouched_since(self, version: int) -> bool:
        """Whether nobody has changed rows after a version; what the log does not tell any more may have."""

    def files(self) -> list[DataFile]:
        """The files of this version."""

    def check_removable(self, files: Collection[DataFile]) -> None:
        """Refuse, before anything is written, what `commit` could not remove."""

    def commit(
        self,
        add: Sequence[Added],
        remove: Collection[DataFile],
        stamp: Stamp,
        about: Mapping[str, object],
        *,
        holds: int = 0,
    ) -> int:
        """Add and remove files in one commit that carries the stamp's number; the new version. Raises `Moved` if there is a later one.

        `holds`: the checkpoint up to whose line the table has rows then.
        """


class TableLog(Protocol):
    """The log of one table."""

    table: Table
    reuses_names: bool
    """Whether a file may come under a name that one had which has left the table."""

    def snapshot(self) -> Snapshot | None:
        """The table as it is now; None when there is none."""

    def create(self, stamp: Stamp) -> None:
        """Make the table, without rows and without a number: those are committed on a snapshot. Raises `Moved` if it is there."""

    def storage(self, stamp: Stamp | None = None) -> Storage:
        """Where its files lie. A catalog knows that only of a table that is there: with a stamp it is made then."""


def lost(storage: Storage, files: Collection[DataFile]) -> set[str]:
    """Names of those that are not in storage."""
    there = {stored.path for stored in storage.list("")}
    return {file.path for file in files if file.path not in there}


def storage_of(path: str, options: Mapping[str, str]) -> Storage:
    """A table's folder. Its files are the segments' own, so who may read these may read it."""
    found = {key: value for key, value in options.items() if key != "mode" or "://" not in path}
    local = path.removeprefix("file:") if path.startswith("file:/") and not path.startswith("file://") else path
    return Storage.open(local.replace("s3a://", "s3://", 1), found)


Logs = Callable[[Handle, Table], TableLog]
"""Opens a table's log."""
