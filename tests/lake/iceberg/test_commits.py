"""A commit to an Iceberg table at a path: refused on a stale look, all or nothing, bounded however many came before (SPEC K6)."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crkafka_core.lake.columns import followed
from crkafka_core.lake.iceberg import columns, expiry, path, table
from crkafka_core.lake.iceberg.path import PathLog
from crkafka_core.lake.port import CannotCommit, Change, Moved, Snapshot, Unknown
from crkafka_core.segments.errors import StorageUnavailable
from crkafka_core.segments.local import LocalStorage
from tests.lake.iceberg.orders import SCHEMA, UID, Orders, everywhere, seen, stamp

DAY = 86_400


def paths(snapshot: Snapshot | None) -> set[str]:
    assert snapshot is not None
    return {file.path for file in snapshot.files()}


def test_a_stale_look_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    stale = PathLog(LocalStorage(str(tmp_path / "t"))).look()
    assert stale is not None
    first = orders.file([1])
    made = orders.commit([first])
    with pytest.raises(Moved):
        stale.commit(stamp(3), Change([orders.file([2])]))
    with pytest.raises(Moved):
        orders.log.create(SCHEMA, [], stamp(4), {})
    assert paths(orders.log.look()) == {first.path}
    used = {Path(s["manifest-list"]).name for s in json.loads(orders.metadata.read_text())["snapshots"]}
    assert {each.name for each in (orders.folder / "metadata").glob("snap-*")} == used
    orders.commit(remove=orders.named(first))
    older = orders.log.look(str(made.version))
    assert older is not None
    with pytest.raises(Moved):
        older.commit(stamp(5))


def test_a_removed_file_has_to_be_there(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    first = orders.file([1])
    orders.commit([first])
    named = orders.named(first)
    orders.commit(remove=named)
    with pytest.raises(Moved, match="1 files"):
        orders.commit(remove=named)


@pytest.fixture
def few_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten, seven are left."""
    monkeypatch.setattr(expiry, "_MOST", 10)
    monkeypatch.setattr(expiry, "_LEFT", 7)


