"""Shapes on DataFrames: functions of a user's program that make a table's rows of a checkpoint's (SPEC K6).

Spark runs the function, and its tasks write the files as a host's pool does; nothing here commits. Files of a failed task are in the
folder of its permit, and never referenced.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from crkafka_core.config import RegionConfig
from crkafka_core.config.location import in_catalog
from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import DEAD, GOOD
from crkafka_core.decode.batch import BadRecord
from crkafka_core.decode.registry import RegistryAway
from crkafka_core.lake import formats
from crkafka_core.lake.formats import folder_of
from crkafka_core.lake.new_files import NewFiles, Output
from crkafka_core.lake.port import NewFile
from crkafka_core.lake.road import Means
from crkafka_core.lake.transform import load, numbered
from crkafka_core.lake.worker import Made
from crkafka_core.model.errors import ConfigError, DataLoss, Refused
from crkafka_core.model.rows import Table
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.segments.storage import Storage
from crkafka_core.spark import frames, shipping
from crkafka_core.spark.decode import WAS_NULL, Decoded, one_pass, without_null_lists
from crkafka_core.spark.schema import CHECKPOINT, ROWS

Shape = Callable[[DataFrame], DataFrame | Decoded | Mapping[str, DataFrame]]
"""A function from a checkpoint's rows to a table's, row by row, which keeps the column `crkafka_checkpoint`.

Several outputs, by name, are several tables: each row has to be in exactly one.
"""


def means(spark: SparkSession | None) -> Means:
    """The means to write tables with this session, or without one."""
    return Means(frames=None if spark is None else partial(FrameShape, spark))


class FrameShape:
    """The `Maker` of files of one shape, for the records of one pass."""

    def __init__(
        self,
        spark: SparkSession,
        config: RegionConfig,
        table: TableConfig,
        plan: ReadPlan | None,
        taken: Mapping[str, Table],
    ) -> None:
        """`taken`: output → its table."""
        self._spark, self._config, self._table, self._plan, self._taken = spark, config, table, plan, taken
        self._shape: Shape = load(table.shape or "", table.name)

    def schemas(self) -> Mapping[str, pa.Schema]:
        return {name: _columns(frame) for name, frame in self._run()[0].items()}

    def make(self, outputs: Mapping[str, Output], check: Callable[[], object]) -> Made:
        made = Made()
        with one_pass(), _own_errors(self._table.name):
            rows, skipped = self._run()
            for name, frame in rows.items():
                check()
                files, made.rows[name] = self._written(frame, name, outputs.get(name))
                made.files |= {name: files} if name in outputs else {}
            if skipped is not None:
                _, made.rows[DEAD] = self._written(skipped, DEAD, None)
            check()
        return made

    def _run(self) -> tuple[Mapping[str, DataFrame], DataFrame | None]:
        """The rows of each output, and skipped records, which are only counted."""
        plan, spark = self._plan, self._spark
        given = self._shape(
            spark.createDataFrame([], ROWS)
            if plan is None
            else frames.from_plan(spark, self._config, plan, counted=True)
        )
        skipped = given.skipped if isinstance(given, Decoded) else None
        if isinstance(given, Decoded):
            keeps = given.on_bad_record == "dead_letter" or DEAD in self._taken
            given = {GOOD: given.good, DEAD: given.dead} if keeps else {GOOD: given.good}
        rows = given if isinstance(given, Mapping) else {GOOD: given}
        for name, frame in rows.items():
            if CHECKPOINT not in frame.columns:
                raise ConfigError(
                    f"What the shape {self._table.shape} gives as {name} has no column {CHECKPOINT}: rows could not be told apart by "
                    "checkpoint.",
                    hint="Keep that column.",
                )
        return rows, skipped

    def _written(self, frame: DataFrame, name: str, output: Output | None) -> tuple[list[NewFile], Counter[int]]:
        """Files of the rows, and their numbers by checkpoint; without an output the rows are only counted."""
        shipping.ship(self._spark)
        target = None
        if output is not None:
            target = _Target(self._config.to_json(), self._taken[name], replace(output, storage=cast(Storage, None)))
        rows, lists = without_null_lists(frame)
        tasks = rows.mapInArrow(partial(_write, numbered(_columns(frame)), lists, target), "made binary")
        files: list[NewFile] = []
        counts = Counter[int]()
        for row in tasks.collect():
            made, rows_of_each = pickle.loads(row[0])
            files += made
            counts.update(rows_of_each)
        return files, counts


def _columns(frame: DataFrame) -> pa.Schema:
    """Columns of an output's table, without the checkpoint's number."""
    return to_arrow_schema(StructType([f for f in frame.schema if f.name != CHECKPOINT]).toNullable())


# In tasks


@dataclass(frozen=True)
class _Target:
    """The table that a task writes to. References of the configuration are resolved in the task (SPEC U2)."""

    config: str
    table: Table
    without_storage: Output

    def output(self) -> Output:
        config = RegionConfig.from_json(self.config)
        if in_catalog(self.table.path):
            storage = formats.opened(config, self.table).storage
        else:  # an executor may lack the packages that read the log
            storage = folder_of(self.table.path, config.resolve().storage_options)
        return replace(self.without_storage, storage=storage)


def _write(
    columns: pa.Schema, lists: Sequence[str], target: _Target | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task. Its files and the number of rows of each checkpoint, pickled."""
    files = NewFiles(None if target is None else target.output(), columns)
    try:
        for batch in batches:
            for name in lists:
                null, at = batch.column(WAS_NULL + name), batch.schema.get_field_index(name)
                batch = batch.set_column(at, name, pc.if_else(null, None, batch.column(name)))
            files.add_numbered(batch.select(columns.names).cast(columns))
        files.close()
    except BaseException:
        files.discard()
        raise
    yield pa.record_batch([pa.array([pickle.dumps((files.made, files.rows))])], names=["made"])


_OURS = {kind.__name__: kind for kind in (BadRecord, RegistryAway, ConfigError, DataLoss, Refused)}


@contextmanager
def _own_errors(table: str) -> Iterator[None]:
    """Raise the error of a task of ours, which Spark puts between two stack traces."""
    try:
        yield
    except PySparkException as error:
        raised = re.search(rf"crkafka_core\.\w+\.\w+\.({'|'.join(_OURS)}): (.*)", str(error))
        if raised is None:
            raise
        raise _OURS[raised[1]](f"Table {table}: {raised[2].strip()}") from error
