"""Typed rows as files of their tables, written by the tasks that read and decode the records: no row goes through Java (SPEC K6).

A task parts its rows, writes a Parquet file for each table, and tells its name and how many rows of each checkpoint are in it. What a
task that Spark started twice has left is named by no commit: it goes with the table's next VACUUM.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from crkafka_core.lake.folder import folder_of
from crkafka_core.segments.rows import File
from crkafka_core.spark.names import CHECKPOINT
from crkafka_core.spark.tasks import Then

ROW_GROUP_BYTES = 32 * 2**20
_TOLD = StructType(
    [
        StructField("output", StringType()),
        StructField("path", StringType()),
        StructField("bytes", LongType()),
        StructField("checkpoint", LongType()),
        StructField("rows", LongType()),
    ]
)


@dataclass(frozen=True)
class Output:
    """Some of the rows, and the table that takes them."""

    name: str
    table: str
    """Its path; empty: the rows are counted, and left out."""
    folder: str
    """Of the table, for the new files."""
    columns: StructType
    take: Callable[[pa.RecordBatch], Mapping[str, pa.Array]]
    """Its rows of a batch, by column; those of the checkpoint's number at least."""


@dataclass
class Made:
    """What tasks have written of one output."""

    files: dict[str, int] = field(default_factory=dict)
    """Path below the table → bytes."""
    counts: Counter[int] = field(default_factory=Counter)
    """Checkpoint → rows."""


def write(
    read: Callable[[Then], DataFrame], first: Then, outputs: Sequence[Output], options: Mapping[str, str]
) -> dict[str, Made]:
    """Each output's files, which nothing commits yet. `first`: what is done with what was read. `options`: for the tables' folders."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return _written(first.run(batches), outputs, options)

    made = {each.name: Made() for each in outputs}
    for row in read(Then(lambda _: _TOLD, run)).collect():
        of = made[row["output"]]
        of.counts[row["checkpoint"]] += row["rows"]
        if row["path"]:
            of.files[row["path"]] = row["bytes"]
    return made


# -- in a task


def _written(
    batches: Iterable[pa.RecordBatch], outputs: Sequence[Output], options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """All rows of a task, in a file for each output that takes any of them; then what was written."""
    files = [_NewFile(each, options) for each in outputs]
    try:
        for batch in batches:
            for file in files:
                file.add(batch)
        told = [row for file in files for row in file.close()]
    except BaseException:
        for file in files:
            file.discard()
        raise
    yield pa.RecordBatch.from_pylist(told, to_arrow_schema(_TOLD))


class _NewFile:
    """The file of one output, begun when it has a row."""

    def __init__(self, output: Output, options: Mapping[str, str]) -> None:
        self._output, self._options = output, options
        self._schema = to_arrow_schema(output.columns)
        self._held: list[pa.RecordBatch] = []
        self._holds = 0
        self._file: File | None = None
        self._counts: Counter[int] = Counter()

    def add(self, batch: pa.RecordBatch) -> None:
        rows = self._output.take(batch)
        numbers = rows[CHECKPOINT].value_counts()
        self._counts.update({each["values"].as_py(): each["counts"].as_py() for each in numbers})
        if not self._output.table or not len(numbers):
            return
        columns = [rows[each.name].cast(each.type) for each in self._schema]
        self._held.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._holds += self._held[-1].nbytes
        if self._holds >= ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            storage = folder_of(self._output.table, self._options)
            self._file = File(storage, f"{self._output.folder}/{uuid.uuid4().hex}.parquet")
        self._file.add(cast(pa.RecordBatch, pa.concat_batches(self._held)))
        self._held, self._holds = [], 0

    def close(self) -> list[dict[str, object]]:
        """Whole and durable; what there is to tell of it."""
        path, size = "", 0
        if self._held:
            self._write()
        if self._file is not None:
            path, size = self._file.path, self._file.close()
        return [
            {"output": self._output.name, "path": path, "bytes": size, "checkpoint": number, "rows": rows}
            for number, rows in self._counts.items()
        ]

    def discard(self) -> None:
        if self._file is not None:
            self._file.discard()
