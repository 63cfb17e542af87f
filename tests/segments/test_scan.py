"""A segment read batch by batch: only what is wanted of it, and never fewer rows than were landed."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crkafka_core.model.errors import DataLoss
from crkafka_core.model.offsets import TP
from crkafka_core.model.selection import Selection
from crkafka_core.segments.scan import scan_segment
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import SegmentWriter
from crkafka_core.testing.landing import records

PATH = "uid/00000001/m0-0-0.parquet"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A segment of ten row groups of a hundred records, five of each partition."""
    found = Storage.open(str(tmp_path))
    writer = SegmentWriter(found, PATH, row_group_bytes=1)
    for group in range(10):
        start = (group // 2) * 100
        writer.write(records(TP("orders", group % 2), start, start + 100))
    writer.close()
    return found


@pytest.mark.parametrize(
    ("given", "groups", "rows"),
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
    storage: Storage, monkeypatch: pytest.MonkeyPatch, given: dict[str, object], groups: int, rows: int
) -> None:
    opened: list[int] = []
    read = pq.ParquetFile.iter_batches

    def seen(self, size, row_groups, **more):  # type: ignore[no-untyped-def]
        opened.extend(row_groups)
        return read(self, size, row_groups, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", seen)
    selection = Selection.of(**given)  # type: ignore[arg-type]
    found = list(scan_segment(storage, PATH, columns=["offset"], selection=selection))
    assert (len(opened), sum(b.num_rows for b in found)) == (groups, rows)
    assert all(b.schema.names == ["offset"] for b in found)


def test_another_number_of_rows_than_was_landed_is_a_loss(storage: Storage) -> None:
    assert sum(b.num_rows for b in scan_segment(storage, PATH, landed=1000)) == 1000
    with pytest.raises(DataLoss, match=r"m0-0-0.parquet has 1,000 rows; 999 were landed"):
        list(scan_segment(storage, PATH, landed=999, columns=["offset"]))


@pytest.mark.parametrize("left", [0, 4_000])
def test_a_segment_that_was_cut_is_named(storage: Storage, left: int) -> None:
    file = Path(storage.url) / PATH
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(DataLoss, match=r"Segment uid/00000001/m0-0-0.parquet is damaged"):
        list(scan_segment(storage, PATH, landed=1000))
