"""What a table format has to offer, so that a write is idempotent per checkpoint and a late one does no harm (SPEC K6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.tables.stamp import History, LogEntry, Stamp, dropped


def _first_difference(there: DataType, new: DataType, path: str) -> tuple[str, str, str] | None:
    """The first column of two types: its name and both."""
    if isinstance(there, StructType) and isinstance(new, StructType):
        known = {f.name.lower(): f for f in there}
        pairs = [(known[f.name.lower()], f) for f in new if f.name.lower() in known]
        found = (_first_difference(a.dataType, b.dataType, f"{path}.{a.name}" if path else a.name) for a, b in pairs)
        return next(filter(None, found), None)
    if isinstance(there, ArrayType) and isinstance(new, ArrayType):
        return _first_difference(there.elementType, new.elementType, path)
    if isinstance(there, MapType) and isinstance(new, MapType):
        return _first_difference(there.valueType, new.valueType, path)
    same = there == new or path == CHECKPOINT
    return None if same else (path, there.simpleString(), new.simpleString())


def kinds(kind: DataType, path: str = "") -> Iterator[tuple[str, str]]:
    """Each column, also inside of others, and its kind."""
    if path:
        yield path, kind.typeName() if isinstance(kind, StructType | ArrayType | MapType) else kind.simpleString()
    if isinstance(kind, StructType):
        for each in kind:
            yield from kinds(each.dataType, f"{path}.{each.name}" if path else each.name)
    elif isinstance(kind, ArrayType):
        yield from kinds(kind.elementType, f"{path}[]")
    elif isinstance(kind, MapType):
        yield from kinds(kind.valueType, f"{path}{{}}")


def does_not_fit(table: Table, column: str, there: str, new: str) -> ConfigError:
    """A column of the table would become of another kind."""
    return ConfigError(
        f"Column {column} of table {table.name} is {there} and would become {new}: its rows would not fit together.",
        hint=f"Nothing was written. Declare the new rows as a table of another name, or `crkafka tables undeclare {table.name}` "
        "and declare it at a new path.",
    )


ANY = 2**63 - 1
Range = tuple[int, int]
"""From one checkpoint to another, both included."""


@dataclass(frozen=True)
class Where:
    """Which checkpoints a commit replaces."""

    after: int = 0
    upto: int = 0
    """With `after`: the range (after, upto]."""
    ids: tuple[int, ...] = ()
    """And these."""

    def sql(self) -> str:
        """As a condition on the table's rows."""
        parts = []
        if self.upto > self.after:
            parts.append(f"({CHECKPOINT} > {self.after} AND {CHECKPOINT} <= {self.upto})")
        if self.ids:
            parts.append(f"{CHECKPOINT} IN ({', '.join(map(str, sorted(self.ids)))})")
        return " OR ".join(parts) or "false"

    def ranges(self) -> list[Range]:
        """The same as few ranges, both ends included."""
        given = [(self.after + 1, self.upto)] if self.upto > self.after else []
        return joined([*given, *((i, i) for i in self.ids)])


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Those that overlap or follow each other as one."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


