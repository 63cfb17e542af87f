"""What only object stores have: concurrent calls, unfinished uploads, credentials of the environment, a service's words."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from crkafka_core.config.location import split_endpoint
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Region
from crkafka_core.plane import life
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region.retire import collect_orphans
from crkafka_core.segments import objects
from crkafka_core.segments.errors import StorageUnavailable, storage_error, without_secrets
from crkafka_core.segments.storage import Storage
from tests.rigs.memory import MemoryStore


@pytest.fixture
def client(s3_options: dict[str, str]) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=s3_options["endpoint"],
        region_name=s3_options["region"],
        aws_access_key_id=s3_options["access_key"],
        aws_secret_access_key=s3_options["secret_key"],
    )


def test_s3_many_files_wait_for_the_network_at_the_same_time(bucket: str, s3_options: dict[str, str]) -> None:
    storage, all_wait = Storage.open(f"s3://{bucket}/p", s3_options), threading.Barrier(8)
    assert len(storage.each(lambda _: all_wait.wait(30), range(8))) == 8


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


def test_s3_unfinished_uploads_of_a_killed_process_are_ended(
    client: Any, bucket: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC T3: such parts are in no listing, and cost money for ever."""
    storage = Storage.open(f"s3://{bucket}/p", s3_options)
    script = textwrap.dedent("""
        import os, sys, json, time
        from crkafka_core.segments.storage import Storage
        output = Storage.open(sys.argv[1], json.loads(sys.argv[2])).open_write("u/00000001/a-0-1.parquet")
        for _ in range(6):
            output.write(memoryview(os.urandom(4 << 20)))
        time.sleep(1)
        os.kill(os.getpid(), 9)
    """)
    done = subprocess.run([sys.executable, "-c", script, f"s3://{bucket}/p", json.dumps(s3_options)], timeout=60)
    assert done.returncode == -9
    other = client.create_multipart_upload(Bucket=bucket, Key="p/other/x")
    assert len(client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])) == 2
    assert list(storage.list("")) == []
    monkeypatch.setitem(sys.modules, "boto3", None)  # crkafka[s3] does not bring it, and retirement failed
    assert storage.end_uploads("u") == 1
    assert storage.end_uploads("u") == 0
    left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [upload["UploadId"] for upload in left] == [other["UploadId"]]


def test_t3_s3_uploads_of_the_current_epoch_go_on_while_orphans_are_collected(
    client: Any, bucket: str, s3_options: dict[str, str]
) -> None:
    """A member's open segment is an unfinished upload too: retirement must not end it under the writer."""
    storage = Storage.open(f"s3://{bucket}/p", s3_options)
    plane = ControlPlane(MemoryStore(), "orders")
    row = life.declare(plane.store, Region(name="orders", uid="u", region_index=0, epoch=2, head=1))
    for epoch, number in ((1, 1), (2, 2)):
        client.create_multipart_upload(Bucket=bucket, Key=f"p/u/{epoch:08d}/a-{number}-1.parquet")
    collect_orphans(plane, storage, row, ())
    left = [upload["Key"] for upload in client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]
    assert left == ["p/u/00000002/a-2-1.parquet"]


