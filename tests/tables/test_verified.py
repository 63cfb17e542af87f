"""`crkafka verify` reads the rows of declared tables, and names the first that is doubled, missing or left behind (SPEC K6, I2, I3)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from crkafka_core.lake import road
from crkafka_core.model.rows import Lease
from crkafka_core.verify import tables
from tests.lake.rig import Crash, dies_at
from tests.tables.conftest import Lake


@pytest.fixture
def filled(lake: Lake) -> Lake:
    for _ in range(3):
        lake.land(), lake.advance()
    assert lake.verified() == []
    return lake


def row(lake: Lake, partition: int, offset: int) -> pa.Table:
    stored = lake.delta().to_pyarrow_table()
    return stored.filter(pc.and_(pc.equal(stored["partition"], partition), pc.equal(stored["offset"], offset)))


def append(lake: Lake, rows: pa.Table) -> None:
    write_deltalake(lake.delta(), rows, mode="append")


def test_one_doubled_and_one_missing_of_a_checkpoint_are_found_though_their_number_is_right(filled: Lake) -> None:
    """Also when a later commit of ours was acknowledged over them."""
    append(filled, row(filled, 0, 6))
    filled.delta().delete("partition = 0 AND offset = 8")
    filled.land(), filled.advance()
    assert filled.look().wrong == {2}
    assert filled.verified() == [
        "K6: table bronze: 1 commit of another program, the first is version 4",
        "K6: table bronze: 1 record is there more than once (checkpoint 2, orders[0], offset 6)",
        "K6: table bronze: 4 of 5 records are there (checkpoint 2, orders[0], offset 8)",
    ]


def test_a_row_that_a_rewind_left_behind_is_named(filled: Lake) -> None:
    left = row(filled, 1, 12)
    filled.landing.rewind(2)
    filled.fence()
    assert filled.verified() == []
    append(filled, left)
    assert (
        "K6: table bronze: 1 row of a checkpoint that is not on the line (checkpoint 3, orders[1], offset 12)"
        in filled.verified()
    )


def test_compacted_and_retired_it_is_compared_all_the_same(filled: Lake) -> None:
    filled.optimize()
    filled.land(), filled.advance()
    filled.landing.retire(1, 2)
    assert filled.verified() == []
    append(filled, row(filled, 0, 2))
    assert "K6: table bronze: 1 record is there more than once (checkpoint 1, orders[0], offset 2)" in filled.verified()


def test_a_commit_that_is_not_acknowledged_is_no_finding_and_one_under_way_is_waited_for(
    filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.land()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        dies_at("after the commit", filled, patch)
        filled.advance()
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        filled.writer_dies()
        road.advance(filled.region, "bronze")

    monkeypatch.setattr(tables, "_pause", pause)
    assert filled.verified() == [] and pauses
    filled.region.plane.do(lambda tx: tx.delete(Lease))


def test_a_file_that_is_not_there_is_a_finding_and_does_not_end_the_look(filled: Lake) -> None:
    gone = Path(filled.delta().file_uris()[0].removeprefix("file://"))
    gone.unlink()
    assert filled.verified() == [f"K6: table bronze: {gone} is not there."]


def test_a_table_that_is_not_there_is_a_finding(filled: Lake) -> None:
    filled.path.rename(filled.path.with_name("away"))
    assert filled.verified()[0] == "K6: table bronze: it is not there, and version 3 was acknowledged"
    assert not DeltaTable.is_deltatable(str(filled.path))


@pytest.fixture
def recreated(lake: Lake) -> Lake:
    """Four checkpoints; the last two are of a topic that was made anew, with offsets that the first has, too."""
    for _ in range(2):
        lake.land(20), lake.advance()
    lake.landing.recreate_topics()
    for _ in range(2):
        lake.land(3), lake.advance()
    assert lake.verified() == []
    return lake


def test_of_a_topic_made_anew_each_row_is_compared_that_tells_its_checkpoint(recreated: Lake) -> None:
    recreated.delta().delete("partition = 0 AND offset = 10")
    recreated.land(2), recreated.advance()
    assert recreated.look().miscounted == (1,)
    assert recreated.verified() == ["K6: table bronze: 19 of 20 records are there (checkpoint 1, orders[0], offset 10)"]


def test_of_a_topic_made_anew_what_is_missing_is_of_the_checkpoint_whose_file_is_gone(recreated: Lake) -> None:
    """Its rows but one are in a file that tells nothing, at offsets that the old topic has, too."""
    recreated.delta().delete("partition = 0 AND offset < 3 AND value = 'orders#1:0:0'")
    recreated.land(2), recreated.advance()
    assert recreated.verified() == ["K6: table bronze: 2 of 3 records are there (checkpoint 3, orders[0], offset 0)"]
