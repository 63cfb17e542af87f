"""`maintain`: few files of many, and not a row changes, whoever writes, rewinds or dies meanwhile (SPEC K6)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake.transaction import AddAction

from crkafka_core.model.errors import LeaseHeld, WentBack
from crkafka_core.plane import permits
from crkafka_core.segments import rows as parquet
from crkafka_core.tables import adopt, audit, maintain
from crkafka_core.tables.delta_log import DeltaLog, Snapshot
from crkafka_core.tables.log import Moved
from tests.tables.conftest import Crash, Lake, upto


def filled(lake: Lake, checkpoints: int = 12, live: int = 3) -> None:
    """A table of so many checkpoints, of which all but the last are retired."""
    for _ in range(checkpoints):
        lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    lake.landing.retire(*range(1, checkpoints - live + 1))


def names(lake: Lake) -> list[str]:
    return sorted(str(p) for p in lake.delta().file_uris())


def test_retired_checkpoints_become_one_file_and_live_ones_keep_theirs(lake: Lake) -> None:
    filled(lake)
    before = lake.delta().to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    done = maintain.maintain(lake.region, "bronze")
    assert (done.merged, done.into, len(names(lake))) == (18, 1, 7)
    after = lake.delta().to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert after.equals(before)
    assert audit.look(lake.region, "bronze").clean
    assert maintain.maintain(lake.region, "bronze") == maintain.Maintained("bronze")
    log = sorted((lake.path / "_delta_log").glob("*.json"))[-1].read_text()
    changes = [a.get("add", a.get("remove")) for a in map(json.loads, log.splitlines()) if "commitInfo" not in a]
    assert len(changes) == 19 and not any(change["dataChange"] for change in changes)
    lake.landing.rewind(11)
    adopt.fence(lake.region, "bronze")
    assert lake.rows() == upto(55)
    lake.landing.land(7)
    adopt.advance(lake.region, "bronze")
    assert (lake.rows(), audit.look(lake.region, "bronze").clean) == (upto(62), True)


def test_a_commit_whose_answer_was_lost_loses_no_row(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store is asked once more then, and says that the version is there: the new file was deleted, and the table named it."""
    filled(lake)
    usual = Snapshot.rearrange

    def unheard(*given: Any) -> int:
        usual(*given)
        raise Moved("It is there already.")

    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "rearrange", unheard)
        done = maintain.maintain(lake.region, "bronze")
    assert (done.merged, done.into) == (18, 1)
    assert lake.rows() == upto(60)
    assert audit.look(lake.region, "bronze").clean


def test_what_is_in_the_new_files_is_told_by_their_names_and_nobody_reads_them_for_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake)
    maintain.maintain(lake.region, "bronze")
    read: list[str] = []
    batches = parquet.batches

    def counted(storage: Any, path: str, *given: Any, **keys: Any) -> Any:
        read.append(path)
        return batches(storage, path, *given, **keys)

    monkeypatch.setattr(parquet, "batches", counted)
    assert audit.look(lake.region, "bronze").clean and not read
    lake.landing.land(5)
    lake.landing.retire(*range(1, 13), history=4)  # of most of them SQL knows nothing any more
    assert audit.look(lake.region, "bronze").clean
    lake.delta().delete("offset = 7")
    assert set(audit.look(lake.region, "bronze").miscounted) <= set(range(8, 14)) and read


def test_rows_that_are_there_twice_are_found_whatever_the_names_say(lake: Lake) -> None:
    filled(lake)
    before = lake.delta().version()
    maintain.maintain(lake.region, "bronze")
    (packed,) = [a for a in pa.table(lake.delta().get_add_actions()).to_pylist() if "/packed/" in a["path"]]
    lake.delta().restore(before)
    add = AddAction(
        packed["path"], packed["size_bytes"], {}, 0, True, json.dumps({"numRecords": packed["num_records"]})
    )
    lake.delta().create_write_transaction([add], mode="append", schema=lake.delta().schema(), partition_by=[])
    assert len(lake.rows()) == 210
    assert audit.look(lake.region, "bronze").miscounted == tuple(range(1, 10))
    adopt.mend(lake.region, "bronze")
    assert (lake.rows(), audit.look(lake.region, "bronze").clean) == (upto(60), True)


