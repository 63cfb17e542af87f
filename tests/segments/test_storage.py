"""One file-system layer over local folders and S3: the same behaviour, typed errors, no secrets (SPEC K2, T3, U2)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import boto3
import pytest

from crkafka_core.config.location import split_endpoint
from crkafka_core.model.errors import ConfigError, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Region
from crkafka_core.plane import life
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region.retire import collect_orphans
from crkafka_core.segments.errors import StorageUnavailable, storage_error, without_secrets
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import SegmentWriter
from tests.rigs.memory import MemoryStore
from tests.segments.conftest import MakeBatch

A0 = TP("a", 0)


def put(storage: Storage, path: str, data: bytes = b"x") -> None:
    output = storage.open_write(path)
    output.write(memoryview(data))
    output.close()


def test_files_are_listed_below_a_folder_with_their_sizes(storage: Storage) -> None:
    for path, size in {"u/00000001/a.parquet": 3, "u/00000001/b.parquet": 5, "u/00000002/c.parquet": 7}.items():
        put(storage, path, b"x" * size)
    assert {(s.path, s.bytes) for s in storage.list("u/00000001")} == {
        ("u/00000001/a.parquet", 3),
        ("u/00000001/b.parquet", 5),
    }
    assert len(list(storage.list(""))) == 3
    assert list(storage.list("nothing/here")) == []


def test_deleting_may_be_repeated(storage: Storage) -> None:
    put(storage, "u/1/a")
    assert storage.exists("u/1/a")
    assert storage.delete("u/1/a")
    assert not storage.delete("u/1/a")
    assert not storage.exists("u/1/a")
    assert list(storage.list("u")) == []


def test_something_is_done_with_each_of_many_files_in_order_and_the_first_error_is_told(storage: Storage) -> None:
    paths = [f"u/1/{number}" for number in range(40)]
    for path in paths[::2]:
        put(storage, path)
    assert list(storage.each(storage.delete, paths)) == [True, False] * 20
    assert storage.each(storage.delete, ()) in ([], ())
    with pytest.raises(ValueError, match="third"):
        storage.each(lambda path: _refuse(path, {paths[3]: "third", paths[9]: "ninth"}), paths)


def _refuse(path: str, wrong: dict[str, str]) -> None:
    if path in wrong:
        raise ValueError(wrong[path])


def test_s3_many_files_wait_for_the_network_at_the_same_time(bucket: str, s3_options: dict[str, str]) -> None:
    storage, all_there = Storage.open(f"s3://{bucket}/p", s3_options), threading.Barrier(8)
    assert len(storage.each(lambda _: all_there.wait(30), range(8))) == 8


def test_s3_a_call_that_hangs_does_not_keep_a_process_from_ending() -> None:
    script = """
        import sys, threading, time
        from crkafka_core.segments.storage import Storage
        storage = Storage.open("s3://bucket/p", {"region": "eu-central-1", "access_key": "a", "secret_key": "b"})
        work = lambda seconds: time.sleep(seconds)
        threading.Thread(target=lambda: storage.each(work, [0, 1000, 1000]), daemon=True).start()
        time.sleep(0.5)
        sys.exit(7)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=60).returncode == 7


def test_a_regions_folder_goes_as_a_whole(storage: Storage) -> None:
    put(storage, "u/1/a")
    put(storage, "u/2/b")
    put(storage, "v/1/a")
    storage.delete_folder("u")
    storage.delete_folder("u")
    assert [s.path for s in storage.list("")] == ["v/1/a"]


def test_check_says_nothing_when_all_is_well_and_leaves_nothing(storage: Storage) -> None:
    storage.check()
    assert list(storage.list("")) == []


def test_check_leaves_nothing_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda *_: os.open(tmp_path / "none" / "none", os.O_RDONLY))
    with pytest.raises(ServiceUnavailable):
        Storage.open(tmp_path / "seg").check()
    assert list(Storage.open(tmp_path / "seg").list("")) == []


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "u/../../x"])
def test_a_path_outside_is_refused(storage: Storage, path: str) -> None:
    with pytest.raises(ValueError, match="below the storage root"):
        storage.delete(path)


def test_relative_and_file_urls_are_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(Storage.open("seg"), "u/a", b"hello")
    other = Storage.open(f"file://{tmp_path}/seg")
    with other.open_read("u/a") as source:
        assert source.read() == b"hello"
    assert other.url == str(tmp_path / "seg")
    assert other.uri("u/a") == f"file://{tmp_path}/seg/u/a"
    assert other.is_local


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(StorageUnavailable, match=str(blocked)) as caught:
        Storage.open(blocked / "seg").open_write("u/a")
    assert "folder" in caught.value.hint


