"""Typed records from raw ones: JSON, Avro and Protobuf, with what cannot be decoded kept beside it (fault 46).

Each row is either in `good`, with the decoded columns, or in `dead`, with topic, partition, offset, reason and the raw bytes, of
which `original_records` makes rows to decode again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from crkafka_core.config.typed import OnBadRecord
from crkafka_core.decode.batch import DECODED_KEY, REASON, VALUE, Columns, decode_batch
from crkafka_core.decode.decoders import Decoder
from crkafka_core.decode.typed import TOMBSTONE
from crkafka_core.model.errors import ConfigError
from crkafka_core.spark import shipping
from crkafka_core.spark.schema import CHECKPOINT, RECORDS

KEY = "key"
WAS_NULL = "crkafka_null_"
"""Prefix of the columns that mark where a column of lists is null."""


@dataclass(frozen=True)
class Decoded:
    """Two frames over the same read; cache the source, or write both from one, if reading twice is dear."""

    good: DataFrame
    """The columns of the source that are kept, and the decoded ones."""
    dead: DataFrame
    """The columns of the source, and the reason: a dead-letter table."""
    skipped: DataFrame | None
    """With `on_bad_record="skip"`: the bad records, which are in neither frame, to be counted."""
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
    keyed: bool = False,
) -> Decoded:
    """Decode the column `value` into `schema`; `keep` names the columns that stay beside it.

    `key`: the record's key too, as a struct in the column `key`. With `tombstones`, a null value is a good row whose decoded
    columns are null and whose column `tombstone` is true; else a bad one. Bad records are kept in `dead`, or stop the write,
    naming the first, or are skipped: in neither frame, but counted. `keyed`: a record without a key is a bad one.
    """
    if on_bad_record not in ("dead_letter", "stop", "skip"):
        raise ConfigError(f"on_bad_record is dead_letter, stop or skip, not {on_bad_record!r}.")
    before, counts = rows.columns, Observation()
    others = _other_columns(before, schema, keep, key=key is not None, tombstones=tombstones)
    how = {"tombstones": tombstones, "stop": on_bad_record == "stop", "keyed": keyed}
    tried = keep_once(_in_tasks(rows, decoder, schema, key, how))
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
    before: Collection[str], schema: StructType, keep: Sequence[str], *, key: bool, tombstones: bool
) -> list[Column]:
    """The columns beside the decoded ones: the kept ones, the decoded key, the mark of a tombstone."""
    kept = [*keep, *([CHECKPOINT] if CHECKPOINT in before and CHECKPOINT not in keep else [])]
    columns = {name: F.col(name) for name in kept if not (key and name == KEY)}
    if key:
        columns[KEY] = F.col(DECODED_KEY)
    if tombstones:
        columns[TOMBSTONE] = F.col("value").isNull()
    clash = sorted(columns.keys() & set(schema.fieldNames()))
    if clash:
        raise ConfigError(
            f"The decoded rows have a column {clash[0]!r}, which the record has too.",
            hint="Leave it out of `keep`, or rename it.",
        )
    return [column.alias(name) for name, column in columns.items()]


def original_records(dead: DataFrame) -> DataFrame:
    """Rows of a dead-letter table as records again, to decode with a better decoder."""
    wanted = [*RECORDS.fieldNames(), *([CHECKPOINT] if CHECKPOINT in dead.columns else [])]
    return dead.select(*(c for c in wanted if c in dead.columns))


def _in_tasks(
    rows: DataFrame,
    decoder: Decoder,
    schema: StructType,
    key: tuple[Decoder, StructType] | None,
    how: Mapping[str, bool],
) -> DataFrame:
    """The rows with their decoded columns as a struct, the key's, and the reasons of bad records."""
    shipping.ship(rows.sparkSession)
    given, lists = without_null_lists(rows)
    added = [
        StructField(VALUE, schema.toNullable()),  # null where a record is not decoded
        *([StructField(DECODED_KEY, key[1].toNullable())] if key else []),
        StructField(REASON, StringType()),
    ]

    def decoded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        values = Columns("value", decoder, to_arrow_type(schema))
        keys = Columns("key", key[0], to_arrow_type(key[1])) if key else None
        for batch in batches:
            yield decode_batch(batch, values, keys, **how)

    made = given.mapInArrow(decoded, StructType([*given.schema.fields, *added]))
    restored = {name: F.when(~F.col(WAS_NULL + name), F.col(name)) for name in lists}
    return made.withColumns(restored).drop(*(WAS_NULL + name for name in lists))


def without_null_lists(rows: DataFrame) -> tuple[DataFrame, list[str]]:
    """The rows with null lists emptied, each beside a column that marks the null ones; and the names of the list columns.

    Spark asks for the size of a batch after each row that it gives to Python, and Arrow goes through all null lists since the last
    other one each time: records without headers would take ten times as long (docs/clients.md C-P16).
    """
    kinds = {f.name: f.dataType for f in rows.schema if isinstance(f.dataType, ArrayType)}
    marked = rows.withColumns({WAS_NULL + name: F.col(name).isNull() for name in kinds})
    return marked.withColumns({name: F.coalesce(name, F.array().cast(kinds[name])) for name in kinds}), list(kinds)


# Decoded rows are kept while their tables are written, so that several outputs cost one pass over the rows (SPEC K6)

_kept: ContextVar[list[DataFrame] | None] = ContextVar("crkafka_kept", default=None)


@contextmanager
def one_pass() -> Iterator[None]:
    """Compute the frames that `keep_once` takes inside of this block once, and drop them at its end."""
    frames: list[DataFrame] = []
    before = _kept.set(frames)
    try:
        yield
    finally:
        _kept.reset(before)
        for frame in frames:
            frame.unpersist()


def keep_once(frame: DataFrame) -> DataFrame:
    """The frame, computed once inside of `one_pass`; else unchanged."""
    frames = _kept.get()
    if frames is None:
        return frame
    frames.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
    return frames[-1]