@pytest.mark.parametrize("property", ["delta.dataSkippingNumIndexedCols", "delta.checkpoint.writeStatsAsJson"])
def test_a_table_whose_log_tells_no_bounds_is_maintained_and_rewound_as_any_other(lake: Lake, property: str) -> None:
    filled(lake, 4)
    lake.delta().alter.set_table_properties({property: "false" if "Json" in property else "0"})
    lake.delta().create_checkpoint()
    lake.landing.retire(1, 2)
    assert maintain.maintain(lake.region, "bronze").merged == 4
    assert (lake.rows(), audit.look(lake.region, "bronze").clean) == (upto(20), True)
    lake.mend()
    assert (lake.rows(), audit.look(lake.region, "bronze").clean) == (upto(20), True)
    lake.landing.rewind(3)
    adopt.fence(lake.region, "bronze")
    assert (lake.rows(), audit.look(lake.region, "bronze").clean) == (upto(15), True)


def test_files_have_about_the_wanted_size_and_large_ones_are_left_alone(lake: Lake) -> None:
    filled(lake)
    size = lake.delta().get_add_actions()["size_bytes"].to_pylist()[0]
    first = maintain.maintain(lake.region, "bronze", target=6 * size)
    assert first.into >= 2
    there = set(names(lake))
    again = maintain.maintain(lake.region, "bronze", target=size)
    assert (again.merged, set(names(lake))) == (0, there)
    assert lake.rows() == upto(60)


def test_a_table_goes_on_being_maintained_as_checkpoints_retire(lake: Lake) -> None:
    for n in range(1, 13):
        lake.landing.land(5)
        adopt.advance(lake.region, "bronze")
        if n % 4 == 0:
            lake.landing.retire(*range(n - 3, n - 1))
            maintain.maintain(lake.region, "bronze")
    lake.landing.retire(*range(1, 12))
    maintain.maintain(lake.region, "bronze")
    assert len(names(lake)) == 3
    assert (lake.rows(), audit.look(lake.region, "bronze").clean) == (upto(60), True)


def test_rows_that_a_user_put_back_or_deleted_are_not_hidden_in_the_new_files(lake: Lake) -> None:
    """Superseded files that a RESTORE brought back stay by themselves, and files with rows that are gone are not made whole."""
    filled(lake, 8, 8)
    superseded = lake.delta().version()
    lake.landing.rewind(4)
    adopt.fence(lake.region, "bronze")
    for _ in range(4):
        lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    lake.landing.retire(1, 2, 3, 4, 9, 10, 11)
    lake.delta().restore(superseded)
    maintain.maintain(lake.region, "bronze")
    assert audit.look(lake.region, "bronze").strangers == (5, 6, 7, 8)
    lake.delta().delete("offset = 2")
    maintain.maintain(lake.region, "bronze")
    assert set(audit.look(lake.region, "bronze").miscounted) >= {1}
    assert not any(offset == 2 for _, offset in lake.rows())


STEPS = ["in the middle of the new file", "before the commit", "after the commit", "before deleting"]


