"""A segment read batch by batch: only what is wanted of it, and never fewer rows than were landed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crkafka_core.model.errors import DataLoss
from crkafka_core.model.offsets import TP
from crkafka_core.model.segment import SegmentName, epoch_folder, segment_path
from crkafka_core.model.selection import Selection
from crkafka_core.segments.batch import SCHEMA, SEGMENT, numbered
from crkafka_core.segments.rows import batches
from crkafka_core.segments.scan import scan_segment
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import SegmentWriter
from tests.rigs.landing import records

PATH = "uid/00000001/m0-3-0.parquet"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A segment of ten row groups of a hundred records, five of each partition."""
    made = Storage.open(str(tmp_path))
    writer = SegmentWriter(made, PATH, row_group_bytes=1)
    for group in range(10):
        start = (group // 2) * 100
        writer.write(records(TP("orders", group % 2), start, start + 100))
    writer.close()
    return made


@pytest.mark.parametrize(
    ("wanted", "groups", "rows"),
    [
        ({}, 10, 1000),
        ({"partitions": [1]}, 5, 500),
        ({"partitions": [1], "from_offset": 150, "to_offset": 201}, 2, 51),
        ({"topics": ["refunds"]}, 0, 0),
        ({"from_time": 1_700_000_000_450}, 2, 100),
        ({"to_time": 1_700_000_000_001}, 2, 2),
    ],
)
def test_row_groups_without_what_is_wanted_are_not_read(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any], groups: int, rows: int
) -> None:
    opened: list[int] = []
    read = pq.ParquetFile.iter_batches

    def seen(self, size, row_groups, **more):  # type: ignore[no-untyped-def]
        opened.extend(row_groups)
        return read(self, size, row_groups, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", seen)
    monkeypatch.setattr("crkafka_core.segments.scan.BATCH_ROWS", 999)  # one that is small is read at once
    selection = Selection.of(**wanted)
    pieces = list(scan_segment(storage, PATH, columns=["offset"], selection=selection))
    assert (len(opened), sum(b.num_rows for b in pieces)) == (groups, rows)
    assert all(b.schema.names == ["offset"] for b in pieces)


def test_another_number_of_rows_than_was_landed_is_a_loss(storage: Storage) -> None:
    assert sum(b.num_rows for b in scan_segment(storage, PATH, landed=1000)) == 1000
    with pytest.raises(DataLoss, match=r"m0-3-0.parquet has 1,000 rows; 999 were landed"):
        list(scan_segment(storage, PATH, landed=999, columns=["offset"]))


@pytest.mark.parametrize("left", [0, 4_000])
def test_a_segment_that_was_cut_is_named(storage: Storage, left: int) -> None:
    file = Path(storage.url) / PATH
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(DataLoss, match=r"Segment uid/00000001/m0-3-0.parquet is damaged"):
        list(scan_segment(storage, PATH, landed=1000))


@pytest.mark.parametrize(
    ("written", "damaged"),
    [
        (b'{"crkafka_checkpoint": 3', b'{ crkafka_checkpoint": 3'),
        (b'"crkafka_checkpoint": 3', b'"crkafka_checkpoint":{}'),
        (b'"timestampType": 0', b'"timestampType":{}'),
        (b'"timestampType": 0, "topic": "orders"', b'"timestampType":5000000000,"topic":""'),
        (b'"topic": "orders"', b'"topic": 12345678'),
        (b'"topic": "orders"', b'"value": "orders"'),
    ],
)
def test_a_footer_that_was_damaged_is_named(storage: Storage, written: bytes, damaged: bytes) -> None:
    file = Path(storage.url) / PATH
    content = file.read_bytes()
    assert len(written) == len(damaged) and written in content
    file.write_bytes(content.replace(written, damaged))
    with pytest.raises(DataLoss, match=r"Segment uid/00000001/m0-3-0.parquet is damaged"):
        list(scan_segment(storage, PATH, landed=1000))


@pytest.mark.parametrize("wanted", [{}, {"partitions": [0, 1]}])
def test_what_a_footer_tells_does_not_go_with_its_rows(storage: Storage, wanted: dict[str, Any]) -> None:
    """It is not true of another file that gets them beside other rows."""
    read = [*scan_segment(storage, PATH, selection=Selection.of(**wanted))]
    read += batches(storage, PATH, ["offset"], only=False)
    assert read and not any(batch.schema.metadata for batch in read)


@settings(max_examples=60)
@given(
    groups=st.lists(
        st.tuples(
            st.sampled_from([1, 10, 1500]),
            st.sampled_from([TP("orders", 0), TP("orders", 1), TP("réfunds", 0)]),
            *(
                st.tuples(values, values)
                for values in (
                    st.sampled_from([None, None, b"", b"key"]),
                    st.sampled_from([None, None, [], [{"key": "h", "value": None}]]),
                    st.sampled_from([0, 0, 1, None]),
                )
            ),
        ),
        min_size=1,
        max_size=3,
    ),
    columns=st.none() | st.sets(st.sampled_from(SEGMENT.names), min_size=1).map(sorted),
)
def test_columns_that_are_constant_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, groups: list[tuple[Any, ...]], columns: list[str] | None
) -> None:
    storage = Storage.open(str(tmp_path_factory.mktemp("segments")))
    writer = SegmentWriter(storage, PATH, row_group_bytes=1)
    written: list[pa.RecordBatch] = []
    for number, (count, tp, *values) in enumerate(groups):
        batch = records(tp, 2000 * number, 2000 * number + count)
        rows = batch.records
        for name, (first, others) in zip(("key", "headers", "timestampType"), values, strict=True):
            at = SCHEMA.get_field_index(name)
            rows = rows.set_column(
                at, SCHEMA.field(at), pa.array([first] + [others] * (count - 1), SCHEMA.field(at).type)
            )
        written.append(rows)
        writer.write(replace(batch, records=rows))
    writer.close()
    in_file = [numbered(rows, 3) for rows in written]
    pieces = list(scan_segment(storage, PATH, landed=sum(rows.num_rows for rows in written), columns=columns))
    wanted = [name for name in SEGMENT.names if columns is None or name in columns]
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches(in_file, SEGMENT).select(wanted))
    assert pa.Table.from_batches(in_file, SEGMENT).equals(pq.read_table(Path(storage.url) / PATH).cast(SEGMENT))


word = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,11}", fullmatch=True)
number = st.integers(0, 2**63 - 1)


@given(word, number, word, number, number)
def test_a_path_gives_its_name_back(uid: str, epoch: int, incarnation: str, parent: int, seq: int) -> None:
    name = SegmentName(uid, epoch, incarnation, parent, seq)
    assert SegmentName.parse(name.path) == name
    assert name.path.startswith(epoch_folder(uid, epoch) + "/")


def test_the_path_holds_what_makes_it_unique() -> None:
    assert segment_path("r1", 7, "abc", 12, 3) == "r1/00000007/abc-12-3.parquet"


@pytest.mark.parametrize(
    "path",
    [
        "r1/00000007/abc-12.parquet",
        "r1/7/abc-12-3.parquet",
        "r1/00000007/abc-12-3.parquet.tmp",
        "r1/00000007/sub/abc-12-3.parquet",
        "r1/00000007/abc-012-3.parquet",
        "r1/000000007/abc-12-3.parquet",
        "../00000007/abc-12-3.parquet",
        "_SUCCESS",
    ],
)
def test_what_is_not_ours_has_no_name(path: str) -> None:
    assert SegmentName.parse(path) is None


@pytest.mark.parametrize(("uid", "incarnation"), [("a/b", "c"), ("..", "c"), ("a", "orders/0"), ("", "c"), ("a", "")])
def test_words_that_would_leave_the_folder_are_refused(uid: str, incarnation: str) -> None:
    with pytest.raises(ValueError, match="segment's path"):
        segment_path(uid, 1, incarnation, 0, 0)
