"""Typed records from raw ones: JSON, Avro and Protobuf, with what cannot be decoded kept beside it (fault 46).

`decode` adds nothing and loses nothing: each row lands either in `good`, with the decoded columns, or in `dead`, with topic,
partition, offset, reason and the raw bytes, from which `original_records` makes rows to decode again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

from crkafka_core.config.typed import OnBadRecord
from crkafka_core.decode.batch import DECODED_KEY, REASON, VALUE
from crkafka_core.decode.decoders import Decoder
from crkafka_core.decode.typed import TOMBSTONE
from crkafka_core.model.errors import ConfigError
from crkafka_core.spark import shipping
from crkafka_core.spark.schema import CHECKPOINT, RECORDS

if TYPE_CHECKING:
    import pyarrow as pa

KEY = "key"
WAS_NULL = "crkafka_null_"
"""Begins the name of a column that tells where a column of lists is null."""


@dataclass(frozen=True)
class Decoded:
    """Two frames over the same read; cache the source, or write both from one, if reading twice is dear."""

    good: DataFrame
    """The columns of the source that are kept, and the decoded ones."""
    dead: DataFrame
    """The columns of the source, and why: a dead-letter table."""
    skipped: DataFrame | None
    """With `on_bad_record="skip"`: what is in neither, to be counted."""
    on_bad_record: OnBadRecord
    counts: Observation
    """After an action on `good`: `rows`, `good`, `bad` and `tombstones` of what it read. A sort reads twice, and counts so."""


def decode(
    rows: DataFrame,
    decoder: Decoder,
    schema: StructType,
    *,
    key: tuple[Decoder, StructType] | None = None,
    keep: Sequence[str] = ("topic", "partition", "offset", "timestamp"),
    tombstones: bool = True,
    on_bad_record: OnBadRecord = "dead_letter",
    prefix: str = "",
    keyed: bool = False,
) -> Decoded:
    """Decode the column `value` into `schema`; `keep` names the columns that stay beside it, their names begun with `prefix`.

    `key`: the record's key too, as a struct in the column `key`. With `tombstones`, a null value is a good row whose decoded
    columns are null and whose column `tombstone` is true; else a bad one. Bad records are kept in `dead`, or stop the write,
    naming the first, or are skipped: in neither frame, but counted. With `keyed` a record without a key is a bad one, too.
    """
    if on_bad_record not in ("dead_letter", "stop", "skip"):
        raise ConfigError(f"on_bad_record is dead_letter, stop or skip, not {on_bad_record!r}.")
    added, run = _decoding(decoder, schema, key, tombstones=tombstones, stop=on_bad_record == "stop", keyed=keyed)
    tried = keep_once(_in_tasks(rows, added, run))
    before = tried.columns[: -3 if key else -2]
    others = _other_columns(before, schema, keep, prefix, key=key is not None, tombstones=tombstones)
    counts = Observation()
    fine = F.col(REASON).isNull()
    seen = tried.observe(
        counts,
        F.count(F.lit(1)).alias("rows"),
        F.count_if(fine).alias("good"),
        F.count_if(~fine).alias("bad"),
        F.count_if(fine & F.col("value").isNull()).alias("tombstones"),
    )
    good = seen.where(fine).select(*others, f"{VALUE}.*")
    bad = tried.where(~fine) if on_bad_record == "dead_letter" else tried.limit(0)
    skipped = tried.where(~fine) if on_bad_record == "skip" else None
    return Decoded(good, bad.select(*before, REASON), skipped, on_bad_record, counts)


def _other_columns(
    before: Collection[str], schema: StructType, keep: Sequence[str], prefix: str, *, key: bool, tombstones: bool
) -> list[Column]:
    """The columns that stand beside the decoded ones: those that are kept, the decoded key, the mark of a tombstone."""
    kept = [*keep, *([CHECKPOINT] if CHECKPOINT in before and CHECKPOINT not in keep else [])]
    columns = [
        (name if name == CHECKPOINT else prefix + name, F.col(name)) for name in kept if not (key and name == KEY)
    ]
    if key:
        columns.append((prefix + KEY, F.col(DECODED_KEY)))
    if tombstones:
        columns.append((prefix + TOMBSTONE, F.col("value").isNull().cast(BooleanType())))
    clash = sorted({name for name, _ in columns} & set(schema.fieldNames()))
    if clash:
        raise ConfigError(
            f"The decoded rows have a column {clash[0]!r}, which the record has too.",
            hint="Leave it out of `keep`, or rename it.",
        )
    return [column.alias(name) for name, column in columns]


def original_records(dead: DataFrame) -> DataFrame:
    """Rows of a dead-letter table as records again, to decode with a better decoder."""
    wanted = [*RECORDS.fieldNames(), *([CHECKPOINT] if CHECKPOINT in dead.columns else [])]
    return dead.select(*(c for c in wanted if c in dead.columns))


def _decoding(
    decoder: Decoder,
    schema: StructType,
    key: tuple[Decoder, StructType] | None = None,
    *,
    tombstones: bool = True,
    stop: bool = False,
    keyed: bool = False,
) -> tuple[list[StructField], Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]]:
    """What adds to records what they hold: their decoded columns as a struct, the key's, and the reason of those that are bad."""
    added = [
        StructField(VALUE, schema.toNullable()),  # a row that is not decoded has nothing
        *([StructField(DECODED_KEY, key[1].toNullable())] if key else []),
        StructField(REASON, StringType()),
    ]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        # Types of the decoded columns as Spark has them; the worker checks that they fit.
        from pyspark.sql.pandas.types import to_arrow_type

        from crkafka_core.decode.batch import Columns, decode_batch

        values = Columns("value", decoder, to_arrow_type(schema))
        keys = Columns("key", key[0], to_arrow_type(key[1])) if key else None
        for batch in batches:
            yield decode_batch(batch, values, keys, tombstones=tombstones, stop=stop, keyed=keyed)

    return added, run


