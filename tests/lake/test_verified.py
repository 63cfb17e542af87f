"""`crkafka verify` reads typed tables, tables by key and tables of a program, in Delta and Iceberg, and names a row that is doubled,
missing or superseded; and tells what of an Iceberg table it cannot read (SPEC K6). Raw Delta: tests/tables/test_verified.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable as Reader

from crkafka_core.lake import road
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.port import CHECKPOINT
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.lake.rig import Iceberg, Rig, Typed, TypedIceberg, keyed_records, pool
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore


def look(region: Handle) -> Findings:
    found = Findings()
    in_tables.look(region, found)
    return found


def verified(region: Handle) -> list[str]:
    found = look(region)
    assert not found.notes, found.notes
    return list(map(str, found.kept))


class Others:
    """A table as a program sees and changes it that knows nothing of us."""

    def __init__(self, path: Path) -> None:
        self._table = Iceberg.__new__(Iceberg) if (path / "metadata").exists() else Rig.__new__(Rig)
        self._table.path = path

    def rows(self, **where: Any) -> pa.Table:
        if isinstance(self._table, Iceberg):
            rows = self._table._read()
        else:
            frame = polars.scan_delta(str(self._table.path)).collect()
            rows = frame.to_arrow(compat_level=polars.CompatLevel.oldest())
        return rows.filter(self._matches(rows, where))

    def insert(self, rows: pa.Table) -> None:
        assert rows.num_rows == 1
        self._table.insert(rows)

    def delete(self, **where: Any) -> None:
        if isinstance(self._table, Iceberg):
            rows = self.rows()
            self._table._write(rows.filter(pc.invert(self._matches(rows, where))), removing=True)
        else:
            Reader(str(self._table.path)).delete(" AND ".join(f"{name} = {value}" for name, value in where.items()))

    @staticmethod
    def _matches(rows: pa.Table, where: dict[str, Any]) -> pa.Array:
        matches = pa.array([True] * rows.num_rows)
        for name, value in where.items():
            matches = pc.and_(matches, pc.equal(rows[name].combine_chunks(), value))
        return matches


def landed(rig: Rig, times: int) -> None:
    for _ in range(times):
        rig.land(10), rig.advance()
    assert verified(rig.region) == []


BOTH = pytest.mark.parametrize(("kind", "format"), [(Typed, "delta"), (TypedIceberg, "iceberg")])


@BOTH
def test_of_a_typed_table_and_its_dead_letters(tmp_path: Path, kind: type[Typed], format: str) -> None:
    """One record is gone, one is doubled, one is in both tables, and one of before the rewind is back."""
    rig = kind(tmp_path, {"format": format})
    landed(rig, 3)
    good, dead = Others(rig.path), Others(rig.path.with_name("bronze_dead"))
    superseded = good.rows(kafka_partition=1, kafka_offset=22)
    rig.rewind(2), rig.fence()
    assert verified(rig.region) == []
    good.insert(good.rows(kafka_partition=0, kafka_offset=4))
    good.delete(kafka_partition=0, kafka_offset=2)
    dead.insert(dead.rows(partition=1, offset=13))
    good.insert(superseded)
    found = verified(rig.region)
    both = "K6: tables bronze, bronze_dead:"
    assert any(each.startswith("K6: table bronze: ") and "commits of another program" in each for each in found), found
    assert f"{both} 1 record is there more than once (checkpoint 1, orders[0], offset 4)" in found
    assert f"{both} 9 of 10 records are there (checkpoint 1, orders[0], offset 2)" in found
    assert f"{both} 1 record is there more than once (checkpoint 2, orders[1], offset 13)" in found
    assert look(rig.region).counts["K6"] == 7, "the superseded row, and one dead letter more than a commit wrote, too"


@BOTH
def test_of_a_table_by_key(tmp_path: Path, kind: type[Typed], format: str) -> None:
    """The last record of each key, unless it is a tombstone; a bad one leaves the row of its key."""
    rig = kind(tmp_path, {"format": format, "mode": "upsert"}, batch_of=keyed_records)
    landed(rig, 2)
    table = Others(rig.path)
    replaced = table.rows(kafka_key=b"1-0")
    landed(rig, 1)
    assert (replaced["kafka_offset"].to_pylist(), table.rows(kafka_key=b"1-0")["kafka_offset"].to_pylist()) == (
        [14],
        [28],
    )
    table.insert(replaced)
    table.delete(kafka_partition=0, kafka_offset=29)
    found = verified(rig.region)
    assert "K6: table bronze: 1 key has more than one row (offset 28)" in found
    assert "K6: table bronze: a later record of its key replaced it, or deleted it (orders[1], offset 14)" in found
    gone = "the last record of its key has no row (checkpoint 3, orders[0], offset 29)"
    assert any(gone in each for each in found), found


def test_of_a_table_by_key_that_skips_records_the_rest_is_compared(tmp_path: Path) -> None:
    """Which record of a key is its last is unknown, since some were skipped."""
    rig = Typed(tmp_path, {"mode": "upsert", "on_bad_record": "skip"}, batch_of=keyed_records)
    rig.land(10), rig.advance()
    table = Others(rig.path)
    table.insert(table.rows(kafka_key=b"0-0"))
    found = look(rig.region)
    assert any("1 key has more than one row" in str(each) for each in found.kept)
    assert [note.partition(",")[0] for note in found.notes] == ["table bronze: records were left out"]


def evens(records: pa.RecordBatch) -> pa.RecordBatch:
    return halves(records)["good"].select(["offset"])


def halves(records: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
    odd = pc.equal(pc.bit_wise_and(records["offset"], 1), 1)
    return {"good": records.filter(pc.invert(odd)), "odd": records.select(["value"]).filter(odd)}


def latest(records: pa.RecordBatch) -> pa.RecordBatch:
    offsets = records["offset"].to_numpy()
    columns = {"id": pa.array(offsets % 3), "crkafka_deleted": pa.array(offsets % 5 == 4)}
    return pa.RecordBatch.from_pydict({"partition": records["partition"], "offset": records["offset"], **columns})


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_of_tables_of_a_program(tmp_path: Path, format: str) -> None:
    """The rows of each commit are as many as it wrote; those of all outputs together as many as were merged."""
    declared = [
        {"name": "even", "shape": "evens"},
        {"name": "good", "shape": "halves"},
        {"name": "odd", "shape": "halves", "output": "odd"},
        {"name": "last", "shape": "latest", "mode": "upsert", "keys": ["id"]},
    ]
    tables = [
        {**t, "format": format, "path": str(tmp_path / t["name"]), "shape": f"arrow:{__name__}:{t['shape']}"}  # type: ignore[operator]
        for t in declared
    ]
    landing = Landing(MemoryStore(), tmp_path, partitions=2, members=1, tables=tables)
    for _ in range(2):
        landing.land(10)
        for name in ("even", "good", "last"):
            road.advance(landing.region, name, means=road.Means(pool=pool()))
    assert verified(landing.region) == []
    even, last = Others(tmp_path / "even"), Others(tmp_path / "last")
    last.insert(last.rows().slice(0, 1))
    assert any("table last: 1 key has more than one row" in each for each in verified(landing.region))
    even.insert(even.rows(**{CHECKPOINT: 2}).slice(0, 1))
    Others(tmp_path / "odd").delete(**{CHECKPOINT: 1})
    found = "\n".join(verified(landing.region))
    assert "table even: 11 rows of what commit 2 wrote; it had 10 when it was acknowledged" in found
    assert "tables good, odd: 10 rows, and 20 were merged (checkpoint 1)" in found


@pytest.fixture
def raw(tmp_path: Path) -> Iceberg:
    rig = Iceberg(tmp_path, {"format": "iceberg"})
    landed(rig, 1)
    return rig


def newest(table: Path) -> Path:
    return max(table.glob("metadata/v*.metadata.json"), key=lambda file: int(file.name[1:].partition(".")[0]))


def test_a_lost_iceberg_table_is_reported(raw: Iceberg) -> None:
    raw.path.rename(raw.path.with_name("elsewhere"))
    assert "K6: table bronze: it is not there, and version 2 was acknowledged" in verified(raw.region)


def test_a_file_that_is_lost_or_damaged_is_reported_by_its_name(raw: Iceberg) -> None:
    metadata = json.loads(newest(raw.path).read_text())
    lists = next(
        s["manifest-list"] for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"]
    )
    files = [
        raw.path / "metadata" / Path(lists).name,
        *raw.path.glob("metadata/*-m0.avro"),
        *raw.path.rglob("*.parquet"),
    ]
    for file in (newest(raw.path), *files):
        whole = file.read_bytes()
        for damaged in (b"", whole[: len(whole) // 2]):
            file.write_bytes(damaged)
            found = look(raw.region)
            assert any(f"{file.name} cannot be read" in str(each) for each in found.kept), (file, found.kept)
        file.write_bytes(whole)
    assert verified(raw.region) == []
    files[-1].unlink()
    assert any(files[-1].name in each for each in verified(raw.region))


@pytest.mark.parametrize("version", [1, 4])
def test_another_version_of_icebergs_format_is_not_compared(raw: Iceberg, version: int) -> None:
    file = newest(raw.path)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format-version": version}))
    (note,) = look(raw.region).notes
    assert f"version {version} of Iceberg's format is not read here" in note


def test_an_iceberg_table_without_the_library_of_its_manifests_is_not_compared(
    raw: Iceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    assert any('pip install "crkafka[iceberg]"' in note for note in look(raw.region).notes)


def test_a_table_of_others_at_the_path_is_not_compared(tmp_path: Path) -> None:
    rig = Iceberg(tmp_path, {"format": "iceberg"})
    rows = pa.table({name: ["a"] for name in ("topic", "partition", "offset")})
    rig.make_empty(rows.schema)
    rig.insert(rows)
    assert any("lacks columns that tell its rows" in note for note in look(rig.region).notes)
