"""What is in a Delta or Iceberg table, as a program sees it that knows neither Spark nor us: by the format's own files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from deltalake import DeltaTable

TIME = "timestamp"


@dataclass(frozen=True)
class File:
    """One that the current version has."""

    name: str
    rows: int
    first: float
    """The time of its first record, in seconds."""
    last: float


Read = Callable[[Path, str], list[File]]


def of_delta(path: Path, time: str = TIME) -> list[File]:
    """`time`: the column with the record's time."""
    if not (path / "_delta_log" / f"{0:020d}.json").exists():  # Spark makes the folder first
        return []
    table = DeltaTable(str(path))
    if not table.file_uris():
        return []
    files = table.get_add_actions(flatten=True)
    columns = ("path", "num_records", f"min.{time}", f"max.{time}")
    names, rows, oldest, youngest = (files.column(c).to_pylist() for c in columns)
    return [
        File(n, r, a.timestamp(), b.timestamp()) for n, r, a, b in zip(names, rows, oldest, youngest, strict=True) if r
    ]


def of_iceberg(path: Path, time: str = TIME) -> list[File]:
    """The same: metadata, manifests, their entries."""
    hint = path / "metadata" / "version-hint.text"
    if not hint.exists():
        return []
    about = json.loads((path / "metadata" / f"v{hint.read_text()}.metadata.json").read_text())
    at = next((f["id"] for f in about["schemas"][-1]["fields"] if f["name"] == time), None)
    current = [
        s["manifest-list"] for s in about.get("snapshots", ()) if s["snapshot-id"] == about["current-snapshot-id"]
    ]
    entries = (e for each in current for m in _avro(each) for e in _avro(m["manifest_path"]))
    files = (e["data_file"] for e in entries if e["status"] != 2)  # deleted
    return [
        File(f["file_path"], f["record_count"], _bound(f["lower_bounds"], at), _bound(f["upper_bounds"], at))
        for f in files
    ]


def _bound(bounds: Any, at: int | None) -> float:
    return next(int.from_bytes(b["value"], "little") / 1e6 for b in bounds if b["key"] == at)


def _avro(path: str) -> list[Any]:
    with Path(path.removeprefix("file:")).open("rb") as source:
        return list(fastavro.reader(source))


READERS: Mapping[str, Read] = {"delta": of_delta, "iceberg": of_iceberg}


def rows_in(format: str, path: Path) -> int:
    """How many rows are visible."""
    return sum(file.rows for file in READERS[format](path, TIME))