def test_a_store_that_keeps_no_conditions_is_refused_for_tables_alone(
    bucket: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some that only speak S3 do not know `If-None-Match`: of two commits to a table one would be lost."""
    put = objects.obstore.put
    monkeypatch.setattr(objects.obstore, "put", lambda *given, mode="", **more: put(*given, **more))
    storage = Storage.open(f"s3://{bucket}/p", s3_options)
    storage.check()
    with pytest.raises(ConfigError, match=r"replaces a file where only a new one may be put.*S3: If-None-Match"):
        storage.check(tables=True)
    assert [*storage.list("")] == []


def test_credentials_in_a_url_are_refused_without_repeating_them() -> None:
    for url in ("s3://AKIA:geheim@bucket/p", "s3://bucket/p?secret_key=geheim"):
        with pytest.raises(ConfigError, match="environment") as caught:
            Storage.open(url)
        assert "geheim" not in str(caught.value)


def test_a_profile_of_the_environment_gives_credentials_and_region(
    bucket: str, s3_options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = f"""[lake]
        aws_access_key_id = {s3_options["access_key"]}
        aws_secret_access_key = {s3_options["secret_key"]}
        region = eu-west-3"""
    (tmp_path / "credentials").write_text(textwrap.dedent(profile))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    storage = Storage.open(f"s3://{bucket}/p", {"endpoint": s3_options["endpoint"]})
    with pytest.raises(StorageUnavailable, match=r"S3 has no credentials"):
        storage.check()
    monkeypatch.setenv("AWS_PROFILE", "lake")
    storage = Storage.open(f"s3://{bucket}/q", {"endpoint": s3_options["endpoint"], "connect_timeout": "4"})
    storage.check()
    assert "eu-west-3" in str(storage._store.config)  # type: ignore[attr-defined]


@pytest.mark.parametrize("url", ["ftp://host/x", "az://container/x"])
def test_a_store_that_is_not_supported_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match=f"{url} must be a folder, s3://bucket/prefix"):
        Storage.open(url)


def test_googles_credentials_are_a_key_in_a_reference_and_in_no_error() -> None:
    account = {"client_email": "a@b", "private_key": "geheim", "private_key_id": "1"}
    for broken in (json.dumps(account), json.dumps(account)[:-2]):
        with pytest.raises(ConfigError, match=r"gs://lake/p cannot be opened: .*Look at storage_options") as refused:
            Storage.open("gs://lake/p", {"service_account_key": broken})
        assert "geheim" not in str(refused.value)
    away = {"service_account_key": json.dumps({**account, "disable_oauth": True}), "endpoint": "http://127.0.0.1:9"}
    storage = pickle.loads(pickle.dumps(Storage.open("gs://lake/p", away)))
    with pytest.raises(StorageUnavailable, match=r"Writing to gs://lake/p/ failed: .*Is the service up") as unreachable:
        storage.check()
    assert "geheim" not in str(unreachable.value)
    with pytest.raises(ConfigError, match=r"'access_key'. There are: endpoint, service_account_key, scheme"):
        Storage.open("gs://lake/p", away | {"access_key": "x"})


def test_secrets_are_struck_out() -> None:
    text = "AWS error: secret_key=geheim x, Access Key Id: AKIA123 at s3://user:pw@host/b"
    assert without_secrets(text) == "AWS error: secret_key=*** x, Access Key Id: *** at s3://***@host/b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Generic S3 error: Error performing PUT http://h/b/x in 3ms - Server returned non-2xx status code: 403 Forbidden: "
            "<Error><Code>SignatureDoesNotMatch</Code><Message>The signature does not match.</Message><Key>AKIA</Key></Error>",
            "The signature does not match (SignatureDoesNotMatch). Check the credentials.",
        ),
        (
            "Generic S3 error: Error performing PUT http://h:4031/b/x in 3ms - Server returned non-2xx status code: 403 Forbidden: ",
            "403 Forbidden. Check the credentials and their rights on the bucket.",
        ),
        (
            "Generic S3 error: Error performing PUT http://h:4031/b/x in 3ms - Received redirect without LOCATION, this normally "
            "indicates an incorrectly configured region\n\nDebug source:\nGeneric {}",
            "Received redirect without LOCATION, this normally indicates an incorrectly configured region. "
            "Set the bucket's region in storage_options.",
        ),
        (
            "Generic S3 error: Error performing PUT http://h/b/x in 3ms, after 2 retries  - HTTP error: error sending request\n\n"
            'Debug source: ConnectError("tcp connect error", 127.0.0.1:9, Os { code: 111, message: "Connection refused" })',
            "Connection refused. Is the service up, and the endpoint right?",
        ),
        (
            "Generic GCS error: Error performing token request: Error performing GET http://169.254.169.254/computeMetadata/v1/token"
            "?audience=x in 1ms - Server returned non-2xx status code: 403 Forbidden: denied",
            "Error performing token request: Error performing GET http://169.254.169.254/computeMetadata/v1/token. "
            "Set service_account_key in storage_options, or GOOGLE_APPLICATION_CREDENTIALS, or give this machine a service account.",
        ),
    ],
)
def test_a_services_reason_comes_without_the_librarys_words(text: str, words: str) -> None:
    assert str(storage_error(Exception(text), "Reading", "s3://b/x")) == f"Reading s3://b/x failed: {words}"


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
