"""A raw table is right whatever a user does to it and wherever we crash: each sequence was seen to go wrong once (SPEC K6, X4, G10)."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from crkafka_core.control import Tx
from crkafka_core.model.errors import Refused, WentBack
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import TableCommit
from crkafka_core.plane import cleanup, permits, tables
from crkafka_core.tables import adopt, audit
from crkafka_core.tables.stamp import OtherRegion
from tests.tables.conftest import Crash, Lake, dies_at


def advance(lake: Lake) -> None:
    adopt.advance(lake.region, "bronze")


def crash(lake: Lake, step: str) -> None:
    """A writer dies at a step of its advance, and its lease ends."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        dies_at(step)(patch)
        advance(lake)
    lake.writer_dies()


def rewind(lake: Lake, target: int) -> None:
    lake.landing.rewind(target)
    adopt.fence(lake.region, "bronze")


def right(lake: Lake) -> None:
    """The table holds what the line to the head says, and the audit agrees."""
    advance(lake)
    assert lake.values() == lake.truth()
    assert audit.look(lake.region, "bronze").clean
    assert lake.verified() == []


def test_permit_that_never_committed_takes_no_rows_of_the_old_topic_with_it(lake: Lake) -> None:
    lake.land(), lake.land(), advance(lake)
    lake.compact()
    lake.landing.make_topics_anew()
    lake.land()
    crash(lake, "after the links")
    rewind(lake, 2)
    assert lake.values() == lake.truth()
    lake.land(3)
    right(lake)


def test_file_of_a_new_topic_leaves_and_compacted_rows_of_the_old_one_stay(lake: Lake) -> None:
    lake.land(), lake.land(), advance(lake)
    lake.compact()
    lake.landing.make_topics_anew()
    lake.land(), advance(lake)
    rewind(lake, 2)
    assert lake.values() == lake.truth()
    assert lake.region.plane.read(lambda _, row: row.phase) is not Phase.REWINDING


def test_old_and_new_topic_compacted_into_one_file_are_told_apart_by_their_segments(lake: Lake) -> None:
    lake.land(), lake.land(), advance(lake)
    lake.landing.make_topics_anew()
    lake.land(), advance(lake)
    lake.compact()
    rewind(lake, 2)
    assert lake.values() == lake.truth()
    right(lake)


def test_unheard_commit_is_heard_of_before_a_rewrite(lake: Lake) -> None:
    lake.land(), advance(lake)
    lake.land()
    crash(lake, "after the commit")
    lake.compact()
    adopt.mend(lake.region, "bronze", [1])
    assert lake.table().acknowledged == 2
    right(lake)


def test_unheard_commit_leaves_with_a_rewind_though_a_rewrite_came_between(lake: Lake) -> None:
    lake.land(), advance(lake)
    lake.land()
    crash(lake, "after the commit")
    lake.compact()
    adopt.mend(lake.region, "bronze", [1])
    rewind(lake, 1)
    assert lake.values() == lake.truth()
    lake.land(7)
    right(lake)


@pytest.mark.parametrize("compacted", [False, True], ids=["", "compacted"])
@pytest.mark.parametrize("cleaned", [False, True], ids=["", "log cleaned"])
def test_rows_that_sql_lost_leave_with_a_restored_backup(lake: Lake, compacted: bool, cleaned: bool) -> None:
    lake.land(), lake.land(), advance(lake)
    backup = lake.backup()
    lake.land(), lake.land(), advance(lake)
    lake.land(), advance(lake)
    if compacted:
        lake.compact()
    if cleaned:
        lake.clean_log()
    lake.restore_backup(backup)
    lake.start_restored()
    adopt.fence(lake.region, "bronze")
    assert lake.values() == lake.truth()
    lake.land(7)
    right(lake)


@pytest.mark.parametrize("compacted", [False, True], ids=["", "compacted"])
def test_what_the_newer_self_took_out_comes_back_with_a_restored_backup(lake: Lake, compacted: bool) -> None:
    lake.land(), lake.land(), advance(lake)
    backup = lake.backup()
    rewind(lake, 1)
    lake.land(7), advance(lake)
    if compacted:
        lake.compact()
    lake.restore_backup(backup)
    lake.start_restored()
    adopt.fence(lake.region, "bronze")
    assert lake.values() == lake.truth()
    right(lake)


@pytest.mark.parametrize("first", [False, True], ids=["", "of the first commit"])
def test_commit_that_a_restore_undid_is_not_acknowledged_without_its_rows(lake: Lake, first: bool) -> None:
    if not first:
        lake.land(), advance(lake)
    lake.land()
    before = 0 if first else lake.delta().version()
    crash(lake, "after the commit")
    lake.delta().restore(before)
    right(lake)


@pytest.mark.parametrize("compacted", [False, True], ids=["", "compacted"])
def test_unheard_commit_is_heard_of_though_the_log_was_cleaned_past_it(lake: Lake, compacted: bool) -> None:
    lake.land(), advance(lake)
    lake.land()
    crash(lake, "after the commit")
    if compacted:
        lake.compact()
    lake.clean_log()
    lake.land()
    right(lake)


