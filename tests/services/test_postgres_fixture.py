"""The session's PostgreSQL: a database for each test, and a server that a test may hurt."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

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


def test_a_server_left_dead_is_there_for_the_next_test_part_one(postgres: Postgres) -> None:
    postgres.kill()


def test_a_server_left_dead_is_there_for_the_next_test_part_two(postgres: Postgres) -> None:
    assert postgres.sql("SELECT 1") == "1"
