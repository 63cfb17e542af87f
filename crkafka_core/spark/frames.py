"""The rows of exactly the checkpoints asked for, as a DataFrame: from segments while they are kept, else from Kafka (SPEC K3)."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.holder import holder
from crkafka_core.lake import erase
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold, keeping
from crkafka_core.lake.means import check_held
from crkafka_core.model import limits
from crkafka_core.model.selection import Moment, Selection
from crkafka_core.plane import reading
from crkafka_core.plane.reading import Reading, ReadPlan
from crkafka_core.spark import location, segment_files, shipping
from crkafka_core.spark.schema import columns_of, with_checkpoint
from crkafka_core.spark.work import ReadRequest, Work, packed, rows_of_shares, spread

EVERY_COLUMN = tuple(with_checkpoint().fieldNames())
LINGER = 600.0
"""Seconds for which segments are held after the DataFrame of `checkpoints` is gone: frames derived from it may still run."""


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
        frame = from_plan(spark, region.config, taken.plan.selecting(selection), names)
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
        yield from_plan(spark, region.config, taken.plan.selecting(selection), names)
        hold.check()


def _names(columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of the answer, in order."""
    return EVERY_COLUMN if columns is None else tuple(columns_of(list(dict.fromkeys(columns))).fieldNames())


def from_plan(
    spark: SparkSession,
    config: RegionConfig,
    plan: ReadPlan,
    names: tuple[str, ...] = EVERY_COLUMN,
    *,
    counted: bool = False,
) -> DataFrame:
    """The rows of a plan whose segments are held. `counted`: the rows of each file are counted as it is read."""
    wanted, parts = ReadRequest(names, plan.selection), list[DataFrame]()
    if plan.segments:
        segment_files.check_names(plan)
        if counted or segment_files.needs_arrow(config, plan):
            shares = packed(plan.segments, segment_files.tasks(spark, plan.segments))
            parts.append(_by_tasks(spark, config, shares, wanted))
        else:
            parts.append(segment_files.frame(spark, config, plan, wanted))
    if plan.ranges:
        check_held(config, plan)
        parts.append(_by_tasks(spark, config, spread(plan.ranges, 2 * location.slots(spark)), wanted))
    if not parts:
        return spark.createDataFrame([], columns_of(names))
    return parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])


def _by_tasks(spark: SparkSession, config: RegionConfig, shares: Sequence[Work], wanted: ReadRequest) -> DataFrame:
    """The rows of all shares, each read by a task in Python."""
    shipping.ship(spark)
    run = partial(rows_of_shares, config.to_json(), [pickle.dumps(share) for share in shares], wanted)
    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(run, columns_of(wanted.columns))


def take(
    region: Handle, *, ids: Collection[int] | None = None, after: int | None = None, upto: int | None = None
) -> tuple[Reading, Hold]:
    """A plan, and the hold on its segments, to be released by the caller (SPEC T1)."""
    erase.note_again(region)
    token = f"read-{region.runtime.unique()}"
    length = region.plane.read(lambda _, row: limits.of(row).driver_lease)
    taken = region.plane.do(
        lambda tx: reading.take(tx, holder=holder(), token=token, length=length, ids=ids, after=after, upto=upto)
    )
    return taken, keeping(region, taken.lease, f"reader of region {taken.plan.region}")
