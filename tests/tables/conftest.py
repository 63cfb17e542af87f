"""A region with one raw Delta table, without Kafka and without Spark."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from crkafka_core.control import Tx
from crkafka_core.lake import audit, compact, files, road, writing
from crkafka_core.lake.audit import TableAudit
from crkafka_core.lake.delta import DeltaTable as DeltaLog
from crkafka_core.lake.delta.snapshot import DeltaSnapshot as Snapshot
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.writing import Committed
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, Lease, Table
from crkafka_core.plane import restored
from crkafka_core.plane import tables as plane
from crkafka_core.plane.reading import KafkaRange, ReadPlan
from crkafka_core.segments.batch import Batch
from crkafka_core.segments.objects import ObjectStorage
from crkafka_core.segments.storage import Storage
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore

Row = tuple[int, int]
"""Partition and offset."""


class Crash(BaseException):
    """The process dies here."""


class Lake:
    """What a test does with the table, and what a program sees that knows nothing of us."""

    format = "delta"
    errors: tuple[type[Exception], ...] = (DeltaError, OSError)
    """What a user is told who asks for a version or a file that is gone."""

    def __init__(self, folder: Path, **keys: object) -> None:
        self.path = folder / "tables" / "bronze"
        declared = {"name": "bronze", "format": self.format, "path": self.place}
        self.store = MemoryStore()
        self.landing = Landing(
            self.store, folder, partitions=2, tables=[declared], batch_of=self._records, **{"members": 2, **keys}
        )
        self.region = self.landing.region
        self._landed: dict[int, list[tuple[int, int, int]]] = {}

    def _records(self, tp: TP, start: int, stop: int) -> Batch:
        """Of a topic made anew they have another name in the value."""
        made = self.landing.topics_made if hasattr(self, "landing") else 0
        batch = records(tp, start, stop)
        at = batch.records.schema.get_field_index("value")
        values = records(TP(f"{tp.topic}#{made}", tp.partition), start, stop).records.column(at)
        return replace(batch, records=batch.records.set_column(at, batch.records.schema.field(at), values))

    @property
    def place(self) -> str:
        """Where the table is, as it is declared."""
        return str(self.path)

    # What the program does

    @property
    def means(self) -> road.Means:
        """With records that Kafka still has."""
        return road.Means(fetch=self.fetch)

    def advance(self, **keys: Any) -> Committed | None:
        return road.advance(self.region, "bronze", means=self.means, **keys)

    def fence(self) -> Table:
        return road.fence(self.region, "bronze", means=self.means)

    def mend(self, checkpoints: Collection[int] = ()) -> Committed | None:
        return road.rewrite(self.region, "bronze", checkpoints, means=self.means)

    def mend_what_is_found(self) -> None:
        """As `crkafka tables mend` does."""
        found = self.look()
        if not found.clean:
            road.mend(self.region, "bronze", found, means=self.means)

    def look(self) -> TableAudit:
        return audit.look(self.region, "bronze")

    def verified(self) -> list[str]:
        """What `crkafka verify` finds in the table."""
        found = Findings()
        in_tables.look(self.region, found)
        return list(map(str, found.kept))

    def maintain(self, target: int) -> None:
        compact.maintain(self.region, "bronze", target=target)

    # What a user does

    def exists(self) -> bool:
        return (self.path / "_delta_log").exists()

    def version(self) -> int:
        return self.delta().version()

    def restore(self, version: int) -> None:
        self.delta().restore(version)

    def vacuum(self) -> None:
        self.delta().vacuum(0, enforce_retention_duration=False, dry_run=False)

    def write_again(self, start: int) -> None:
        """Some rows a second time."""
        write_deltalake(self.delta(), self.delta().to_pyarrow_table().slice(start, 4), mode="append")

    def delta(self) -> DeltaTable:
        return DeltaTable(str(self.path))

    def remove(self) -> None:
        """All of it."""
        shutil.rmtree(self.path)

    def fetch(self, plan: ReadPlan) -> Iterator[tuple[KafkaRange, pa.RecordBatch]]:
        """Of every topic that there was."""
        now = self.landing.topics_made
        for r in plan.ranges:
            self.landing.topics_made = self._landed[r.checkpoint][0][0]
            batch = self._records(TP(r.topic, r.partition), r.start, r.stop).records
            self.landing.topics_made = now
            yield r, batch

    def rows(self) -> list[Row]:
        """Of every row, in order: doubled ones show."""
        read = self.delta().to_pyarrow_table(columns=["partition", "offset"]).to_pylist()
        return sorted((row["partition"], row["offset"]) for row in read)

    def values(self) -> list[str]:
        """Which topic, partition and offset each row is of, told apart also from a topic that was made anew."""
        return sorted(v.decode() for v in self.delta().to_pyarrow_table(columns=["value"]).column(0).to_pylist())

    def land(self, rows: int = 5) -> int:
        """A checkpoint more."""
        landing = self.landing
        head = self.region.plane.read(lambda _, row: row.head)
        start = next(iter(landing.offsets[head].values()))
        number = landing.land(rows)
        self._landed[number] = [(landing.topics_made, start, start + rows)]
        return number

    def truth(self, upto: int | None = None) -> list[str]:
        """The values that the table has to hold: those of the line to the head, or to a checkpoint of it."""
        line = self.region.plane.read(lambda reader, row: reader.line(row.head if upto is None else upto))
        erased = self.region.plane.read(lambda reader, _: {c.id: c.erased for c in reader.select(Checkpoint)})
        return sorted(
            f"orders#{made}:{partition}:{offset}"
            for checkpoint in line
            for made, start, stop in self._landed[checkpoint]
            for partition in range(2)
            for offset in range(start, stop)
            if offset not in erased[checkpoint].get("orders", {}).get(partition, ())
        )

    def table(self) -> Table:
        return self.region.plane.read(lambda reader, row: plane.of(reader, "bronze"))

    def declare(self) -> None:
        self.landing.declare(self.landing.config.tables[0])

    def undeclare(self) -> None:
        self.region.plane.do(lambda tx: plane.undeclare(tx, "bronze"))

    def compact(self) -> None:
        self.delta().optimize.compact()

    def clean_log(self) -> None:
        """As Delta does by itself once `logRetentionDuration` is over."""
        self.delta().alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
        self.delta().create_checkpoint()
        self.delta().cleanup_metadata()

    def backup(self) -> object:
        return copy.deepcopy(self.store._tables)

    def restore_backup(self, rows: Any) -> None:
        """SQL is what it was; whoever held a lease then is gone."""
        self.store._tables.update(copy.deepcopy(rows))
        self.landing.starts += 1
        self.writer_dies()

    def start_restored(self) -> None:
        """`crkafka start --restored rewind`; Kafka and the segments' paths tell what SQL had issued."""
        lost = max(self._landed, default=0)
        seen = restored.Seen(epoch=self.region.plane.read(lambda _, row: row.epoch) + 5, checkpoint=lost, where="Kafka")
        self.region.plane.do(lambda tx: restored.notice(tx, "restored", by="test"))
        self.region.plane.do(lambda tx: restored.rewind(tx, seen, by="test"))

    def writer_dies(self) -> None:
        """Its lease is over; nothing else of it changes."""

        def end(tx: Tx) -> None:
            for lease in tx.select(Lease, ("kind", "=", "writer:bronze")):
                tx.put(replace(lease, until=0.0))

        self.region.plane.do(end)


