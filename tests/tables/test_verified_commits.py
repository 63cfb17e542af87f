"""`crkafka verify` counts what each commit wrote of rows that a program makes, and asks of decoded ones what was written (SPEC K6).

The tables' files are made by hand, without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from crkafka_core.lake.handle import Opened
from crkafka_core.plane import permits
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.rigs.configs import configured
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore


class Made:
    def __init__(self, folder: Path, **declared: Any) -> None:
        (folder / "order.json").write_text(
            json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}), encoding="utf-8"
        )
        self.folder = folder
        rows = {} if "typed" in declared else {"shape": "shop.rows:some"}
        self.table = {"name": "t", "format": "delta", "path": str(folder / "t"), **rows, **declared}
        self.landing = Landing(MemoryStore(), folder, partitions=1, members=1, tables=[self.table])

    def commit(self, rows: Mapping[int, pa.Table], *, again: Sequence[int] | None = None, bad: int = 0) -> int:
        """Rows of some checkpoints, with what comes next or `again`; the number of the commit."""
        plane = self.landing.region.plane
        permit = plane.do(lambda tx: permits.permit_commit(tx, "t", holder="h", token="", ids=again))
        assert permit is not None
        number = permit.commit.number
        version = 0
        for checkpoint, count in rows.items():
            version = self.write(number, checkpoint, count)
        row_counts = {checkpoint: count.num_rows for checkpoint, count in rows.items()}
        plane.do(
            lambda tx: permits.finish_commit(
                tx,
                permit,
                version=str(version),
                rows=sum(row_counts.values()),
                counts=row_counts,
                bad={permit.commit.upto: bad},
            )
        )
        return number

    def write(self, number: int, checkpoint: int, rows: pa.Table) -> int:
        """In place of what the commit wrote of the checkpoint; the table's version."""
        stamp = json.dumps({"crkafka": {"uid": self.landing.uid, "table": "t", "number": number, "token": 0}})
        with_number = rows.append_column("crkafka_checkpoint", pa.array([checkpoint] * rows.num_rows, pa.int64()))
        write_deltalake(
            self.table["path"],
            with_number,
            mode="overwrite",
            predicate=f"crkafka_checkpoint = {checkpoint}" if DeltaTable.is_deltatable(self.table["path"]) else None,
            commit_properties=CommitProperties(custom_metadata={"userMetadata": stamp}),
        )
        return DeltaTable(self.table["path"]).version()

    def findings(self, **changes: Any) -> Findings:
        """What is found; `changes`: of the table, in today's configuration."""
        findings = Findings()
        in_tables.look(self.opened([{**self.table, **changes}]), findings)
        return findings

    def opened(self, tables: list[dict[str, Any]]) -> Opened:
        return Opened(configured(self.folder, tables=tables), self.landing.region.plane)


def some(rows: int) -> pa.Table:
    """Made by a program: nothing tells their records."""
    return pa.table({"x": list(range(rows))})


def decoded(*offsets: int) -> pa.Table:
    count = len(offsets)
    return pa.table(
        {"kafka_topic": ["orders"] * count, "kafka_partition": [0] * count, "kafka_offset": offsets, "a": [1] * count}
    )


def texts(findings: Findings) -> list[str]:
    assert not findings.notes, findings.notes
    return list(map(str, findings.kept))


def test_a_commit_over_a_checkpoint_without_rows_is_counted(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.landing.land(5), made.landing.land(0)
    number = made.commit({1: some(10)})
    assert texts(made.findings()) == []
    made.write(number, 1, some(7))
    assert texts(made.findings()) == [
        "K6: table t: 7 rows of what commit 1 wrote; it had 10 when it was acknowledged (checkpoint 1)"
    ]


def test_of_a_commit_of_which_a_part_was_written_again_the_rest_is_counted(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.landing.land(5, times=3)
    number = made.commit({1: some(10), 2: some(10), 3: some(10)})
    made.commit({2: some(9)}, again=[2])
    assert not made.findings().kept
    made.write(number, 3, some(7))
    assert texts(made.findings()) == [
        "K6: table t: 7 rows of what commit 1 wrote; it had 10 when it was acknowledged (checkpoint 3)"
    ]
    made.write(2, 2, some(8))
    assert "8 rows of what commit 2 wrote; it had 9" in str(made.findings().kept)


TYPED = {"typed": {"json": "order.json"}}


def test_what_was_skipped_is_not_missing_once_a_bad_record_stops_the_table(tmp_path: Path) -> None:
    made = Made(tmp_path, **TYPED, on_bad_record="skip")
    made.landing.land(5, times=2)
    number = made.commit({1: decoded(0, 1, 2, 4), 2: decoded(5, 6, 7, 8, 9)}, bad=1)
    for today in ("skip", "stop"):
        assert texts(made.findings(on_bad_record=today)) == []
    made.write(number, 2, decoded(5, 6, 8, 9))
    lost = "4 rows of what commit 1 wrote; it had 5"
    for today in ("skip", "stop"):
        findings = texts(made.findings(on_bad_record=today))
        assert any(lost in each for each in findings), findings
        assert any("4 of 5 records are there (checkpoint 2, orders[0], offset 7)" in each for each in findings)


def test_a_typed_table_that_is_not_in_the_configuration_any_more_is_noted_and_not_compared(tmp_path: Path) -> None:
    made = Made(tmp_path, **TYPED, topics=["orders"], on_bad_record="stop")
    made.landing.land(5)
    made.commit({1: decoded(0, 1, 2, 4)})
    findings = Findings()
    assert in_tables.look(made.opened([]), findings) == ()
    assert not findings.kept
    assert findings.notes == [
        "table t: t is not in the configuration any more, which says of which records and keys its rows are; they were not compared"
    ]
