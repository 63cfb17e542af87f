"""A table that keeps one row for each key goes back to what it was, by its log alone; the merge here is deltalake's own (SPEC K6, X4)."""

from __future__ import annotations

import contextlib
import copy
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from crkafka_core.control import Tx
from crkafka_core.holder import holder
from crkafka_core.lake import writing
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.port import Moved
from crkafka_core.lake.writing import Committed, Written
from crkafka_core.model.errors import LeaseLost, Refused, WentBack
from crkafka_core.model.rows import Lease, Table
from crkafka_core.plane import cleanup, permits, restored
from crkafka_core.plane import tables as plane
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.table_versions import State
from crkafka_core.tables import delta_upsert
from crkafka_core.tables.delta_log import DeltaLog
from crkafka_core.tables.stamp import OtherRegion, Stamp
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

COLUMN = "crkafka_checkpoint"


class Crash(BaseException):
    """The process dies here."""


class Kept:
    """A region with one such table; a record's key is its offset modulo seven, one partition."""

    def __init__(self, folder: Path, path: str = "", s3: dict[str, str] | None = None) -> None:
        self.path, self.s3 = path or str(folder / "now"), s3 or {}
        declared = {
            "name": "now",
            "format": "delta",
            "path": self.path,
            "shape": "a:b",
            "mode": "upsert",
            "keys": ["id"],
        }
        self.store = MemoryStore()
        references = {key: f"${{env:LAKE_{key}}}" if key.endswith("_key") else value for key, value in self.s3.items()}
        self.landing = Landing(self.store, folder, partitions=1, tables=[declared], storage_options=references)
        self.region = self.landing.region
        self.ends = {0: 0}

    def land(self, rows: int = 5) -> int:
        head = self.region.plane.read(lambda _, row: row.head)
        number = self.landing.land(rows)
        self.ends[number] = self.ends[head] + rows
        return number

    def advance(self, *, dies: bool = False, limit: int | None = None) -> Committed | None:
        return writing.commit(
            self.region,
            "now",
            lambda tx, token: permits.permit_commit(tx, "now", holder=holder(), token=token, limit=limit),
            lambda permit, hold: self.write(permit, hold, dies=dies),
        )

    def write(self, permit: Permit, _: Hold, *, dies: bool = False) -> Written:
        stamp, log = Stamp.of(permit.plan.uid, permit.commit), DeltaLog(permit.table, self.s3)
        if not permit.plan.rows:
            return Written("", 0)
        version = delta_upsert.acknowledged(self.region, log, permit, stamp, ["id"], COLUMN)
        start, end = self.ends[permit.plan.line[0].parent], self.ends[permit.plan.checkpoints[-1]]
        self.merge(start, end, stamp)
        if dies:
            raise Crash
        return Written(delta_upsert.merged(log, stamp, version), end - start)

    def merge(self, start: int, end: int, stamp: Stamp) -> None:
        last = {offset % 7: offset for offset in range(start, end)}
        rows = pa.table(
            {COLUMN: pa.array([1] * len(last), pa.int64()), "id": list(last), "offset": list(last.values())}
        )
        said = CommitProperties(
            custom_metadata={"userMetadata": stamp.to_json()},
            max_commit_retries=0,
            app_transactions=[Transaction(stamp.app, delta_upsert.number_of_merge(stamp))],
        )
        table = self.lake()
        if "id" not in [field.name for field in table.schema().fields]:
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=said)
        else:
            merge = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t", commit_properties=said)
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def lake(self) -> DeltaTable:
        """As anybody reads it."""
        if not self.s3:
            return DeltaTable(self.path)
        options = {
            "AWS_ENDPOINT_URL": self.s3["endpoint"],
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "conditional_put": "etag",
            "AWS_ACCESS_KEY_ID": self.s3["access_key"],
            "AWS_SECRET_ACCESS_KEY": self.s3["secret_key"],
        }
        return DeltaTable(self.path, storage_options=options)

    def fence(self) -> Table:
        return delta_upsert.fence(self.region, "now", ["id"], COLUMN)

    def rows(self) -> dict[int, int]:
        """Key → offset."""
        table = self.lake()
        if "id" not in [field.name for field in table.schema().fields]:
            return {}
        rows = table.to_pyarrow_table(columns=["id", "offset"]).to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row["offset"] for row in rows}

    def truth(self, checkpoint: int) -> dict[int, int]:
        return {offset % 7: offset for offset in range(self.ends[checkpoint])}

    def table(self) -> Table:
        return self.region.plane.read(lambda reader, row: plane.of(reader, "now"))

    def writer_dies(self) -> None:
        def end(tx: Tx) -> None:
            for lease in tx.select(Lease, ("region", "=", "orders"), ("kind", "=", "writer:now")):
                tx.put(Lease(**{**{k: getattr(lease, k) for k in lease.__slots__}, "until": 0.0}))

        self.region.plane.do(end)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.mark.parametrize("target", range(5))