def _in_tasks(
    rows: DataFrame,
    added: Sequence[StructField],
    run: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]],
) -> DataFrame:
    """The rows, which go through Python for it, with columns that are added."""
    shipping.ship(rows.sparkSession)
    rows, lists = without_null_lists(rows)
    return _with_null_lists(rows.mapInArrow(run, StructType([*rows.schema.fields, *added])), lists)


def without_null_lists(rows: DataFrame) -> tuple[DataFrame, list[str]]:
    """Null lists as empty ones, each beside a column that tells which were null, and the names of these columns of lists.

    Spark looks at the size of a batch after each row that it gives to Python, and Arrow goes through all null lists since the last
    other one each time: records without headers would take ten times as long (docs/clients.md C-P16).
    """
    lists = [f.name for f in rows.schema if isinstance(f.dataType, ArrayType)]
    kinds = {name: rows.schema[name].dataType for name in lists}
    told = {WAS_NULL + name: F.col(name).isNull() for name in lists}
    return rows.withColumns(told).withColumns(
        {name: F.coalesce(name, F.array().cast(kinds[name])) for name in lists}
    ), lists


def _with_null_lists(rows: DataFrame, lists: Sequence[str]) -> DataFrame:
    """The same undone."""
    told = [WAS_NULL + name for name in lists]
    return rows.withColumns(
        {name: F.when(~F.col(was), F.col(name)) for name, was in zip(lists, told, strict=True)}
    ).drop(*told)


# What is decoded is kept while its tables are written, so that several outputs cost one pass over the rows (SPEC K6)

_kept: ContextVar[list[DataFrame] | None] = ContextVar("crkafka_kept", default=None)


@contextmanager
def one_pass() -> Iterator[None]:
    """Frames given to `keep_once` inside are computed once, and let go at the end."""
    frames: list[DataFrame] = []
    before = _kept.set(frames)
    try:
        yield
    finally:
        _kept.reset(before)
        for frame in frames:
            frame.unpersist()


def keep_once(frame: DataFrame) -> DataFrame:
    """The frame, computed once if a pass is under way; else as it is."""
    frames = _kept.get()
    if frames is None:
        return frame
    frames.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
    return frames[-1]
