"""A table of orders for these tests: its files, its stamps, and what each reader sees of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import polars
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from crkafka_core.lake.iceberg.path import PathLog
from crkafka_core.lake.port import Change, DataFile, NewFile, Part, Snapshot, Stamp
from crkafka_core.segments.storage import Storage

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("crkafka_checkpoint", pa.int64()),
    ]
)
UID, TABLE = "uid-1", "orders"
_names = itertools.count()


def stamp(permit: int, checkpoint: int = 0, **keys: Any) -> Stamp:
    return Stamp(**{"uid": UID, "table": TABLE, "permit": permit, "token": permit, "checkpoint": checkpoint} | keys)


class Orders:
    """A table in a folder. A row is its offset; each file has the rows of one checkpoint, unless said otherwise."""

    def __init__(self, folder: Path, *parts: Part, properties: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.log = PathLog(Storage.open(folder))
        self.now: Snapshot = self.log.create(SCHEMA, parts, stamp(1), properties or {})

    def file(self, rows: pa.Table | Iterable[int], checkpoint: int = 1, **values: Any) -> NewFile:
        table = rows if isinstance(rows, pa.Table) else table_of(rows, checkpoint)
        path = f"data/{next(_names):05d}.parquet"
        full = self.folder / path
        full.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, full)
        ends = {
            name: bounds(table.column(name))
            for name in table.column_names
            if not pa.types.is_nested(table.schema.field(name).type)
        }
        return NewFile(
            path,
            full.stat().st_size,
            table.num_rows,
            lowest={name: low for name, (low, _) in ends.items() if low is not None},
            highest={name: high for name, (_, high) in ends.items() if high is not None},
            nulls={name: table.column(name).null_count for name in table.column_names},
            values=values,
        )

    def commit(
        self, add: Sequence[NewFile] = (), remove: Sequence[DataFile] = (), permit: int = 2, **keys: Any
    ) -> Snapshot:
        self.now = self.now.commit(stamp(permit), Change(add, remove, **keys))
        return self.now

    def named(self, *files: NewFile) -> list[DataFile]:
        wanted = {file.path for file in files}
        return [file for file in self.now.files() if file.path in wanted]

    @property
    def metadata(self) -> Path:
        return max(
            (self.folder / "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name.split(".")[0][1:])
        )


def table_of(offsets: Iterable[int], checkpoint: int = 1) -> pa.Table:
    numbers = list(offsets)
    columns = [["t"] * len(numbers), numbers, [n * 1_000_000 for n in numbers], [checkpoint] * len(numbers)]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    values = [value for value in column.to_pylist() if value is not None]
    return (min(values), max(values)) if values else (None, None)


def seen(orders: Orders, column: str = "offset", *, native: bool = True) -> dict[str, list[Any]]:
    """What readers that know nothing of us read, in order."""
    return {
        "pyiceberg": sorted(by_pyiceberg(orders).column(column).to_pylist(), key=_order),
        "duckdb": sorted(by_duckdb(orders).column(column).to_pylist(), key=_order),
        "polars": sorted(by_polars(orders, native).get_column(column).to_list(), key=_order),
    }


def everywhere(*values: Any) -> dict[str, list[Any]]:
    """What `seen` gives where all of them read these."""
    return {reader: list(values) for reader in ("pyiceberg", "duckdb", "polars")}


def by_pyiceberg(orders: Orders) -> pa.Table:
    return StaticTable.from_metadata(str(orders.metadata)).scan().to_arrow()


def by_duckdb(orders: Orders, what: str = "*") -> pa.Table:
    with duckdb.connect() as connection:
        for package in (duckdb_extension_avro, duckdb_extension_iceberg):  # as pip brings them, without INSTALL
            (extension,) = Path(package.__path__[0]).rglob("*.duckdb_extension")
            connection.execute(f"LOAD '{extension}'")
        return connection.execute(f"SELECT {what} FROM iceberg_scan('{orders.folder}')").to_arrow_table()


def by_polars(orders: Orders, native: bool = True) -> polars.DataFrame:
    """`native`: by its own reader of Parquet, and not by way of pyiceberg."""
    return polars.scan_iceberg(str(orders.metadata), reader_override="native" if native else "pyiceberg").collect()


def _order(value: Any) -> tuple[bool, Any]:
    return value is None, value


def in_spark(spark: SparkSession, orders: Orders) -> str:
    """The table's name in a Hadoop catalog over its folder."""
    name = f"c{abs(hash(orders.folder.parent))}"
    key = f"spark.sql.catalog.{name}"
    for setting, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".cache-enabled": "false",
    }.items():
        spark.conf.set(key + setting, value)
    spark.conf.set(f"{key}.warehouse", str(orders.folder.parent))
    return f"{name}.{orders.folder.name}"


def by_spark(spark: SparkSession, orders: Orders, column: str = "offset") -> list[Any]:
    return sorted((row[0] for row in spark.table(in_spark(spark, orders)).select(column).collect()), key=_order)
