"""The session's PostgreSQL: a database for each test, and a server that a test may hurt."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from crkafka_core.dev import postgres as dev
from crkafka_core.dev.errors import ServiceFailed
from crkafka_core.dev.postgres import Postgres

pytestmark = pytest.mark.postgres


def _one(url: str, statement: str) -> object:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        result = connection.execute(sa.text(statement))
        return result.scalar() if result.returns_rows else None


def test_a_database_of_ones_own(postgres_url: str) -> None:
    assert _one(postgres_url, "SELECT current_setting('server_version_num')::int / 10000") == 18
    _one(postgres_url, "CREATE TABLE only_here (x int)")


def test_and_another_for_the_next_test(postgres_url: str) -> None:
    assert _one(postgres_url, "SELECT to_regclass('only_here')") is None


def test_what_was_committed_survives_a_kill(postgres: Postgres, postgres_url: str) -> None:
    _one(postgres_url, "CREATE TABLE kept AS SELECT 7 AS x")
    postgres.kill()
    with pytest.raises(sa.exc.OperationalError):
        _one(postgres_url, "SELECT 1")
    postgres.start()
    assert _one(postgres_url, "SELECT x FROM kept") == 7


def test_open_connections_can_be_cut(postgres: Postgres, postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url)
    with engine.connect() as connection:
        connection.execute(sa.text("SELECT 1"))
        assert postgres.cut_connections(sa.make_url(postgres_url).database or "") == 1
        with pytest.raises(sa.exc.OperationalError):
            connection.execute(sa.text("SELECT 1"))
    engine.dispose()


def test_a_frozen_server_answers_nobody_and_goes_on_afterwards(postgres: Postgres, postgres_url: str) -> None:
    with sa.create_engine(postgres_url).connect() as connection, ThreadPoolExecutor(1) as others:
        connection.execute(sa.text("SELECT 1"))
        postgres.pause()
        answer = others.submit(connection.execute, sa.text("SELECT 2"))
        with pytest.raises(TimeoutError):
            answer.result(0.5)
        postgres.resume()
        assert answer.result(30).scalar() == 2


def test_a_server_left_dead_is_there_for_the_next_test_part_one(postgres: Postgres) -> None:
    postgres.kill()


def test_a_server_left_dead_is_there_for_the_next_test_part_two(postgres: Postgres) -> None:
    assert postgres.sql("SELECT 1") == "1"


def test_nobody_else_on_the_machine_can_connect(postgres: Postgres) -> None:
    assert postgres.sql("SHOW listen_addresses") == ""
    assert postgres.socket.stat().st_mode & 0o777 == 0o700
    assert postgres.socket.stat().st_uid == os.geteuid()


def test_a_folder_too_deep_for_a_socket_is_no_hindrance(tmp_path: Path) -> None:
    server = Postgres(tmp_path / ("deep" * 25), durable=False)
    try:
        assert server.start().sql("SELECT 7") == "7"
        socket = server.socket
    finally:
        server.destroy()
    assert not socket.exists()


def test_programs_that_only_root_may_enter_are_told_before_anything_starts() -> None:
    """PostgreSQL refuses to run as root, and its `initdb` does not find the other programs there as anybody else."""
    if os.geteuid() != 0:
        assert dev._as_unprivileged() == [], "no other user is needed"
        return
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "postgres"
        program.write_text("")
        program.chmod(0o755)
        program.parent.chmod(0o755)
        dev._others_may_enter(program)
        program.parent.chmod(0o700)
        with pytest.raises(ServiceFailed, match="its programs lie where only root may enter") as told:
            dev._others_may_enter(program)
        assert "a folder that others may enter" in str(told.value)