def upto(*ends: int) -> list[Row]:
    """All rows of both partitions below an offset; with two ends from one to the other."""
    start, stop = (0, ends[0]) if len(ends) == 1 else ends
    return sorted((p, o) for p in range(2) for o in range(start, stop))


STEPS = ["before the links", "after the links", "after making the table", "after the commit"]


def dies_at(step: str) -> Callable[[pytest.MonkeyPatch], None]:
    """The process of a writer dies at this step; it cannot give its permit back either."""

    def dead(*_: Any, **__: Any) -> None:
        raise Crash

    def after(original: Callable[..., Any]) -> Callable[..., Any]:
        def then_dead(*rest: Any, **keys: Any) -> None:
            original(*rest, **keys)
            raise Crash

        return then_dead

    def arm(patch: pytest.MonkeyPatch) -> None:
        give_up = writing.give_up
        patch.setattr(writing, "give_up", lambda *rest: None if isinstance(rest[-1], Crash) else give_up(*rest))
        # Who dies so in a thread of a pool is waited for for ever.
        patch.setattr(ObjectStorage, "each", Storage.each)
        if step == "before the links":
            patch.setattr(files, "adopted", dead)
        elif step == "after the links":
            patch.setattr(Hold, "check", dead)
        elif step == "after making the table":
            patch.setattr(DeltaLog, "create", after(DeltaLog.create))
        else:
            patch.setattr(Snapshot, "commit", after(Snapshot.commit))

    return arm


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)
