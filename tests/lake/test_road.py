"""One way into a table: what every format has to hold, whatever crashes, comes late, goes back or is done by others (SPEC K6, X4, C8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from crkafka_core.lake import erase, made, road, standing, writing
from crkafka_core.lake.port import CHECKPOINT, TableUnavailable, Unknown
from crkafka_core.model.errors import CrkafkaError, DataLoss, Refused, Stale, WentBack
from crkafka_core.model.offsets import TP
from crkafka_core.plane import erasure, events, permits
from crkafka_core.plane import tables as plane
from tests.lake.rig import (
    STEPS,
    Crash,
    Iceberg,
    Rig,
    Typed,
    TypedIceberg,
    TypedInCatalog,
    dies_at,
)
from tests.lake.steps import answers_are_lost, filled, gone, meanwhile
from tests.rigs.landing import records


def test_each_row_comes_once_with_the_number_of_its_checkpoint(rig: Rig) -> None:
    rig.land(), rig.land()
    done = rig.advance()
    assert done is not None and (done.checkpoints, done.acknowledged) == ((1, 2), 2)
    assert done.rows + done.bad == 20
    assert rig.advance() is None
    rig.land(0), rig.land()
    rig.advance()
    assert rig.table().acknowledged == 4
    assert rig.rows() == rig.truth()
    assert rig.look().clean


def test_bounds_of_a_file_are_its_least_and_greatest_values(raw: Rig) -> None:
    """What engines answer `min(offset)` from: a partition that begins with a hole has none of the span's first offset."""
    raw.landing._batch_of = lambda tp, start, stop: records(tp, start + 2, stop)
    raw.landing.land(5)
    raw.advance()
    log = raw.means.logs(raw.region, raw.table())
    snapshot = log.look()
    assert snapshot is not None
    assert {raw.least_offset_of(file.path) for file in snapshot.files()} == {2}


