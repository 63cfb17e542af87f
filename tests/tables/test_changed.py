"""What others changed in a raw Delta table, and files of it that are lost: told also behind commits of ours, and mended (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from crkafka_core.control import Tx
from crkafka_core.lake import erasing
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import TableCommit
from crkafka_core.spark import tables
from tests.tables.conftest import Lake, filled, upto


def update(lake: Lake) -> None:
    """Of a record of checkpoint 2."""
    lake.delta().update({"value": "'changed'"}, predicate="partition = 0 AND offset = 7")


def merge(lake: Lake) -> None:
    rows = lake.delta().to_pyarrow_table().filter((pc.field("partition") == 0) & (pc.field("offset") == 7))
    on = "t.partition = s.partition AND t.offset = s.offset"
    lake.delta().merge(rows, on, source_alias="s", target_alias="t").when_matched_update(
        {"value": "'changed'"}
    ).execute()


def put_another_in_its_place(lake: Lake) -> None:
    rows = lake.delta().to_pyarrow_table().filter((pc.field("partition") == 0) & (pc.field("offset") == 7))
    lake.delta().delete("partition = 0 AND offset = 7")
    value = rows.schema.get_field_index("value")
    write_deltalake(lake.delta(), rows.set_column(value, "value", [[b"changed"]]), mode="append")


def mended(lake: Lake) -> None:
    lake.mend()
    assert lake.values() == lake.values_due()
    assert lake.look().clean
    assert lake.verified() == []


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("change", [update, merge, put_another_in_its_place])
def test_a_changed_row_is_told_also_behind_commits_of_ours_and_mended(
    lake: Lake, change: Callable[[Lake], None], compacted: bool
) -> None:
    filled(lake, 3)
    change(lake)
    before = lake.look()
    assert before.foreign and before.changed == (2,)
    if compacted:
        lake.optimize(), lake.vacuum()
    filled(lake, 2)
    assert (lake.look().foreign, lake.look().changed) == (1, (2,))
    assert len([each for each in lake.verified() if "1 commit of another program" in each]) == 1
    mended(lake)
    filled(lake, 1)
    lake.landing.rewind(5)
    lake.fence()
    assert lake.look().clean


def test_of_retired_checkpoints_it_is_read_again_from_kafka(lake: Lake) -> None:
    filled(lake, 4)
    lake.landing.retire(1, 2)
    lake.maintain(10**8)
    update(lake)
    filled(lake, 1)
    assert lake.look().changed == (1, 2), "one file has both"
    mended(lake)


@pytest.mark.parametrize("whole", [True, False], ids=["twice", "twice, and some no more"])
def test_rows_that_come_twice_in_a_file_of_two_partitions_ask_for_nothing_that_is_retired(
    lake: Lake, whole: bool
) -> None:
    """The bounds of the file span what is older, too; its rows do not."""
    lake.landing.offsets[0][TP("orders", 1)] = 100
    filled(lake, 4)
    before = lake.values()
    lake.optimize(), lake.landing.retire(1, 2)
    rows = lake.delta().to_pyarrow_table()
    write_deltalake(lake.delta(), rows.filter(pc.is_in(rows["offset"], pa.array([16, 116]))), mode="append")
    if not whole:
        lake.delta().delete("offset = 17 OR offset = 111")
    filled(lake, 1)
    wanted = sorted({*before, *lake.values()})
    assert (lake.look().foreign, lake.look().changed) == (2 - whole, (4,))
    lake.mend()  # nothing is read from Kafka
    assert lake.values() == wanted
    assert (lake.look().clean, lake.verified()) == (True, [])
    lake.vacuum()  # what was mended is not asked for again, by the bounds of a file that is gone
    filled(lake, 1)
    assert (lake.look().clean, lake.verified()) == (True, [])


def test_writing_a_checkpoint_again_brings_the_records_as_they_came(lake: Lake) -> None:
    """Not only their number: a replay had left the changed row, and then it would not even have been told."""
    filled(lake, 3)
    update(lake)
    tables.rewrite(None, lake.region, "bronze", [2])
    assert lake.values() == lake.values_due()
    assert lake.look().foreign == 1, "it stays reported until it is mended"
    mended(lake)


def test_a_commit_that_sql_did_not_hear_of_vouches_for_nothing_behind_it(lake: Lake) -> None:
    filled(lake, 2)
    lake.undeclare()
    update(lake)
    lake.declare()
    lake.advance()
    assert (lake.look().foreign, lake.look().changed) == (1, (2,))
    mended(lake)


def test_a_persons_delete_that_is_noted_is_not_told_whatever_else_its_file_holds(lake: Lake) -> None:
    filled(lake, 3)
    lake.optimize()
    lake.delta().delete("partition = 0 AND offset = 7")
    assert lake.look().miscounted == (2,)
    for _ in range(2):  # the second time nothing changes
        assert erasing.erase(lake.region, {TP("orders", 0): [7]}) == erasing.Erased({2: 1}, {})
    assert lake.look().clean
    filled(lake, 2)
    assert (lake.look().clean, lake.values(), lake.verified()) == (True, lake.values_due(), [])


def test_what_changes_no_rows_stays_harmless(lake: Lake) -> None:
    filled(lake, 3)
    lake.optimize(), filled(lake, 1)
    lake.vacuum(), filled(lake, 1)
    lake.delta().alter.set_table_properties({"delta.checkpointInterval": "7"}), filled(lake, 1)
    lake.delta().optimize.z_order(["offset"]), filled(lake, 1)
    assert (lake.look().clean, lake.verified()) == (True, [])
    before = lake.delta().version()
    update(lake)
    lake.delta().restore(before)
    filled(lake, 1)
    assert lake.values() == lake.values_due()


def test_commits_of_which_sql_knows_nothing_any_more_hide_nothing(lake: Lake) -> None:
    filled(lake, 2)
    update(lake)
    filled(lake, 1)
    lake.region.plane.do(lambda tx: _forget_commits(tx, 2))
    assert lake.look().changed == (2,)
    update(lake)
    filled(lake, 1)
    assert lake.look().changed == (2,)
    mended(lake)


def _forget_commits(tx: Tx, upto: int) -> None:
    tx.delete(TableCommit, ("number", "<=", upto))


def files(lake: Lake) -> list[Path]:
    return sorted(Path(uri.removeprefix("file://")) for uri in lake.delta().file_uris())


@pytest.mark.parametrize(("how", "retired"), [("compacted", False), ("compacted", True), ("packed", True)])
def test_a_lost_data_file_is_told_and_mended(lake: Lake, how: str, retired: bool) -> None:
    filled(lake, 4)
    if retired:
        lake.landing.retire(1, 2)
    lake.optimize() if how == "compacted" else lake.maintain(10**8)
    gone = next(file for file in files(lake) if how != "packed" or "packed" in file.parts)
    gone.unlink()
    filled(lake, 1)
    audit = lake.look()
    assert audit.lost == (str(gone.relative_to(lake.path)),)
    assert audit.miscounted == ((1, 2) if how == "packed" else (1, 2, 3, 4))
    mended(lake)


def test_a_file_that_others_took_out_comes_again_and_none_of_its_neighbours_twice(lake: Lake) -> None:
    filled(lake, 3)
    lake.landing.retire(1)
    lake.delta().delete("partition = 0 AND offset < 5")
    filled(lake, 1)
    assert lake.look().miscounted == (1,)
    mended(lake)


def test_a_feature_with_which_the_log_cannot_be_written_is_named(lake: Lake) -> None:
    """It was said that somebody else keeps committing."""
    filled(lake, 2)
    features = ["appendOnly", "invariants", "domainMetadata", "clustering", "rowTracking"]
    action = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}}
    (lake.path / "_delta_log" / f"{lake.delta().version() + 1:020d}.json").write_text(json.dumps(action))
    lake.land()
    with pytest.raises(Refused, match=r"feature with which its log cannot be written.*rowTracking") as refused:
        lake.advance()
    assert "DROP FEATURE" in refused.value.hint


@pytest.mark.parametrize("target", [0, 2])
def test_a_rewind_is_followed_though_a_file_is_lost(lake: Lake, target: int) -> None:
    """It had to be read for the fence, and mending had to wait for the fence: the region could not go on."""
    filled(lake, 3)
    lake.optimize()
    files(lake)[0].unlink()
    lake.landing.rewind(target)
    lake.fence()
    filled(lake, 1)
    assert lake.look().clean == (target == 0)
    mended(lake)


def test_what_was_mended_is_not_told_again_once_files_were_joined(lake: Lake) -> None:
    """Rows that stood in files of ours come into files of which nobody knows who wrote them."""
    filled(lake, 3)
    delta = lake.delta()
    rows = delta.to_pyarrow_table()
    write_deltalake(delta, rows.filter(pc.less(rows["offset"], 3)), mode="append")
    delta.delete("offset = 11")
    lake.mend()
    assert lake.look().clean
    filled(lake, 2)
    lake.optimize()
    assert lake.look().clean and lake.verified() == []
    assert lake.places() == upto(25)
