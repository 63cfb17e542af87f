"""Stand-ins of object stores as fixtures: Moto's S3; in `make soak` Azurite, which npm installs, and fake-gcs-server, which Go builds.

A bucket of your own is one more store: its URL in CRKAFKA_BUCKET, its options as JSON in CRKAFKA_BUCKET_OPTIONS.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from crkafka_core.dev.cache import cache_folder
from crkafka_core.dev.ports import free_ports, is_free
from crkafka_core.segments.storage import Storage

GIVEN = os.environ.get("CRKAFKA_BUCKET", "")
STORES = ("s3", pytest.param("azure", marks=pytest.mark.soak), *(["given"] if GIVEN else []))
"""Parameters of a test that runs on each."""
ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of each Azurite, which its documentation names."""
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"


@contextmanager
def running(command: Sequence[str], port: int, folder: Path) -> Iterator[None]:
    """A server during the block, from the moment on when it listens."""
    process = subprocess.Popen(command, cwd=folder)
    try:
        deadline = time.monotonic() + 60
        while is_free(port) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def azurite() -> Iterator[str]:
    """Address of Azurite, which npm installs into the cache for the first test."""
    folder, (port,) = cache_folder() / "azurite", free_ports(1)
    server = folder / "node_modules/.bin/azurite-blob"
    if not server.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "azurite@3", "--no-audit", "--no-fund"], cwd=folder, check=True)
    command = [str(server), "--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--blobPort", str(port)]
    with running(command, port, folder):
        yield f"http://127.0.0.1:{port}/{ACCOUNT}"


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[str]:
    """Address of fake-gcs-server, which Go builds into the cache for the first test. It takes no uploads by XML, so none of obstore."""
    folder, (port,) = cache_folder() / "go", free_ports(1)
    server = folder / "bin" / "fake-gcs-server"
    if not server.exists():
        go = {"GOBIN": str(server.parent), "GOPATH": str(folder), "GOFLAGS": "-modcacherw"}
        subprocess.run(["go", "install", FAKE_GCS], env=os.environ | go, check=True)
    place = ["-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    with running([str(server), "-scheme", "http", "-backend", "memory", "-log-level", "error", *place], port, folder):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def azure(azurite: str) -> tuple[str, dict[str, str]]:
    """URL of a container of this test, and its options."""
    name, now = f"c{uuid.uuid4().hex[:12]}", formatdate(usegmt=True)
    headers = {"x-ms-date": now, "x-ms-version": "2021-08-06"}
    text = "\n".join(["PUT", *[""] * 11, *(f"{k}:{v}" for k, v in headers.items()), f"/{ACCOUNT}/{ACCOUNT}/{name}"])
    digest = hmac.digest(base64.b64decode(_KEY), f"{text}\nrestype:container".encode(), "sha256")
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    urlopen(Request(f"{azurite}/{name}?restype=container", method="PUT", headers=headers), timeout=30).close()
    return f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net", {"endpoint": azurite, "access_key": _KEY}


def place_of(store: str, request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """URL of a bucket or container of this test, and its options."""
    if store == "azure":
        url, options = request.getfixturevalue("azure")
    elif store == "given":
        name, options = f"test-{uuid.uuid4().hex}", json.loads(os.environ.get("CRKAFKA_BUCKET_OPTIONS", "{}"))
        request.addfinalizer(lambda: Storage.open(GIVEN, options).delete_folder(name))
        url = f"{GIVEN}/{name}"
    else:
        url, options = f"s3://{request.getfixturevalue('bucket')}", request.getfixturevalue("s3_options")
    return url, options


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """Each store in turn."""
    return place_of(request.param, request)