def test_a_rewind_goes_back_to_the_last_commit_on_the_line_and_what_is_between_is_written_again(
    kept: Kept, target: int
) -> None:
    kept.land(4), kept.land(0), kept.land(6)
    kept.advance()  # three by one commit
    for _ in range(2):
        kept.land(3)
        kept.advance()
    kept.landing.rewind(target)
    assert kept.fence().acknowledged == (target if target > 2 else 0)
    kept.advance()
    assert (kept.table().acknowledged, kept.rows()) == (target, kept.truth(target))
    new = kept.land(9)
    kept.advance()
    assert kept.rows() == kept.truth(new)


def test_a_merge_that_sql_did_not_hear_of_is_undone_first(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in (True, False):
        last = kept.land()
        with monkeypatch.context() as patch, pytest.raises(Crash):
            patch.setattr(writing, "give_up", lambda *_: None)
            kept.advance(dies=True)
        kept.writer_dies()
        kept.advance()
        assert kept.rows() == kept.truth(last), first


def test_of_those_who_make_one_table_at_once_one_does(tmp_path: Path) -> None:
    for number in range(5):
        table = Table(region="r", name="now", format="delta", path=str(tmp_path / str(number)))
        start, made = threading.Barrier(3), []

        def make(uid: str, table: Table = table, start: threading.Barrier = start, made: list[str] = made) -> None:
            log = DeltaLog(table, {})
            start.wait()
            with contextlib.suppress(Moved):
                log.create(Stamp(uid, "now", 1, "t"), pa.schema([(COLUMN, pa.int64())]), {delta_upsert.KEYS: uid})
                made.append(uid)

        threads = [threading.Thread(target=make, args=(uid,)) for uid in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        snapshot = DeltaLog(table, {}).snapshot()
        assert snapshot is not None and [snapshot.property(delta_upsert.KEYS)] == made and snapshot.version == 0


def test_in_an_object_store_too(
    tmp_path: Path, bucket: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("access_key", "secret_key"):
        monkeypatch.setenv(f"LAKE_{name}", s3_options[name])
    kept = Kept(tmp_path, f"s3://{bucket}/now", s3_options)
    for _ in range(3):
        kept.land()
        kept.advance()
    kept.land()
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(writing, "give_up", lambda *_: None)
        kept.advance(dies=True)
    kept.writer_dies()
    kept.landing.rewind(2)
    assert kept.fence().acknowledged == 2
    assert kept.rows() == kept.truth(2)
    new = kept.land(9)
    kept.advance()
    assert kept.rows() == kept.truth(new)


def test_numbers_of_who_comes_late_are_below_those_of_whoever_came_after_it(kept: Kept) -> None:
    kept.land()
    late = kept.region.plane.do(lambda tx: permits.permit_commit(tx, "now", holder="late", token="t"))
    assert late is not None
    stamp, log = Stamp.of(late.plan.uid, late.commit), DeltaLog(late.table, {})
    kept.writer_dies()
    kept.advance()
    kept.land()
    kept.advance()
    with pytest.raises(WentBack):  # there are numbers of which it knows nothing
        delta_upsert.acknowledged(kept.region, log, late, stamp, ["id"], COLUMN)
    snapshot = log.snapshot()
    assert snapshot is not None
    with pytest.raises(LeaseLost):
        delta_upsert.put_back(log, snapshot, State(0, ""), stamp, delta_upsert.number_of_merge(stamp))
    with pytest.raises(LeaseLost):
        delta_upsert.merged(log, stamp, 0)
    assert kept.rows() == kept.truth(2)


def test_an_older_copy_is_refused_though_harmless_commits_have_brought_its_version_up_again(kept: Kept) -> None:
    kept.land(), kept.advance()
    older = shutil.copytree(kept.path, f"{kept.path}-older")
    kept.land(), kept.advance()
    shutil.rmtree(kept.path), shutil.copytree(older, kept.path)
    while kept.lake().version() <= int(kept.table().version):
        kept.lake().alter.set_table_properties(
            {"delta.logRetentionDuration": f"interval {kept.lake().version() + 30} days"}
        )
    kept.land()
    with pytest.raises(Refused, match="older copy"):
        kept.advance()


def test_a_control_plane_that_went_back_in_time_comes_above_the_tables_numbers(kept: Kept) -> None:
    kept.land()
    kept.advance()
    backup = copy.deepcopy(kept.store._tables)
    for _ in range(4):
        kept.land()
        kept.advance()
    kept.store._tables.update(copy.deepcopy(backup))
    seen = restored.Seen(epoch=9, checkpoint=5, where="Kafka")
    kept.region.plane.do(lambda tx: restored.notice(tx, "restored", by="test"))
    kept.region.plane.do(lambda tx: restored.rewind(tx, seen, by="test"))
    assert kept.fence().acknowledged == 1
    assert kept.rows() == kept.truth(1)


@pytest.mark.parametrize("what", ["files", "log"])
def test_a_version_that_is_gone_is_said_and_nothing_changes(kept: Kept, what: str) -> None:
    for _ in range(3):
        kept.land()
        kept.advance()
    table = DeltaTable(kept.path)
    if what == "files":
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    else:
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
        table.create_checkpoint()
        table.cleanup_metadata()
    kept.landing.rewind(1)
    with pytest.raises(Refused, match="cannot go back to checkpoint 1, its version"):
        kept.fence()
    assert kept.rows() == kept.truth(3)


def test_a_rewind_to_where_the_table_is_needs_no_older_version(kept: Kept) -> None:
    kept.land(), kept.land()
    kept.advance(limit=1)
    kept.advance()
    table = DeltaTable(kept.path)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    there = kept.landing.land(5) - 1  # the table is behind, and the rewind goes to where it is
    kept.landing.rewind(there)
    assert kept.fence().acknowledged == there
    assert kept.rows() == kept.truth(there)


def test_the_commit_before_the_oldest_live_checkpoint_is_remembered(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "COMMITS", 1)
    kept.land(), kept.land(), kept.land()
    kept.advance(limit=2)
    kept.advance()
    for _ in range(4):
        kept.land()
        kept.advance()
    kept.landing.retire(1, 2)
    kept.region.plane.do(cleanup.clean_up)
    kept.landing.rewind(3)
    assert kept.fence().acknowledged == 3
    assert kept.rows() == kept.truth(3)


def test_that_nothing_was_written_before_the_oldest_live_checkpoint_is_remembered(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "COMMITS", 1)
    kept.land(), kept.land(), kept.land()
    kept.advance()
    for _ in range(3):
        kept.land()
        kept.advance()
    kept.region.plane.do(cleanup.clean_up)
    kept.landing.rewind(1)
    assert kept.fence().acknowledged == 0
    kept.advance()
    assert kept.rows() == kept.truth(1)


def test_a_commit_that_a_rewind_left_behind_stands_for_none_before_it(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "COMMITS", 1)
    for _ in range(2):
        kept.land()
        kept.advance()
    kept.landing.rewind(1)
    kept.fence()
    kept.land(), kept.land()
    kept.advance()
    kept.landing.retire(1)
    kept.region.plane.do(cleanup.clean_up)
    kept.landing.rewind(3)
    assert kept.fence().acknowledged == 1
    kept.advance()
    assert kept.rows() == kept.truth(3)


def test_the_table_of_another_region_is_neither_written_nor_emptied(tmp_path: Path) -> None:
    theirs, ours = Kept(tmp_path), Kept(tmp_path)
    theirs.land()
    theirs.advance()
    ours.land()
    with pytest.raises(OtherRegion):
        ours.advance()
    ours.landing.rewind(0)
    with pytest.raises(OtherRegion):
        ours.fence()
    assert theirs.rows() == theirs.truth(1)


def test_a_table_that_another_region_has_only_begun_is_not_given_our_keys(tmp_path: Path) -> None:
    theirs, ours = Kept(tmp_path), Kept(tmp_path)
    theirs.land()
    permit = theirs.region.plane.do(lambda tx: permits.permit_commit(tx, "now", holder="h", token="t"))
    assert permit is not None
    DeltaLog(permit.table, {}).create(Stamp.of(permit.plan.uid, permit.commit), pa.schema([(COLUMN, pa.int64())]))
    ours.land()
    with pytest.raises(OtherRegion):
        ours.advance()
    assert DeltaTable(theirs.path).version() == 0


def test_an_older_copy_of_the_table_is_not_written_on(kept: Kept, tmp_path: Path) -> None:
    kept.land()
    kept.advance()
    shutil.copytree(kept.path, tmp_path / "copy")
    kept.land()
    kept.advance()
    shutil.rmtree(kept.path)
    shutil.copytree(tmp_path / "copy", kept.path)
    kept.land()
    with pytest.raises(Refused, match=r"is at version \d+, and version \d+ of it was acknowledged"):
        kept.advance()
    kept.landing.rewind(2)
    with pytest.raises(Refused, match=r"is at version \d+, and version \d+ of it was acknowledged"):
        kept.fence()
    assert kept.rows() == kept.truth(1)


def test_a_table_declared_again_where_it_lies_is_filled_from_birth(kept: Kept) -> None:
    kept.land(), kept.land()
    kept.advance()
    kept.region.plane.do(lambda tx: plane.undeclare(tx, "now"))
    kept.landing.declare(kept.landing.config.tables[0])
    kept.advance()
    assert kept.rows() == kept.truth(2)


@pytest.mark.parametrize("seed", range(8))
def test_in_any_order_the_table_ends_with_what_the_line_says(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, dice = Kept(tmp_path), random.Random(seed)
    monkeypatch.setattr(writing, "give_up", lambda *_: None)

    def tried(work: Any) -> None:
        try:
            work()
        except (Refused, Crash):
            kept.writer_dies()

    for _ in range(25):
        event = dice.choice(["land", "land", "advance", "advance", "crash", "rewind", "fence", "compact", "written"])
        there = (tmp_path / "now" / "_delta_log").exists()
        if event == "land" and not kept.table().rewind_epoch > kept.table().fenced_epoch:
            kept.land(dice.choice([0, 2, 5]))
        elif event in ("advance", "crash"):
            tried(lambda: kept.advance(dies=event == "crash", limit=dice.choice([1, 2, None])))  # noqa: B023
        elif event == "rewind":
            line = kept.region.plane.read(lambda reader, row: [0, *reader.line(row.head)])
            tried(lambda: kept.landing.rewind(dice.choice(line)))  # noqa: B023
        elif event == "fence":
            tried(kept.fence)
        elif event == "compact" and there:
            DeltaTable(kept.path).optimize.compact()
        elif event == "written" and there and kept.rows():
            DeltaTable(kept.path).delete("offset % 2 = 0")
    kept.writer_dies()
    kept.fence()
    kept.advance()
    if kept.land(3):
        kept.advance()
    head = kept.region.plane.read(lambda _, row: row.head)
    assert (kept.table().acknowledged, kept.rows()) == (head, kept.truth(head))