def test_table_declared_again_after_a_rewind_holds_nothing_superseded(lake: Lake) -> None:
    lake.land(), lake.land(), lake.land(), advance(lake)
    lake.compact()
    lake.undeclare()
    lake.landing.rewind(1)
    lake.declare()
    lake.land(7)
    right(lake)


def test_table_declared_again_after_a_rewind_to_birth_is_emptied_though_nothing_is_new(lake: Lake) -> None:
    lake.land(), advance(lake)
    lake.undeclare()
    lake.landing.rewind(0)
    lake.declare()
    adopt.fence(lake.region, "bronze")
    assert lake.rows() == []


def test_table_declared_again_goes_on_from_what_it_holds(lake: Lake) -> None:
    """Also of checkpoints whose segments are gone: nothing is read from Kafka again."""
    for _ in range(4):
        lake.land(), advance(lake)
    lake.undeclare()
    lake.landing.retire(1, 2, 3)
    lake.declare()
    there = sorted(lake.delta().file_uris())
    advance(lake)
    assert (lake.table().acknowledged, sorted(lake.delta().file_uris())) == (4, there)
    lake.land()
    right(lake)


def test_table_declared_again_that_others_changed_is_refused_and_nothing_leaves_it(lake: Lake) -> None:
    lake.land(), advance(lake)
    lake.land(), advance(lake)
    lake.undeclare()
    lake.delta().delete("offset < 3")
    lake.declare()
    for _ in range(2):
        with pytest.raises(Refused, match="RESTORE it to its version 2"):
            advance(lake)
    assert len(lake.rows()) == 14
    lake.delta().restore(2)
    right(lake)


def test_control_plane_that_went_back_is_noticed_however_often_it_tries(lake: Lake) -> None:
    lake.land(), advance(lake)
    backup = lake.backup()
    for _ in range(2):
        lake.land(), advance(lake)
    rows = lake.rows()
    lake.restore_backup(backup)
    lake.land()
    for _ in range(6):
        with pytest.raises(WentBack, match="has commit 3"):
            advance(lake)
    assert lake.rows() == rows
    region = lake.region.plane.read(lambda _, row: row)
    assert region.phase is Phase.STOPPED and region.went_back
    with pytest.raises(WentBack):
        audit.look(lake.region, "bronze")


def test_fence_of_a_control_plane_that_went_back_is_refused_until_a_person_has_said_so(lake: Lake) -> None:
    lake.land(), lake.land(), advance(lake)
    backup = lake.backup()
    lake.land(), advance(lake)
    lake.restore_backup(backup)
    lake.landing.rewind(1)
    for _ in range(3):
        with pytest.raises(WentBack):
            adopt.fence(lake.region, "bronze")
    lake.start_restored()
    adopt.fence(lake.region, "bronze")
    assert lake.values() == lake.truth()


