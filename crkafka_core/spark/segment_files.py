"""Segments as a DataFrame (SPEC K2, K7).

Spark reads the files itself, so that pruning and filters reach Parquet. With Arrow (`needs_arrow`) are read: files in an object
store, by the region's `storage_options`, so that no session needs jars or credentials for it; very many small files, which cost
Spark's reader five times as much; files in a folder whose name Spark takes for a pattern; checkpoints with erased records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from crkafka_core.config.location import store_of
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.config.resolving import resolve
from crkafka_core.model.errors import DataLoss
from crkafka_core.model.rows import Segment
from crkafka_core.model.segment import SegmentName
from crkafka_core.model.selection import Selection
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.spark import location
from crkafka_core.spark.schema import ROWS
from crkafka_core.spark.work import ReadRequest

_TASK_BYTES = 128 * 2**20
"""A task reads at most about so much."""
_WORTH_A_TASK = 4 * 2**20
"""Less than this is not worth a task of its own."""
_LISTED, _LISTED_BY_DRIVER = "spark.sql.sources.parallelPartitionDiscovery.threshold", 20_000
_MANY = 64
_SMALL = 2**20
"""More files than this, of fewer bytes each on average, are read with Arrow."""


def needs_arrow(config: RegionConfig, plan: ReadPlan) -> bool:
    """Whether the plan's segments are read with Arrow, and not by Spark's own reader."""
    root, files = resolve(config.storage, "storage"), plan.segments
    small = len(files) > _MANY and sum(s.bytes for s in files) < _SMALL * len(files)
    pattern = any(c in root for c in "*?[]{}\\")
    return small or pattern or bool(plan.selection.erased) or not store_of(root).folders


def frame(spark: SparkSession, config: RegionConfig, plan: ReadPlan, wanted: ReadRequest) -> DataFrame:
    """The rows of the plan's segments, by Spark's own reader."""
    root = resolve(config.storage, "storage")
    paths = [location.uri(root, s.path) for s in plan.segments]
    # The driver lists the named files: a Spark job with a task per file takes longer than reading them (SPEC K7).
    if int(spark.conf.get(_LISTED, "32") or 32) < _LISTED_BY_DRIVER:
        spark.conf.set(_LISTED, str(_LISTED_BY_DRIVER))
    try:
        # A session may tolerate missing or broken files; a read of checkpoints does not (SPEC K3).
        exactly = dict.fromkeys(("mergeSchema", "ignoreMissingFiles", "ignoreCorruptFiles"), "false")
        rows = spark.read.schema(ROWS).options(**exactly).parquet(*paths)
        if location.is_connect(spark):
            rows.schema  # noqa: B018  analysis, and with it the look-up of the files, is now and not at the first action
    except AnalysisException as error:
        if (error.getCondition() or "") != "PATH_NOT_FOUND":
            raise
        raise _missing(plan, str(error)) from error
    if (wanted_tasks := tasks(spark, plan.segments)) < len(plan.segments):
        rows = rows.coalesce(wanted_tasks)
    condition = _condition(wanted.selection)
    return (rows if condition is None else rows.where(condition)).select(*wanted.columns)


def _condition(selection: Selection) -> Column | None:
    """The condition of the selected rows; None: all. The plan has files of the wanted checkpoints only; Arrow leaves out erased records."""
    all_of: list[Column] = []
    if selection.topics is not None:
        all_of.append(F.col("topic").isin(*selection.topics))
    if selection.partitions is not None:
        all_of.append(F.col("partition").isin(*selection.partitions))
    for name, between in (("offset", selection.offsets), ("timestamp", selection.times)):
        for bound, compare in ((between.start, "__ge__"), (between.stop, "__lt__")):
            if bound is not None:
                value = F.timestamp_micros(F.lit(bound)) if name == "timestamp" else F.lit(bound)
                all_of.append(getattr(F.col(name), compare)(value))
    return reduce(Column.__and__, all_of) if all_of else None


def check_names(plan: ReadPlan) -> None:
    """Refuse a path out of SQL that is not a segment's: nothing else is opened."""
    for segment in plan.segments:
        if SegmentName.parse(segment.path) is None:
            raise DataLoss(
                f"Region {plan.region}: {segment.path!r} of checkpoint {segment.checkpoint} is not the name of a segment.",
                hint="No program of crkafka has written that: look at who may write to the control plane.",
            )


def _missing(plan: ReadPlan, reason: str) -> DataLoss:
    """The error for a segment that is not in the storage."""
    gone = next((s for s in plan.segments if s.path in reason), None)
    what = f"segment {gone.path} of checkpoint {gone.checkpoint} ({gone.member})" if gone else "a segment"
    return DataLoss(
        f"Region {plan.region}: {what} is not in the storage: {reason.splitlines()[0]}",
        hint="Is this the storage that the members write to? If the checkpoint was retired meanwhile, read it again.",
    )


def tasks(spark: SparkSession, segments: Sequence[Segment]) -> int:
    """How many tasks read these segments: few for many small files (SPEC K7)."""
    total = sum(s.bytes for s in segments)
    return max(math.ceil(total / _TASK_BYTES), min(location.cores(spark), math.ceil(total / _WORTH_A_TASK)), 1)
