"""The rows of exactly the checkpoints asked for, as a DataFrame: from segments while they are kept, else from Kafka (SPEC K3)."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.holder import holder
from crkafka_core.lake import erase
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold, keeping
from crkafka_core.model.selection import Moment, Selection
from crkafka_core.plane import limits, reading
from crkafka_core.plane.reading import Reading, ReadPlan
from crkafka_core.spark import segment_files, tasks
from crkafka_core.spark.schema import columns_of, with_checkpoint
from crkafka_core.spark.work import ReadRequest

LINGER = 600.0
"""Seconds for which segments are still held once the DataFrame of `checkpoints` is gone: what was derived from it may still run."""


def checkpoints(
    spark: SparkSession,
    region: Handle,
    *,
    ids: Collection[int] | None = None,
    after: int | None = None,
    upto: int | None = None,
    columns: Sequence[str] | None = None,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time: Moment | None = None,
    to_time: Moment | None = None,
) -> DataFrame:
    """The rows of (after, upto], or of exactly `ids`: the columns of Kafka's records, and `crkafka_checkpoint`, the row's number (SPEC C8).

    Of these only the `columns` named, and only the records of these topics and partitions, from one offset or time (included)
    to another (not included). Segments that have none of them are not opened.

    Retirement waits while the DataFrame lives and ten minutes more; `held` holds for as long as a block runs. A read that
    comes too late fails by name of the missing file, never by fewer rows.
    """
    selection = Selection.of(topics, partitions, from_offset, to_offset, from_time, to_time)
    names = _names(columns)
    taken, hold = take(region, ids=ids, after=after, upto=upto)
    try:
        frame = _frame(spark, region.config, taken.plan.selecting(selection), names)
    except BaseException:
        hold.end()
        raise
    weakref.finalize(frame, hold.end_after, LINGER)
    return frame


@contextmanager
def held(
    spark: SparkSession,
    region: Handle,
    *,
    ids: Collection[int] | None = None,
    after: int | None = None,
    upto: int | None = None,
    columns: Sequence[str] | None = None,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time: Moment | None = None,
    to_time: Moment | None = None,
) -> Iterator[DataFrame]:
    """As `checkpoints`, with retirement waiting until the block ends."""
    selection = Selection.of(topics, partitions, from_offset, to_offset, from_time, to_time)
    names = _names(columns)
    taken, hold = take(region, ids=ids, after=after, upto=upto)
    with hold:
        yield _frame(spark, region.config, taken.plan.selecting(selection), names)
        hold.check()


def from_plan(spark: SparkSession, config: RegionConfig, plan: ReadPlan) -> DataFrame:
    """The DataFrame of a plan that somebody holds."""
    return _frame(spark, config, plan, _names(None))


def _names(columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of the answer, in order."""
    named = with_checkpoint().fieldNames() if columns is None else list(dict.fromkeys(columns))
    return tuple(columns_of(named).fieldNames())


def _frame(spark: SparkSession, config: RegionConfig, plan: ReadPlan, names: tuple[str, ...]) -> DataFrame:
    wanted = ReadRequest(names, plan.selection)
    parts = [segment_files.frame(spark, config, plan, wanted)] if plan.segments else []
    if plan.ranges:
        parts.append(tasks.of_ranges(spark, config, plan, wanted))
    return _together(spark, parts, columns_of(names))


def counted(spark: SparkSession, config: RegionConfig, plan: ReadPlan) -> DataFrame:
    """The rows of a plan that is held, each file's counted as it is read: they cannot be counted after a shape."""
    names = _names(None)
    wanted = ReadRequest(names, plan.selection)
    parts = [segment_files.by_arrow(spark, config, plan, wanted)] if plan.segments else []
    if plan.ranges:
        parts.append(tasks.of_ranges(spark, config, plan, wanted))
    return _together(spark, parts, columns_of(names))


def _together(spark: SparkSession, parts: Sequence[DataFrame], columns: StructType) -> DataFrame:
    if not parts:
        return spark.createDataFrame([], columns)
    return parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])


def take(
    region: Handle, *, ids: Collection[int] | None = None, after: int | None = None, upto: int | None = None
) -> tuple[Reading, Hold]:
    """A plan and what holds its segments until it is let go (SPEC T1)."""
    erase.note_again(region)
    token = f"read-{region.runtime.unique()}"
    length = region.plane.read(lambda _, row: limits.of(row).driver_lease)
    taken = region.plane.do(
        lambda tx: reading.take(tx, holder=holder(), token=token, length=length, ids=ids, after=after, upto=upto)
    )
    return taken, keeping(region, taken.lease, f"reader of region {taken.plan.region}")
