"""What one Spark task reads by itself in Python: named segments, or ranges of one partition of Kafka (SPEC K3).

Runs in executors: the configuration travels with its references, which are resolved there (SPEC §17).
"""

from __future__ import annotations

import heapq
import json
import sys
import zipimport
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.kafka.range_reader import RangeReader
from crkafka_core.model.errors import DataLoss
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Segment
from crkafka_core.plane.reading import KafkaRange
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.scan import scan_segment
from crkafka_core.segments.storage import Storage
from crkafka_core.spark.names import CHECKPOINT

NUMBERED = SCHEMA.append(pa.field(CHECKPOINT, pa.int64()))


@dataclass(frozen=True)
class File:
    """A segment, with what SQL says of it."""

    path: str
    checkpoint: int
    rows: int


@dataclass(frozen=True)
class Work:
    """The share of one task."""

    files: tuple[File, ...] = ()
    ranges: tuple[KafkaRange, ...] = ()

    def to_json(self) -> str:
        # `vars` for files: of thousands `asdict`, which copies deeply, takes a twentieth of the time of reading them.
        return json.dumps({"files": [vars(f) for f in self.files], "ranges": [asdict(r) for r in self.ranges]})

    @classmethod
    def from_json(cls, text: str) -> Work:
        read = json.loads(text)
        return cls(tuple(File(**f) for f in read["files"]), tuple(KafkaRange(**r) for r in read["ranges"]))


def packed(segments: Sequence[Segment], tasks: int) -> list[Work]:
    """Segments as so many shares of about equal size, or fewer: the largest first, each to whoever has least (SPEC K7)."""
    shares: list[list[File]] = [[] for _ in range(min(tasks, len(segments)))]
    filled = [(0, i) for i in range(len(shares))]
    for segment in sorted(segments, key=lambda s: -s.bytes):
        size, least = filled[0]
        shares[least].append(File(segment.path, segment.checkpoint, segment.rows))
        heapq.heapreplace(filled, (size + segment.bytes, least))
    return [Work(files=tuple(share)) for share in shares]


def spread(ranges: Sequence[KafkaRange], tasks: int) -> list[Work]:
    """Ranges as shares of about equal rows; neighbours of one partition stay together, so that a task reads on."""
    ordered = sorted(ranges, key=lambda r: (r.topic, r.partition, r.start))
    wanted = max(1, sum(r.rows for r in ordered) // max(1, tasks))
    shares: list[list[KafkaRange]] = []
    filled = wanted
    for item in ordered:
        if filled >= wanted:
            shares.append([])
            filled = 0
        shares[-1].append(item)
        filled += item.rows
    return [Work(ranges=tuple(share)) for share in shares]


def rows_of(config_json: str, work: Work, *, numbered: bool) -> Iterator[pa.RecordBatch]:
    """The rows of this share; fewer or more than was landed is a data-loss error, not a shorter answer."""
    config = RegionConfig.from_json(config_json)
    if work.files:
        yield from filled(_files(config, work.files, numbered))
    if work.ranges:
        yield from filled(_ranges(config, work.ranges, numbered))
    forget_archives()


def _files(config: RegionConfig, files: Iterable[File], numbered: bool) -> Iterator[pa.RecordBatch]:
    resolved = config.resolve()
    storage = Storage.open(resolved.storage, resolved.storage_options)
    for file in files:
        count = 0
        for batch in scan_segment(storage, file.path):
            count += batch.num_rows
            yield _with_number(batch, file.checkpoint) if numbered else batch
        if count != file.rows:
            raise DataLoss(
                f"Segment {file.path} of checkpoint {file.checkpoint} has {count} rows; {file.rows} were landed.",
                hint="The file was changed after it was published.",
            )


def forget_archives() -> None:
    """Make the next task in this Python process start sooner.

    Spark's first act in each task is `importlib.invalidate_caches()`, which reads the directory of every archive on the path
    anew, PySpark's own among them: 0.15 s. One that is forgotten is read when something is imported from it.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


def filled(batches: Iterable[pa.RecordBatch], rows: int = 10_000) -> Iterator[pa.RecordBatch]:
    """Many small batches as few: one of a hundred rows costs Spark as much as one of thousands (SPEC K7)."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, count = [], 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _ranges(config: RegionConfig, ranges: Iterable[KafkaRange], numbered: bool) -> Iterator[pa.RecordBatch]:
    with RangeReader(config.resolved_kafka()) as reader:
        for item in ranges:
            count = 0
            for batch in reader.read(TP(item.topic, item.partition), item.start, item.stop):
                for piece in batch.pieces():
                    count += piece.num_rows
                    yield _with_number(piece, item.checkpoint) if numbered else piece
            if count != item.rows:
                raise DataLoss(
                    f"Checkpoint {item.checkpoint}: Kafka now gives {count} records of {item.tp} [{item.start}, {item.stop}); "
                    f"{item.rows} were landed.",
                    hint="Compaction or deletion changed them: this checkpoint cannot be read again from Kafka.",
                )


def _with_number(batch: pa.RecordBatch, checkpoint: int) -> pa.RecordBatch:
    number = pa.array([checkpoint], pa.int64()).take(pa.array([0] * batch.num_rows, pa.int32()))
    return pa.RecordBatch.from_arrays([*batch.columns, number], schema=NUMBERED)
