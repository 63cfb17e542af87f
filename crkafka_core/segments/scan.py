"""Reads segments: batch by batch for readers with less memory, or whole; and hashes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import isal_zlib

from crkafka_core.model.errors import DataLoss
from crkafka_core.model.plural import plural
from crkafka_core.model.selection import EVERYTHING, Between, Selection
from crkafka_core.segments.batch import CHECKPOINT, SEGMENT, TOPIC_IDS
from crkafka_core.segments.constants import CONSTANTS, plan_of
from crkafka_core.segments.errors import storage_error, storage_errors
from crkafka_core.segments.storage import Storage

BATCH_ROWS = 10_000
BATCH_BYTES = 8 << 20
"""Most rows of a batch, and its approximate bytes: records of a megabyte come a few at a time."""


def scan_segment(
    storage: Storage,
    path: str,
    *,
    landed: int | None = None,
    columns: Sequence[str] | None = None,
    selection: Selection = EVERYTHING,
) -> Iterator[pa.RecordBatch]:
    """The rows of a segment in file order; SegmentMissing if it does not exist, DataLoss if it has not `landed` rows.

    Only the named columns and the selected rows; row groups without selected rows are not read. Single-threaded: callers read many,
    mostly small files in parallel, and Arrow's threads would cost more than they save.
    """
    with storage.open_read(path) as source:
        try:
            file = _File(source, pre_buffer=not storage.is_local)
            meta = file.metadata
            if landed is not None and meta.num_rows != landed:
                raise DataLoss(
                    f"Segment {path} has {plural(meta.num_rows, 'row')}; {plural(landed, 'was', 'were')} landed.",
                    hint="The file was changed after it was published.",
                )
            wanted = _COLUMNS if columns is None else tuple(name for name in _COLUMNS if name in columns)
            size = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
            small = meta.num_rows <= BATCH_ROWS and size <= BATCH_BYTES
            yield from _at_once(file, wanted) if small and selection.everything else _batches(file, wanted, selection)
        except ValueError as error:  # Arrow's own among them
            raise DataLoss(
                f"Segment {path} is damaged: {error}", hint="The file was changed after it was published."
            ) from error
        except OSError as error:
            raise storage_error(error, "Reading", storage.uri(path)) from error


def _at_once(file: pq.ParquetFile, wanted: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """All rows of a small segment in one batch, without decoding its constant columns."""
    meta = file.metadata
    plan = plan_of((meta.metadata or {}).get(CONSTANTS, b""), wanted)
    if not plan.left:
        yield plan.completed((), meta.num_rows)
        return
    for batch in _as_written(file.read(plan.left, use_threads=False), plan.read).to_batches():
        yield plan.completed(batch.columns, batch.num_rows)


def _batches(file: pq.ParquetFile, wanted: Sequence[str], selection: Selection) -> Iterator[pa.RecordBatch]:
    needed = [name for name in _COLUMNS if name in {*wanted, *_filtered(selection)}]
    read = pa.schema([SEGMENT.field(name) for name in needed])
    groups = [i for i in range(file.metadata.num_row_groups) if _touched(file.metadata.row_group(i), selection)]
    for batch in file.iter_batches(rows_at_once(file.metadata), row_groups=groups, columns=needed, use_threads=False):
        kept = selected(_as_written(batch, read), selection)
        if kept.num_rows:
            yield kept if len(needed) == len(wanted) else kept.select(wanted)


def selected(batch: pa.RecordBatch, selection: Selection) -> pa.RecordBatch:
    """The selected rows of a batch, which has all columns that the selection filters by."""
    masks = []
    if selection.topics is not None:
        masks.append(pc.is_in(batch.column("topic"), pa.array(selection.topics, pa.string())))
    if selection.partitions is not None:
        masks.append(pc.is_in(batch.column("partition"), pa.array(selection.partitions, pa.int32())))
    masks += _inside(batch, "offset", selection.offsets, pa.int64())
    masks += _inside(batch, "timestamp", selection.times, pa.timestamp("us", tz="UTC"))
    for _, topic, partition, offsets in selection.erased:
        here = pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("partition"), partition))
        masks.append(pc.invert(pc.and_(here, pc.is_in(batch.column("offset"), pa.array(offsets, pa.int64())))))
    for mask in masks[1:]:
        masks[0] = pc.and_kleene(masks[0], mask)
    return batch.filter(masks[0]) if masks else batch


def _inside(batch: pa.RecordBatch, name: str, between: Between, kind: pa.DataType) -> list[Any]:
    masks = []
    if between.start is not None:
        masks.append(pc.greater_equal(batch.column(name), pa.scalar(between.start, kind)))
    if between.stop is not None:
        masks.append(pc.less(batch.column(name), pa.scalar(between.stop, kind)))
    return masks


def _filtered(selection: Selection) -> set[str]:
    """The columns that the selection filters by."""
    filters = {
        "topic": selection.topics is not None or selection.erased,
        "partition": selection.partitions is not None or selection.erased,
        "offset": selection.offsets != Between() or selection.erased,
        "timestamp": selection.times != Between(),
    }
    return {name for name, active in filters.items() if active}


def _touched(group: Any, selection: Selection) -> bool:
    """Whether a row group may have selected rows, by its statistics."""
    columns = (group.column(i) for i in range(group.num_columns))
    known = ((c.path_in_schema, c.statistics) for c in columns if c.statistics is not None and c.statistics.has_min_max)
    return all(_may_hold(name, stats, selection) for name, stats in known)


def _may_hold(name: str, stats: Any, selection: Selection) -> bool:
    match name:
        case "topic":
            return selection.topics is None or any(stats.min <= t <= stats.max for t in selection.topics)
        case "partition":
            return selection.partitions is None or any(stats.min <= p <= stats.max for p in selection.partitions)
        case "offset":
            return selection.offsets.touches(stats.min, stats.max + 1)
        case "timestamp":  # raw, since it may be past the year 9999, Python's last
            return selection.times.touches(stats.min_raw, stats.max_raw + 1)
    return True


def rows_at_once(meta: Any, most: int = BATCH_ROWS) -> int:
    """Rows of a batch of about `BATCH_BYTES` in the row group with the largest rows."""
    least = most
    for i in range(meta.num_row_groups):
        group = meta.row_group(i)
        if group.total_byte_size:
            least = min(least, group.num_rows * BATCH_BYTES // group.total_byte_size)
    return max(1, int(least))


class _File(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file with the known places of a segment's columns: listing their names takes a tenth of a small file's time."""

    def _build_nested_paths(self) -> dict[str, list[int]]:
        return _PLACES


