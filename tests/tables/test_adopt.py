"""Segments become data files of a Delta table: each row once, whatever crashes or comes late, without Spark (SPEC K6, X4)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from crkafka_core.lake.delta.snapshot import DeltaSnapshot as Snapshot
from crkafka_core.lake.delta.table import DeltaTable as DeltaLog
from crkafka_core.model.errors import CrkafkaError, LeaseLost, Refused
from crkafka_core.plane import retire
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.storage import Storage
from tests.tables.conftest import Lake, upto


def test_only_empty_checkpoints_are_acknowledged_without_a_commit(lake: Lake) -> None:
    lake.land(0)
    lake.advance()
    assert (lake.table().acknowledged, lake.path.exists()) == (1, False)
    lake.land(5)
    lake.advance()
    version = lake.delta().version()
    lake.land(0)
    lake.advance()
    assert (lake.table().acknowledged, lake.delta().version()) == (3, version)


def test_the_log_tells_whose_commit_it_is_and_bounds_of_each_file(lake: Lake) -> None:
    lake.land(5)
    done = lake.advance()
    assert done is not None
    metadata = json.loads(lake.delta().history(1)[0]["userMetadata"])
    assert metadata["crkafka"]["uid"] == lake.landing.uid and metadata["crkafka"]["number"] == done.number
    assert (metadata["kind"], metadata["after"], metadata["upto"], metadata["rows"]) == ("advance", 0, 1, 10)
    actions = pa.table(lake.delta().get_add_actions(flatten=True)).to_pylist()
    assert sorted((a["num_records"], a["min.partition"], a["min.offset"], a["max.offset"]) for a in actions) == [
        (5, 0, 0, 4),
        (5, 1, 0, 4),
    ]
    assert {(str(a["min.timestamp"]), str(a["max.timestamp"])) for a in actions} == {
        ("2023-11-14 22:13:20+00:00", "2023-11-14 22:13:20.004000+00:00")
    }


def test_what_the_user_does_to_the_table_leaves_segments_alone(lake: Lake) -> None:
    for _ in range(3):
        lake.land(5)
        lake.advance()
    lake.delta().optimize.compact()
    lake.delta().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    named = lake.region.plane.read(lambda reader, row: retire.named(reader))
    assert named and all(lake.landing.storage.exists(path) for path in named)
    lake.land(5)
    lake.advance()
    assert lake.places() == upto(20)
    assert lake.look().clean


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


@pytest.mark.parametrize("step", ["look", "create", "commit"])
def test_a_late_first_write_is_refused_by_the_table_that_the_fence_made(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A table that is not there yet; the writer sleeps before its first look, before making it, before its commit."""
    lake.land(5), lake.land(5)
    late = Late(monkeypatch, Snapshot if step == "commit" else DeltaLog, step, lambda: lake.advance())
    lake.writer_dies()
    lake.landing.rewind(1)
    lake.fence()
    assert isinstance(late.let_go(), LeaseLost)
    assert lake.places() == []
    lake.advance()
    assert (lake.places(), lake.delta().version()) == (upto(5), 2)


def test_superseded_rows_that_a_restore_brought_back_are_found_and_removed(lake: Lake) -> None:
    lake.land(5), lake.land(5)
    lake.advance()
    before = lake.delta().version()
    lake.landing.rewind(1)
    lake.fence()
    lake.delta().restore(before)
    assert lake.look().strangers == (2,)
    lake.mend()
    assert lake.places() == upto(5)
    assert lake.look().clean


@pytest.mark.parametrize(
    ("rows", "parts"),
    [(SCHEMA.empty_table(), ["partition"]), (pa.table({"id": [1]}), None)],
    ids=["partitioned", "of other columns"],
)
def test_a_table_of_another_layout_is_refused_and_says_what_to_do(
    lake: Lake, rows: pa.Table, parts: list[str] | None
) -> None:
    lake.land(5)
    write_deltalake(str(lake.path), rows, partition_by=parts)
    with pytest.raises(Refused, match=r"lacks key, .*, crkafka_checkpoint of the columns|is partitioned by"):
        lake.advance()


def test_files_are_linked_where_they_can_be_and_copied_where_not(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(5)
    lake.advance()
    linked = [p for p in lake.path.rglob("*.parquet") if "_delta_log" not in str(p)]
    assert len(linked) == 2 and all(p.stat().st_nlink == 2 for p in linked)

    def cannot(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", cannot)
    lake.land(5)
    lake.advance()
    assert lake.places() == upto(10)
    assert not list(lake.path.rglob("*.part"))


def test_a_segment_that_is_gone_is_an_error_and_no_smaller_table(lake: Lake) -> None:
    lake.land(5)
    path = next(iter(lake.region.plane.read(lambda reader, row: retire.named(reader))))
    Storage.open(lake.region.config.storage).delete(path)
    with pytest.raises(CrkafkaError, match="is not there"):
        lake.advance()
    assert lake.table().acknowledged == 0 and not (lake.path / "_delta_log").exists()


def test_a_lower_rewind_during_a_fence_is_followed_by_the_next_one_also_in_compacted_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        lake.land(5)
    lake.advance()
    lake.delta().optimize.compact()
    lake.landing.rewind(8)
    commit = Snapshot.commit

    def then_rewound(self: Snapshot, *args: Any, **keys: Any) -> int:
        version = commit(self, *args, **keys)
        monkeypatch.setattr(Snapshot, "commit", commit)
        lake.landing.rewind(5)
        return version

    monkeypatch.setattr(Snapshot, "commit", then_rewound)
    assert lake.fence().acknowledged == 8
    assert lake.fence().acknowledged == 5
    assert lake.places() == upto(25)
    lake.land(5)
    lake.advance()
    assert lake.places() == upto(30)


def test_a_table_whose_folder_is_not_there_is_not_made_anew(lake: Lake) -> None:
    """Perhaps it is only not mounted on this machine: its rows would be in two tables, or gone."""
    lake.land(5)
    lake.advance()
    away = lake.path.rename(lake.path.with_name("away"))
    lake.land(5)
    with pytest.raises(Refused, match=r"is not there, and version \d+ of it was acknowledged"):
        lake.advance()
    away.rename(lake.path)
    lake.advance()
    assert lake.places() == upto(10)
