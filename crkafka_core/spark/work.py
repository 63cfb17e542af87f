"""What one Spark task reads by itself in Python: named segments, or ranges of one partition of Kafka (SPEC K3).

Runs in executors: the configuration travels with its references, which are resolved there (SPEC U2).
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
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.archived_ranges import check_same
from crkafka_core.kafka.range_reader import RangeReader
from crkafka_core.model.errors import DataLoss
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Segment
from crkafka_core.model.selection import EVERYTHING, Selection
from crkafka_core.plane.reading import KafkaRange
from crkafka_core.segments.batch import SEGMENT, numbered
from crkafka_core.segments.scan import BATCH_BYTES, BATCH_ROWS, scan_segment, selected
from crkafka_core.segments.storage import Storage


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


@dataclass(frozen=True)
class ReadRequest:
    """What a read wants of its records; for all its tasks the same."""

    columns: tuple[str, ...] = tuple(SEGMENT.names)
    """In the order of the answer."""
    selection: Selection = EVERYTHING

    def to_json(self) -> str:
        return json.dumps({"columns": self.columns, "selection": self.selection.to_json()})

    @classmethod
    def from_json(cls, text: str) -> ReadRequest:
        read = json.loads(text)
        return cls(tuple(read["columns"]), Selection.from_json(read["selection"]))

    def answer(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with these columns in this order."""
        return batch if tuple(batch.schema.names) == self.columns else batch.select(self.columns)


def rows_of(config_json: str, work: Work, wanted: ReadRequest) -> Iterator[pa.RecordBatch]:
    """The rows of this share; fewer or more than was landed is a data-loss error, not a shorter answer."""
    config = RegionConfig.from_json(config_json)
    if work.files:
        yield from filled(_files(config, work.files, wanted))
    if work.ranges:
        yield from filled(_ranges(config, work.ranges, wanted))
    forget_archives()


def _files(config: RegionConfig, files: Iterable[File], wanted: ReadRequest) -> Iterator[pa.RecordBatch]:
    storage = Storage.of(config)
    for file in files:
        for batch in scan_segment(
            storage,
            file.path,
            landed=file.rows,
            columns=wanted.columns,
            selection=wanted.selection.within(file.checkpoint),
        ):
            yield wanted.answer(batch)


def forget_archives() -> None:
    """Make the next task in this Python process start sooner.

    Spark's first act in each task is `importlib.invalidate_caches()`, which reads the directory of every archive on the path
    anew, PySpark's own among them: 0.15 s. One that is forgotten is read when something is imported from it.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


def filled(
    batches: Iterable[pa.RecordBatch], rows: int = BATCH_ROWS, size: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Many small batches as few: one of a hundred rows costs Spark as much as one of thousands (SPEC K7). Large ones in parts.

    None has more than about `rows` rows or `size` bytes, but for a single record that is larger: Spark holds a batch of each
    task in memory, and takes none of 2 GiB.
    """
    held: list[pa.RecordBatch] = []
    count = filling = 0
    for batch, takes in (part for given in batches for part in _parts(given, size)):
        if held and filling + takes > size:
            yield from _joined(held)
            held, count, filling = [], 0, 0
        held.append(batch)
        count, filling = count + batch.num_rows, filling + takes
        if count >= rows:
            yield from _joined(held)
            held, count, filling = [], 0, 0
    yield from _joined(held)


def _parts(batch: pa.RecordBatch, size: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Halves of halves, until each fits, with its bytes."""
    takes = batch.get_total_buffer_size()  # its buffers as a whole: told at once, while `nbytes` counts its own part
    if takes > size // 16:  # large, or a part of something large
        takes = batch.nbytes
    if batch.num_rows <= 1 or takes <= size:
        yield batch, takes
        return
    half = batch.num_rows // 2
    yield from _parts(batch.slice(0, half), size)
    yield from _parts(batch.slice(half), size)


def _joined(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if batches:
        yield pa.concat_batches(batches)


def _ranges(config: RegionConfig, ranges: Sequence[KafkaRange], wanted: ReadRequest) -> Iterator[pa.RecordBatch]:
    """Each range is read to its end, whatever is selected: only so its rows can be counted."""
    kafka = config.resolved_kafka()
    with RangeReader(kafka) as reader:
        for item in ranges:
            count, selection = 0, wanted.selection.within(item.checkpoint)
            for batch in reader.read(TP(item.topic, item.partition), item.start, item.stop):
                for piece in batch.pieces():
                    count += piece.num_rows
                    kept = selected(piece, selection)
                    if kept.num_rows:
                        yield wanted.answer(numbered(kept, item.checkpoint))
            if count != item.rows:
                raise DataLoss(
                    f"Checkpoint {item.checkpoint}: Kafka now gives {plural(count, 'record')} of {item.tp} [{item.start}, {item.stop}); "
                    f"{item.rows} were landed.",
                    hint="Compaction or deletion changed them, or `isolation.level` is another than when they were read: this "
                    "checkpoint cannot be read again from Kafka.",
                )
    # Looked at last: the plan may be old when the task runs, and a topic can be made anew while it is read.
    admin = KafkaAdmin(kafka, client_id=f"crkafka-{config.region}-reads")
    try:
        check_same(admin, ranges)
    finally:
        admin.close()
