"""Segments become data files of a Delta table: each row once, whatever crashes or comes late, without Spark (SPEC K6, X4)."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from crkafka_core.lake import writing
from crkafka_core.model.errors import CrkafkaError, LeaseLost, NotRunning, Refused, WentBack
from crkafka_core.plane import retire
from crkafka_core.plane import tables as plane
from crkafka_core.region.retire import delete_all
from crkafka_core.segments.batch import SCHEMA, SEGMENT
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import adopt, audit, last_commit
from crkafka_core.tables.delta_log import DeltaLog, Snapshot, open_log
from crkafka_core.tables.log import Moved, NeedsSpark
from crkafka_core.tables.stamp import OtherRegion, Stamp
from tests.tables.conftest import STEPS, Crash, Lake, dies_at, upto


def test_each_checkpoint_becomes_files_of_the_table_once(lake: Lake) -> None:
    lake.landing.land(5), lake.landing.land(5)
    first = adopt.advance(lake.region, "bronze")
    assert first is not None and (first.checkpoints, first.rows, first.acknowledged) == ((1, 2), 20, 2)
    assert adopt.advance(lake.region, "bronze") is None
    lake.landing.land(5), lake.landing.land(0), lake.landing.land(5)
    second = adopt.advance(lake.region, "bronze", limit=2)
    assert second is not None and second.acknowledged == 4
    adopt.advance(lake.region, "bronze")
    assert (lake.table().acknowledged, lake.rows()) == (5, upto(20))
    assert lake.delta().metadata().partition_columns == []


def test_only_empty_checkpoints_are_acknowledged_without_a_commit(lake: Lake) -> None:
    lake.landing.land(0)
    adopt.advance(lake.region, "bronze")
    assert (lake.table().acknowledged, lake.path.exists()) == (1, False)
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    version = lake.delta().version()
    lake.landing.land(0)
    adopt.advance(lake.region, "bronze")
    assert (lake.table().acknowledged, lake.delta().version()) == (3, version)


def test_the_log_tells_whose_commit_it_is_and_bounds_of_each_file(lake: Lake) -> None:
    lake.landing.land(5)
    done = adopt.advance(lake.region, "bronze")
    assert done is not None
    told = json.loads(lake.delta().history(1)[0]["userMetadata"])
    assert told["crkafka"]["uid"] == lake.landing.uid and told["crkafka"]["number"] == done.number
    assert (told["kind"], told["after"], told["upto"], told["rows"]) == ("advance", 0, 1, 10)
    actions = pa.table(lake.delta().get_add_actions(flatten=True)).to_pylist()
    assert sorted((a["num_records"], a["min.partition"], a["min.offset"], a["max.offset"]) for a in actions) == [
        (5, 0, 0, 4),
        (5, 1, 0, 4),
    ]
    assert {(str(a["min.timestamp"]), str(a["max.timestamp"])) for a in actions} == {
        ("2023-11-14 22:13:20+00:00", "2023-11-14 22:13:20.004000+00:00")
    }


def test_the_table_keeps_its_files_whatever_becomes_of_the_region(lake: Lake) -> None:
    for _ in range(3):
        lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    lake.landing.retire(1, 2)
    assert lake.rows() == upto(15)
    delete_all(lake.landing.storage, lake.landing.uid)
    assert lake.rows() == upto(15)


def test_what_the_user_does_to_the_table_leaves_segments_alone(lake: Lake) -> None:
    for _ in range(3):
        lake.landing.land(5)
        adopt.advance(lake.region, "bronze")
    lake.delta().optimize.compact()
    lake.delta().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    named = lake.region.plane.read(lambda reader, row: retire.named(reader))
    assert named and all(lake.landing.storage.exists(path) for path in named)
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    assert lake.rows() == upto(20)
    assert audit.look(lake.region, "bronze").clean


@pytest.mark.parametrize("compacted", [False, True], ids=["", "and compacted"])
@pytest.mark.parametrize("there", [False, True], ids=["a new table", "a table"])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_and_a_retry_leave_each_row_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str, there: bool, compacted: bool
) -> None:
    if there:
        lake.landing.land(5)
        adopt.advance(lake.region, "bronze")
    start = 5 if there else 0
    lake.landing.land(5), lake.landing.land(5)
    if not (there and step == "after making the table"):
        with monkeypatch.context() as patch, pytest.raises(Crash):
            dies_at(step)(patch)
            adopt.advance(lake.region, "bronze")
    if compacted and lake.path.exists() and step == "after the commit":
        lake.delta().optimize.compact()
    lake.writer_dies()
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze", limit=1)
    adopt.advance(lake.region, "bronze")
    assert lake.rows() == upto(start + 15)
    assert audit.look(lake.region, "bronze").clean


def test_superseded_rows_leave_with_the_fence_and_nothing_else_does(lake: Lake) -> None:
    for _ in range(3):
        lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    lake.landing.rewind(1)
    with pytest.raises(NotRunning, match="fence first"):
        adopt.advance(lake.region, "bronze")
    assert adopt.fence(lake.region, "bronze").acknowledged == 1
    assert lake.rows() == upto(5)
    lake.landing.land(7)
    adopt.advance(lake.region, "bronze")
    assert lake.rows() == upto(12)
    lake.landing.rewind(1)
    adopt.fence(lake.region, "bronze")
    assert lake.rows() == upto(5)
    assert audit.look(lake.region, "bronze").clean


@pytest.mark.parametrize("target", [0, 1, 3])
def test_rows_leave_exactly_also_out_of_files_that_the_user_has_compacted(lake: Lake, target: int) -> None:
    for _ in range(3):
        lake.landing.land(5)
        adopt.advance(lake.region, "bronze")
    lake.delta().optimize.compact()
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    lake.landing.rewind(target)
    adopt.fence(lake.region, "bronze")
    assert lake.rows() == upto(5 * target)
    assert audit.look(lake.region, "bronze").clean
    lake.landing.land(8)
    adopt.advance(lake.region, "bronze")
    assert lake.rows() == upto(5 * target + 8)
    assert audit.look(lake.region, "bronze").clean


def test_a_commit_that_sql_did_not_hear_of_leaves_with_a_rewind(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    lake.landing.land(5), lake.landing.land(5)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        dies_at("after the commit")(patch)
        adopt.advance(lake.region, "bronze")
    lake.delta().optimize.compact()
    lake.landing.rewind(2)
    adopt.fence(lake.region, "bronze")
    assert lake.rows() == upto(5)
    adopt.advance(lake.region, "bronze")
    assert lake.rows() == upto(10)


@pytest.mark.parametrize("write", [adopt.advance, adopt.mend])
def test_a_commit_that_sql_hears_of_by_another_after_ours_was_permitted_is_neither_made_twice_nor_undone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, write: Callable[..., Any]
) -> None:
    """Found by seed 1087 of the simulation: whoever finds such a commit tells SQL of it, and takes no lease for that."""
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    lake.landing.land(5)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        dies_at("after the commit")(patch)
        adopt.advance(lake.region, "bronze")
    lake.writer_dies()
    version, really = lake.delta().version(), adopt.on_a_snapshot

    def another_was_quicker(*args: Any) -> Any:
        monkeypatch.setattr(adopt, "on_a_snapshot", really)
        assert last_commit.acknowledge(lake.region, "bronze", open_log)
        return really(*args)

    monkeypatch.setattr(adopt, "on_a_snapshot", another_was_quicker)
    write(lake.region, "bronze")
    assert (lake.table().acknowledged, lake.rows()) == (2, upto(10))
    assert write is adopt.mend or lake.delta().version() == version, "a stream from the table would read it again"
    assert audit.look(lake.region, "bronze").clean


@pytest.mark.parametrize("forgotten", [False, True], ids=["", "of a forgotten history"])
def test_rows_that_cannot_be_told_apart_stop_the_fence_before_anything_is_removed(lake: Lake, forgotten: bool) -> None:
    """As when a topic was made anew under its old name, and what the old one gave has been compacted, and SQL has forgotten it."""
    for _ in range(4):
        lake.landing.land(5)
        adopt.advance(lake.region, "bronze")
    doubled = lake.delta().to_pyarrow_table()
    if forgotten:
        lake.landing.retire(1, 2, history=1)
    lake.delta().optimize.compact()
    write_deltalake(lake.delta(), doubled, mode="append")
    lake.landing.rewind(3)
    if forgotten:
        with pytest.raises(Refused, match="cannot be told apart"):
            adopt.fence(lake.region, "bronze")
        assert len(lake.rows()) == 80
    else:
        adopt.fence(lake.region, "bronze")
        assert lake.rows() == sorted(upto(15) * 2)


@pytest.mark.parametrize("doubled", [False, True], ids=["", "and doubled"])
def test_a_rewind_takes_only_what_it_supersedes_out_of_files_with_rows_of_a_topic_that_was_made_anew(
    lake: Lake, doubled: bool
) -> None:
    """The old one's checkpoints are archived, and Kafka has it no more: what leaves is told by its segments, and nothing is fetched."""
    for _ in range(3):
        lake.land(5)
    lake.advance()
    lake.landing.make_topics_anew()
    lake.land(4)
    lake.advance()
    lake.landing.retire(1, 2, 3)
    for _ in range(2):
        lake.land(3)
    lake.advance()
    lake.compact()
    if doubled:  # by somebody else: it cannot be said any more which of two equal ones is whose
        write_deltalake(lake.delta(), lake.delta().to_pyarrow_table(), mode="append")
    lake.landing.rewind(4)
    if doubled:
        with pytest.raises(NeedsSpark):
            lake.fence()
        lake.fence(fetch=lake.fetch)
        return
    lake.fence()
    assert lake.values() == lake.truth() and lake.look().clean
    lake.land(6)
    lake.advance()
    assert lake.values() == lake.truth() and lake.look().clean


