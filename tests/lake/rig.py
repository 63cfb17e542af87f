"""A region with one raw table of some format, or a typed one and its dead letters, without Kafka and Spark; and what others do to it."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable as Reader
from deltalake import QueryBuilder, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable

from crkafka_core.control import Tx
from crkafka_core.lake import audit, compact, road, writing
from crkafka_core.lake.audit import TableAudit
from crkafka_core.lake.columns import RAW
from crkafka_core.lake.delta.snapshot import DeltaSnapshot
from crkafka_core.lake.delta.table import DeltaTable
from crkafka_core.lake.files import rows_of, written
from crkafka_core.lake.formats import folder_of
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.iceberg import stamps
from crkafka_core.lake.iceberg.catalog import CatalogLog
from crkafka_core.lake.iceberg.path import PathLog
from crkafka_core.lake.iceberg.table import IcebergSnapshot
from crkafka_core.lake.pool import Pool
from crkafka_core.lake.port import CHECKPOINT, Change, Stamp
from crkafka_core.lake.writing import Committed
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, Lease, Table
from crkafka_core.plane import permits, restored
from crkafka_core.plane import tables as plane
from crkafka_core.plane.reading import KafkaRange, ReadPlan
from crkafka_core.segments.batch import Batch
from tests.lake.toy import LOGS, ToySnapshot, ToyTable
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore

Row = tuple[int, int, int]
"""Checkpoint, partition and offset."""


class Crash(BaseException):
    """The process dies here."""


class Rig:
    """What a test does with the table, and what a program sees that knows nothing of us."""

    log: type = DeltaTable
    snapshot: type = DeltaSnapshot
    names: tuple[str, ...] = ("bronze",)
    place = ("partition", "offset")

    def __init__(self, folder: Path, table: Mapping[str, object] | None = None, **keys: Any) -> None:
        self.path = folder / "tables" / "bronze"
        declared = {"name": "bronze", "format": "delta", "path": str(self.path), **(table or {})}
        self.store = MemoryStore()
        self.landing = Landing(self.store, folder, partitions=2, tables=[declared], **{"members": 2, **keys})
        self.region = self.landing.region
        self.highest = 0
        self.landed: dict[int, list[tuple[int, int, int]]] = {}
        self.means = road.Means(lambda _, table: self.log(table.name, table.path, {}), self.fetch)

    # What the program does

    def land(self, rows: int = 5, quiet: Collection[int] = ()) -> int:
        """A checkpoint more; quiet partitions have nothing in it."""
        head = self.region.plane.read(lambda _, row: row.head)
        before = dict(self.landing.offsets[head])
        number = self.landing.land(rows, quiet=quiet)
        after = self.landing.offsets[number]
        self.highest = max(self.highest, number)
        self.landed[number] = [(tp.partition, before[tp], after[tp]) for tp in after]
        return number

    def advance(self, **keys: Any) -> Committed | None:
        return road.advance(self.region, "bronze", means=self.means, **keys)

    def fence(self) -> Table:
        return road.fence(self.region, "bronze", means=self.means)

    def rewrite(self, *ids: int) -> Committed | None:
        return road.rewrite(self.region, "bronze", ids, means=self.means)

    def look(self) -> TableAudit:
        return audit.look(self.region, "bronze", self.means.logs)

    def mend(self) -> None:
        found = self.look()
        if not found.clean:
            road.mend(self.region, "bronze", found, means=self.means)

    def maintain(self, target: int = 2**20) -> None:
        compact.maintain(self.region, "bronze", target=target, logs=self.means.logs)

    def fetch(self, plan: ReadPlan) -> Iterator[tuple[KafkaRange, pa.RecordBatch]]:
        """Kafka still has everything."""
        for r in plan.ranges:
            yield r, records(TP(r.topic, r.partition), r.start, r.stop).records

    def table(self) -> Table:
        return self.region.plane.read(lambda reader, _: plane.of(reader, "bronze"))

    def writer_dies(self) -> None:
        """Its lease is over; nothing else of it changes."""

        def end(tx: Tx) -> None:
            for lease in tx.select(Lease, ("kind", "in", [f"writer:{name}" for name in self.names])):
                tx.put(replace(lease, until=0.0))

        self.region.plane.do(end)

    def backup(self) -> Any:
        return copy.deepcopy((self.store._tables, self.landed))

    def restore_backup(self, saved: Any) -> None:
        """SQL is what it was; whoever held a lease then is gone."""
        rows, self.landed = copy.deepcopy(saved)
        self.store._tables.update(rows)
        self.landing.starts += 1
        self.writer_dies()

    def start_restored(self) -> None:
        epoch = self.region.plane.read(lambda _, row: row.epoch)
        seen = restored.Seen(epoch=epoch + 5, checkpoint=self.highest, where="Kafka")
        self.region.plane.do(lambda tx: restored.notice(tx, "restored", by="test"))
        self.region.plane.do(lambda tx: restored.rewind(tx, seen, by="test"))
        head = self.region.plane.read(lambda _, row: row.head)
        self.landed = {number: of for number, of in self.landed.items() if number <= head}

    def rewind(self, target: int) -> None:
        """Go back to a checkpoint; the table has not followed yet."""
        self.landing.rewind(target)
        self.landed = {number: of for number, of in self.landed.items() if number <= target}

    def truth(self, *, erased: bool = False) -> list[Row]:
        """What the table has to hold once it has followed: all that landed, and was neither rewound nor erased, unless `erased`."""
        known: dict[int, Any] = {}
        if not erased:
            rows = self.region.plane.read(lambda reader, _: reader.select(Checkpoint))
            known = {c.id: c.erased.get("orders", {}) for c in rows}
        return sorted(
            (checkpoint, partition, offset)
            for checkpoint, of in self.landed.items()
            for partition, start, stop in of
            for offset in range(start, stop)
            if offset not in known.get(checkpoint, {}).get(partition, ())
        )

    # What a reader sees, and what others do

    def rows(self) -> list[Row]:
        """Of every row, in order: doubled ones show."""
        query, (partition, offset) = QueryBuilder().register("t", Reader(str(self.path))), self.place
        return self._rows(pa.table(query.execute(f'SELECT {CHECKPOINT}, "{partition}", "{offset}" FROM t').read_all()))

    def _rows(self, table: pa.Table) -> list[Row]:
        columns = (table[name].to_pylist() for name in (CHECKPOINT, *self.place))
        return sorted((number or 0, partition, offset) for number, partition, offset in zip(*columns, strict=True))

    def delete(self, below: int) -> None:
        Reader(str(self.path)).delete(f"{self.place[1]} < {below}")

    def insert(self, rows: pa.Table) -> None:
        write_deltalake(str(self.path), rows, mode="append", schema_mode="merge")

    def make_empty(self, columns: pa.Schema) -> None:
        """A user makes the table before the region has written it."""
        write_deltalake(str(self.path), columns.empty_table())

    def optimize(self) -> None:
        Reader(str(self.path)).optimize.compact()

    def save(self) -> Any:
        shutil.copytree(self.path, saved := self.path.with_name(f"saved-{len(list(self.path.parent.iterdir()))}"))
        return saved

    def put_back(self, saved: Any) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(saved, self.path)

    def least_offset_of(self, path: str) -> int:
        table = pa.table(Reader(str(self.path)).get_add_actions(flatten=True)).to_pylist()
        return next(int(a["min.offset"]) for a in table if a["path"] == path)


class ByPort(Rig):
    """A format whose other writers are stood for by commits without a stamp."""

    def _log(self) -> Any:
        return self.log("bronze", str(self.path), {})

    def _read(self) -> pa.Table:
        snapshot = self._log().look()
        files = snapshot.files() if snapshot else ()
        batches = [pa.Table.from_batches([b]) for f in files for b in rows_of(self._log().storage, f)]
        return pa.concat_tables(batches, promote_options="default") if batches else RAW.empty_table()

    def rows(self) -> list[Row]:
        return self._rows(self._read())

    def _write(self, table: pa.Table, *, removing: bool, changes_rows: bool = True) -> None:
        log, snapshot = self._log(), self._log().look()
        assert snapshot is not None
        add = written(log.storage, f"others/{snapshot.version}.parquet", table.to_batches())
        with self.as_others():
            snapshot.commit(
                STRANGER, Change(add, list(snapshot.files()) if removing else [], changes_rows=changes_rows)
            )

    @contextmanager
    def as_others(self) -> Iterator[None]:
        """Who commits meanwhile leaves no stamp."""
        yield

    def delete(self, below: int) -> None:
        rows = self._read()
        self._write(rows.filter(pc.greater_equal(rows[self.place[1]], below)), removing=True)

    def insert(self, rows: pa.Table) -> None:
        self._write(rows, removing=False)

    def optimize(self) -> None:
        self._write(self._read(), removing=True, changes_rows=False)

    def make_empty(self, columns: pa.Schema) -> None:
        with self.as_others():
            self._log().create(columns, (), STRANGER, {})

    def least_offset_of(self, path: str) -> int:
        snapshot = self._log().look()
        assert snapshot is not None
        return next(int(f.lowest["offset"]) for f in snapshot.files() if f.path == path)


STRANGER = Stamp("", "", 0, 0, 0)
"""Of a commit of others, by which a format leaves no stamp."""


class Toy(ByPort):
    log: type = ToyTable
    snapshot: type = ToySnapshot

    def save(self) -> Any:
        return list(LOGS[str(self.path)])

    def put_back(self, saved: Any) -> None:
        LOGS[str(self.path)] = list(saved)


class AtPath(PathLog):
    def __init__(self, name: str, path: str, options: Mapping[str, str]) -> None:
        super().__init__(folder_of(path, options), name)


class Iceberg(ByPort):
    """At a path. Spark's own commits between ours: tests/lake/iceberg."""

    log: type = AtPath
    snapshot: type = IcebergSnapshot

    def rows(self) -> list[Row]:
        """By a reader that shares nothing with us."""
        versions = [int(p.name[1:].split(".")[0]) for p in (self.path / "metadata").glob("v*.metadata.json")]
        if not versions:
            return []
        table = StaticTable.from_metadata(str(self.path / "metadata" / f"v{max(versions)}.metadata.json"))
        return self._rows(table.scan(selected_fields=(CHECKPOINT, *self.place)).to_arrow())

    @contextmanager
    def as_others(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stamps, "state", lambda _: {})
            patch.setattr(stamps, "text", lambda _: "")
            yield


