"""A region with one raw Delta table, without Kafka and without Spark, and what a user does to the table with deltalake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint
from crkafka_core.plane import tables as plane
from crkafka_core.plane.reading import KafkaRange, ReadPlan
from crkafka_core.segments.batch import Batch
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.lake.rig import Rig
from tests.rigs.landing import records

Row = tuple[int, int]
"""Partition and offset."""


class Lake(Rig):
    """Each value tells also of which topic of this name it is, where one was made anew."""

    def __init__(self, folder: Path, **keys: object) -> None:
        self._made: dict[int, int] = {}
        """Checkpoint → how often topics had been made anew."""
        super().__init__(folder, batch_of=self._records, **keys)

    def _records(self, tp: TP, start: int, stop: int) -> Batch:
        made = self.landing.topics_made if hasattr(self, "landing") else 0
        return self._of(made, tp, start, stop)

    def _of(self, made: int, tp: TP, start: int, stop: int) -> Batch:
        batch = records(tp, start, stop)
        at = batch.records.schema.get_field_index("value")
        values = records(TP(f"{tp.topic}#{made}", tp.partition), start, stop).records.column(at)
        return replace(batch, records=batch.records.set_column(at, batch.records.schema.field(at), values))

    # What the program does

    def verified(self) -> list[str]:
        """What `crkafka verify` finds in the table."""
        findings = Findings()
        in_tables.look(self.region, findings)
        return list(map(str, findings.kept))

    def fetch(self, plan: ReadPlan) -> Iterator[tuple[KafkaRange, pa.RecordBatch]]:
        """Of every topic that there was."""
        for r in plan.ranges:
            yield r, self._of(self._made[r.checkpoint], TP(r.topic, r.partition), r.start, r.stop).records

    def land(self, rows: int = 5, quiet: object = ()) -> int:
        number = super().land(rows)
        self._made[number] = self.landing.topics_made
        return number

    def declare(self) -> None:
        self.landing.declare(self.landing.config.tables[0])

    def undeclare(self) -> None:
        self.region.plane.do(lambda tx: plane.undeclare(tx, "bronze"))

    def values_due(self) -> list[str]:
        line = self.region.plane.read(lambda reader, row: reader.line(row.head))
        erased = self.region.plane.read(lambda reader, _: {c.id: c.erased for c in reader.select(Checkpoint)})
        return sorted(
            f"orders#{self._made[checkpoint]}:{partition}:{offset}"
            for checkpoint in line
            for partition, start, stop in self.landed[checkpoint]
            for offset in range(start, stop)
            if offset not in erased[checkpoint].get("orders", {}).get(partition, ())
        )

    # What a user does

    def delta(self) -> DeltaTable:
        return DeltaTable(str(self.path))

    def vacuum(self) -> None:
        self.delta().vacuum(0, enforce_retention_duration=False, dry_run=False)

    def write_again(self, start: int) -> None:
        write_deltalake(self.delta(), self.delta().to_pyarrow_table().slice(start, 4), mode="append")

    def places(self) -> list[Row]:
        """Partition and offset of every row, in order: doubled ones show."""
        return sorted((partition, offset) for _, partition, offset in self.rows())

    def values(self) -> list[str]:
        return sorted(v.decode() for v in self.delta().to_pyarrow_table(columns=["value"]).column(0).to_pylist())


def upto(*ends: int) -> list[Row]:
    """All rows of both partitions below an offset; with two ends from one to the other."""
    start, stop = (0, ends[0]) if len(ends) == 1 else ends
    return sorted((p, o) for p in range(2) for o in range(start, stop))


def filled(lake: Lake, checkpoints: int, rows: int = 5) -> None:
    for _ in range(checkpoints):
        lake.land(rows), lake.advance()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)