class Late(threading.Thread):
    """A writer in a thread of its own that stops before one step, until it is let go."""

    def __init__(self, patch: pytest.MonkeyPatch, what: type, step: str, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.reached, self.go, self.work = threading.Event(), threading.Event(), work
        self.error: BaseException | None = None
        original = getattr(what, step)

        def waiting(*rest: Any, **keys: Any) -> Any:
            if threading.current_thread() is self and not self.reached.is_set():
                self.reached.set()
                assert self.go.wait(30)
            return original(*rest, **keys)

        patch.setattr(what, step, waiting)
        self.start()
        assert self.reached.wait(30)

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    def let_go(self) -> BaseException | None:
        self.go.set()
        self.join(30)
        assert not self.is_alive()
        return self.error


@pytest.mark.parametrize("step", ["snapshot", "create", "commit"])
def test_a_late_first_write_is_refused_by_the_table_that_the_fence_made(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A table that is not there yet; the writer sleeps before its first look, before making it, before its commit."""
    lake.landing.land(5), lake.landing.land(5)
    late = Late(
        monkeypatch, Snapshot if step == "commit" else DeltaLog, step, lambda: adopt.advance(lake.region, "bronze")
    )
    lake.writer_dies()
    lake.landing.rewind(1)
    adopt.fence(lake.region, "bronze")
    assert isinstance(late.let_go(), LeaseLost)
    assert lake.rows() == []
    adopt.advance(lake.region, "bronze")
    assert (lake.rows(), lake.delta().version()) == (upto(5), 2)


@pytest.mark.parametrize("step", ["snapshot", "commit"])
def test_a_late_write_is_refused_after_a_fence_and_after_anothers_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    what = Snapshot if step == "commit" else DeltaLog
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    lake.landing.land(5)
    late = Late(monkeypatch, what, step, lambda: adopt.advance(lake.region, "bronze"))
    lake.writer_dies()
    adopt.advance(lake.region, "bronze")
    assert isinstance(late.let_go(), LeaseLost)
    assert lake.rows() == upto(10)
    lake.landing.land(5)
    late = Late(monkeypatch, what, step, lambda: adopt.advance(lake.region, "bronze"))
    lake.landing.rewind(1)
    adopt.fence(lake.region, "bronze")
    assert isinstance(late.let_go(), LeaseLost)
    assert lake.rows() == upto(5)


def test_the_table_itself_refuses_a_late_number_though_sql_would_not(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lease and without SQL: only the log stands between a zombie and the table."""
    lake.landing.land(5), lake.landing.land(5)
    monkeypatch.setattr(writing.Hold, "check", lambda _: None)
    late = Late(monkeypatch, Snapshot, "commit", lambda: adopt.advance(lake.region, "bronze"))
    lake.writer_dies()
    lake.landing.rewind(1)
    adopt.fence(lake.region, "bronze")
    error = late.let_go()
    assert isinstance(error, LeaseLost) and "did not take commit 1" in str(error)
    assert lake.rows() == []


def test_of_two_that_make_one_table_at_once_one_is_refused(lake: Lake) -> None:
    """deltalake with its own retries lets both (`max_commit_retries=0` is what this rests on)."""
    for n in range(20):
        log = DeltaLog(lake.table().__class__("orders", "bronze", "delta", f"{lake.path}{n}"), {})
        stamps = [Stamp("u", "bronze", number, "t") for number in (1, 2)]
        start, ends = threading.Barrier(2), []

        def make(stamp: Stamp, start: threading.Barrier = start, log: DeltaLog = log, ends: list[str] = ends) -> None:
            start.wait()
            try:
                log.create(stamp)
                ends.append("made")
            except Moved:
                ends.append("refused")

        threads = [threading.Thread(target=make, args=(stamp,)) for stamp in stamps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        snapshot = log.snapshot()
        assert snapshot is not None and (sorted(ends), snapshot.version) == (["made", "refused"], 0)


def test_who_commits_between_the_look_and_the_commit_makes_us_look_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    lake.landing.land(5)
    late = Late(monkeypatch, Snapshot, "commit", lambda: adopt.advance(lake.region, "bronze"))
    lake.delta().optimize.compact()
    lake.delta().alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert late.let_go() is None
    assert (lake.table().acknowledged, lake.rows()) == (2, upto(10))


def test_rows_of_others_are_found(lake: Lake) -> None:
    lake.landing.land(5), lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    second = lake.delta().to_pyarrow_table().filter(pa.compute.field("offset") >= 5)
    write_deltalake(lake.delta(), second, mode="append")
    found = audit.look(lake.region, "bronze")
    assert (found.miscounted, found.foreign, found.strangers) == ((2,), 1, ())


def test_superseded_rows_that_a_restore_brought_back_are_found_and_removed(lake: Lake) -> None:
    lake.landing.land(5), lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    before = lake.delta().version()
    lake.landing.rewind(1)
    adopt.fence(lake.region, "bronze")
    lake.delta().restore(before)
    assert audit.look(lake.region, "bronze").strangers == (2,)
    adopt.mend(lake.region, "bronze")
    assert lake.rows() == upto(5)
    assert audit.look(lake.region, "bronze").clean


def test_another_regions_table_is_refused(tmp_path: Path) -> None:
    one = Lake(tmp_path)
    one.landing.land(5)
    adopt.advance(one.region, "bronze")
    other = Lake(tmp_path)
    other.landing.land(5)
    with pytest.raises(OtherRegion, match=one.landing.uid):
        adopt.advance(other.region, "bronze")


def test_a_control_plane_that_went_back_in_time_is_noticed_and_rewinds(lake: Lake) -> None:
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    before = lake.table()
    for _ in range(2):
        lake.landing.land(5), adopt.advance(lake.region, "bronze")
    lake.region.plane.do(lambda tx: tx.put(before))
    lake.region.plane.do(lambda tx: tx.delete(plane.TableCommit, ("number", ">", 1)))
    with pytest.raises(WentBack, match="has commit 3"):
        adopt.advance(lake.region, "bronze")


@pytest.mark.parametrize("columns", [["partition"], []], ids=["partitioned", "of other columns"])
def test_a_table_of_another_layout_is_refused_and_says_what_to_do(lake: Lake, columns: list[str]) -> None:
    lake.landing.land(5)
    schema = SCHEMA if columns else pa.schema([("id", pa.int64())])
    write_deltalake(str(lake.path), schema.empty_table(), partition_by=columns or None)
    with pytest.raises(Refused, match=r"lacks key, .*, headers, crkafka_checkpoint of the columns|is partitioned by"):
        adopt.advance(lake.region, "bronze")


def test_files_are_linked_where_they_can_be_and_copied_where_not(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    linked = [p for p in lake.path.rglob("*.parquet") if "_delta_log" not in str(p)]
    assert len(linked) == 2 and all(p.stat().st_nlink == 2 for p in linked)

    def cannot(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", cannot)
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    assert lake.rows() == upto(10)
    assert not list(lake.path.rglob("*.part"))


def test_a_segment_that_is_gone_is_an_error_and_no_smaller_table(lake: Lake) -> None:
    lake.landing.land(5)
    path = next(iter(lake.region.plane.read(lambda reader, row: retire.named(reader))))
    Storage.open(lake.region.config.storage).delete(path)
    with pytest.raises(CrkafkaError, match="is not there"):
        adopt.advance(lake.region, "bronze")
    assert lake.table().acknowledged == 0 and not (lake.path / "_delta_log").exists()


def test_plain_parquet_readers_find_the_same_columns(lake: Lake) -> None:
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    read = pq.ParquetDataset(
        [str(lake.path / a) for a in pa.table(lake.delta().get_add_actions())["path"].to_pylist()]
    ).read()
    assert read.schema.names == SEGMENT.names == lake.delta().to_pyarrow_table().schema.names


def test_a_lower_rewind_during_a_fence_is_followed_by_the_next_one_also_in_compacted_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    lake.delta().optimize.compact()
    lake.landing.rewind(8)
    commit = Snapshot.commit

    def then_rewound(self: Snapshot, *args: Any, **keys: Any) -> int:
        version = commit(self, *args, **keys)
        monkeypatch.setattr(Snapshot, "commit", commit)
        lake.landing.rewind(5)
        return version

    monkeypatch.setattr(Snapshot, "commit", then_rewound)
    assert adopt.fence(lake.region, "bronze").acknowledged == 8
    assert adopt.fence(lake.region, "bronze").acknowledged == 5
    assert lake.rows() == upto(25)
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    assert lake.rows() == upto(30)


def test_a_table_whose_folder_is_not_there_is_not_made_anew(lake: Lake) -> None:
    """Perhaps it is only not mounted on this machine: its rows would be in two tables, or gone."""
    lake.landing.land(5)
    adopt.advance(lake.region, "bronze")
    away = lake.path.rename(lake.path.with_name("away"))
    lake.landing.land(5)
    with pytest.raises(Refused, match=r"is not there, and version \d+ of it was acknowledged"):
        adopt.advance(lake.region, "bronze")
    shutil.rmtree(lake.path)  # segments that were linked there, and belong to no table
    away.rename(lake.path)
    adopt.advance(lake.region, "bronze")
    assert lake.rows() == upto(10)
