"""`format("crkafka")`: checkpoints through Spark's Python data source API, in batch and as a stream (SPEC K4).

docs/spark.md has the options. The reader itself names its connections; SQL gives names, offsets and numbers only, else a writer of
the database could have a reader send its files to another broker. A stream's offsets are checkpoint ids; a stream whose offset is
not an ancestor of the head any more fails, naming the fork. A query's filters are not taken (`pushFilters`): PySpark 4.1 uses a plan
that was made with them for the next query on the same DataFrame, which then lacks rows.
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.holder import holder
from crkafka_core.lake import erase
from crkafka_core.lake.handle import Opened
from crkafka_core.lake.means import check_held
from crkafka_core.model.errors import ConfigError, NoSuchCheckpoint
from crkafka_core.model.rows import Checkpoint, Region
from crkafka_core.model.selection import Selection
from crkafka_core.plane import leases, reading
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.plane.transact import ControlPlane, open_plane
from crkafka_core.spark import shipping
from crkafka_core.spark.schema import columns_of
from crkafka_core.spark.segment_files import check_names
from crkafka_core.spark.work import ReadRequest, packed, rows_of, spread

_KNOWN = {"config", "region", "controlplane", "storage", "path", "name", "holdseconds", "maxcheckpointspertrigger"}
_KNOWN |= {"after", "upto", "ids", "columns", "topics", "partitions", "fromoffset", "tooffset", "fromtime", "totime"}
_PREFIXES = ("storage.", "kafka.")
_NOWHERE = "not-said:1"
"""Kafka's address for a reader that names none: it reads segments only."""
_FILE_TASK_BYTES = 64 * 2**20


def register(spark: SparkSession) -> None:
    """Register `format("crkafka")` in this session, and bring its code to the executors.

    Not needed where this package is installed in the Python of driver and executors: Spark finds the format by itself.
    """
    shipping.ship(spark)
    try:
        spark.dataSource.register(CrkafkaSource)
    except AnalysisException as error:
        if (error.getCondition() or "") != "DATA_SOURCE_ALREADY_EXISTS":
            raise  # Spark has found it by itself