def test_a_full_disk_is_said_and_the_half_written_file_removed(tmp_path: Path) -> None:
    """A limit on file sizes acts as a disk that fills up in the middle of a row group."""
    script = textwrap.dedent("""
        import os, resource, signal, sys
        import pyarrow as pa
        from crkafka_core.model.errors import ServiceUnavailable
        from crkafka_core.model.offsets import TP
        from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch, Run
        from crkafka_core.segments.storage import Storage
        from crkafka_core.segments.writer import SegmentWriter
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        n, tp, storage = 1000, TP("a", 0), Storage.open(sys.argv[1])
        def batch(first):
            fixed = [pa.array([None] * n, pa.binary()), pa.array([os.urandom(500) for _ in range(n)], pa.binary()),
                     pa.array(["a"] * n), pa.array([0] * n, pa.int32()), pa.array(range(first, first + n), pa.int64()),
                     pa.array([0] * n, SCHEMA.field("timestamp").type), pa.array([0] * n, pa.int32()), pa.nulls(n, HEADERS)]
            return Batch(pa.RecordBatch.from_arrays(fixed, schema=SCHEMA), (Run(tp, 0, n, first, first + n),))
        writer = SegmentWriter(storage, "u/00000001/a-1-1.parquet", row_group_bytes=400_000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
        try:
            for i in range(20):
                writer.write(batch(i * n))
            print("no error")
        except ServiceUnavailable as error:
            print(type(error).__name__, "|", error, "|", storage.exists("u/00000001/a-1-1.parquet"))
            writer.discard()
            print(storage.exists("u/00000001/a-1-1.parquet"))
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    said, left = done.stdout.strip().splitlines()
    assert said.startswith("StorageUnavailable | Writing")
    assert str(tmp_path / "u/00000001/a-1-1.parquet") in said
    assert left == "False"


def test_a_real_full_file_system(tmp_path: Path, make_batch: MakeBatch) -> None:
    """/dev/full says "no space left" to every write, as a full disk does."""
    storage = Storage.open(tmp_path)
    writer = SegmentWriter(storage, "u/00000001/a-1-1.parquet", row_group_bytes=1_000)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._sink.output._descriptor)  # type: ignore[attr-defined]
    os.close(full)
    with pytest.raises(StorageUnavailable, match="No space left") as caught:
        writer.write(make_batch(A0, 0, 500))
    assert "free some space" in caught.value.hint
    writer.discard()
    assert list(storage.list("")) == []


def test_s3_unfinished_uploads_of_a_killed_process_are_ended(
    bucket: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC T3: such parts are in no listing, and cost money for ever."""
    storage = Storage.open(f"s3://{bucket}/p", s3_options)
    script = textwrap.dedent("""
        import os, sys, json, time
        from crkafka_core.segments.storage import Storage
        output = Storage.open(sys.argv[1], json.loads(sys.argv[2])).open_write("u/00000001/a-0-1.parquet")
        for _ in range(6):
            output.write(memoryview(os.urandom(4 << 20)))
        time.sleep(0.5)
        os.kill(os.getpid(), 9)
    """)
    done = subprocess.run([sys.executable, "-c", script, f"s3://{bucket}/p", json.dumps(s3_options)], timeout=60)
    assert done.returncode == -9
    client = boto3.client(
        "s3",
        endpoint_url=s3_options["endpoint"],
        region_name="us-east-1",
        aws_access_key_id="AKIATEST",
        aws_secret_access_key="geheim",
    )
    other = client.create_multipart_upload(Bucket=bucket, Key="p/other/x")
    assert len(client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])) == 2
    assert list(storage.list("")) == []
    monkeypatch.setitem(sys.modules, "boto3", None)  # crkafka[s3] does not bring it, and retirement failed
    assert storage.end_uploads("u") == 1
    assert storage.end_uploads("u") == 0
    left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [upload["UploadId"] for upload in left] == [other["UploadId"]]


def test_t3_s3_uploads_of_the_current_epoch_go_on_while_orphans_are_collected(
    bucket: str, s3_options: dict[str, str]
) -> None:
    """A member's open segment is an unfinished upload too: retirement must not end it under the writer."""
    storage = Storage.open(f"s3://{bucket}/p", s3_options)
    client = boto3.client(
        "s3",
        endpoint_url=s3_options["endpoint"],
        region_name="us-east-1",
        aws_access_key_id="AKIATEST",
        aws_secret_access_key="geheim",
    )
    plane = ControlPlane(MemoryStore(), "orders")
    row = life.declare(plane.store, Region(name="orders", uid="u", region_index=0, epoch=2, head=1))
    for epoch, number in ((1, 1), (2, 2)):
        client.create_multipart_upload(Bucket=bucket, Key=f"p/u/{epoch:08d}/a-{number}-1.parquet")
    collect_orphans(plane, storage, row, ())
    left = [upload["Key"] for upload in client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]
    assert left == ["p/u/00000002/a-2-1.parquet"]