def test_numbers_go_on_above_those_that_a_lost_control_plane_gave(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crkafka_core.plane.restored.MARGIN", 1)
    lake.land(), advance(lake)
    backup = lake.backup()
    for _ in range(5):
        lake.land(), advance(lake)
    lake.restore_backup(backup)
    lake.start_restored()
    adopt.fence(lake.region, "bronze")
    assert lake.values() == lake.truth()


def test_older_copy_of_a_table_that_was_put_back_is_refused(lake: Lake) -> None:
    """Others have committed to it since, so that its version alone does not show it."""
    lake.land(), advance(lake)
    lake.land(), advance(lake)
    lake.land(), advance(lake)
    for version in (2, 3):
        (lake.path / "_delta_log" / f"{version:020d}.json").unlink()
    for _ in range(4):
        lake.delta().alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    lake.land()
    with pytest.raises(Refused, match="shows commit 1 of this region, and commit 3 was acknowledged"):
        advance(lake)


@pytest.mark.parametrize("cleaned", [False, True], ids=["", "log cleaned"])
def test_path_of_another_table_of_the_region_is_refused(lake: Lake, cleaned: bool) -> None:
    lake.land(), advance(lake)
    if cleaned:
        lake.clean_log()
    lake.undeclare()
    path = str(lake.path)
    lake.region.plane.do(lambda tx: tables.declare(tx, "silver", "delta", path))
    with pytest.raises(OtherRegion, match="name another path"):
        adopt.advance(lake.region, "silver")


def test_audit_and_mend_tell_a_topic_made_anew_from_the_old_one(lake: Lake) -> None:
    lake.land(), lake.land(), advance(lake)
    lake.compact()
    lake.landing.make_topics_anew()
    lake.land(7), advance(lake)
    assert audit.look(lake.region, "bronze").clean
    adopt.mend(lake.region, "bronze", [3])
    assert lake.values() == lake.truth()
    lake.compact()
    right(lake)
    adopt.mend(lake.region, "bronze", [3])
    assert lake.values() == lake.truth()


def test_what_a_restore_took_of_acknowledged_rows_is_brought_back_by_mending(lake: Lake) -> None:
    lake.land(), advance(lake)
    before = lake.delta().version()
    lake.land(), advance(lake)
    lake.compact()
    lake.delta().restore(before)
    found = audit.look(lake.region, "bronze")
    assert (found.miscounted, found.foreign) == ((2,), 1)
    adopt.mend(lake.region, "bronze")
    right(lake)


def test_superseded_rows_that_a_restore_brought_back_compacted_leave_by_mending(lake: Lake) -> None:
    lake.land(), lake.land(), advance(lake)
    lake.compact()
    before = lake.delta().version()
    rewind(lake, 1)
    lake.delta().restore(before)
    assert audit.look(lake.region, "bronze").unknown == 10
    adopt.mend(lake.region, "bronze")
    assert lake.values() == lake.truth()
    right(lake)


def test_property_append_only_is_named_with_what_to_do(lake: Lake) -> None:
    lake.land(), lake.land(), advance(lake)
    lake.delta().alter.set_table_properties({"delta.appendOnly": "true"})
    lake.land(), advance(lake)
    lake.landing.rewind(1)
    with pytest.raises(Refused, match=r"delta\.appendOnly") as refused:
        adopt.fence(lake.region, "bronze")
    assert "ALTER TABLE" in refused.value.hint
    lake.delta().alter.set_table_properties({"delta.appendOnly": "false"})
    adopt.fence(lake.region, "bronze")
    right(lake)


def test_hearing_comes_too_late_once_a_later_commit_is_acknowledged(lake: Lake) -> None:
    lake.land(), advance(lake)
    lake.land()
    crash(lake, "after the commit")
    rewind(lake, 1)
    assert not lake.region.plane.do(lambda tx: permits.acknowledge(tx, "bronze", 2, holds=2, version="2"))
    assert lake.table().acknowledged == 1


def test_table_of_a_commit_that_was_heard_of_late_is_not_taken_for_a_shaped_one(lake: Lake) -> None:
    """Nobody counted the rows of that commit; declared with a shape, its raw rows and shaped ones would have been in one table."""
    lake.land()
    crash(lake, "after the commit")
    advance(lake)
    path = str(lake.path)
    with pytest.raises(Refused, match="its rows would be others"):
        lake.region.plane.do(lambda tx: tables.declare(tx, "bronze", "delta", path, shape="shop:rows"))
    right(lake)


@pytest.mark.parametrize("retired", [False, True])
def test_rows_of_files_that_delta_rs_has_written_anew_leave_with_a_rewind_and_by_mending(
    lake: Lake, retired: bool
) -> None:
    """It says in its files that bytes are `binary_view`, which Arrow cannot filter: no fence could be made, and the region ran no more."""
    lake.land(), lake.land(), lake.land(), advance(lake)
    lake.delta().delete("partition = 0 AND offset = 1")
    lake.compact()
    adopt.mend(lake.region, "bronze")
    assert lake.values() == lake.truth()
    lake.delta().update({"timestampType": "timestampType"}, predicate="offset >= 0")
    lake.compact()
    if retired:
        lake.landing.retire(1)
    rewind(lake, 2)
    assert lake.values() == lake.truth()
    assert lake.look().changed == (1, 2)
    if not retired:
        lake.mend_what_is_found()
        right(lake)


@pytest.mark.parametrize("compacted", [False, True])
def test_rows_that_are_there_twice_do_not_stand_for_as_many_that_are_missing(lake: Lake, compacted: bool) -> None:
    """Found by random faults: the number of rows was right, so that `mend` saw nothing, and the check neither."""
    lake.land(), lake.land(), advance(lake)
    if compacted:
        lake.compact()
    table = lake.delta().to_pyarrow_table()
    some = table.filter((pc.field("partition") == 0) & (pc.field("offset").isin([1, 2])))
    write_deltalake(lake.delta(), some, mode="append")
    lake.delta().delete("partition = 0 AND offset IN (3, 4)")
    assert audit.look(lake.region, "bronze").miscounted == (1,)
    adopt.mend(lake.region, "bronze")
    assert lake.values() == lake.truth()


@pytest.mark.parametrize("unheard", [False, True])
def test_however_many_permits_fail_the_last_commit_stays_known(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, unheard: bool
) -> None:
    """As in a night without the table's storage: else it would seem that SQL went back in time, and the region would stop."""
    monkeypatch.setattr(cleanup, "COMMITS", 10)
    lake.land()
    advance(lake)
    lake.land()
    if unheard:
        crash(lake, "after the commit")

    def fail(tx: Tx) -> None:
        for i in range(50):
            permit = permits.permit_commit(tx, "bronze", holder="me", token=f"{i}")
            assert permit is not None
            permits.fail_commit(tx, permit, "no storage")

    lake.region.plane.do(fail)
    lake.region.plane.do(cleanup.clean_up)
    assert lake.region.plane.read(lambda reader, _: reader.count(TableCommit)) == 1 + 10 + 10
    right(lake)
