"""Compaction changes no rows, deletes nothing that somebody may need, and forgets no version that a reset can reach."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

from crkafka_core.lake import compact
from crkafka_core.lake.files import written
from crkafka_core.lake.iceberg import expiry
from crkafka_core.lake.port import CHECKPOINT, DataFile, NewFile, Stamp
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.offsets import TP
from crkafka_core.plane import leases, permits
from crkafka_core.region import feeder
from crkafka_core.region.feeder import ByRoad, Feeder
from crkafka_core.segments.storage import Storage
from tests.lake.rig import (
    Iceberg,
    Rig,
)
from tests.lake.steps import answers_are_lost, filled, meanwhile, packed
from tests.rigs.landing import records


def test_compaction_changes_no_rows_and_a_rewind_still_finds_them(rig: Rig) -> None:
    filled(rig, 6)
    rig.landing.retire(1, 2, 3, 4, history=10)
    rig.maintain()
    assert len(packed(rig)) == 1 and rig.rows() == rig.truth() and rig.look().clean
    rig.rewind(5)
    rig.fence()
    assert rig.rows() == rig.truth()


def test_a_compaction_without_an_answer_deletes_nothing_that_the_table_has(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(rig, 4)
    rig.landing.retire(1, 2, 3, history=10)
    with monkeypatch.context() as patch:
        answers_are_lost(rig, patch)
        rig.maintain()
    assert rig.rows() == rig.truth() and not rig.look().lost


def test_a_compaction_keeps_what_others_commit_between_its_look_and_its_commit(
    raw: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(raw, 4)
    raw.landing.retire(1, 2, 3, history=10)
    theirs = records(TP("orders", 0), 100, 104).records
    with monkeypatch.context() as patch:
        meanwhile(raw, patch, lambda: raw.insert(pa.Table.from_batches([theirs])))
        raw.maintain()
    assert packed(raw) and raw.rows() == sorted([*raw.truth(), *((0, 0, offset) for offset in range(100, 104))])


def test_a_compaction_commits_nothing_where_another_holder_has_replaced_its_files(
    raw: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction takes no lease; what it replaces has to be there as it was seen."""
    filled(raw, 4)
    raw.landing.retire(1, 2, 3, history=10)
    found = list[list[str]]()

    def other() -> None:
        raw.maintain()
        found.append(packed(raw))

    with monkeypatch.context() as patch:
        meanwhile(raw, patch, other)
        raw.maintain()
    assert len(found[0]) == 1 and packed(raw) == found[0]
    assert raw.rows() == raw.truth() and raw.look().clean


