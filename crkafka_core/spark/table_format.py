"""What a table format has to offer, so that a write is idempotent per checkpoint and a late one does no harm (SPEC K6)."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.model.errors import ConfigError, LeaseLost, Refused
from crkafka_core.model.rows import Table, TableCommit
from crkafka_core.spark.names import CHECKPOINT


@dataclass(frozen=True)
class Stamp:
    """What every commit of ours carries inside the table: whose it is and which number SQL gave it (SPEC G6, G10)."""

    uid: str
    table: str
    number: int
    token: str

    @classmethod
    def of(cls, uid: str, commit: TableCommit) -> Stamp:
        return cls(uid, commit.table, commit.number, commit.token)

    def to_json(self) -> str:
        return json.dumps(
            {"crkafka": {"uid": self.uid, "table": self.table, "number": self.number, "token": self.token}}
        )

    @classmethod
    def from_json(cls, text: str | None) -> Stamp | None:
        try:
            return cls(**json.loads(text or "")["crkafka"])
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class Seen:
    """One commit found in a table."""

    version: str
    stamp: Stamp | None
    """None: not made by us."""
    changes_rows: bool


@dataclass(frozen=True)
class History:
    """What a table says of itself, at one look."""

    version: str
    """The current one; empty: there is no table."""
    seen: tuple[Seen, ...] = ()
    """Commits after the version that was asked for, oldest first."""


class Dropped(LeaseLost):
    """The table itself did not take a commit: a later number is there (FACTS P5). Reaction: stop; the later writer goes on."""


class OtherRegion(Refused):
    """The table holds another region's rows (SPEC G6). Reaction: another path, or adopt them."""


@dataclass(frozen=True)
class Where:
    """Which checkpoints a commit replaces."""

    after: int = 0
    upto: int = 0
    """With `after`: the range (after, upto]."""
    ids: tuple[int, ...] = ()
    """And these."""

    def sql(self) -> str:
        """As a condition on the table's partitions."""
        parts = []
        if self.upto > self.after:
            parts.append(f"({CHECKPOINT} > {self.after} AND {CHECKPOINT} <= {self.upto})")
        if self.ids:
            parts.append(f"{CHECKPOINT} IN ({', '.join(map(str, sorted(self.ids)))})")
        return " OR ".join(parts) or "false"


class TableFormat(ABC):
    """One table. Versions are the format's own, as text; an empty one means that there is no table yet."""

    def __init__(self, spark: SparkSession, table: Table, options: Mapping[str, str]) -> None:
        self.spark, self.table, self.options = spark, table, dict(options)

    @abstractmethod
    def history(self, after: str) -> History:
        """The current version, and what was committed after that one."""

    @abstractmethod
    def present(self) -> set[int]:
        """Checkpoints that the table has rows of; from metadata alone."""

    @abstractmethod
    def counts(self, ids: Collection[int]) -> dict[int, int]:
        """Rows of these checkpoints; those without are left out."""

    @abstractmethod
    def replace(self, frame: DataFrame | None, where: Where, stamp: Stamp, based_on: str) -> None:
        """Put the rows in the place of what `where` names (none: remove it, from a table that is there), in one commit.

        A conflict with what came after `based_on` is refused where the format can; see `own` for where it cannot.
        """

    @abstractmethod
    def fence(self, stamp: Stamp, where: Where, in_flight: Collection[int], based_on: str) -> None:
        """Remove what `where` names, in a commit that also stops writes of lower numbers, even when there is nothing to remove.

        `in_flight`: checkpoints that overtaken permits may still write.
        """

    @abstractmethod
    def read(self) -> DataFrame:
        """All rows."""

    def own(self, history: History, stamp: Stamp) -> str:
        """The version of our commit; a table may have dropped a late one in silence (FACTS P5)."""
        mine = [s.version for s in history.seen if s.stamp == stamp]
        if not mine:
            raise Dropped(
                f"Table {stamp.table} did not take commit {stamp.number}: a later one is there.",
                hint="Stop; the later writer goes on.",
            )
        return mine[-1]

    def needs_column(self, columns: Collection[str]) -> None:
        """Refuse rows, or a table, without the checkpoint's number."""
        if CHECKPOINT not in columns:
            raise ConfigError(
                f"Table {self.table.name} at {self.table.path} has no column {CHECKPOINT}: rows could not be told apart by checkpoint.",
                hint="Keep that column in what is written, or name another path.",
            )

    def check_owner(self, seen: Collection[Seen], uid: str) -> None:
        """Refuse a table whose last commit of ours is another region's (SPEC G6)."""
        stamps = [s.stamp for s in seen if s.stamp is not None]
        if stamps and stamps[-1].uid != uid:
            raise OtherRegion(
                f"Table {self.table.name} at {self.table.path} holds rows of region uid {stamps[-1].uid}; this region is {uid}.",
                hint="Two regions of one name are two regions: name another path.",
            )