class TableFormat(ABC):
    """One table. Versions are the format's own, as text; an empty one means that there is no table yet."""

    def __init__(
        self, spark: SparkSession, table: Table, options: Mapping[str, str], partition_by: Sequence[str] = ()
    ) -> None:
        self.spark, self.table, self.options, self.partition_by = spark, table, dict(options), tuple(partition_by)

    @abstractmethod
    def history(self, after: str) -> History:
        """The current version, and what was committed after that one."""

    def changes(self, after: str, ours: Collection[str]) -> Sequence[LogEntry]:
        """What was committed after that version, with what was left behind since. `ours`: versions of which that is known."""
        return self.history(after).seen

    def touched(self, version: str) -> range | None:
        """From which checkpoint to which a version has brought or taken rows; None: the table does not tell."""
        return None

    def lost(self) -> dict[str, Range | None]:
        """Data files that are not in storage, and between which checkpoints their rows were; those of which we can tell."""
        return {}

    def present(self) -> set[int]:
        """Checkpoints that the table has rows of."""
        return set(self._counts(-ANY, ANY))

    def counts(self, ids: Collection[int]) -> dict[int, int]:
        """Rows of these checkpoints; those without are left out."""
        near = self._counts(min(ids), max(ids)) if ids else {}
        return {i: near[i] for i in ids if i in near}

    def _counted(
        self, least: int, greatest: int, answer: Callable[[Callable[[], DataFrame]], list[Row]]
    ) -> dict[int, int]:
        """By reading the rows; without those near a data file that is lost: it cannot be read, and `lost` tells of them."""
        lost: Collection[Range | None] = ()

        def counted() -> DataFrame:
            near = self.read().where(F.col(CHECKPOINT).between(least, greatest))
            for each in lost:
                near = near.where(F.lit(False) if each is None else ~F.col(CHECKPOINT).between(*each))
            return near.groupBy(CHECKPOINT).count()

        try:
            found = answer(counted)
        except Exception:  # classic and Connect wrap Java's in classes of their own
            lost = self.lost().values()
            if not lost:
                raise
            found = answer(counted)
        return {row[0]: row[1] for row in found}

    @abstractmethod
    def _counts(self, least: int, greatest: int) -> dict[int, int]:
        """Checkpoint → rows, from one checkpoint to another, both included; from metadata alone where that tells."""

    @abstractmethod
    def replace(self, frame: DataFrame | None, where: Where, stamp: Stamp, based_on: str) -> None:
        """Put the rows in the place of what `where` names (none: remove it, from a table that is there), in one commit.

        It stops writes of lower numbers, also if it changes no row. Raises `Moved` if somebody else has committed after `based_on`,
        or tries again by itself; what a later writer of ours has overtaken is dropped (see `our_version`).
        """

    def add(
        self, rows: DataFrame | None, where: Where, stamp: Stamp, based_on: str, expected: int | None
    ) -> int | None:
        """The same in a quicker way, where the table has nothing of what `where` names; the rows of it.

        None: there is no such way, or the rows are not as many as expected, and nothing was committed.
        """
        return None

    @abstractmethod
    def make_fenced(self, stamp: Stamp) -> None:
        """Make the table with nothing but the fence in it: a first write under way is refused then. Columns come with the first rows."""

    @abstractmethod
    def widen(self, rows: DataFrame, stamp: Stamp) -> None:
        """Let the table have the columns of these rows, also inside of structs; no row comes."""

    def untouched_since(self, version: str) -> bool:
        """Whether nobody has changed rows since that version; an empty one: the table never had any."""
        return not any(entry.changes_rows for entry in self.history(version).seen)

    @abstractmethod
    def property(self, name: str) -> str:
        """Of the table's own; empty when it has none of this name."""

    @abstractmethod
    def read(self) -> DataFrame:
        """All rows."""

    @abstractmethod
    def read_at(self, version: str) -> DataFrame:
        """All rows of that version."""

    @abstractmethod
    def compact(self) -> tuple[int, int]:
        """The same rows in fewer files: how many were replaced, and by how many. Somebody who writes meanwhile is not disturbed."""

    @abstractmethod
    def clean(self) -> None:
        """Delete what no version within the format's own retention needs."""

    def our_version(self, history: History, stamp: Stamp) -> str:
        """The version of our commit; a table may have dropped a late one in silence (docs/clients.md C-P5)."""
        mine = [s.version for s in history.seen if s.stamp == stamp]
        if not mine:
            raise dropped(stamp)
        return mine[-1]

    def must_fit(self, there: StructType, new: StructType) -> None:
        """Columns may be more, or fewer, or in another order; one that is there keeps its type."""
        if self.table.shape and (found := _first_difference(there, new, "")):
            raise does_not_fit(self.table, *found)

    def needs_column(self, columns: Collection[str]) -> None:
        """Refuse rows, or a table, without the checkpoint's number."""
        if CHECKPOINT not in columns:
            raise ConfigError(
                f"Table {self.table.name} at {self.table.path} has no column {CHECKPOINT}: rows could not be told apart by checkpoint.",
                hint="Keep that column in what is written, or name another path.",
            )
