"""Google's store as far as a stand-in goes: fake-gcs-server is read, listed and cleared by obstore, and takes no upload from it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from crkafka_core.segments.errors import SegmentMissing, StorageUnavailable
from crkafka_core.segments.storage import Storage

pytestmark = pytest.mark.soak

Upload = Callable[[str, bytes], None]


@pytest.fixture
def bucket_of_google(fake_gcs: str) -> tuple[Storage, Upload]:
    """A storage in a bucket of this test, and a way to put a file below it by Google's JSON interface."""
    name, account = f"b{uuid.uuid4().hex[:12]}", {"client_email": "", "private_key": "", "private_key_id": ""}
    key = json.dumps({**account, "gcs_base_url": fake_gcs, "disable_oauth": True})

    def post(path: str, data: bytes, kind: str) -> None:
        urlopen(Request(f"{fake_gcs}/{path}", data, {"content-type": kind}, method="POST"), timeout=30).close()

    post("storage/v1/b?project=p", json.dumps({"name": name}).encode(), "application/json")

    def upload(path: str, data: bytes) -> None:
        query = f"uploadType=media&name={quote(f'some/prefix/{path}', safe='')}"
        post(f"upload/storage/v1/b/{name}/o?{query}", data, "application/octet-stream")

    return Storage.open(f"gs://{name}/some/prefix", {"service_account_key": key}), upload


def test_files_are_listed_read_by_ranges_and_deleted(bucket_of_google: tuple[Storage, Upload]) -> None:
    storage, upload = bucket_of_google
    large = os.urandom(20 << 20)
    for path, data in {"u/1/a b+ü%20.parquet": large, "u/1/b": b"12345", "u/11/c": b"c", "u1/d": b"d"}.items():
        upload(path, data)
    listed = [*storage.list("u/1")]
    assert {(each.path, each.bytes) for each in listed} == {("u/1/a b+ü%20.parquet", len(large)), ("u/1/b", 5)}
    assert all(each.modified > 1.7e9 for each in listed) and len([*storage.list("")]) == 4
    with storage.open_read("u/1/a b+ü%20.parquet") as source:
        assert (source.size(), source.read(9)) == (len(large), large[:9])
        source.seek(-4, 2)
        assert source.read() == large[-4:]
        source.seek(3)
        assert source.read() == large[3:]
    with storage.open_read("u/1/b") as source:
        assert source.read() == b"12345"
    assert [storage.delete("u/1/b"), storage.delete("u/1/b"), storage.exists("u/1/b")] == [True, False, False]
    storage.delete_folder("u")
    assert [each.path for each in storage.list("")] == ["u1/d"]


def test_what_is_missing_is_named(bucket_of_google: tuple[Storage, Upload]) -> None:
    storage, _ = bucket_of_google
    with pytest.raises(SegmentMissing, match=r"some/prefix/u/1/b"):
        storage.open_read("u/1/b")
    with pytest.raises(StorageUnavailable, match=r"Writing to gs://b\w+/some/prefix/ failed"):
        storage.check()  # as soon as this one fails, the stand-in takes uploads: then Google's store gets the tests of all others
