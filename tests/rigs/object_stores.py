"""Stand-ins of object stores as fixtures: Moto's S3, and Azurite, which npm installs; a test that uses Azurite is only in `make soak`."""

from __future__ import annotations

import base64
import hmac
import subprocess
import time
import uuid
from collections.abc import Iterator
from email.utils import formatdate
from urllib.request import Request, urlopen

import pytest

from crkafka_core.dev.cache import cache_folder
from crkafka_core.dev.ports import free_ports, is_free

STORES = ("s3", pytest.param("azure", marks=pytest.mark.soak))
"""Parameters of a test that runs on each."""
ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of each Azurite, which its documentation names."""


@pytest.fixture(scope="session")
def azurite() -> Iterator[str]:
    """Address of Azurite, which npm installs into the cache for the first test."""
    folder, (port,) = cache_folder() / "azurite", free_ports(1)
    server = folder / "node_modules/.bin/azurite-blob"
    if not server.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "azurite@3", "--no-audit", "--no-fund"], cwd=folder, check=True)
    command = [str(server), "--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--blobPort", str(port)]
    process = subprocess.Popen(command, cwd=folder)
    try:
        deadline = time.monotonic() + 60
        while is_free(port) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/{ACCOUNT}"
    finally:
        process.terminate()
        process.wait()


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
    else:
        url, options = f"s3://{request.getfixturevalue('bucket')}", request.getfixturevalue("s3_options")
    return url, options


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """Each store in turn."""
    return place_of(request.param, request)
