"""The trust store that lets Ivy through a proxy with an authority of its own."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from crkafka_core.dev.find_java import find_java
from crkafka_core.dev.trust import PASSWORD, trusted_certificates, write_trust_store


def test_javas_own_tool_reads_every_certificate(tmp_path: Path) -> None:
    store = write_trust_store(tmp_path / "trust.jks")
    assert store is not None
    keytool = find_java().resolve().parent / "keytool"
    command = [keytool, "-list", "-storepass", PASSWORD, "-keystore", store]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert said.count("trustedCertEntry") == len(trusted_certificates()) > 10


def test_the_bundle_that_the_environment_names_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trusted_certificates()[0]
    (tmp_path / "one.pem").write_text(ssl.DER_cert_to_PEM_cert(one))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "one.pem"))
    assert trusted_certificates() == [one]