@pytest.mark.usefixtures("few_snapshots")
def test_stamps_outlive_their_snapshots_and_foreign_commits(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    assert orders.now.stamp(UID, "orders") == stamp(1, version=1)
    assert orders.now.owner() == stamp(1).owner
    ours = orders.commit([orders.file([1])], permit=7)
    for _ in range(12):
        orders.now = orders.now.commit(stamp(1, uid="uid-2"))
    assert orders.log.look(str(ours.version)) is None
    assert orders.now.stamp(UID, "orders") == stamp(7, version=2)
    assert orders.now.owner() == stamp(1, uid="uid-2").owner
    orders.commit(permit=0)
    assert orders.now.stamp(UID, "orders") == stamp(7, version=2), (
        "a commit without a permit leaves the last one's stamp"
    )
    assert orders.now.owner() == stamp(1).owner
    assert orders.now.since(2) is None
    assert [entry.version for entry in orders.now.since(11) or ()] == list(range(12, 16))


@pytest.mark.usefixtures("few_snapshots")
def test_a_commit_keeps_the_versions_that_it_is_asked_to_keep(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    first = orders.file([1])
    kept = orders.commit([first])
    orders.commit(remove=orders.named(first))
    for _ in range(12):
        orders.commit(keep=lambda: [kept.version])
    assert paths(orders.log.look(str(kept.version))) == {first.path}
    assert 8 <= len(json.loads(orders.metadata.read_text())["snapshots"]) <= 11
    for _ in range(10):
        orders.commit()
    assert orders.log.look(str(kept.version)) is None, "it is not asked for any more"


class Failing(LocalStorage):
    """Its `left`-th write is made, or not, and then there is no answer."""

    def __init__(self, root: str, left: int, made: bool) -> None:
        super().__init__(root)
        self.left, self.made = left, made

    def _do(self, write: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left:
            return write()
        if self.made:
            write()
        raise StorageUnavailable("no answer")

    def put_together(self, files: Sequence[tuple[str, bytes]]) -> None:
        for file in files:
            self._do(lambda file=file: super(Failing, self).put_together([file]))  # type: ignore[misc]

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._do(lambda: super(Failing, self).put(path, data, durable=durable))

    def put_new(self, path: str, data: bytes) -> bool:
        return bool(self._do(lambda: super(Failing, self).put_new(path, data)))


@pytest.mark.parametrize("made", [True, False])
def test_a_commit_that_ends_after_any_put_is_there_whole_or_not_at_all(tmp_path: Path, made: bool) -> None:
    for left in range(1, 10):
        orders = Orders(tmp_path / f"t{left}")
        first, second = orders.file([1]), orders.file([2])
        orders.commit([first])
        storage = Failing(str(orders.folder), left, made)
        snapshot = PathLog(storage).look()
        assert snapshot is not None
        with contextlib.suppress(StorageUnavailable, Unknown):
            snapshot.commit(stamp(9), Change([second], orders.named(first)))
        assert storage.left <= 0 or left > 5
        now = orders.log.look()
        assert now is not None
        counts = now.stamp(UID, "orders") == stamp(9, version=3)
        assert paths(now) == ({second.path} if counts else {first.path})
        assert paths(now.commit(stamp(10), Change([orders.file([3])]))) > paths(now)
        if storage.left > 0:
            break
    else:
        pytest.fail("a commit has fewer puts")


def test_an_answer_that_is_lost_is_unknown_and_the_stamp_tells(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")

    class Lost(LocalStorage):
        def put_new(self, path: str, data: bytes) -> bool:
            super().put_new(path, data)
            raise StorageUnavailable("no answer")

    class TriedAgain(LocalStorage):
        def put_new(self, path: str, data: bytes) -> bool:
            super().put_new(path, data)
            return False

    snapshot = PathLog(Lost(str(orders.folder))).look()
    assert snapshot is not None
    with pytest.raises(Unknown):
        snapshot.commit(stamp(2), Change([orders.file([1])]))
    snapshot = PathLog(TriedAgain(str(orders.folder))).look()
    assert snapshot is not None
    assert snapshot.stamp(UID, "orders") == stamp(2, version=2)
    assert snapshot.commit(stamp(3), Change([orders.file([2])])).version == 3


def test_a_writer_that_comes_after_its_names_were_deleted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Orders(tmp_path / "t")
    late = orders.commit([orders.file([1])])
    for n in range(4):
        orders.commit([orders.file([n])])
    monkeypatch.setattr(path, "time", lambda: time.time() + 2 * DAY)
    hint = orders.folder / "metadata/version-hint.text"
    for written in (hint.read_text(), "2", ""):
        hint.write_text(written)
        for n in (2, 3, 4):
            (orders.folder / f"metadata/v{n}.metadata.json").unlink(missing_ok=True)
        with pytest.raises(Moved, match="long after"):
            late.commit(stamp(3), Change([orders.file([9])]))
        assert paths(orders.log.look()) == paths(orders.now)


def test_a_hint_that_is_old_or_damaged_misleads_no_look(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    for n in range(3):
        orders.commit([orders.file([n])])
    hint = orders.folder / "metadata/version-hint.text"
    for text in ("1", "77", "?"):
        hint.write_text(text)
        assert paths(orders.log.look()) == paths(orders.now)
    hint.unlink()
    assert paths(orders.log.look()) == paths(orders.now)


def test_expiry_forgets_by_age_and_deletes_only_what_nothing_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Orders(tmp_path / "t")
    first, second, third = (orders.file([n]) for n in range(3))
    orders.commit([first])
    kept = orders.commit([second], orders.named(first))
    orders.commit([third], orders.named(second))
    stray = orders.file([9])
    assert orders.log.expire([kept.version]) == 0, "all files are younger than a week"
    monkeypatch.setattr(table, "_KEPT_S", -1.0)
    assert orders.log.expire([kept.version]) > 0
    left = {str(file.relative_to(orders.folder)) for file in orders.folder.rglob("*.parquet")}
    assert left == {second.path, third.path}, f"{first.path} and {stray.path} go"
    assert orders.log.look(str(kept.version)) is not None
    assert len([*orders.folder.glob("metadata/v*.json")]) == 1
    assert seen(orders) == everywhere(2)
    orders.now = orders.log.look() or orders.now
    orders.commit([orders.file([3])])
    assert seen(orders) == everywhere(2, 3)


def test_columns_are_added_and_widened_within_a_commit(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    old = pa.table({"offset": pa.array([1], pa.int64()), "n": pa.array([5], pa.int32()), "s": [{"a": 1}]})
    first = old.schema.set(1, pa.field("n", pa.int32()))
    orders.commit([orders.file(old)], schema=followed("t", SCHEMA, first))
    wide = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    new = pa.table(
        {
            "offset": pa.array([2], pa.int64()),
            "n": pa.array([1 << 40], pa.int64()),
            "s": pa.array([{"a": 2, "b": [{"c": "x"}]}], wide),
            "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
        }
    )
    orders.commit([orders.file(new)], schema=followed("t", orders.now.schema, new.schema))
    assert orders.now.schema.names == [*SCHEMA.names, "n", "s", "m"]
    assert orders.now.schema.field("n").type == pa.int64()
    assert seen(orders, "n") == everywhere(5, 1 << 40)
    assert seen(orders, "offset") == everywhere(1, 2)
    assert {file.highest["n"] for file in orders.now.files()} == {5, 1 << 40}


def test_a_foreign_version_of_the_format_is_refused_by_name(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    content = json.loads(orders.metadata.read_text())
    (orders.folder / "metadata/v2.metadata.json").write_text(json.dumps({**content, "format-version": 1}))
    with pytest.raises(CannotCommit, match="format version 1"):
        orders.log.look()


def test_files_are_found_by_their_checkpoints(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    orders.commit([orders.file([n], n) for n in range(6)])
    assert {file.numbers for file in orders.now.files() if file.may_have(2, 3)} == {(2, 2), (3, 3)}


def test_manifests_and_snapshots_stay_few(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    one = orders.file([1])
    for n in range(130):
        orders.now = orders.now.commit(stamp(n + 2), Change([replace(one, path=f"data/{n}.parquet", rows=1)]))
    found = orders.log.look()
    assert found is not None
    assert len(paths(found)) == 130
    manifests = found._manifests.all  # type: ignore[attr-defined]
    assert len(manifests) <= 30
    assert 75 <= len(json.loads(orders.metadata.read_text())["snapshots"]) <= 100


def test_a_former_name_that_another_column_has_now_is_no_name_of_the_renamed_one() -> None:
    """A user has renamed `amount`, and the schema of the rows brings it again: Spark reads no table whose mapping has a name twice."""
    renamed = columns.new_schema(pa.schema([("total", pa.int64())]))
    before = json.dumps([{"field-id": 1, "names": ["amount", "total"]}])
    assert json.loads(columns.name_mapping(renamed, before)) == json.loads(before)
    again = columns.evolved(renamed, pa.schema([("total", pa.int64()), ("amount", pa.int64())]), 1)
    assert again is not None
    mapping = [(each["field-id"], each["names"]) for each in json.loads(columns.name_mapping(again, before))]
    assert mapping == [(1, ["total"]), (2, ["amount"])]


def test_duckdb_pyiceberg_and_polars_see_append_overwrite_replace_and_expiry(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    assert seen(orders) == everywhere()
    first, second, third = orders.file(range(3)), orders.file(range(3, 6)), orders.file(range(6, 9))
    orders.commit([first])
    orders.commit([second, third])
    assert seen(orders) == everywhere(*range(9))
    orders.commit([orders.file([30, 31])], orders.named(first))
    assert seen(orders) == everywhere(*range(3, 9), 30, 31)
    orders.commit([orders.file(range(3, 9))], orders.named(second, third), changes_rows=False)
    assert seen(orders) == everywhere(*range(3, 9), 30, 31)
