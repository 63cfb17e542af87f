"""A pooler that gives each transaction a session of its own choice, as PgBouncer with pool_mode=transaction, is refused."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.dialects.postgresql import psycopg as dialect

from checkpoints_db import initialise, open_store, watch_postgres
from checkpoints_db.address import parse
from checkpoints_db.engines import make_engine
from checkpoints_db.statements import CHANNEL, Statements
from checkpoints_db.watch_postgres import PostgresWatch
from crkafka_core.dev.postgres import Postgres
from crkafka_core.model.errors import ConfigError


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


@pytest.mark.postgres
@pytest.mark.parametrize("opens", [initialise, open_store])
def test_91_a_pooler_by_transactions_is_refused(pooled_url: str, opens: Callable[[str], object]) -> None:
    with pytest.raises(ConfigError, match=r"gives each transaction another session.* set pool_mode=session"):
        opens(pooled_url)


URL = "postgresql://user@db.example/control"


class Connection:
    """Answers which channel is its schema's, and which version a region has."""

    def __init__(self, channel: str) -> None:
        self.channel, self.listens, self.closed = channel, threading.Event(), False
        self.heard: list[str] = []

    def execute(self, sql: str, values: Any = None) -> Connection:
        if sql.startswith("LISTEN"):
            self.heard.append(sql)
            self.listens.set()
        self.answer = (self.channel,) if sql == f"SELECT {CHANNEL}" else (7,)
        return self

    def fetchone(self) -> tuple[Any, ...]:
        return self.answer

    def notifies(self, timeout: float) -> Iterator[Any]:
        threading.Event().wait(0.01)
        return iter(())

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_what_is_told_and_what_is_listened_to_is_of_one_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two control planes in one database, with regions of the same names, woke each other's members without end."""
    connection = Connection("crkafka_2200")
    monkeypatch.setattr(watch_postgres, "_connect", lambda _: connection)
    watch = PostgresWatch(parse(URL))
    assert watch.wait("orders", 6, 5.0) == 7
    assert connection.listens.wait(10)
    watch.close()
    assert connection.heard == ["LISTEN crkafka_2200"]
    assert f"pg_notify({CHANNEL}, " in Statements(dialect.dialect()).update_region(("epoch",)).sql


def test_a_child_leaves_its_parents_connections_open(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection("crkafka")
    monkeypatch.setattr(watch_postgres, "_connect", lambda _: connection)
    watch = PostgresWatch(parse(URL))
    watch.wait("orders", 6, 5.0)
    child = os.fork()
    if not child:
        signal.alarm(20)  # the lock may be another thread's, which a fork leaves behind
        watch.close()
        os._exit(int(connection.closed))
    assert os.waitpid(child, 0)[1] == 0
    watch.close()
    assert connection.closed


def test_a_server_that_vanished_is_noticed_also_by_who_has_just_asked_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux sends again for a quarter of an hour what nobody acknowledges, and asks nothing by keepalives meanwhile."""
    asked: list[dict[str, Any]] = []

    def connect(*_: object, **arguments: Any) -> None:
        asked.append(arguments)
        raise psycopg.OperationalError("away")

    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    for url, expected in ((URL, 25_000), (f"{URL}?tcp_user_timeout=9000", "9000")):
        asked.clear()
        with pytest.raises(psycopg.OperationalError):
            watch_postgres._connect(parse(url))
        with pytest.raises(Exception, match="away"):
            make_engine(parse(url)).connect()
        assert [each["tcp_user_timeout"] for each in asked] == [expected, expected]
