"""Shapes of tables: functions of a user's program, named in the configuration, that make a table's rows of a checkpoint's (SPEC K6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from crkafka_core.config import RegionConfig
from crkafka_core.config.sections import GOOD
from crkafka_core.config.typed import DEAD, name_of
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table
from crkafka_core.spark import frame_shape, typed
from crkafka_core.spark.decode import Decoded
from crkafka_core.spark.frame_shape import Shape as Shape
from crkafka_core.spark.schema import CHECKPOINT
from crkafka_core.spark.typed import TypedShape


def load(table: Table, config: RegionConfig) -> Shape | TypedShape:
    """The function that the table's declaration names; whoever has not got it cannot write the table."""
    if name := name_of(table.shape):
        return typed.shape(config, name)
    return frame_shape.load(table.shape, table.name, table.region)


def outputs(made: DataFrame | Decoded | Mapping[str, DataFrame], tables: Sequence[Table]) -> dict[str, DataFrame]:
    """Table → its rows. Refused unless each output has its table and each table its output."""
    shape = tables[0].shape
    taken = {(t.output or GOOD): t.name for t in tables}
    if isinstance(made, Decoded):
        none_dead = made.on_bad_record != "dead_letter" and DEAD not in taken
        made = {GOOD: made.good} if none_dead else {GOOD: made.good, DEAD: made.dead}
    found: Mapping[str, DataFrame] = made if isinstance(made, Mapping) else {GOOD: made}
    for name in found:
        if name not in taken:
            raise ConfigError(
                f"The shape {shape} gives rows as {name}, which no table takes.",
                hint=f'Declare a table with shape: "{shape}" and output: {name}, or leave it out of what the shape returns.',
            )
    for name, table in taken.items():
        if name not in found:
            raise ConfigError(
                f"Table {table} takes the output {name} of the shape {shape}, which gives {', '.join(found)}.",
                hint="Return it from the shape, or name another output.",
            )
    for name, frame in found.items():
        if CHECKPOINT not in frame.columns:
            raise ConfigError(
                f"What the shape {shape} gives as {name} has no column {CHECKPOINT}: rows could not be told apart by checkpoint.",
                hint="Keep that column.",
            )
    return {taken[name]: frame for name, frame in found.items()}