_COLUMNS = tuple(SEGMENT.names)
_PLACES = {name: [place] for place, name in enumerate(_COLUMNS)} | {"headers": [7, 8], CHECKPOINT: [9]}
"""Indexes of each column's leaves in Parquet: headers have two."""

T = TypeVar("T", pa.Table, pa.RecordBatch)


def _as_written(rows: T, wanted: pa.Schema) -> T:
    rows = rows if rows.schema.equals(wanted) else rows.select(wanted.names).cast(wanted)
    return rows.replace_schema_metadata(None)  # the footer's metadata is true of this file only


def read_with_topics(storage: Storage, path: str, columns: list[str]) -> tuple[pa.Table, dict[str, str]]:
    """These columns of all rows of a segment in file order, and the ids of its topics."""
    with storage.open_read(path) as source, storage_errors("Reading", storage.uri(path)):
        file = pq.ParquetFile(source)
        table = file.read(columns=columns).cast(pa.schema([SEGMENT.field(name) for name in columns]))
    return table, json.loads((file.metadata.metadata or {}).get(TOPIC_IDS.encode(), b"{}"))


def hash_of(storage: Storage, path: str) -> tuple[str, int]:
    """Hash and size of a file, to compare with those in the segment's row."""
    crc, size = 0, 0
    with storage.open_read(path) as source:
        while chunk := source.read(4 << 20):
            crc, size = isal_zlib.crc32(chunk, crc), size + len(chunk)
    return f"crc32:{crc:08x}", size
