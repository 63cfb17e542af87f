"""Compliance of every storage: the same behaviour on a folder, S3, HDFS and Azure (SPEC K2, T3, U2)."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.errors import SegmentMissing, StorageUnavailable
from crkafka_core.segments.storage import Storage

LARGE = os.urandom(20 << 20)
"""Three parts of an upload, and of a read by ranges."""


def put(storage: Storage, path: str, data: bytes = b"x") -> None:
    output = storage.open_write(path)
    for start in range(0, len(data), 1 << 20):
        output.write(memoryview(data)[start : start + (1 << 20)])
    output.close()


def read(storage: Storage, path: str) -> bytes:
    with storage.open_read(path) as source:
        return bytes(source.read())


def test_files_are_listed_below_a_folder_with_their_sizes(storage: Storage) -> None:
    for path, size in {"u/1/a b+ü%20.parquet": 3, "u/1/b": 5, "u/11/c": 7, "u1/d": 9}.items():
        put(storage, path, b"x" * size)
    assert {(s.path, s.bytes) for s in storage.list("u/1")} == {("u/1/a b+ü%20.parquet", 3), ("u/1/b", 5)}
    assert len(list(storage.list(""))) == 4
    assert list(storage.list("nothing/here")) == []
    storage.delete_folder("u")
    storage.delete_folder("u")
    assert [s.path for s in storage.list("")] == ["u1/d"]


def test_a_deletion_may_be_repeated(storage: Storage) -> None:
    put(storage, "u/1/a")
    assert storage.exists("u/1/a")
    assert [storage.delete("u/1/a"), storage.delete("u/1/a")] == [True, False]
    assert not storage.exists("u/1/a")


def test_results_for_each_of_many_files_come_in_order_and_so_does_the_first_error(storage: Storage) -> None:
    paths = [f"u/1/{number}" for number in range(40)]
    for path in paths[::2]:
        put(storage, path)
    assert list(storage.each(storage.delete, paths)) == [True, False] * 20
    assert storage.each(storage.delete, ()) in ([], ())
    with pytest.raises(ValueError, match=r"third"):
        storage.each(lambda path: _refuse(path, {paths[3]: "third", paths[9]: "ninth"}), paths)


def _refuse(path: str, wrong: dict[str, str]) -> None:
    if path in wrong:
        raise ValueError(wrong[path])


def test_a_check_writes_reads_and_leaves_nothing(storage: Storage) -> None:
    storage.check(tables=True)
    assert list(storage.list("")) == []


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "u/../../x"])
def test_a_path_outside_is_refused(storage: Storage, path: str) -> None:
    with pytest.raises(ValueError, match=r"below the storage root"):
        storage.delete(path)


def test_a_small_file_replaces_another_one(storage: Storage) -> None:
    for data in (b"first", b"", b"second"):
        storage.put("owner-u.json", data)
        assert read(storage, "owner-u.json") == data
    assert [f.path for f in storage.list("")] == ["owner-u.json"]


def test_one_of_eight_writers_puts_a_new_file(storage: Storage) -> None:
    """A commit of a table (SPEC K6)."""
    if not storage.puts_new:
        with pytest.raises(NotImplementedError):
            storage.put_new("log/1.json", b"x")
        return
    with ThreadPoolExecutor(8) as pool:
        put_by = [*pool.map(lambda n: storage.put_new("log/1.json", b"%d" % n), range(8))]
    assert sum(put_by) == 1
    assert read(storage, "log/1.json") == b"%d" % put_by.index(True)


def test_any_range_of_a_large_file_is_read(storage: Storage) -> None:
    put(storage, "u/1/a", LARGE)
    with storage.open_read("u/1/a") as source:
        assert (source.size(), source.read(9)) == (len(LARGE), LARGE[:9])
        source.seek(-4, 2)
        assert source.read() == LARGE[-4:]
        assert source.read() == b""
        source.seek(3)
        assert source.read() == LARGE[3:]
    with pytest.raises(SegmentMissing, match=r"some/prefix/u/1/b|segments/u/1/b"):
        storage.open_read("u/1/b")


@pytest.mark.parametrize("written", [0, 1, len(LARGE)])
def test_a_file_appears_in_an_object_store_when_it_is_closed(storage: Storage, written: int) -> None:
    """A writer that dies at any step before has written nothing."""
    output = storage.open_write("u/1/a")
    output.write(memoryview(LARGE)[:written])
    if storage.puts_new and not storage.is_local:
        assert not storage.exists("u/1/a")
    output.discard()
    assert list(storage.list("")) == []


@pytest.mark.parametrize("size", [5, len(LARGE)])
def test_a_table_owns_files_of_a_region_independently(storage: Storage, size: int) -> None:
    put(storage, "u/1/a", LARGE[:size])
    for _ in range(2):
        storage.delete("t/a")
        assert storage.own(storage, "u/1/a", "t/a") == size
    storage.delete("u/1/a")
    assert read(storage, "t/a") == LARGE[:size]
    with pytest.raises(SegmentMissing):
        storage.own(storage, "u/1/a", "t/b")
    assert [s.path for s in storage.list("")] == ["t/a"]


@pytest.mark.parametrize("kind", ["s3", pytest.param("azure", marks=pytest.mark.soak)])
def test_errors_name_the_place_and_the_remedy_and_no_secret(kind: str, request: pytest.FixtureRequest) -> None:
    options = request.getfixturevalue("s3_options") if kind == "s3" else request.getfixturevalue("azure")[1]
    secrets = [options["access_key"], options.get("secret_key", "geheim")]
    url = "s3://no-bucket/p" if kind == "s3" else "abfss://no-bucket@devstoreaccount1.dfs.core.windows.net/p"
    with pytest.raises(
        StorageUnavailable, match=r"Writing to .*no-bucket.*does not exist.* Create the bucket"
    ) as missing:
        Storage.open(url, options).check()
    away = options | {"endpoint": "http://127.0.0.1:9", "connect_timeout": "1", "request_timeout": "1"}
    with pytest.raises(StorageUnavailable, match=r"Writing to .* failed: .*Is the service up") as refused:
        Storage.open(url, away).check()
    with pytest.raises(ConfigError, match=r"'endpont'. There are: endpoint") as unknown:
        Storage.open(url, options | {"endpont": "x"})
    for error in (missing.value, refused.value, unknown.value):
        assert not any(secret in str(error) for secret in secrets)