@pytest.mark.parametrize("step", STEPS)
def test_a_maintenance_that_dies_leaves_each_row_once(lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    filled(lake)
    original: Callable[..., Any] = Snapshot.rearrange

    def dead(*_: Any, **__: Any) -> None:
        raise Crash

    def then_dead(*given: Any) -> None:
        original(*given)
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        if step == STEPS[0]:
            patch.setattr(maintain, "_ordered", dead)
        elif step == STEPS[3]:
            patch.setattr(DeltaLog, "vacuum", dead)
        else:
            patch.setattr(Snapshot, "rearrange", dead if step == STEPS[1] else then_dead)
        maintain.maintain(lake.region, "bronze")
    assert lake.rows() == upto(60)
    lake.writer_dies()
    maintain.maintain(lake.region, "bronze")
    assert (len(names(lake)), lake.rows()) == (7, upto(60))
    assert {str(p) for p in (lake.path / lake.landing.uid / "packed").iterdir()} >= set(names(lake)[-1:])
    lake.landing.rewind(10)
    adopt.fence(lake.region, "bronze")
    assert (lake.rows(), audit.look(lake.region, "bronze").clean) == (upto(50), True)


@pytest.mark.parametrize("event", ["advance", "fence", "delete", "compact", "maintain"])
def test_whatever_comes_between_the_new_file_and_its_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    filled(lake)
    lake.landing.land(5)
    write: Callable[..., int] = parquet.write
    expected = upto(60)

    def then(*given: Any, **keys: Any) -> int:
        nonlocal expected
        size = write(*given, **keys)
        monkeypatch.setattr(parquet, "write", write)
        if event == "advance":
            adopt.advance(lake.region, "bronze")
            expected = upto(65)
        elif event == "fence":
            lake.landing.rewind(10)
            adopt.fence(lake.region, "bronze")
            expected = upto(50)
        elif event == "delete":
            lake.delta().delete("offset < 3")
            expected = [row for row in upto(60) if row[1] >= 3]
        elif event == "compact":
            lake.compact()
        else:
            maintain.maintain(lake.region, "bronze")
        return size

    monkeypatch.setattr(parquet, "write", then)
    done = maintain.maintain(lake.region, "bronze")
    assert lake.rows() == expected
    assert done.into == (0 if event in ("delete", "compact", "maintain") else 1)
    assert audit.look(lake.region, "bronze").clean == (event != "delete")


def test_it_runs_beside_a_feeder(lake: Lake) -> None:
    filled(lake, 20, 2)
    errors: list[BaseException] = []
    over = threading.Event()

    def feed() -> None:
        while not over.is_set():
            try:
                lake.land(5)
                adopt.advance(lake.region, "bronze")
            except LeaseHeld:
                pass
            except BaseException as error:
                errors.append(error)
                return
            time.sleep(0.02)  # thirty commits a second: one that never rests may be quicker a hundred times in a row

    lake._landed = {}
    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        for _ in range(3):
            maintain.maintain(lake.region, "bronze", target=8_000)
    finally:
        over.set()
        feeder.join(30)
    assert not errors
    while adopt.advance(lake.region, "bronze"):
        pass
    head = lake.region.plane.read(lambda _, row: row.head)
    assert head > 20 and lake.rows() == upto(5 * head)
    assert audit.look(lake.region, "bronze").clean


def test_files_that_left_longer_ago_than_the_retention_are_deleted_and_no_others(lake: Lake) -> None:
    filled(lake)
    assert maintain.maintain(lake.region, "bronze").deleted == 0
    on_disk = len(list(lake.path.rglob("*.parquet")))
    lake.delta().alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    time.sleep(0.01)
    assert maintain.maintain(lake.region, "bronze").deleted == 18
    assert len(list(lake.path.rglob("*.parquet"))) == on_disk - 18
    assert lake.rows() == upto(60)


def test_nothing_is_deleted_while_somebody_writes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(lake)
    monkeypatch.setattr(maintain, "PATIENCE", 0.2)
    lake.region.plane.do(lambda tx: permits.take(tx, "bronze", holder="another", token="t"))
    with pytest.raises(LeaseHeld, match="another"):
        maintain.maintain(lake.region, "bronze")
    assert (len(names(lake)), lake.rows()) == (7, upto(60))


def test_a_copy_of_the_control_plane_deletes_nothing(lake: Lake) -> None:
    filled(lake)
    rows = lake.backup()
    for _ in range(3):
        lake.landing.land(5)
    lake.restore_backup(rows)
    with pytest.raises(WentBack):
        maintain.maintain(lake.region, "bronze")
