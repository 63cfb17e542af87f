"""Reads in Spark tasks, by Python: named segments, or ranges of Kafka partitions (SPEC K3).

Runs in executors: the configuration travels with its references, which are resolved there (SPEC U2).
"""

from __future__ import annotations

import heapq
import pickle
import sys
import zipimport
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.range_reader import RangeReader, check_same
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
    """A segment, and its rows by SQL."""

    path: str
    checkpoint: int
    rows: int


Share = tuple[File, ...] | tuple[KafkaRange, ...]
"""What one task reads."""


def packed(segments: Sequence[Segment], tasks: int) -> list[Share]:
    """Segments as at most `tasks` shares of about equal size: the largest first, each to the smallest share (SPEC K7)."""
    shares: list[list[File]] = [[] for _ in range(min(tasks, len(segments)))]
    filled = [(0, i) for i in range(len(shares))]
    for segment in sorted(segments, key=lambda s: -s.bytes):
        size, least = filled[0]
        shares[least].append(File(segment.path, segment.checkpoint, segment.rows))
        heapq.heapreplace(filled, (size + segment.bytes, least))
    return [tuple(share) for share in shares]


def spread(ranges: Sequence[KafkaRange], tasks: int) -> list[Share]:
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
    return [tuple(share) for share in shares]


@dataclass(frozen=True)
class ReadRequest:
    """Columns and records that a read wants, the same for all its tasks."""

    columns: tuple[str, ...] = tuple(SEGMENT.names)
    """In the order of the answer."""
    selection: Selection = EVERYTHING

    def answer(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with these columns in this order."""
        return batch if tuple(batch.schema.names) == self.columns else batch.select(self.columns)


def rows_of_shares(
    config_json: str, shares: Sequence[bytes], wanted: ReadRequest, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of the pickled shares whose numbers are in the first column."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from rows_of(config_json, pickle.loads(shares[number]), wanted)


def rows_of(config_json: str, share: Share, wanted: ReadRequest) -> Iterator[pa.RecordBatch]:
    """The rows of a share; another number of rows than was landed is a data-loss error."""
    config = RegionConfig.from_json(config_json)
    if files := [item for item in share if isinstance(item, File)]:
        yield from filled(_files(config, files, wanted))
    if ranges := [item for item in share if isinstance(item, KafkaRange)]:
        yield from filled(_ranges(config, ranges, wanted))
    forget_archives()


def _files(config: RegionConfig, files: Iterable[File], wanted: ReadRequest) -> Iterator[pa.RecordBatch]:
    storage = Storage.of(config)
    for file in files:
        selection = wanted.selection.within(file.checkpoint)
        yield from map(
            wanted.answer,
            scan_segment(storage, file.path, landed=file.rows, columns=wanted.columns, selection=selection),
        )


def forget_archives() -> None:
    """Remove archives from Python's path cache: `importlib.invalidate_caches()`, with which Spark begins each task, reads all of them
    again (0.15 s). An archive is read when something is imported from it.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


def filled(
    batches: Iterable[pa.RecordBatch], rows: int = BATCH_ROWS, size: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Batches of about `rows` rows or `size` bytes at most, a larger record alone: small ones joined, large ones split (SPEC K7).

    A batch of a hundred rows costs Spark as much as one of thousands; it holds one of each task in memory, and refuses 2 GiB.
    """
    held: list[pa.RecordBatch] = []
    count = filling = 0
    for batch, takes in (part for given in batches for part in _parts(given, size)):
        if held and (count >= rows or filling + takes > size):
            yield pa.concat_batches(held)
            held, count, filling = [], 0, 0
        held.append(batch)
        count, filling = count + batch.num_rows, filling + takes
    if held:
        yield pa.concat_batches(held)


def _parts(batch: pa.RecordBatch, size: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The batch, halved until each part fits, and the bytes of each."""
    takes = batch.get_total_buffer_size()  # of whole buffers: quicker than `nbytes`, which counts the slice
    if takes > size // 16:  # large, or a part of something large
        takes = batch.nbytes
    if batch.num_rows <= 1 or takes <= size:
        yield batch, takes
        return
    half = batch.num_rows // 2
    yield from _parts(batch.slice(0, half), size)
    yield from _parts(batch.slice(half), size)


def _ranges(config: RegionConfig, ranges: Sequence[KafkaRange], wanted: ReadRequest) -> Iterator[pa.RecordBatch]:
    """The records of each range, which is read to its end, whatever is selected, so that its rows can be counted."""
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
    # Last: a topic can be made again between the plan and the end of the read.
    admin = KafkaAdmin(kafka, client_id=f"crkafka-{config.region}-reads")
    try:
        check_same(admin, ranges)
    finally:
        admin.close()
