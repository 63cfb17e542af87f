"""Rows that we mark as deleted are gone for every reader, and marks that others wrote are read (docs/clients.md C-P20)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from crkafka_core.lake.port import Change, Moved, NewFile
from tests.lake.iceberg.orders import Orders, everywhere, seen, stamp


def mark(orders: Orders, marks: dict[str, Collection[int]], add: Collection[NewFile] = ()) -> None:
    files = {file.path: file for file in orders.now.files()}
    orders.now = orders.now.commit(stamp(9), Change(list(add), marks={files[path]: at for path, at in marks.items()}))


def marked(orders: Orders) -> dict[str, list[int]]:
    return {file.path: [*file.marks] if file.marks else [] for file in orders.now.files()}


def deletes(orders: Orders) -> set[str]:
    return {file.name for file in (orders.folder / "data").glob("*deletes*")}


def test_readers_see_marks_set_replaced_taken_back_and_compacted(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    first, second = orders.file(range(5)), orders.file(range(5, 10))
    orders.commit([first, second])
    third = orders.file([10])
    mark(orders, {first.path: [0, 3], second.path: [4]}, [third])
    assert seen(orders) == everywhere(1, 2, 4, 5, 6, 7, 8, 10)
    before = {file.path: file for file in orders.now.files()}
    assert (before[first.path].rows, before[first.path].live) == (5, 3)
    mark(orders, {first.path: [0, 1, 3]})
    assert seen(orders) == everywhere(2, 4, 5, 6, 7, 8, 10)
    assert marked(orders) == {first.path: [0, 1, 3], second.path: [4], third.path: []}
    orders.now = orders.now.commit(
        stamp(10), Change(marks={f: before[f.path].marks for f in orders.now.files() if f.path == first.path})
    )  # type: ignore[misc]
    assert seen(orders) == everywhere(1, 2, 4, 5, 6, 7, 8, 10)
    whole = orders.file([1, 2, 4, 5, 6, 7, 8, 10])
    orders.commit([whole], [*orders.now.files()], changes_rows=False)
    assert seen(orders) == everywhere(1, 2, 4, 5, 6, 7, 8, 10)
    assert marked(orders) == {whole.path: []}


def test_a_file_comes_back_with_its_marks(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    first = orders.file(range(5))
    orders.commit([first])
    mark(orders, {first.path: [1]})
    old = orders.named(first)
    orders.commit([orders.file([7])], old)
    assert seen(orders) == everywhere(7)
    orders.commit(old, [*orders.now.files()])
    assert seen(orders) == everywhere(0, 2, 3, 4)
    assert marked(orders) == {first.path: [1]}


def test_a_file_whose_marks_have_changed_is_another_file(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    first = orders.file(range(5))
    orders.commit([first])
    unmarked = orders.named(first)
    mark(orders, {first.path: [1]})
    left = deletes(orders)
    with pytest.raises(Moved, match="with their marks"):
        orders.commit(remove=unmarked)
    with pytest.raises(Moved, match="with their marks"):
        orders.now.commit(stamp(10), Change(marks={unmarked[0]: [2]}))
    stale = orders.log.look()
    mark(orders, {first.path: [1, 2]})
    assert stale is not None
    with pytest.raises(Moved):
        stale.commit(stamp(10), Change(marks={file: [1, 3] for file in stale.files()}))
    assert marked(orders) == {first.path: [1, 2]}
    assert len(deletes(orders)) == len(left) + 1, "the refused one is deleted"
