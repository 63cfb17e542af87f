"""`format("crkafka")`: checkpoints through Spark's Python data source API, in batch and as a stream (SPEC K4).

Options: `controlPlane` (its URL; `${env:NAME}` for a password) and `region`; batch: `after`, `upto`; stream: `after` (where it
begins; default: birth), `maxCheckpointsPerTrigger` (default 100), `name` (whose lease holds back retirement) and
`holdSeconds` (how long after its last sign of life, default 3600); both: `checkpoint` (true adds the column
`crkafka_checkpoint`). A stream's offsets are checkpoint ids; one that is no ancestor of the head any more fails, naming the fork.
"""

from __future__ import annotations

import math
import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from crkafka_core.config import reference
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.model.errors import ConfigError, NoSuchCheckpoint
from crkafka_core.model.rows import Region
from crkafka_core.plane import reading
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.plane.stores import open_store
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.spark import shipping
from crkafka_core.spark.schema import RECORDS, with_checkpoint
from crkafka_core.spark.work import Work, packed, spread

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "crkafka"
_KNOWN = {
    "region",
    "controlplane",
    "after",
    "upto",
    "checkpoint",
    "maxcheckpointspertrigger",
    "name",
    "holdseconds",
    "path",
}
_FILE_TASK_BYTES = 64 * 2**20


def register(spark: SparkSession) -> None:
    """Make `format("crkafka")` known to this session; its code reaches the executors with it."""
    shipping.ship(spark)
    spark.dataSource.register(CrkafkaSource)


class CrkafkaSource(DataSource):
    """What Spark makes of the options."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return with_checkpoint() if _Options(self.options).numbered else RECORDS

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(_Options(self.options))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(_Options(self.options))


class _Options:
    """The options, checked."""

    def __init__(self, given: object) -> None:
        options = {str(k).lower(): str(v) for k, v in dict(given).items()}  # type: ignore[call-overload]
        unknown = sorted(set(options) - _KNOWN)
        if unknown:
            raise ConfigError(
                f'format("crkafka") has no option {unknown[0]!r}.',
                hint="See crkafka_core.spark.source for those it has.",
            )
        for needed, written in (("region", "region"), ("controlplane", "controlPlane")):
            if not options.get(needed):
                raise ConfigError(f'format("crkafka") needs the option {written!r}.')
        self.region = options["region"]
        self.control_plane = options["controlplane"]
        self.after = _number(options, "after")
        self.upto = _number(options, "upto")
        self.numbered = options.get("checkpoint", "false").lower() == "true"
        self.most = _number(options, "maxcheckpointspertrigger") or 100
        self.name = options.get("name", "")
        self.hold = _number(options, "holdseconds") or 3600

    def plane(self) -> ControlPlane:
        return ControlPlane(open_store(reference.resolve(self.control_plane, "controlPlane")), self.region)


def _number(options: dict[str, str], key: str) -> int | None:
    text = options.get(key)
    if text is None:
        return None
    if not text.isdigit():
        raise ConfigError(f'Option {key} of format("crkafka") must be a whole number, not {text!r}.')
    return int(text)


class Share(InputPartition):
    """One task's part."""

    def __init__(self, config_json: str, work: Work, numbered: bool) -> None:
        super().__init__(None)
        self.config_json, self.work, self.numbered = config_json, work.to_json(), numbered

    def rows(self) -> Iterator[pa.RecordBatch]:
        from crkafka_core.spark.work import Work, rows_of

        return rows_of(self.config_json, Work.from_json(self.work), numbered=self.numbered)


def shares(config_json: str, plan: ReadPlan, *, numbered: bool) -> list[Share]:
    """A plan as tasks: segments packed by size, ranges by rows (SPEC K7)."""
    tasks = max(1, math.ceil(plan.bytes / _FILE_TASK_BYTES))
    works = packed(plan.segments, tasks)
    if plan.ranges:
        works += spread(plan.ranges, 2 * (os.cpu_count() or 1))
    return [Share(config_json, work, numbered) for work in works]


