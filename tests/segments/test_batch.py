"""Batches: runs, skipping, splitting (SPEC M2, M3, V2)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from crkafka_core.model.offsets import TP
from crkafka_core.segments import rows
from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch, Run
from crkafka_core.segments.scan import BATCH_BYTES
from crkafka_core.segments.storage import Storage

A0, A1, B0 = TP("a", 0), TP("a", 1), TP("b", 0)


def make(*parts: tuple[TP, list[int]]) -> Batch:
    rows = [(tp, offset) for tp, offsets in parts for offset in offsets]
    columns = [
        pa.array([None] * len(rows), pa.binary()),
        pa.array([f"{tp}@{offset}".encode() for tp, offset in rows], pa.binary()),
        pa.array([tp.topic for tp, _ in rows], pa.string()),
        pa.array([tp.partition for tp, _ in rows], pa.int32()),
        pa.array([offset for _, offset in rows], pa.int64()),
        pa.array([0] * len(rows), SCHEMA.field("timestamp").type),
        pa.array([0] * len(rows), pa.int32()),
        pa.nulls(len(rows), HEADERS),
    ]
    runs, at = [], 0
    for tp, offsets in parts:
        runs.append(Run(tp, at, at + len(offsets), offsets[0], offsets[-1] + 1))
        at += len(offsets)
    return Batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), tuple(runs))


def values(batch: Batch) -> list[str]:
    """What would be written, in order."""
    return [value.decode() for piece in batch.pieces() for value in piece.column("value").to_pylist()]


def firsts(batch: Batch) -> dict[TP, int]:
    """Per partition the offset of its first record here."""
    return {run.tp: run.first for run in reversed(batch.runs)}


def test_a_batch_tells_rows_offsets_and_partitions() -> None:
    batch = make((A0, [5, 6, 9]), (B0, [1]), (A0, [10]))
    assert batch.rows == 5
    assert batch.offsets() == {A0: 11, B0: 2}
    assert firsts(batch) == {A0: 5, B0: 1}
    assert batch.tps == {A0, B0}
    assert len(batch.pieces()) == 1, "runs that touch are one slice"


def test_dropping_a_partition_leaves_the_others_in_order_without_a_copy() -> None:
    batch = make((A0, [5, 6]), (B0, [1]), (A1, [3]))
    kept = batch.only([A0, A1])
    assert values(kept) == ["a[0]@5", "a[0]@6", "a[1]@3"]
    assert kept.records is batch.records
    assert kept.rows == 3
    assert 0 < kept.nbytes < batch.nbytes
    assert batch.only([A0, A1, B0]) is batch


def test_skipping_below_drops_whole_and_part_of_runs_also_between_offsets_that_exist() -> None:
    batch = make((A0, [5, 6, 9]), (B0, [1, 2]))
    assert values(batch.skip_below({A0: 7})) == ["a[0]@9", "b[0]@1", "b[0]@2"]
    assert firsts(batch.skip_below({A0: 7}))[A0] == 9
    assert values(batch.skip_below({B0: 3})) == ["a[0]@5", "a[0]@6", "a[0]@9"]
    assert batch.skip_below({A0: 5, B0: 0}) is batch
    assert batch.skip_below({A0: 100, B0: 100}).rows == 0


def test_splitting_inside_a_run_gives_offsets_to_both_sides() -> None:
    batch = make((A0, [5, 6, 9]), (B0, [1, 2]))
    before, after = batch.head(2)
    assert (before.offsets(), after.offsets()) == ({A0: 7}, {A0: 10, B0: 3})
    assert firsts(after) == {A0: 9, B0: 1}
    assert batch.head(5)[1].runs == ()
    assert batch.head(0)[0].runs == ()


parts = st.lists(
    st.tuples(
        st.sampled_from([A0, A1, B0]), st.lists(st.integers(0, 50), min_size=1, max_size=6, unique=True).map(sorted)
    ),
    min_size=1,
    max_size=5,
)


@given(parts, st.integers(0, 40))
def test_head_and_rest_together_are_the_batch(runs: list[tuple[TP, list[int]]], rows: int) -> None:
    batch = make(*runs)
    before, after = batch.head(rows)
    assert before.rows == min(rows, batch.rows)
    assert values(before) + values(after) == values(batch)


@given(parts, st.integers(0, 60), st.integers(0, 40))
def test_skipping_equals_filtering_also_after_a_split(runs: list[tuple[TP, list[int]]], least: int, rows: int) -> None:
    kept = make(*runs).head(rows)[1].skip_below({A0: least})
    rest = [(tp, o) for tp, offsets in runs for o in offsets][rows:]
    wanted = [f"{tp}@{o}" for tp, o in rest if tp != A0 or o >= least]
    assert values(kept) == wanted
    for run in kept.runs:
        at = np.asarray(kept.records.column("offset"))[run.start : run.stop]
        assert (run.first, run.next) == (at[0], at[-1] + 1)


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    assert SCHEMA.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert all(field.nullable for field in SCHEMA)


def test_a_batch_of_large_rows_is_bounded_by_its_bytes(tmp_path: Path) -> None:
    """A small file of rows that shrink well came as one batch of gigabytes; of two such, `maintain` made none at all."""
    values = pa.array([b"a" * 500_000] * 60, pa.binary())
    pq.write_table(pa.table({"value": values}), tmp_path / "wide.parquet", use_dictionary=False)
    pieces = list(rows.batches(Storage.open(str(tmp_path)), "wide.parquet", ["value"], only=True))
    assert sum(batch.num_rows for batch in pieces) == 60
    assert max(batch.nbytes for batch in pieces) <= BATCH_BYTES