def test_old_files_are_deleted_only_under_the_lease_of_the_tables_writer(
    raw: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write under way has files that no version has yet."""
    filled(raw, 1)
    deletes = Mock(return_value=0)
    monkeypatch.setattr(raw.log, "expire", deletes)
    monkeypatch.setattr(compact, "PATIENCE", 0.0)
    kept = raw.region.plane.do(lambda tx: permits.take(tx, "bronze", holder="anna", token="a"))
    with pytest.raises(LeaseHeld, match="anna"):
        compact.maintain(raw.region, "bronze", logs=raw.means.logs)
    assert not deletes.called
    raw.region.plane.do(lambda tx: leases.release(tx, kept))
    compact.maintain(raw.region, "bronze", logs=raw.means.logs)
    assert deletes.called


def test_K6_old_versions_are_forgotten_but_those_of_checkpoints_that_a_reset_can_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "_MOST", 10)
    monkeypatch.setattr(expiry, "_LEFT", 7)
    rig = Iceberg(tmp_path)
    versions = {}
    for number in (1, 2, 3):
        rig.land(1)
        rig.advance()
        versions[number] = str(rig._log().look().version)
    rig.land(1, quiet=[0, 1])
    rig.advance()
    rig.landing.retire(1)
    for _ in range(13):
        rig.rewrite(3)
    assert rig._log().look(versions[1]) is None, "no reset reaches it"
    for number in (2, 3):
        kept = rig._log().look(versions[number])
        assert sum(file.rows for file in kept.files()) == 2 * number
    assert len(rig._log().look().metadata.snapshots) <= 12


def test_K6_joining_files_forgets_no_version_that_a_reset_can_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = filled(Iceberg(tmp_path), 5)
    reached = str(rig._log().look().version)
    filled(rig, 1)
    rig.landing.retire(1, 2, 3, 4, history=10)
    monkeypatch.setattr(expiry, "_MOST", 4)
    monkeypatch.setattr(expiry, "_LEFT", 2)
    rig.maintain()
    assert any("/packed/" in file.path for file in rig._log().look().files())
    assert rig._log().look(reached) is not None


@pytest.mark.parametrize("inside", [False, True], ids=["a column", "inside of a column"])
def test_a_file_with_a_column_that_has_another_name_now_is_not_joined(tmp_path: Path, inside: bool) -> None:
    """Readers of Iceberg find it by the table's mapping of names; the new file would not have its values."""

    def rows(name: str) -> pa.RecordBatch:
        value = {name: 5}
        return pa.RecordBatch.from_pylist([{CHECKPOINT: 1, **({"of": [value]} if inside else value)}] * 2)

    storage = Storage.open(tmp_path)
    before = [
        DataFile(**{each.name: getattr(file, each.name) for each in fields(NewFile)})
        for path, name in (("a.parquet", "amount"), ("b.parquet", "total"), ("c.parquet", "total"))
        for file in written(storage, path, [rows(name)])
    ]
    log, left = Mock(storage=storage), set[str]()
    log.look.return_value.files.return_value = before
    stamp, now = Stamp("u", "t", 0, 1, 0), rows("total").schema
    assert compact._replaced(log, now, stamp, before, tuple, left) == 2 and left == {"a.parquet"}
    _, change = log.look.return_value.commit.call_args.args
    assert [file.path for file in change.remove] == ["b.parquet", "c.parquet"]
    assert compact._replaced(log, now, stamp, before[:2], tuple, left) == 0
    assert log.look.return_value.commit.call_count == 1


def test_a_table_with_a_nested_column_of_an_order_by_place_is_joined() -> None:
    rows = pa.RecordBatch.from_pydict({"topic": [{"a": 1}, {"a": 2}], "offset": [2, 1]})
    assert compact._ordered([rows]).to_pydict() == {"topic": [{"a": 2}, {"a": 1}], "offset": [1, 2]}


@pytest.mark.parametrize("kind", [Rig, Iceberg])
def test_K6_a_table_has_few_small_files_however_long_it_is_written(
    kind: type[Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "CROWD", 10)
    monkeypatch.setattr(feeder, "EVERY", 5)
    rig, told, most = kind(tmp_path), list[str](), 0
    keeper = Feeder(rig.region, tell=told.append, means=rig.means)
    for number in range(1, 41):
        rig.land(1)
        if number > 2:
            rig.landing.retire(number - 2)
        keeper.turn(0.0)
        way = keeper._way
        assert isinstance(way, ByRoad)
        if way._joining._loop is not None:
            way._joining._loop.join(20)
        snapshot = rig.log("bronze", str(rig.path), {}).look()
        most = max(most, len(list(snapshot.files())))
    keeper.end()
    assert rig.table().acknowledged == 40 and most < 40, "80 files were written"
    assert rig.rows() == rig.truth() and rig.look().clean and not told


def test_K6_joining_ends_with_its_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = list[str]()

    def join(_: object, name: str, left: set[str], *, go_on: Callable[[], bool], logs: object) -> compact.Maintained:
        while go_on():
            time.sleep(0.01)
        ended.append(name)
        return compact.Maintained(name)

    monkeypatch.setattr(compact, "join_crowds", join)
    monkeypatch.setattr(feeder, "EVERY", 1)
    rig = Rig(tmp_path)
    keeper = Feeder(rig.region, means=rig.means)
    rig.land(1)
    keeper.turn(0.0)
    keeper.end()
    assert ended == ["bronze"]