class BatchReader(DataSourceReader):
    """Plans in the driver's planner process, reads in tasks."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options, plane = self._options, self._options.plane()
        token = f"read-{uuid.uuid4().hex}"
        try:
            # Nobody renews this lease, since the planner ends now: its length has to do (SPEC T1).
            taken = plane.do(
                lambda tx: reading.take(
                    tx, holder=_me(), token=token, length=options.hold, after=options.after, upto=options.upto
                )
            )
            config_json = plane.read(lambda _, row: row.config_json)
        finally:
            plane.store.close()
        _check_ranges(config_json, taken.plan)
        return shares(config_json, taken.plan, numbered=options.numbered) or [
            Share(config_json, Work(), options.numbered)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return partition.rows()


class StreamReader(DataSourceStreamReader):
    """Lives in the query's planner process. Spark tells where it stands by `partitions(start, end)`, also after a restart."""

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._at: int | None = None
        self._store_plane: ControlPlane | None = None
        self._lease = (options.name and f"stream-{options.name}") or f"stream-{uuid.uuid4().hex}"

    @property
    def _plane(self) -> ControlPlane:
        if self._store_plane is None:
            self._store_plane = self._options.plane()
        return self._store_plane

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_store_plane": None}

    def initialOffset(self) -> dict[str, int]:
        self._at = self._options.after or 0
        self._follow(self._at)
        return {"checkpoint": self._at}

    def latestOffset(self) -> dict[str, int]:
        """At most `maxCheckpointsPerTrigger` past where the stream stands: admission control."""
        at = self._at or 0
        waiting = self._plane.read(lambda reader, row: reader.line(row.name, row.head, after=at))
        self._check_fork(at)
        self._follow(at)
        return {"checkpoint": waiting[: self._options.most][-1] if waiting else at}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        after, upto = int(start["checkpoint"]), int(end["checkpoint"])
        self._at = upto
        if after == upto:
            return []
        self._check_fork(after)
        self._check_fork(upto)
        self._follow(after)
        plan = self._plane.read(lambda reader, row: reading.plan(reader, row, after=after, upto=upto))
        config_json = self._plane.read(lambda _, row: row.config_json)
        _check_ranges(config_json, plan)
        return shares(config_json, plan, numbered=self._options.numbered)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return partition.rows()

    def commit(self, end: dict[str, int]) -> None:
        """What is behind may be retired."""
        self._follow(int(end["checkpoint"]))

    def stop(self) -> None:
        """The lease stays for `holdSeconds`, so that a stream that is started again finds what it needs."""
        if self._store_plane is not None:
            self._store_plane.store.close()
            self._store_plane = None

    def _follow(self, after: int) -> None:
        self._plane.do(
            lambda tx: reading.follow(tx, stream=self._lease, holder=_me(), after=after, length=self._options.hold)
        )

    def _check_fork(self, at: int) -> None:
        """A stream cannot unread: what it has read and what was superseded since is for a person to decide (SPEC K4)."""
        if not at:
            return

        def answer(reader: Reader, row: Region) -> NoSuchCheckpoint | None:
            if at == row.head or at in reader.line(row.name, row.head, after=at - 1):
                return None
            shared = reader.line(row.name, row.head)
            fork = max((i for i in reader.line(row.name, at) if i in set(shared)), default=0)
            return NoSuchCheckpoint(
                f"The stream stands at checkpoint {at} of region {row.name}, which is not on the line to the head {row.head} any more: "
                f"the region went back to {fork} and on from there.",
                hint=f"Remove what came after {fork} from where the stream writes, then start it anew "
                f"with after={fork} and a new checkpoint location.",
            )

        refused = self._plane.read(answer)
        if refused is not None:
            raise refused


def _check_ranges(config_json: str, plan: ReadPlan) -> None:
    if plan.ranges:
        from crkafka_core.spark.kafka_ranges import check_held

        check_held(RegionConfig.from_json(config_json), plan)


def _me() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


__all__ = ["NAME", "BatchReader", "CrkafkaSource", "StreamReader", "register"]