class CatalogByPath(CatalogLog):
    """In a SQL catalog that lies, with its tables, in the folder of that path; opened anew, as by another process."""

    def __init__(self, name: str, path: str, options: Mapping[str, str]) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)
        super().__init__(
            load_catalog("lake", type="sql", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}"),
            "bronze.orders",
            options,
            name,
        )
        self.load = partial(self._catalog.load_table, self._identifier)


class IcebergInCatalog(Iceberg):
    log: type = CatalogByPath

    def make_empty(self, columns: pa.Schema) -> None:
        catalog = self._log()._catalog
        catalog.create_namespace("bronze")
        catalog.create_table("bronze.orders", columns)

    def rows(self) -> list[Row]:
        try:
            table = self._log().load()
        except NoSuchTableError:
            return []
        return self._rows(table.scan(selected_fields=(CHECKPOINT, *self.place)).to_arrow())


class Typed(Rig):
    """By a JSON Schema: a table of decoded rows, and one with the record of ten that is bad."""

    base: type[Rig] = Rig
    names = ("bronze", "bronze_dead")

    def __init__(self, folder: Path, table: Mapping[str, object] | None = None, **keys: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.schema = folder / "order.json"
        self.describe(id="integer", who="string")
        typed = {"typed": {"json": str(self.schema)}, **(table or {})}
        super().__init__(folder, typed, **{"batch_of": typed_records, **keys})
        self.means = replace(self.means, fetch=partial(again, typed_records), pool=pool())

    def describe(self, **properties: str) -> None:
        described = {name: {"type": kind} for name, kind in properties.items()}
        self.schema.write_text(json.dumps({"type": "object", "properties": described}))

    def each(self) -> list[Rig]:
        """Its tables that are there, each as a rig of its own."""
        good, dead = copy.copy(self), copy.copy(self)
        good.place, dead.path = ("kafka_partition", "kafka_offset"), self.path.with_name("bronze_dead")
        there = (each.log("bronze", str(each.path), {}).look() for each in (good, dead))
        # One that a fence has made has no such columns yet.
        pairs = zip((good, dead), there, strict=True)
        return [each for each, snapshot in pairs if snapshot is not None and each.place[0] in snapshot.schema.names]

    def fence(self) -> Table:
        first, _ = (road.fence(self.region, name, means=self.means) for name in self.names)
        return first

    def looks(self) -> dict[str, TableAudit]:
        return {name: audit.look(self.region, name, self.means.logs) for name in self.names}

    def look(self) -> TableAudit:
        both = self.looks().values()
        return TableAudit(
            tuple(sorted({i for each in both for i in each.strangers})),
            tuple(sorted({i for each in both for i in each.miscounted})),
            sum(each.foreign for each in both),
            sum(each.unknown for each in both),
            lost=tuple(path for each in both for path in each.lost),
        )

    def mend(self) -> None:
        for name in self.names:
            if not (found := audit.look(self.region, name, self.means.logs)).clean:
                road.mend(self.region, name, found, means=self.means)

    def maintain(self, target: int = 2**20) -> None:
        for name in self.names:
            compact.maintain(self.region, name, target=target, logs=self.means.logs)

    def rows(self) -> list[Row]:
        return sorted(row for each in self.each() for row in self.base.rows(each))

    def delete(self, below: int) -> None:
        for each in self.each():
            self.base.delete(each, below)

    def insert(self, rows: pa.Table) -> None:
        self.base.insert(self.each()[-1], rows)

    def optimize(self) -> None:
        for each in self.each():
            self.base.optimize(each)


class TypedIceberg(Typed, Iceberg):
    base: type[Rig] = Iceberg
    log: type = AtPath
    snapshot: type = IcebergSnapshot


class TypedInCatalog(Typed, IcebergInCatalog):
    base: type[Rig] = IcebergInCatalog
    log: type = CatalogByPath
    snapshot: type = IcebergSnapshot


class Keyed(Typed):
    """With one row for each of seven keys of a partition, and dead letters."""

    def __init__(self, folder: Path, **keys: Any) -> None:
        super().__init__(folder, {"mode": "upsert"}, batch_of=keyed_records, **keys)
        self.means = replace(self.means, fetch=partial(again, keyed_records))

    def truth(self, *, erased: bool = False) -> list[Row]:
        """The last good record of each key, but for tombstones; and each bad record."""
        last, bad = dict[tuple[int, int], Row](), list[Row]()
        for row in super().truth(erased=erased):
            _, partition, offset = row
            if value_of(offset) == b"no JSON":
                bad.append(row)
            elif value_of(offset) is None:
                last.pop((partition, offset % 7), None)
            else:
                last[partition, offset % 7] = row
        return sorted([*bad, *last.values()])


class KeyedIceberg(Keyed, TypedIceberg):
    """At a path."""


class KeyedInCatalog(Keyed, TypedInCatalog):
    """Each in a catalog."""


@cache
def pool() -> Pool:
    """One for all tests; its processes end with this one."""
    return Pool()


def value_of(offset: int) -> bytes | None:
    """Of ten records the fourth is bad and the sixth a tombstone."""
    good = json.dumps({"id": offset, "who": f"w{offset % 7}", "vip": offset % 2 == 0}).encode()
    return {3: b"no JSON", 5: None}.get(offset % 10, good)


def typed_records(tp: TP, start: int, stop: int) -> Batch:
    batch = records(tp, start, stop)
    values = pa.array([value_of(offset) for offset in range(start, stop)], pa.binary())
    return replace(batch, records=batch.records.set_column(1, "value", values))


def keyed_records(tp: TP, start: int, stop: int) -> Batch:
    batch = typed_records(tp, start, stop)
    keys = pa.array([f"{tp.partition}-{offset % 7}".encode() for offset in range(start, stop)], pa.binary())
    return replace(batch, records=batch.records.set_column(0, "key", keys))


def again(batch_of: Callable[[TP, int, int], Batch], plan: ReadPlan) -> Iterator[tuple[KafkaRange, pa.RecordBatch]]:
    """Kafka still has everything; in the processes of the pool."""
    for r in plan.ranges:
        yield r, batch_of(TP(r.topic, r.partition), r.start, r.stop).records


STEPS = ["before the files", "after the files", "after making the table", "after the commit"]


def dies_at(step: str, rig: Rig, patch: pytest.MonkeyPatch) -> None:
    """The process of a writer dies at this step; it cannot give its permit back either."""

    def dead(*_: Any, **__: Any) -> None:
        raise Crash

    def after(original: Callable[..., Any]) -> Callable[..., Any]:
        def then_dead(*rest: Any, **keys: Any) -> None:
            original(*rest, **keys)
            raise Crash

        return then_dead

    give_up = writing.give_up
    patch.setattr(writing, "give_up", lambda *rest: None if isinstance(rest[-1], Crash) else give_up(*rest))
    if step == "before the files":
        patch.setattr("crkafka_core.lake.files.adopted", dead)
        patch.setattr("crkafka_core.lake.made.by_shape", dead)
    elif step == "after the files" and isinstance(rig, Typed):
        patch.setattr(permits, "note_counts", dead)
    elif step in ("after the files", "before the commit"):
        patch.setattr(Hold, "check", dead)
    elif step == "after making the table":
        patch.setattr(rig.log, "create", after(rig.log.create))
    else:
        patch.setattr(rig.snapshot, "commit", after(rig.snapshot.commit))