def test_a_small_file_is_written_in_place_of_another_one(storage: Storage) -> None:
    for data in (b"first", b"second"):
        storage.put("owner-u.json", data)
        with storage.open_read("owner-u.json") as source:
            assert source.read() == data
    assert [f.path for f in storage.list("")] == ["owner-u.json"]


def test_s3_missing_bucket_wrong_endpoint_and_no_secret_in_any_error(s3_options: dict[str, str]) -> None:
    with pytest.raises((ConfigError, ServiceUnavailable)) as missing:
        Storage.open("s3://no-such-bucket-here/p", s3_options).check()
    assert "no-such-bucket-here" in str(missing.value)
    away = s3_options | {"endpoint": "http://127.0.0.1:9", "connect_timeout": "1", "request_timeout": "1"}
    with pytest.raises(StorageUnavailable) as unreachable:
        Storage.open("s3://bucket/p", away).check()
    for error in (missing.value, unreachable.value):
        assert "geheim" not in str(error)
        assert "AKIATEST" not in str(error)
        assert error.hint


def test_credentials_in_a_url_are_refused_without_repeating_them() -> None:
    for url in ("s3://AKIA:geheim@bucket/p", "s3://bucket/p?secret_key=geheim"):
        with pytest.raises(ConfigError, match="environment") as caught:
            Storage.open(url)
        assert "geheim" not in str(caught.value)


def test_unknown_schemes_and_options_are_said() -> None:
    with pytest.raises(ConfigError, match="ftp://host/x"):
        Storage.open("ftp://host/x")
    with pytest.raises(ConfigError, match="endpont"):
        Storage.open("s3://bucket/p", {"endpont": "x"})
    with pytest.raises(ConfigError, match="endpont"):
        Storage.open("s3://bucket/p?endpont=x&region=us-east-1")


def test_secrets_are_struck_out() -> None:
    text = "AWS error: secret_key=geheim x, Access Key Id: AKIA123 at s3://user:pw@host/b"
    assert without_secrets(text) == "AWS error: secret_key=*** x, Access Key Id: *** at s3://***@host/b"


def _modes(root: Path) -> set[str]:
    return {f"{path.stat().st_mode & 0o777:o}" for path in [root, *root.rglob("*")]}


def test_nobody_else_reads_segments_in_a_folder(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        put(Storage.open(tmp_path / "new" / "segments"), "u/1/a")
    finally:
        os.umask(before)
    assert _modes(tmp_path / "new") == {"700", "600"}


def test_on_a_shared_disk_the_configuration_says_who_else_does(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        put(Storage.open(tmp_path / "new", {"mode": "0640"}), "u/1/a")
    finally:
        os.umask(before)
    assert _modes(tmp_path / "new") == {"750", "640"}
    with pytest.raises(ConfigError, match="is not a file mode"):
        Storage.open(tmp_path, {"mode": "rw-r--r--"})


def test_what_s3_says_is_told_without_the_clients_words() -> None:
    said = (
        "When initiating multiple part upload for key 'x/.check' in bucket 'b': AWS Error NETWORK_CONNECTION during CreateMultipartUpload "
        "operation: curlCode: 6, Could not resolve hostname; Details: Could not resolve host: s3.nowhere.example"
    )
    text = str(storage_error(OSError(said), "Creating", "s3://b/x"))
    assert text == (
        "Creating s3://b/x failed: Could not resolve host: s3.nowhere.example. Is the service up, and the endpoint right?"
    )


@pytest.mark.parametrize(
    ("options", "scheme", "place"),
    [
        ({"endpoint": "minio:9000"}, "", "minio:9000"),
        ({"endpoint": "minio:9000", "scheme": "http"}, "http", "minio:9000"),
        ({"endpoint": "HTTP://minio:9000"}, "http", "minio:9000"),
        ({}, "", ""),
    ],
)
def test_an_endpoint_is_told_the_same_with_its_scheme_and_beside_it(
    options: dict[str, str], scheme: str, place: str
) -> None:
    """The host's name was taken for the scheme."""
    assert split_endpoint(options) == (scheme, place)
    Storage.open("s3://bucket/x", {**options, "region": "eu", "access_key": "a", "secret_key": "b"})
