"""Segments as a DataFrame (SPEC K2, K7).

Spark reads the named files itself, so that pruning and filters reach Parquet. Four kinds its tasks read as members write
them, with Arrow: those in an object store, with the region's own `storage_options`, so that no session needs jars or
credentials for it; a great many small ones, each of which would cost Spark's reader five times as much; those in a
folder whose name Spark would take for a pattern; and those of checkpoints of which records were erased.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.config.resolving import resolve
from crkafka_core.model.errors import DataLoss
from crkafka_core.model.rows import Segment
from crkafka_core.model.segment_name import SegmentName
from crkafka_core.model.selection import Selection
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.spark import location, tasks
from crkafka_core.spark.schema import with_checkpoint
from crkafka_core.spark.work import ReadRequest, packed

_TASK_BYTES = 128 * 2**20
"""A task reads at most about so much."""
_WORTH_A_TASK = 4 * 2**20
"""Less than this is not worth a task of its own."""
_MANY = 64
_SMALL = 2**20
"""More files than this, of fewer bytes each on average, are read with Arrow."""


def by_arrow(spark: SparkSession, config: RegionConfig, plan: ReadPlan, wanted: ReadRequest) -> DataFrame:
    """The rows of the plan's segments, by tasks of ours."""
    check_names(plan)
    return tasks.of_work(spark, config, packed(plan.segments, _tasks(spark, plan.segments)), wanted)


def frame(spark: SparkSession, config: RegionConfig, plan: ReadPlan, wanted: ReadRequest) -> DataFrame:
    """The rows of the plan's segments."""
    root = resolve(config.storage, "storage")
    if (
        plan.selection.erased
        or location.in_object_store(root)
        or location.is_pattern(root)
        or _many_and_small(plan.segments)
    ):
        return by_arrow(spark, config, plan, wanted)
    check_names(plan)
    paths = [location.uri(root, s.path) for s in plan.segments]
    location.list_on_driver(spark)
    try:
        rows = spark.read.schema(with_checkpoint()).options(**location.EXACTLY).parquet(*paths)
        if location.is_connect(spark):
            rows.schema  # noqa: B018  analysis, and with it the look-up of the files, is now and not at the first action
    except AnalysisException as error:
        if (error.getCondition() or "") != "PATH_NOT_FOUND":
            raise
        raise missing(plan, str(error)) from error
    rows = _packed(spark, rows, plan.segments)
    condition = _condition(wanted.selection)
    return (rows if condition is None else rows.where(condition)).select(*wanted.columns)


def _condition(selection: Selection) -> Column | None:
    """The rows that are selected; None: all. Checkpoints are left to the plan, which names files of only those.

    What was erased is told by checkpoint: where there is such a record, Arrow reads.
    """
    found: list[Column] = []
    if selection.topics is not None:
        found.append(F.col("topic").isin(*selection.topics))
    if selection.partitions is not None:
        found.append(F.col("partition").isin(*selection.partitions))
    for name, between in (("offset", selection.offsets), ("timestamp", selection.times)):
        for bound, compare in ((between.start, "__ge__"), (between.stop, "__lt__")):
            if bound is not None:
                value = F.timestamp_micros(F.lit(bound)) if name == "timestamp" else F.lit(bound)
                found.append(getattr(F.col(name), compare)(value))
    return reduce(Column.__and__, found) if found else None


def check_names(plan: ReadPlan) -> None:
    """SQL names segments below the root of the storage, in the one form that they have; nothing else is opened."""
    for segment in plan.segments:
        if SegmentName.parse(segment.path) is None:
            raise DataLoss(
                f"Region {plan.region}: {segment.path!r} of checkpoint {segment.checkpoint} is not the name of a segment.",
                hint="No program of crkafka has written that: look at who may write to the control plane.",
            )


def missing(plan: ReadPlan, said: str) -> DataLoss:
    """A named segment is not there: whose it is, and what to do."""
    gone = next((s for s in plan.segments if s.path in said), None)
    what = f"segment {gone.path} of checkpoint {gone.checkpoint} ({gone.member})" if gone else "a segment"
    return DataLoss(
        f"Region {plan.region}: {what} is not in the storage: {said.splitlines()[0]}",
        hint="Is this the storage that the members write to? If the checkpoint was retired meanwhile, read it again.",
    )


def _many_and_small(segments: Sequence[Segment]) -> bool:
    return len(segments) > _MANY and sum(s.bytes for s in segments) < _SMALL * len(segments)


def _tasks(spark: SparkSession, segments: Sequence[Segment]) -> int:
    """Few for many small files: as many as get on at once, or as the size deserves (SPEC K7)."""
    total = sum(s.bytes for s in segments)
    return max(math.ceil(total / _TASK_BYTES), min(location.cores(spark), math.ceil(total / _WORTH_A_TASK)), 1)


def _packed(spark: SparkSession, rows: DataFrame, segments: Sequence[Segment]) -> DataFrame:
    wanted = _tasks(spark, segments)
    return rows.coalesce(wanted) if wanted < len(segments) else rows
