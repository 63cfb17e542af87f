"""The rows of exactly the checkpoints asked for, as a DataFrame: from segments while they are kept, else from Kafka (SPEC K3)."""

from __future__ import annotations

import os
import socket
import uuid
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.plane import limits, reading
from crkafka_core.plane.reading import Reading, ReadPlan
from crkafka_core.spark import kafka_ranges, segment_files
from crkafka_core.spark.handle import Handle
from crkafka_core.spark.hold import Hold
from crkafka_core.spark.schema import RECORDS, with_checkpoint

LINGER = 600.0
"""Seconds for which segments are still held once the DataFrame of `checkpoints` is gone: what was derived from it may still run."""


def checkpoints(
    spark: SparkSession,
    region: Handle,
    *,
    ids: Collection[int] | None = None,
    after: int | None = None,
    upto: int | None = None,
    numbered: bool = False,
) -> DataFrame:
    """The rows of (after, upto], or of exactly `ids`; with `numbered`, which checkpoint each row belongs to.

    Retirement waits while the DataFrame lives and ten minutes more; `held` holds for as long as a block runs. A read that
    comes too late fails by name of the missing file, never by fewer rows.
    """
    taken, hold = _take(region, ids=ids, after=after, upto=upto)
    frame = from_plan(spark, region.config, taken.plan, numbered=numbered)
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
    numbered: bool = False,
) -> Iterator[DataFrame]:
    """As `checkpoints`, with retirement waiting until the block ends."""
    taken, hold = _take(region, ids=ids, after=after, upto=upto)
    with hold:
        yield from_plan(spark, region.config, taken.plan, numbered=numbered)
        hold.check()


def from_plan(spark: SparkSession, config: RegionConfig, plan: ReadPlan, *, numbered: bool = False) -> DataFrame:
    """The DataFrame of a plan that somebody holds."""
    parts = []
    if plan.segments:
        parts.append(segment_files.frame(spark, config, plan, numbered=numbered))
    if plan.ranges:
        parts.append(kafka_ranges.frame(spark, config, plan, numbered=numbered))
    if not parts:
        return spark.createDataFrame([], with_checkpoint() if numbered else RECORDS)
    return parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])


def _take(region: Handle, *, ids: Collection[int] | None, after: int | None, upto: int | None) -> tuple[Reading, Hold]:
    token = f"read-{uuid.uuid4().hex}"
    length = region.plane.read(lambda _, row: limits.of(row).driver_lease)
    taken = region.plane.do(
        lambda tx: reading.take(tx, holder=holder(), token=token, length=length, ids=ids, after=after, upto=upto)
    )
    hold = Hold(
        lambda: region.plane.do(lambda tx: reading.renew(tx, taken.lease, length)),
        lambda: region.plane.do(lambda tx: reading.release(tx, taken.lease)),
        length / 3,
        f"reader of region {taken.plan.region}",
    )
    return taken, hold


def holder() -> str:
    """Who holds a lease, in words that a person can follow."""
    return f"{socket.gethostname()}:{os.getpid()}"
