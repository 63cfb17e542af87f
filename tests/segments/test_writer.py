"""The open segment: what is written can be read, counted and hashed, on disk and in S3 (SPEC C7, K2)."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crkafka_core.model.offsets import TP
from crkafka_core.model.segment import Span
from crkafka_core.segments.batch import CHECKPOINT, SEGMENT, numbered
from crkafka_core.segments.constants import CONSTANTS
from crkafka_core.segments.errors import SegmentExists, SegmentMissing
from crkafka_core.segments.scan import hash_of, read_with_topics
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import COMPRESSIONS, MERGED, SegmentWriter
from tests.segments.conftest import MakeBatch

A0, B1 = TP("a", 0), TP("b", 1)
PATH = "uid/00000001/inc-7-1.parquet"


def read_segment(storage: Storage, path: str, columns: list[str] = SEGMENT.names) -> pa.Table:
    return read_with_topics(storage, path, columns)[0]


def test_what_was_written_is_read_back_in_order_with_rows_bytes_hash_and_spans(
    storage: Storage, make_batch: MakeBatch
) -> None:
    batches = [make_batch(A0, 10, 300), make_batch(B1, 5, 200), make_batch(A0, 310, 100)]
    writer = SegmentWriter(storage, PATH, row_group_bytes=30_000)
    for batch in batches:
        writer.write(batch)
    closed = writer.close()
    written = [numbered(piece, 7) for batch in batches for piece in batch.pieces()]
    assert read_segment(storage, PATH).equals(pa.Table.from_batches(written, SEGMENT))
    assert (closed.path, closed.rows) == (PATH, 600)
    assert (closed.hash, closed.bytes) == hash_of(storage, PATH)
    assert closed.spans == (Span(A0, 10, 410, 400), Span(B1, 5, 205, 200))
    assert writer.close() == closed


def test_full_row_groups_are_written_while_the_region_runs(tmp_path: object, make_batch: MakeBatch) -> None:
    storage = Storage.open(str(tmp_path))
    writer = SegmentWriter(storage, PATH, row_group_bytes=50_000, compression="none")
    written = []
    for i in range(6):
        writer.write(make_batch(A0, i * 300, 300))
        written.append(next(iter(storage.list(""))).bytes)
    assert written[0] <= 4, "less than a row group waits in memory"
    assert written[-1] > 100_000
    closed = writer.close()
    with storage.open_read(PATH) as source:
        assert pq.ParquetFile(source).num_row_groups == 3
    assert closed.rows == 1_800


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_reads_back(storage: Storage, make_batch: MakeBatch, compression: str) -> None:
    batch = make_batch(A0, 0, 50)
    writer = SegmentWriter(storage, PATH, compression=compression)
    writer.write(batch)
    writer.close()
    assert read_segment(storage, PATH).to_batches()[0].equals(numbered(batch.records, 7))


def test_rows_that_do_not_count_are_not_written(storage: Storage, make_batch: MakeBatch) -> None:
    writer = SegmentWriter(storage, PATH)
    writer.write(make_batch(A0, 0, 10).skip_below({A0: 4}).head(3)[0])
    writer.write(make_batch(B1, 0, 10).only([]))
    assert writer.close().spans == (Span(A0, 4, 7, 3),)
    assert read_segment(storage, PATH, ["offset"]).column("offset").to_pylist() == [4, 5, 6]


def test_a_discarded_segment_leaves_nothing(storage: Storage, make_batch: MakeBatch) -> None:
    writer = SegmentWriter(storage, PATH, row_group_bytes=1_000)
    writer.write(make_batch(A0, 0, 500))
    writer.discard()
    writer.discard()
    assert not storage.exists(PATH)
    assert list(storage.list("")) == []


def test_discarding_after_closing_keeps_the_file(storage: Storage, make_batch: MakeBatch) -> None:
    writer = SegmentWriter(storage, PATH)
    writer.write(make_batch(A0, 0, 5))
    writer.close()
    writer.discard()
    assert read_segment(storage, PATH).num_rows == 5


def test_C8_a_segment_names_its_checkpoint_in_each_row_and_in_its_footer(
    storage: Storage, make_batch: MakeBatch
) -> None:
    """Of a constant no row costs anything: the column is run lengths of one value of a dictionary."""
    writer = SegmentWriter(storage, PATH, row_group_bytes=30_000)
    for first in range(0, 3_000, 300):
        writer.write(make_batch(A0, first, 300))
    writer.close(merged=5)
    with storage.open_read(PATH) as source:
        about = pq.ParquetFile(source).metadata
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    columns = [group.column(about.schema.names.index(CHECKPOINT)) for group in groups]
    assert len(columns) > 2
    assert {(c.statistics.min, c.statistics.max, c.statistics.null_count) for c in columns} == {(7, 7, 0)}
    assert max(c.total_compressed_size for c in columns) < 100
    assert about.schema.column(about.num_columns - 1).max_definition_level == 0, "it cannot be null"
    assert (about.metadata[MERGED.encode()], json.loads(about.metadata[CONSTANTS])[CHECKPOINT]) == (b"5", 7)


def test_C8_a_file_whose_name_tells_no_checkpoint_is_no_segment(storage: Storage) -> None:
    with pytest.raises(ValueError, match="not the name of a segment"):
        SegmentWriter(storage, "u/1/a.parquet")


def test_a_segment_without_rows_is_a_valid_file(storage: Storage) -> None:
    closed = SegmentWriter(storage, PATH).close()
    assert (closed.rows, closed.spans) == (0, ())
    assert read_segment(storage, PATH).schema == SEGMENT


def test_a_name_is_used_once(tmp_path: object, make_batch: MakeBatch) -> None:
    storage = Storage.open(str(tmp_path))
    first = SegmentWriter(storage, PATH)
    with pytest.raises(SegmentExists, match="exists already"):
        SegmentWriter(storage, PATH)
    first.write(make_batch(A0, 0, 5))
    assert first.close().rows == 5


def test_a_missing_segment_is_named(storage: Storage) -> None:
    with pytest.raises(SegmentMissing, match="inc-7-1"):
        read_segment(storage, PATH)


def test_a_large_value_and_many_small_ones_share_a_segment(storage: Storage, make_batch: MakeBatch) -> None:
    writer = SegmentWriter(storage, PATH)
    writer.write(make_batch(A0, 0, 1, value_bytes=12 << 20))
    writer.write(make_batch(A0, 1, 2_000, value_bytes=random.Random(1).randrange(1, 50)))
    closed = writer.close()
    table = read_segment(storage, PATH)
    assert table.num_rows == closed.rows == 2_001
    assert len(table.column("value")[0].as_py()) == 12 << 20


@pytest.mark.parametrize(("random", "text", "codec"), [(200, 4_000, "LZ4"), (4_000, 200, "UNCOMPRESSED")])
def test_what_the_first_values_are_like_does_not_decide_for_all(
    storage: Storage, make_batch: MakeBatch, random: int, text: int, codec: str
) -> None:
    """Of two topics in a segment, one may be encrypted and the other JSON."""
    writer = SegmentWriter(storage, PATH)
    writer.write(make_batch(A0, 0, random, value_bytes=900))
    writer.write(make_batch(B1, 0, text, value=b"the same again and again" * 40))
    writer.close()
    with storage.open_read(PATH) as source:
        group = pq.ParquetFile(source).metadata.row_group(0)
        assert [
            group.column(i).compression for i in range(group.num_columns) if group.column(i).path_in_schema == "value"
        ] == [codec]


@pytest.mark.parametrize(("value", "codec"), [(b"the same again and again" * 40, "LZ4"), (None, "UNCOMPRESSED")])
def test_values_that_do_not_shrink_are_not_compressed(
    storage: Storage, make_batch: MakeBatch, value: bytes | None, codec: str
) -> None:
    """Random bytes cost time at each compression, and at each reading, for nothing."""
    batch = make_batch(A0, 0, 200, value_bytes=1_000, value=value)
    writer = SegmentWriter(storage, PATH)
    writer.write(batch)
    writer.close()
    with storage.open_read(PATH) as source:
        group = pq.ParquetFile(source).metadata.row_group(0)
        codecs = {group.column(i).path_in_schema: group.column(i).compression for i in range(group.num_columns)}
    assert codecs["value"] == codec
    assert codecs["offset"] == "LZ4"
    assert read_segment(storage, PATH).to_batches()[0].equals(numbered(batch.records, 7))
