"""A trust store for Java with the certificates that Python trusts, for networks whose proxy has its own authority."""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import struct
from pathlib import Path

PASSWORD = "changeit"
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def trusted_certificates() -> list[bytes]:
    """Certificates, as DER, of the bundle in SSL_CERT_FILE, REQUESTS_CA_BUNDLE, PIP_CERT or the system's settings."""
    named = [os.environ.get(name) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")]
    for bundle in (*named, ssl.get_default_verify_paths().cafile, "/etc/ssl/certs/ca-certificates.crt"):
        if bundle and Path(bundle).is_file():
            text = Path(bundle).read_text(errors="replace")
            return [ssl.PEM_cert_to_DER_cert(block) for block in dict.fromkeys(_PEM.findall(text))]
    return []


def write_trust_store(path: Path) -> Path | None:
    """Write the certificates in Java's format (JKS, trusted entries only); None if there are none."""
    certificates = trusted_certificates()
    if not certificates:
        return None
    body = struct.pack(">IIi", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        entry = struct.pack(">I", 2) + _text(f"trusted-{number}") + struct.pack(">Q", 0) + _text("X.509")
        body += entry + struct.pack(">I", len(certificate)) + certificate
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body + digest.digest())
    return path


def _text(word: str) -> bytes:
    encoded = word.encode()
    return struct.pack(">H", len(encoded)) + encoded
