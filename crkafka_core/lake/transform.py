"""What makes a table's rows of records: a pure function of record batches that knows neither regions nor processes (SPEC K6)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import pyarrow as pa

from crkafka_core.config.shapes import GOOD
from crkafka_core.decode.batch import refuse_record
from crkafka_core.lake.port import CHECKPOINT
from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.batch import SCHEMA

Rows = Mapping[str, pa.RecordBatch]
"""Output → its rows. `good` is the only output of a transform that has one."""
Run = Callable[[pa.RecordBatch], Rows]
"""Of records of one checkpoint, with the columns of `SCHEMA`."""


class Transform(Protocol):
    """Small and picklable; opened once in each process that runs it."""

    def schemas(self) -> Mapping[str, pa.Schema]:
        """Columns of each output."""

    def open(self) -> Run:
        """Ready to run."""

    def set_aside(self, records: pa.RecordBatch, reason: str) -> Rows:
        """Records that end the process which transforms them; BadRecord where no output takes them."""
        raise refuse_record(records, reason)


def numbered(schema: pa.Schema) -> pa.Schema:
    """A table's columns: the checkpoint's number, then those of the output."""
    return schema.insert(0, pa.field(CHECKPOINT, pa.int64()))


NULLABLE = pa.schema([field.with_nullable(True) for field in SCHEMA])


@dataclass(frozen=True)
class Identity(Transform):
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {GOOD: NULLABLE}

    def open(self) -> Run:
        return lambda records: {GOOD: records.cast(NULLABLE)}


@dataclass(frozen=True)
class Shape(Transform):
    """A user's function, `module:function`: RecordBatch → RecordBatch, or → {output: RecordBatch}."""

    name: str

    def schemas(self) -> Mapping[str, pa.Schema]:
        made = self._outputs(load(self.name)(pa.RecordBatch.from_pylist([], SCHEMA)))
        for output, rows in made.items():
            if CHECKPOINT in rows.schema.names:
                raise ConfigError(
                    f"The shape {self.name} gives a column {CHECKPOINT} as {output}.",
                    hint="Leave it out: it is added to each row afterwards.",
                )
        return {output: rows.schema for output, rows in made.items()}

    def open(self) -> Run:
        shape = load(self.name)
        return lambda records: self._outputs(shape(records))

    def _outputs(self, made: object) -> Rows:
        outputs = made if isinstance(made, Mapping) else {GOOD: made}
        for output, rows in outputs.items():
            if not isinstance(rows, pa.RecordBatch):
                raise ConfigError(
                    f"The shape {self.name} gives a {type(rows).__name__} as {output}, not a pyarrow.RecordBatch."
                )
        return outputs


def load(shape: str, table: str = "") -> Callable[..., Any]:
    """A function of a user's program, by its name `module:path`; `table` is for errors."""
    module, _, path = shape.partition(":")
    owner = f" of table {table}" if table else ""
    try:
        function = reduce(getattr, path.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The shape {shape}{owner} cannot be imported: {error}.",
            hint="Install the program that has it where tables are written, or put its folder on PYTHONPATH.",
        ) from error
    if not callable(function):
        raise ConfigError(f"The shape {shape}{owner} is not a function.")
    return function
