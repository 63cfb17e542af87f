"""PostgreSQL by TLS with `sslmode=verify-full`: the right server, the wrong name, the wrong authority, and none at all.

The embedded server is built without TLS: what stands before it here speaks TLS as PostgreSQL does, and passes the rest on.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from checkpoints_db import initialise, open_store
from checkpoints_db.retry import Patience
from checkpoints_db.testing.samples import REGION, region
from crkafka_core.config.resolving import resolve
from crkafka_core.dev.postgres import Postgres
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.redaction import redact_values
from tests.transport.conftest import Authority

pytestmark = pytest.mark.postgres
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)


class Front(socketserver.ThreadingTCPServer):
    """Takes PostgreSQL's request for TLS, or refuses it, and passes on what is inside."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, behind: Path, context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind, self.context = behind, context
        self.encrypted = self.plain = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self.server_address[1]
        return port


class _Handler(socketserver.BaseRequestHandler):
    server: Front

    def handle(self) -> None:
        if self.request.recv(8, socket.MSG_WAITALL) != _SSL_REQUEST:
            self.server.plain += 1
            return
        if self.server.context is None:
            self.request.sendall(b"N")
            return
        self.request.sendall(b"S")
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            client = stack.enter_context(self.server.context.wrap_socket(self.request, server_side=True))
            self.server.encrypted += 1
            inner = stack.enter_context(socket.socket(socket.AF_UNIX))
            inner.connect(str(self.server.behind / ".s.PGSQL.5432"))
            back = threading.Thread(target=_pass, args=(inner, client), daemon=True)
            back.start()
            _pass(client, inner)
            back.join(5)


def _pass(source: Any, target: Any) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def authorities(services_folder: Path) -> tuple[Authority, Authority]:
    folder = services_folder / "pgtls"
    folder.mkdir()
    return Authority(folder, "ours"), Authority(folder, "theirs")


@pytest.fixture(scope="module")
def front(postgres: Postgres, authorities: tuple[Authority, Authority]) -> Iterator[Front]:
    postgres.url("control")
    postgres.sql("CREATE ROLE tls_host LOGIN SUPERUSER PASSWORD 'first-word'")
    rules = Path(postgres.sql("SHOW hba_file"))
    before = rules.read_text()
    rules.write_text(f"local all tls_host scram-sha-256\n{before}")
    postgres.sql("SELECT pg_reload_conf()")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authorities[0].pair("db", "db.example.com", "localhost"))
    made = Front(postgres.socket, context)
    yield made
    made.shutdown()
    made.server_close()
    rules.write_text(before)
    postgres.sql("SELECT pg_reload_conf()")
    postgres.drop("control")
    postgres.sql("DROP ROLE tls_host")


def url(port: int, host: str = "localhost", **options: object) -> str:
    said = "&".join(f"{key}={value}" for key, value in {"hostaddr": "127.0.0.1", **options}.items())
    return f"postgresql+psycopg://tls_host:first-word@{host}:{port}/control?{said}"


def test_a_server_of_the_right_name_and_authority_is_used_by_all_connections(
    front: Front, authorities: tuple[Authority, Authority]
) -> None:
    right = url(front.port, sslmode="verify-full", sslrootcert=authorities[0].certificate)
    initialise(right)
    with closing(open_store(right)) as store:
        store.create(region(), lambda tx: None)
        assert store.wait(REGION, -1, 0.5) >= 0
    assert front.encrypted >= 3 and front.plain == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("authority", r"certificate verify failed"),
        ("name", r'certificate for .* does not match host name "other\.example\.com"'),
        ("file", r"root certificate file .*nowhere.* does not exist"),
        ("password", r"answers, but refuses: password authentication failed"),
        ("no TLS", r"server does not support SSL, but SSL was required"),
    ],
)
def test_another_server_is_refused_in_a_sentence_without_the_password(
    front: Front, authorities: tuple[Authority, Authority], postgres: Postgres, wrong: str, said: str
) -> None:
    ours, theirs = (authority.certificate for authority in authorities)
    right = url(front.port, sslmode="verify-full", sslrootcert=ours)
    without = Front(postgres.socket, None)
    given = {
        "authority": url(front.port, sslmode="verify-full", sslrootcert=theirs),
        "name": right.replace("@localhost", "@other.example.com"),
        "file": url(front.port, sslmode="verify-full", sslrootcert="/nowhere/ca.pem"),
        "password": right.replace("first-", "wrong-"),
        "no TLS": right.replace(f":{front.port}", f":{without.port}"),
    }[wrong]
    with without, pytest.raises(ServiceUnavailable, match=said) as caught:
        open_store(given, patience=Patience(bound=0.3))
    assert "-word" not in str(caught.value)


def test_a_password_that_is_renewed_in_its_file_is_taken_without_a_restart(
    front: Front, authorities: tuple[Authority, Authority], postgres: Postgres, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("first-word\n")
    written = url(front.port, sslmode="verify-full", sslrootcert=authorities[0].certificate)
    read = resolve(written.replace("first-word", f"${{file:{file}}}"), "control_plane")
    initialise(read)
    with closing(open_store(read)) as store:
        store.create(region("renewed", uid="2c3d"), lambda tx: None)
        assert store.wait("renewed", -1, 0.1) >= 0  # a connection of its own listens
        try:
            postgres.sql("ALTER ROLE tls_host PASSWORD 'second-word'")
            postgres.cut_connections("control")
            with pytest.raises(ServiceUnavailable, match="password authentication failed"):
                open_store(read, patience=Patience(bound=0.3))
            file.write_text("second-word\n")
            with store.read("renewed") as reader:
                assert reader.region().name == "renewed"
            listens = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = 'control' AND application_name = 'crkafka-watch'"
            )
            end = time.monotonic() + 20
            while postgres.sql(listens) == "0":
                store.wait("renewed", -1, 0.1)
                assert time.monotonic() < end, "nothing listens any more"
        finally:
            postgres.sql("ALTER ROLE tls_host PASSWORD 'first-word'")
    assert "second-word" not in redact_values("refused: second-word")