class CrkafkaSource(DataSource):
    """The format, as Spark opens it with the options of a read."""

    @classmethod
    def name(cls) -> str:
        return "crkafka"

    def schema(self) -> StructType:
        return _Options(self.options).schema()

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(_Options(self.options), _names(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(_Options(self.options), _names(schema))


def _names(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema, which a user may have given."""
    ours = columns_of(schema.fieldNames())
    for given, known in zip(schema.fields, ours.fields, strict=True):
        if given.dataType != known.dataType:
            raise ConfigError(
                f'format("crkafka") gives {known.name} as {known.dataType.simpleString()}, '
                f"not as {given.dataType.simpleString()}.",
                hint="Convert it by cast, or see docs/spark.md for decoding.",
            )
    return tuple(ours.fieldNames())


class _Options:
    """The options, checked."""

    def __init__(self, given: object) -> None:
        options = {str(k).lower(): str(v) for k, v in dict(given).items()}  # type: ignore[call-overload]
        unknown = sorted(k for k in options if k not in _KNOWN and not k.startswith(_PREFIXES))
        if unknown:
            raise ConfigError(
                f'format("crkafka") has no option {unknown[0]!r}.',
                hint="See crkafka_core.spark.source for those it has.",
            )
        self.config = _connection(options)
        self.after = _number(options, "after")
        self.upto = _number(options, "upto")
        self.ids = _numbers(options, "ids")
        if self.ids is not None and (self.after is not None or self.upto is not None):
            raise ConfigError('format("crkafka") takes either ids, or after and upto.')
        self.columns = _list(options, "columns")
        self.selection = Selection.of(
            topics=_list(options, "topics"),
            partitions=_numbers(options, "partitions"),
            from_offset=_number(options, "fromoffset"),
            to_offset=_number(options, "tooffset"),
            from_time=options.get("fromtime"),
            to_time=options.get("totime"),
        )
        self.most = _number(options, "maxcheckpointspertrigger")
        self.name = options.get("name", "")
        self.hold = _number(options, "holdseconds") or 3600

    def schema(self) -> StructType:
        return columns_of(self.columns and list(dict.fromkeys(self.columns)))

    def shares(self, plan: ReadPlan, columns: tuple[str, ...]) -> list[InputPartition]:
        """A plan as tasks: segments packed by size, ranges by rows (SPEC K7). Refused if Kafka no longer holds a range."""
        check_names(plan)
        works = packed(plan.segments, max(1, math.ceil(plan.bytes / _FILE_TASK_BYTES)))
        if plan.ranges:
            if self.config.kafka["bootstrap.servers"] == _NOWHERE:
                raise ConfigError(
                    f"Checkpoint {plan.ranges[0].checkpoint} of region {plan.region} is archived: its records are read again from Kafka.",
                    hint="Say where that is: the option `config`, or `kafka.bootstrap.servers` and what else the client needs.",
                )
            check_held(self.config, plan)
            works += spread(plan.ranges, 2 * (os.cpu_count() or 1))
        config_json, wanted = self.config.to_json(), ReadRequest(columns, plan.selection)
        return [InputPartition((config_json, work, wanted)) for work in works]


def _connection(options: dict[str, str]) -> RegionConfig:
    """The region's configuration by the options, never by SQL."""
    if "config" in options:
        with_it = [key for key in options if key in ("controlplane", "storage") or key.startswith(_PREFIXES)]
        if with_it:
            raise ConfigError(f'format("crkafka") takes either config or {with_it[0]}: the file names all of it.')
        return RegionConfig.load(options["config"], region=options.get("region"))
    for needed, written in (("region", "region"), ("controlplane", "controlPlane"), ("storage", "storage")):
        if not options.get(needed):
            raise ConfigError(
                f'format("crkafka") needs the option {written!r}.',
                hint="Or the option `config`, the region's file: a reader says itself where it connects.",
            )
    kafka = _below(options, "kafka.")
    return RegionConfig.of(
        region=options["region"],
        control_plane=options["controlplane"],
        storage=options["storage"],
        storage_options=_below(options, "storage."),
        kafka={"bootstrap.servers": _NOWHERE, "group.id": options["region"], **kafka},
        pattern="^",
    )


def _below(options: dict[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}


def _whole(key: str, text: str, kind: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f'Option {key} of format("crkafka") must be {kind}, not {text!r}.')
    return int(text)


def _number(options: dict[str, str], key: str) -> int | None:
    return _whole(key, options[key], "a whole number") if key in options else None


def _list(options: dict[str, str], key: str) -> list[str] | None:
    text = options.get(key)
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _numbers(options: dict[str, str], key: str) -> list[int] | None:
    parts = _list(options, key)
    return None if parts is None else [_whole(key, part, "whole numbers with commas between") for part in parts]


class BatchReader(DataSourceReader):
    """Plans in the driver's planner process, reads in tasks."""

    def __init__(self, options: _Options, columns: tuple[str, ...]) -> None:
        self._options, self._columns = options, columns

    def partitions(self) -> Sequence[InputPartition]:
        options, plane = self._options, open_plane(self._options.config)
        token = f"read-{uuid.uuid4().hex}"
        try:
            erase.note_again(Opened(options.config, plane))
            # The planner ends now, and nothing renews this lease: its length has to do (SPEC T1).
            take = partial(reading.take, holder=holder(), token=token, length=options.hold)
            taken = plane.do(lambda tx: take(tx, after=options.after, upto=options.upto, ids=options.ids))
            try:
                shares = options.shares(taken.plan.selecting(options.selection), self._columns)
            except BaseException:
                plane.do(lambda tx: leases.release(tx, taken.lease))
                raise
        finally:
            plane.store.close()
        return shares or [InputPartition((options.config.to_json(), (), ReadRequest(self._columns)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(*partition.value)


class StreamReader(DataSourceStreamReader):
    """Plans the batches of a stream, in the query's planner process. Spark gives its position by `partitions(start, end)`, also after
    a restart."""

    def __init__(self, options: _Options, columns: tuple[str, ...]) -> None:
        if options.ids is not None or options.upto is not None:
            raise ConfigError('A stream of format("crkafka") has no end: it takes neither ids nor upto.')
        self._options, self._columns = options, columns
        self._at: int | None = None
        self._lease = f"stream-{options.name or uuid.uuid4().hex}"

    @cached_property
    def _plane(self) -> ControlPlane:
        return open_plane(self._options.config)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_plane"}

    def initialOffset(self) -> dict[str, int]:
        self._at = self._options.after or 0
        self._follow(self._at)
        return {"checkpoint": self._at}

    def latestOffset(self) -> dict[str, int]:
        """At most `maxCheckpointsPerTrigger` past the stream's position; all without it, since Spark asks once for a run of
        `availableNow`. Spark calls this before `initialOffset`."""
        at = (self._options.after or 0) if self._at is None else self._at
        waiting = self._plane.read(lambda reader, row: reader.line(row.head, after=at))
        self._check_fork(at)
        self._follow(at)
        return {"checkpoint": waiting[: self._options.most or None][-1] if waiting else at}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        after, upto = int(start["checkpoint"]), int(end["checkpoint"])
        self._at = upto
        if after == upto:
            return []
        self._check_fork(after)
        self._check_fork(upto)
        self._follow(after)
        erase.note_again(Opened(self._options.config, self._plane))
        plan = self._plane.read(lambda reader, row: reading.plan(reader, row, after=after, upto=upto)).selecting(
            self._options.selection
        )
        return self._options.shares(plan, self._columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(*partition.value)

    def commit(self, end: dict[str, int]) -> None:
        """Allow the retirement of checkpoints up to `end`."""
        self._follow(int(end["checkpoint"]))

    def stop(self) -> None:
        """Leave the lease for `holdSeconds`: the stream may be started again."""
        if plane := self.__dict__.pop("_plane", None):
            plane.store.close()

    def _follow(self, after: int) -> None:
        self._plane.do(
            lambda tx: reading.follow(tx, stream=self._lease, holder=holder(), after=after, length=self._options.hold)
        )

    def _check_fork(self, at: int) -> None:
        """Refuse a stream that has read superseded checkpoints: only a person can remove their rows from its target (SPEC K4)."""
        if not at:
            return

        def answer(reader: Reader, row: Region) -> NoSuchCheckpoint | None:
            if at == row.head or at in reader.line(row.head, after=at - 1):
                return None
            line, stands = reader.line(row.head), reader.get(Checkpoint, at)
            first = reader.get(Checkpoint, line[0]) if line else None
            if stands is None and first is not None and at <= first.parent:
                return None if at == first.parent else reading.forgotten(row, first)
            if stands is None:
                return reading.refusal(reader, row, at)
            fork = max(set(line).intersection(reader.line(at)), default=0)
            return NoSuchCheckpoint(
                f"The stream stands at checkpoint {at} of region {row.name}, which is not on the line to the head {row.head} any more: "
                f"the region went back to {fork} and on from there.",
                hint=f"Remove what came after {fork} from where the stream writes, then start it anew "
                f"with after={fork} and a new checkpoint location.",
            )

        refused = self._plane.read(answer)
        if refused is not None:
            raise refused
