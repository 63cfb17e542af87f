"""Who listens in PostgreSQL, as far as it needs no server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy.dialects.postgresql import psycopg as dialect

from checkpoints_db import watch_postgres
from checkpoints_db.address import parse
from checkpoints_db.engines import make_engine
from checkpoints_db.statements import CHANNEL, Statements
from checkpoints_db.watch_postgres import PostgresWatch

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