@pytest.mark.parametrize("step", STEPS)
def test_a_writer_that_dies_anywhere_is_gone_on_from(rig: Rig, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(rig, 0 if step == "after making the table" else 2)
    rig.land()
    with monkeypatch.context() as patch, pytest.raises(Crash):
        dies_at(step, rig, patch)
        rig.advance()
    rig.writer_dies()
    rig.land()
    rig.advance(), rig.advance()
    assert rig.rows() == rig.truth()
    assert rig.look().clean


@pytest.mark.parametrize("step", STEPS)
def test_a_fence_that_dies_anywhere_is_made_again(rig: Rig, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(rig, 3)
    rig.rewind(1)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        dies_at("before the commit" if step in STEPS[:3] else step, rig, patch)
        rig.fence()
    rig.writer_dies()
    rig.fence()
    assert rig.rows() == rig.truth()
    rig.land()
    rig.advance()
    assert rig.rows() == rig.truth()


def test_a_commit_whose_answer_was_lost_counts_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(rig)
    rig.land()
    with monkeypatch.context() as patch:
        answers_are_lost(rig, patch)
        done = rig.advance()
    assert done is not None and rig.rows() == rig.truth()


def test_a_storage_that_refuses_each_commit_is_named_and_no_other_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    filled(rig)
    rig.land()

    def refused(*_: Any) -> Any:
        raise Unknown("the bucket is read-only")

    with monkeypatch.context() as patch:
        patch.setattr(rig.snapshot, "commit", refused)
        with pytest.raises(TableUnavailable, match="the bucket is read-only"):
            rig.advance()
    assert rig.advance() is not None and rig.rows() == rig.truth()


def test_bad_records_count_also_where_the_next_writer_acknowledges_their_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, finish = Typed(tmp_path), permits.finish_commit
    rig.land(10)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(writing, "give_up", lambda *_: None)
        patch.setattr(
            permits,
            "finish_commit",
            lambda tx, permit, **how: dies() if permit.table.name == "bronze" else finish(tx, permit, **how),
        )
        rig.advance()
    rig.writer_dies()
    rig.land(10)
    rig.advance()
    assert rig.rows() == rig.truth()
    assert rig.region.plane.read(lambda reader, _: events.bad_records(reader)) == {"bronze": 4}


def test_a_table_that_is_refused_gets_no_files_at_each_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = filled(Typed(tmp_path), 1)
    rig.land()
    before = set(rig.path.rglob("*.parquet"))

    def refused(*_: Any) -> Any:
        raise Refused("It is another region's.")

    with monkeypatch.context() as patch:
        patch.setattr(standing, "check", refused)
        with pytest.raises(Refused, match="another region"):
            rig.advance()
    assert set(rig.path.rglob("*.parquet")) == before
    assert rig.advance() is not None and rig.rows() == rig.truth()


@pytest.mark.parametrize("goes_back", [False, True])
def test_a_late_writer_is_refused(rig: Rig, goes_back: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It slept between its files and its commit; meanwhile others wrote, or the region went back."""
    filled(rig)
    rig.land()

    def others_go_on() -> None:
        rig.writer_dies()
        if goes_back:
            rig.rewind(2)
            rig.fence()
        else:
            rig.advance()

    meanwhile(rig, monkeypatch, others_go_on)
    with pytest.raises(CrkafkaError):
        rig.advance()
    assert rig.rows() == rig.truth()
    rig.land()
    rig.advance()
    assert rig.rows() == rig.truth()


def test_a_rewind_takes_out_whole_files_and_rows_inside_of_files_that_others_made(rig: Rig) -> None:
    filled(rig, 2)
    rig.optimize()
    filled(rig, 2)
    rig.optimize()
    rig.rewind(3)
    rig.fence()
    assert rig.rows() == rig.truth() and rig.table().acknowledged == 3
    rig.rewind(1)
    rig.fence()
    assert rig.rows() == rig.truth() and rig.table().acknowledged == 1
    filled(rig, 1)
    assert rig.rows() == rig.truth() and rig.look().clean


def test_a_table_that_was_never_permitted_a_write_has_nothing_to_fence(rig: Rig) -> None:
    rig.land()
    rig.rewind(0)
    assert not rig.table().owes_fence and not rig.path.exists()


def test_the_fence_makes_a_table_that_a_first_writer_had_not_made(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.land()
    with monkeypatch.context() as patch, pytest.raises(Crash):
        dies_at("after the files", rig, patch)
        rig.advance()
    rig.writer_dies()
    rig.rewind(0)
    rig.fence()
    assert rig.rows() == []


def test_the_fence_makes_a_partitioned_table_in_a_catalog_with_its_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = TypedInCatalog(tmp_path, {"partition_by": ["who"]})
    rig.land()

    def dies(*_: Any) -> Any:
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(made, "by_shape", dies)
        rig.advance()
    rig.writer_dies()
    rig.rewind(0)
    rig.fence()
    assert rig.rows() == []


def test_an_older_copy_of_the_table_is_refused(rig: Rig) -> None:
    """A typed one, and one by key, were taken for the newest once harmless commits had brought their version up again."""
    filled(rig, 2)
    saved = rig.save()
    filled(rig, 1)
    rig.put_back(saved)
    for _ in range(2):
        rig.optimize(), rig.optimize()
        with pytest.raises(Refused, match=r"older copy|version"):
            rig.land()
            rig.advance()
        with pytest.raises(Refused, match=r"older copy|version"):
            rig.look()


def test_what_others_delete_is_counted_and_stays_reported_until_it_is_mended(raw: Rig) -> None:
    filled(raw, 3)
    raw.delete(below=7)
    filled(raw, 1)
    found = raw.look()
    assert (found.miscounted, found.foreign) == ((1, 2), 1)
    raw.mend()
    assert raw.look().clean and raw.rows() == raw.truth()


def test_rows_of_others_leave_with_a_repair(each_row: Rig) -> None:
    """Those without a number, those of a checkpoint that never was, and rows that are there twice."""
    filled(each_row, 3)
    more = pa.Table.from_batches([records(TP("orders", 0), 0, 4).records])
    each_row.insert(more)
    each_row.insert(more.append_column(CHECKPOINT, pa.array([77] * 4, pa.int64())))
    each_row.insert(more.append_column(CHECKPOINT, pa.array([1] * 4, pa.int64())))
    found = each_row.look()
    assert (found.unknown, found.strangers, found.miscounted) == (4, (77,), (1,)) and found.foreign == 3
    each_row.mend()
    assert each_row.look().clean and each_row.rows() == each_row.truth()


def test_a_table_to_which_others_only_added_is_mended_by_a_fence(rig: Rig) -> None:
    filled(rig, 1)
    rig.rewind(0)
    rig.fence()
    rig.insert(pa.Table.from_batches([records(TP("orders", 0), 0, 4).records]))
    rig.mend()
    assert rig.rows() == []


def test_rows_of_quiet_partitions_stay_whatever_the_history_has_forgotten(raw: Rig) -> None:
    filled(raw, 2)
    raw.optimize()
    for _ in range(4):
        raw.land(quiet=[1])
        raw.advance()
    raw.optimize()
    raw.landing.retire(1, 2, 3, history=1)
    before = raw.rows()
    raw.rewrite(5)
    assert raw.rows() == before
    raw.delete(below=1)
    found = raw.look()
    assert found.foreign == 1 and not found.strangers
    raw.mend()
    raw.rewind(5)
    raw.fence()
    assert [row for row in raw.rows() if row[1] == 1] == [row for row in before if row[1] == 1 and row[2] >= 1]
    assert raw.look().clean


@pytest.mark.parametrize("kind", [Rig, Typed, Iceberg, TypedIceberg, TypedInCatalog])
def test_a_table_that_a_user_made_without_rows_is_taken(kind: type[Rig], tmp_path: Path) -> None:
    """It was refused for ever, since it lacks the columns that crkafka adds (SPEC K6)."""
    rig = kind(tmp_path)
    text = pa.string() if isinstance(rig, Typed) else pa.binary()
    rig.make_empty(pa.schema([("who" if isinstance(rig, Typed) else "value", text), ("note", pa.string())]))
    filled(rig)
    assert rig.rows() == rig.truth() and rig.look().clean
    rig.rewind(1)
    rig.fence()
    assert rig.rows() == rig.truth()


def test_a_table_that_a_user_made_with_other_columns_or_rows_is_refused_in_one_sentence(tmp_path: Path) -> None:
    def refused(name: str, columns: pa.Schema, rows: Sequence[object] = ()) -> str:
        rig = Typed(tmp_path / name)
        rig.make_empty(columns)
        if rows:
            write_deltalake(str(rig.path), pa.table([rows], schema=columns), mode="append")
        rig.land()
        with pytest.raises(CrkafkaError) as error:
            rig.advance()
        return error.value.message

    number, required = pa.schema([("who", pa.int64())]), pa.schema([pa.field("who", pa.string(), nullable=False)])
    assert "column who is int64 and would become string" in refused("type", number)
    assert "required columns, and a record may lack who" in refused("required", required)
    assert "lacks crkafka_checkpoint" in refused("rows", pa.schema([("who", pa.string())]), ["w1"])


def test_a_table_is_declared_again_where_it_lies(rig: Rig) -> None:
    filled(rig, 2)
    rig.region.plane.do(lambda tx: plane.undeclare(tx, "bronze"))
    rig.land()
    rig.landing.declare(rig.landing.config.tables[0])
    rig.advance(), rig.advance()
    assert rig.rows() == rig.truth() and rig.look().clean


def test_a_table_is_refused_that_is_declared_again_after_the_history_forgot_it(raw: Rig) -> None:
    filled(raw, 2)
    raw.region.plane.do(lambda tx: plane.undeclare(tx, "bronze"))
    for _ in range(4):
        raw.land()
    raw.landing.retire(1, 2, 3, 4, history=1)
    before = raw.rows()
    raw.landing.declare(raw.landing.config.tables[0])
    with pytest.raises(Refused, match="new path"):
        raw.advance()
    assert raw.rows() == before


def test_sql_that_went_back_is_noticed_and_what_it_lost_leaves(each_row: Rig) -> None:
    filled(each_row, 2)
    saved = each_row.backup()
    filled(each_row, 2)
    each_row.restore_backup(saved)
    with pytest.raises(WentBack):
        each_row.rewrite(1)
    each_row.start_restored()
    each_row.fence()
    assert each_row.rows() == each_row.truth()
    filled(each_row, 1)
    assert each_row.rows() == each_row.truth() and each_row.look().clean


def test_60_a_number_that_sql_merges_again_with_less_is_in_a_table_as_sql_has_it(each_row: Rig) -> None:
    """A backup of an open handover was put back: of two members that had contributed only one does so again."""
    filled(each_row, 2)
    saved = each_row.backup()
    filled(each_row, 1)
    each_row.restore_backup(saved)
    again = each_row.land(quiet=[1])
    assert again == each_row.highest
    with pytest.raises(WentBack):
        each_row.advance()
    each_row.start_restored()
    each_row.fence()
    each_row.advance()
    assert each_row.rows() == each_row.truth(), "of the number as it is now"
    filled(each_row, 1)
    assert each_row.rows() == each_row.truth() and each_row.look().clean


def test_what_a_newer_sql_had_taken_out_comes_back(rig: Rig) -> None:
    filled(rig, 3)
    saved = rig.backup()
    rig.rewind(1)
    rig.fence()
    rig.restore_backup(saved)
    rig.start_restored()
    rig.fence()
    rig.advance()
    assert rig.rows() == rig.truth() and rig.look().clean


def test_another_regions_table_is_refused(raw: Rig, tmp_path: Path) -> None:
    filled(raw, 1)
    other = type(raw)(tmp_path / "other")
    other.path = raw.path
    other.landing.config.tables[0]
    other.region.plane.do(lambda tx: plane.undeclare(tx, "bronze"))
    other.region.plane.do(lambda tx: plane.declare(tx, "silver", "delta", str(raw.path)))
    other.land()
    with pytest.raises(standing.OtherRegion):
        road.advance(other.region, "silver", means=other.means)


def test_erased_records_leave_and_no_rewrite_brings_them_back(each_row: Rig) -> None:
    filled(each_row, 2)
    each_row.optimize()
    erase.note(each_row.region, erasure.by_partition([("orders", 0, 3), ("orders", 1, 7)]))
    each_row.rewrite(1, 2)
    assert each_row.rows() == each_row.truth() and len(each_row.rows()) == 18
    each_row.rewrite(1)
    assert each_row.rows() == each_row.truth() and each_row.look().clean


@pytest.mark.parametrize("known", [True, False])
def test_erasing_that_dies_after_the_first_table_is_gone_on_from_without_what_kafka_has_let_go(
    tmp_path: Path, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoints were demanded as a whole, and the tables stood still until `erase` was repeated. `known`: SQL has its commit."""
    rig = filled(Typed(tmp_path))
    erase.note(rig.region, erasure.by_partition([("orders", 0, 1), ("orders", 0, 3)]))
    rig.landing.retire(1, history=10)
    rig.means = replace(rig.means, fetch=gone)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        if known:
            one = road._erase
            patch.setattr(road, "_erase", lambda *given: dies() if given[1] == "bronze" else one(*given))
        else:
            dies_at("after the commit", rig, patch)
        road.erase(rig.region, "bronze", [1], means=rig.means)
    rig.writer_dies()
    rig.land()
    rig.advance()
    assert rig.rows() == rig.truth() and rig.look().clean


def dies() -> Any:
    raise Crash


def test_records_erased_while_a_commit_waited_for_its_acknowledgement_leave(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(rig, 1)
    rig.land()
    with monkeypatch.context() as patch, pytest.raises(Crash):
        dies_at("after the commit", rig, patch)
        rig.advance()
    rig.writer_dies()
    erase.note(rig.region, erasure.by_partition([("orders", 0, 7)]))
    rig.advance(), rig.advance()
    assert rig.rows() == rig.truth() and rig.look().clean


def test_records_erased_while_their_files_were_made_leave_and_come_no_more(
    each_row: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(each_row, 1)
    each_row.land()
    records_ = erasure.by_partition([("orders", 0, 7), ("orders", 1, 8)])
    meanwhile(each_row, monkeypatch, lambda: erase.note(each_row.region, records_))
    with pytest.raises(Stale, match="erased while commit"):
        each_row.advance()
    each_row.advance(), each_row.advance()
    assert each_row.rows() == each_row.truth() and each_row.look().clean
    each_row.rewind(0)
    each_row.fence()
    each_row.landed.clear()
    filled(each_row, 2)
    assert each_row.rows() == each_row.truth() and len(each_row.rows()) == 18, (
        "Kafka has them still, and gives them once more"
    )


def test_archived_checkpoints_are_read_from_kafka_again_or_refused(each_row: Rig) -> None:
    filled(each_row, 3)
    each_row.landing.retire(1, 2, history=10)
    each_row.delete(below=7)
    each_row.mend()
    assert each_row.rows() == each_row.truth()
    each_row.delete(below=7)
    each_row.means = replace(each_row.means, fetch=gone)
    with pytest.raises(DataLoss):
        each_row.mend()


def test_lost_data_files_are_found_and_come_again(each_row: Rig) -> None:
    filled(each_row, 3)
    log = each_row.means.logs(each_row.region, each_row.table())
    snapshot = log.look()
    assert snapshot is not None
    lost = next(iter(snapshot.files()))
    log.storage.delete(lost.path)
    found = each_row.look()
    assert found.lost == (lost.path,) and found.miscounted
    each_row.mend()
    assert each_row.look().clean and each_row.rows() == each_row.truth()
