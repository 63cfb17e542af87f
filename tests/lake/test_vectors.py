"""Deletion vectors that we write into a Delta table are read by programs that know nothing of us (docs/clients.md C-P21)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from crkafka_core.lake import vectors

KEPT = [1, 2, 5, 6, 7, 8, 20, 22, 23]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return made(tmp_path / "t")


def made(folder: Path) -> Path:
    """Ten rows and four, in two files, of which five are marked."""
    for rows in (range(10), range(20, 24)):
        write_deltalake(
            folder, pa.table({"n": list(rows)}), mode="append", configuration={"delta.enableDeletionVectors": "true"}
        )
    mark(folder, {0: [0, 3, 4, 9], 20: [1]})
    return folder


def mark(folder: Path, marks: Mapping[int, Sequence[int]]) -> None:
    """By the lowest value of each file."""
    adds = {}
    for file in sorted((folder / "_delta_log").glob("*.json")):
        for action in map(json.loads, file.read_text().splitlines()):
            if add := action.get("add"):
                adds[json.loads(add["stats"])["minValues"]["n"]] = add
    name, content, described = vectors.delta_file([*marks.values()])
    (folder / name).write_bytes(content)
    actions: list[dict[str, Any]] = [{"commitInfo": {"operation": "DELETE", "timestamp": 0}}]
    for lowest, vector in zip(marks, described, strict=True):
        add = adds[lowest]
        stats = json.dumps({**json.loads(add["stats"]), "tightBounds": False})
        before = {"deletionVector": add["deletionVector"]} if add.get("deletionVector") else {}
        gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, "size": add["size"], **before}
        actions += [
            {"remove": {**gone, "extendedFileMetadata": True, "partitionValues": {}}},
            {"add": {**add, "stats": stats, "dataChange": True, "deletionVector": vector}},
        ]
    number = len([*(folder / "_delta_log").glob("*.json")])
    text = "\n".join(map(json.dumps, actions))
    (folder / "_delta_log" / f"{number:020d}.json").write_text(text)


def test_deltalake_duckdb_and_polars_read_them(table: Path) -> None:
    rows = QueryBuilder().register("t", DeltaTable(table)).execute("SELECT n FROM t ORDER BY n").read_all()
    assert pa.table(rows).column("n").to_pylist() == KEPT
    (extension,) = Path(duckdb_extension_delta.__path__[0]).rglob("*.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        found = connection.execute(f"SELECT n FROM delta_scan('{table}') ORDER BY n").fetchall()
    assert [row[0] for row in found] == KEPT
    assert sorted(polars.scan_delta(str(table)).collect().get_column("n").to_list()) == KEPT


def test_a_vector_is_what_it_was_written_for(table: Path) -> None:
    numbers = [0, 1, 65_536, 1 << 33]
    assert vectors.parsed(vectors.blob(numbers)).tolist() == numbers
    name, content, (one, other) = vectors.delta_file([numbers, [5]])
    files = {name: content}
    assert vectors.delta_vector(one, files.__getitem__).tolist() == numbers
    assert vectors.delta_vector(other, files.__getitem__).tolist() == [5]
    damaged = bytearray(vectors.blob(numbers))
    damaged[-6] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        vectors.parsed(bytes(damaged))
