"""A pooler that gives each transaction a session of its own choice, as PgBouncer with pool_mode=transaction, is refused."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpoints_db import initialise, open_store
from crkafka_core.dev.postgres import Postgres
from crkafka_core.model.errors import ConfigError

pytestmark = pytest.mark.postgres


class Pooler:
    """One session of the server for all clients, a transaction each in turn; its protocol is PostgreSQL's own."""

    def __init__(self, server: Path) -> None:
        self._server, self._turn, self._greeting = server, threading.Lock(), b""
        self._session: socket.socket | None = None
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.port = self._listens.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listens.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        first = client.recv(8, socket.MSG_PEEK)
        if struct.unpack("!II", first)[1] in (80877103, 80877104):  # asks for encryption
            client.recv(8)
            client.sendall(b"N")
        begins = client.recv(4096)
        with self._turn:
            if self._session is None:
                self._session = socket.socket(socket.AF_UNIX)
                self._session.connect(str(self._server / ".s.PGSQL.5432"))
                self._session.sendall(begins)
                self._greeting, _ = self._answer(self._session)
        client.sendall(self._greeting)
        while (asked := client.recv(65536)) and not asked.startswith(b"X"):
            with self._turn:
                while asked:
                    self._session.sendall(asked)
                    answer, idle = self._answer(self._session)
                    client.sendall(answer)
                    asked = b"" if idle else client.recv(65536)
        client.close()

    def _answer(self, session: socket.socket) -> tuple[bytes, bool]:
        """All messages until the server is ready for a question, and whether no transaction is open."""
        got = b""
        with session.makefile("rb", buffering=0) as reader:
            while True:
                head = _exactly(reader.read, 5)
                body = _exactly(reader.read, struct.unpack("!I", head[1:])[0] - 4)
                got += head + body
                if head[:1] == b"Z":
                    return got, body == b"I"

    def close(self) -> None:
        self._listens.close()
        if self._session is not None:
            self._session.close()


def _exactly(read: Callable[[int], bytes | None], size: int) -> bytes:
    got = b""
    while len(got) < size:
        got += read(size - len(got)) or b""
    return got


@pytest.fixture
def pooled_url(postgres: Postgres, new_postgresql_url: str) -> Iterator[str]:
    pooler = Pooler(postgres.socket)
    database = new_postgresql_url.partition("?")[0].rpartition("/")[2]
    yield f"postgresql+psycopg://postgres@127.0.0.1:{pooler.port}/{database}"
    pooler.close()


@pytest.mark.parametrize("opens", [initialise, open_store])
def test_91_a_pooler_by_transactions_is_refused(pooled_url: str, opens: Callable[[str], object]) -> None:
    with pytest.raises(ConfigError, match=r"gives each transaction another session.* set pool_mode=session"):
        opens(pooled_url)
