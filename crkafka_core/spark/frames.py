"""The rows of exactly the checkpoints asked for, as a DataFrame: from segments while they are kept, else from Kafka (SPEC K3)."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, TypedDict, Unpack

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
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.segments.batch import SEGMENT
from crkafka_core.spark import location, segment_files, shipping
from crkafka_core.spark.schema import columns_of
from crkafka_core.spark.work import ReadRequest, Share, packed, rows_of_shares, spread

LINGER = 600.0
"""Seconds for which segments are held after the DataFrame of `checkpoints` is gone: frames derived from it may still run."""


class Wanted(TypedDict, total=False):
    """What a read of checkpoints asks for."""

    ids: Collection[int] | None
    after: int | None
    upto: int | None
    columns: Sequence[str] | None
    topics: Collection[str] | None
    partitions: Collection[int] | None
    from_offset: int | None
    to_offset: int | None
    from_time: Moment | None
    to_time: Moment | None


def checkpoints(spark: SparkSession, region: Handle, **wanted: Unpack[Wanted]) -> DataFrame:
    """The rows of (`after`, `upto`], or of exactly `ids`: Kafka's columns, and `crkafka_checkpoint`, the row's number (SPEC C8).
    Of these only the `columns` named, and only the records of these `topics` and `partitions`, from `from_offset` or `from_time`
    (included) to `to_offset` or `to_time` (not included). Segments that have none of them are not opened.

    Retirement waits while the DataFrame lives and ten minutes more; `held` holds for as long as a block runs. A read that
    comes too late fails by name of the missing file, never by fewer rows.
    """
    frame, hold = _framed(spark, region, **wanted)
    weakref.finalize(frame, hold.end_after, LINGER)
    return frame


@contextmanager
def held(spark: SparkSession, region: Handle, **wanted: Unpack[Wanted]) -> Iterator[DataFrame]:
    """As `checkpoints`, with retirement waiting until the block ends."""
    frame, hold = _framed(spark, region, **wanted)
    with hold:
        yield frame
        hold.check()


def _framed(
    spark: SparkSession,
    region: Handle,
    *,
    ids: Collection[int] | None = None,
    after: int | None = None,
    upto: int | None = None,
    columns: Sequence[str] | None = None,
    **selected: Any,
) -> tuple[DataFrame, Hold]:
    """The rows, and the hold on their segments, to be released by the caller (SPEC T1)."""
    selection = Selection.of(**selected)
    names = tuple(columns_of(columns and list(dict.fromkeys(columns))).fieldNames())
    erase.note_again(region)
    token = f"read-{region.runtime.unique()}"
    length = region.plane.read(lambda _, row: limits.of(row).driver_lease)
    taken = region.plane.do(
        lambda tx: reading.take(tx, holder=holder(), token=token, length=length, ids=ids, after=after, upto=upto)
    )
    hold = keeping(region, taken.lease, f"reader of region {taken.plan.region}")
    try:
        return from_plan(spark, region.config, taken.plan.selecting(selection), names), hold
    except BaseException:
        hold.end()
        raise


def from_plan(
    spark: SparkSession,
    config: RegionConfig,
    plan: ReadPlan,
    names: tuple[str, ...] = tuple(SEGMENT.names),
    *,
    counted: bool = False,
) -> DataFrame:
    """The rows of a plan whose segments are held. `counted`: the rows of each file are counted as it is read."""
    segment_files.check_names(plan)
    wanted, by_spark = ReadRequest(names, plan.selection), not (counted or segment_files.needs_arrow(config, plan))
    parts, shares = list[DataFrame](), list[Share]()
    if plan.segments and by_spark:
        parts.append(segment_files.frame(spark, config, plan, wanted))
    elif plan.segments:
        shares += packed(plan.segments, segment_files.tasks(spark, plan.segments))
    if plan.ranges:
        check_held(config, plan)
        shares += spread(plan.ranges, 2 * location.slots(spark))
    if shares:
        shipping.ship(spark)
        run = partial(rows_of_shares, config.to_json(), [pickle.dumps(share) for share in shares], wanted)
        parts.append(spark.range(0, len(shares), 1, len(shares)).mapInArrow(run, columns_of(names)))
    return reduce(DataFrame.unionAll, parts) if parts else spark.createDataFrame([], columns_of(names))
