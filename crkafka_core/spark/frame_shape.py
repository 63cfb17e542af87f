"""Shapes on DataFrames: functions of a user's program that make a table's rows of a checkpoint's (SPEC K6).

Spark runs the function and makes the files; nothing here commits. Tasks write the rows as the pool of a host does, so that bounds and
counts are the writer's own. What a failed task leaves lies in the folder of its permit, and is never referenced.
"""

from __future__ import annotations

import importlib
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from crkafka_core.config import RegionConfig
from crkafka_core.config.location import in_catalog
from crkafka_core.config.sections import GOOD, TableConfig
from crkafka_core.config.typed import DEAD
from crkafka_core.decode.batch import BadRecord
from crkafka_core.decode.registry import RegistryAway
from crkafka_core.lake import formats
from crkafka_core.lake.folder import folder_of
from crkafka_core.lake.new_files import NewFiles, Output
from crkafka_core.lake.port import NewFile
from crkafka_core.lake.road import Means
from crkafka_core.lake.transform import numbered
from crkafka_core.lake.worker import Made
from crkafka_core.model.errors import ConfigError, DataLoss, Refused
from crkafka_core.model.rows import Table
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.segments.storage import Storage
from crkafka_core.spark import frames, shipping
from crkafka_core.spark.decode import WAS_NULL, Decoded, one_pass, without_null_lists
from crkafka_core.spark.schema import CHECKPOINT, no_records

Shape = Callable[[DataFrame], DataFrame | Decoded | Mapping[str, DataFrame]]
"""Makes a table's rows of a checkpoint's, row by row, and keeps the column `crkafka_checkpoint`. Several outputs, by their names,
are several tables: each row has to be in exactly one of them."""


def means(spark: SparkSession | None) -> Means:
    """What tables are written with where there is a session, or none."""
    return Means(frames=None if spark is None else partial(FrameShape, spark))


def load(shape: str, table: str, region: str) -> Shape:
    """The function that a table's declaration names; a program without it cannot write the table."""
    module, _, path = shape.partition(":")
    try:
        found = reduce(getattr, path.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"Table {table} of region {region} is written by its shape {shape}, which is not here: {error}.",
            hint="Install the program that has it where tables are written, or put its folder on PYTHONPATH. "
            "Nothing was written: other rows do not belong in this table.",
        ) from error
    if not callable(found):
        raise ConfigError(f"{shape}, the shape of table {table}, is not a function.")
    return found


class FrameShape:
    """A `Maker`: one shape on the records of one pass."""

    alarm = ""  # it follows no schema but its own

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
        self._shape = load(table.shape or "", table.name, config.region)

    def schemas(self) -> Mapping[str, pa.Schema]:
        return {name: _columns(frame) for name, frame in self._run()[0].items()}

    def make(self, outputs: Mapping[str, Output], check: Callable[[], object]) -> Made:
        made = Made()
        with one_pass(), _own_errors(self._table.name):
            rows, skipped = self._run()
            for name, frame in rows.items():
                check()
                target = self._target(name, outputs[name]) if name in outputs else None
                files, made.rows[name] = self._written(frame, target)
                made.files |= {name: files} if target else {}
            if skipped is not None:
                _, made.rows[DEAD] = self._written(skipped, None)
            check()
        return made

    def _run(self) -> tuple[Mapping[str, DataFrame], DataFrame | None]:
        """The rows of each output, and records that are skipped, which are only counted."""
        plan, spark = self._plan, self._spark
        given = self._shape(no_records(spark) if plan is None else frames.counted(spark, self._config, plan))
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

    def _target(self, name: str, output: Output) -> _Target:
        return _Target(self._config.to_json(), self._taken[name], replace(output, storage=cast(Storage, None)))

    def _written(self, frame: DataFrame, target: _Target | None) -> tuple[list[NewFile], Counter[int]]:
        """Files of the rows, made by tasks; without a target the rows are only counted."""
        shipping.ship(self._spark)
        rows, lists = without_null_lists(frame)
        tasks = rows.mapInArrow(partial(_write, numbered(_columns(frame)), lists, target), _MADE)
        files: list[NewFile] = []
        counts = Counter[int]()
        for row in tasks.collect():
            made, of = pickle.loads(row[0])
            files += made
            counts.update(of)
        return files, counts


_MADE = StructType([StructField("made", BinaryType())])


def _columns(frame: DataFrame) -> pa.Schema:
    """Of an output's table, without the checkpoint's number."""
    return to_arrow_schema(StructType([f for f in frame.schema if f.name != CHECKPOINT]).toNullable())


# In tasks


@dataclass(frozen=True)
class _Target:
    """Where a task writes. References of the configuration are resolved in the task (SPEC U2)."""

    config: str
    table: Table
    without_storage: Output

    def output(self) -> Output:
        config = RegionConfig.from_json(self.config)
        if in_catalog(self.table.path):
            storage = formats.opened(config, self.table).storage
        else:  # without the packages that read its log
            storage = folder_of(self.table.path, config.resolve().storage_options)
        return replace(self.without_storage, storage=storage)


def _write(
    columns: pa.Schema, lists: Sequence[str], target: _Target | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task; its files, with the number of rows of each checkpoint, pickled."""
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


@contextmanager
def _own_errors(table: str) -> Iterator[None]:
    """Raises what a task of ours has raised: Spark puts two stack traces around it."""
    try:
        yield
    except PySparkException as error:
        raised = _OURS.search(str(error))
        if raised is None:
            raise
        kind = {each.__name__: each for each in (BadRecord, RegistryAway, ConfigError, DataLoss, Refused)}[raised[1]]
        raise kind(f"Table {table}: {raised[2].strip()}") from error


_OURS = re.compile(r"crkafka_core\.\w+\.\w+\.(BadRecord|RegistryAway|ConfigError|DataLoss|Refused): (.*)")
