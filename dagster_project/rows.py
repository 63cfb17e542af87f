"""The rows of a partition or range as an input: what a user's asset gets by the type that it names (SPEC A3, K3)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import dagster as dg

from crkafka_core.model.errors import ConfigError
from dagster_project import windows
from dagster_project.failures import as_dagster_failure
from dagster_project.names import Names
from dagster_project.resources import RegionResource, SparkSessionResource


class Rows(dg.IOManager):
    """Loads the records of checkpoints; they are held against retirement until the run ends (SPEC T1)."""

    def __init__(self, region: RegionResource, spark: SparkSessionResource, until: ExitStack) -> None:
        self._region = region
        self._spark = spark
        self._until = until

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Nothing to keep: the members have landed the rows."""

    def load_input(self, context: dg.InputContext) -> Any:
        from crkafka_core.spark.frames import held

        with as_dagster_failure():
            ids = self._checkpoints(context)
            frame = self._until.enter_context(held(self._spark.session(), self._region.handle, ids=ids))
            return _as(frame, context.dagster_type.typing_type)

    def _checkpoints(self, context: dg.InputContext) -> Sequence[int]:
        """Of this run's partition or range: checkpoints, or hours and days over them."""
        step = context.step_context
        partitioned = step.run_partitions_def if step.has_partitions else None
        if isinstance(partitioned, dg.TimeWindowPartitionsDefinition):
            return windows.merged_within(self._region, step.partition_time_window)
        if partitioned is None or not context.has_asset_partitions:
            raise ConfigError(
                "An asset that reads records has their partitions: checkpoints, or hours or days over them.",
                hint="Declare it with `checkpointed`.",
            )
        return self._region.between(context.asset_partition_key_range)


def _as(frame: Any, wanted: Any) -> Any:
    """The rows as the annotation says: pandas and Arrow are read into memory; without one, a Spark DataFrame."""
    kind = f"{getattr(wanted, '__module__', '')}.{getattr(wanted, '__name__', '')}"
    if kind.startswith("pandas.") and kind.endswith(".DataFrame"):
        return frame.toPandas()
    if kind == "pyarrow.lib.Table":
        return frame.toArrow()
    return frame


def manager(names: Names) -> dg.IOManagerDefinition:
    """The I/O manager of a region's records."""

    def rows(context: dg.InitResourceContext) -> Any:  # a generator of one: Dagster's types do not know it
        with ExitStack() as until:
            yield Rows(getattr(context.resources, names.slug), getattr(context.resources, names.spark), until)

    return dg.IOManagerDefinition(
        resource_fn=rows,
        required_resource_keys={names.slug, names.spark},
        description=f"Reads the records of region {names.region}.",
    )
