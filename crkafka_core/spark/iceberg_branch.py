"""Snapshots of an Iceberg table on a branch of their own, which count once `main` has moved to them (SPEC K6).

The branch is made at the very snapshot that was looked at. `main` goes forward to it by one compare-and-set of the table's metadata,
which Iceberg refuses if `main` has moved on, and does not try again on what is there by then (docs/clients.md C-P14). It is SQL
throughout, so it works through Spark Connect too. A crash leaves the branch: the next writer drops it, or, after a day,
`expire_snapshots`.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from crkafka_core.lake.port import Moved
from crkafka_core.model.errors import ConfigError, CrkafkaError
from crkafka_core.spark import iceberg_catalog
from crkafka_core.spark.iceberg_catalog import STAMP
from crkafka_core.tables.stamp import Stamp

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
KEPT = "crkafka"
"""The tag of the snapshot that is acknowledged, of a table that may have to go back to it."""
_log = logging.getLogger(__name__)
_OURS = re.compile(r"crkafka_(\d+)_[0-9a-f]{8}")
_TRIES = 10
"""Times that somebody else may change the table's metadata, and not `main`, just before we do."""


class Branch:
    """One of ours."""

    def __init__(self, spark: SparkSession, table: str, stamp: Stamp, start: str) -> None:
        """`table`: its name in SQL. `start`: the snapshot at which the branch is made."""
        self._spark, self._table, self._stamp, self.start = spark, table, stamp, start
        self._name = f"crkafka_{stamp.number}_{uuid.uuid4().hex[:8]}"

    @property
    def name(self) -> str:
        """In SQL, to read and to write it as a table."""
        return f"{self._table}.branch_{self._name}"

    def drop_left_over(self) -> None:
        """The branches of writers before us, which died or come too late."""
        left = self._refs().where("type = 'BRANCH'").select("name").collect()
        for found in filter(None, (_OURS.fullmatch(row[0]) for row in left)):
            if int(found[1]) <= self._stamp.number:
                self._alter(f"DROP BRANCH IF EXISTS `{found[0]}`")

    def make(self) -> None:
        """At its start."""
        self._alter(f"CREATE BRANCH `{self._name}` AS OF VERSION {self.start} RETAIN 1 DAYS")

    def publish(self) -> str:
        """Let `main` be where the branch is, which snapshot that is. Raises `Moved` if somebody else has moved `main` since the start."""
        head = self.head()
        for _ in range(_TRIES):
            try:
                iceberg_catalog.call(self._spark, self._table, "fast_forward", branch="main", to=self._name).collect()
                return head
            except Exception as error:  # classic and Connect wrap Iceberg's in classes of their own
                if "Cannot fast-forward" in str(error):
                    raise self.moved() from error
                if "CommitFailedException" not in str(error):
                    raise
                _log.info("main of table %s is moved once more: its metadata has changed", self._stamp.table)
        raise self.moved()

    def keep(self, snapshot: str) -> None:
        """Let `expire_snapshots` leave this one; the one that was kept before may go."""
        try:
            self._alter(f"CREATE OR REPLACE TAG `{KEPT}` AS OF VERSION {snapshot}")
        except Exception as error:  # what was published counts
            _log.warning("snapshot %s of table %s may be expired: %s", snapshot, self._stamp.table, error)

    def drop(self) -> None:
        self._alter(f"DROP BRANCH IF EXISTS `{self._name}`")

    def is_there(self) -> bool:
        return bool(self._refs().where(F.col("name") == self._name).collect())

    def head(self) -> str:
        """Its snapshot. Refused if that does not go back to the start: Iceberg writes to a branch that was dropped meanwhile as if it
        began at `main`.
        """
        head = self._refs().where(F.col("name") == self._name).select("snapshot_id").collect()
        summary = F.col("summary").getItem(STAMP)
        ours = self._spark.table(f"{self._table}.snapshots").where(summary.contains(self._stamp.token))
        parents = dict(map(tuple, ours.select("snapshot_id", "parent_id").collect()))
        at = head[0][0] if head else None
        while at in parents and str(at) != self.start:
            at = parents[at]
        if str(at) != self.start:
            raise self.moved()
        return str(head[0][0])

    def moved(self) -> Moved:
        return Moved(f"Table {self._stamp.table} has changed since version {self.start}.")

    def _refs(self) -> DataFrame:
        iceberg_catalog.look_anew(self._spark, self._table)  # a MERGE is done in a session of its own
        return self._spark.table(f"{self._table}.refs")

    def _alter(self, what: str) -> None:
        try:
            self._spark.sql(f"ALTER TABLE {self._table} {what}").collect()
        except ParseException as error:
            raise ConfigError(
                f"Table {self._stamp.table} is written on a branch of Iceberg's, and this session of Spark has none.",
                hint=f"Start it with spark.sql.extensions: {EXTENSIONS}, beside others that it has.",
            ) from error


@contextmanager
def staged(spark: SparkSession, table: str, stamp: Stamp, start: str) -> Iterator[Branch]:
    """A branch that begins at that snapshot; afterwards it is gone."""
    branch = Branch(spark, table, stamp, start)
    branch.drop_left_over()
    with made(branch):
        yield branch


@contextmanager
def made(branch: Branch) -> Iterator[None]:
    """It is there meanwhile."""
    branch.make()
    try:
        yield
    except CrkafkaError:
        raise
    except Exception as error:
        if branch.is_there():
            raise
        raise branch.moved() from error  # a later writer has dropped it
    finally:
        try:
            branch.drop()
        except Exception as error:  # what was published counts
            _log.warning("branch %s stays until the table's next write: %s", branch.name, error)
