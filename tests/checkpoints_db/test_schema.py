"""The schema: made once, by migrations, checked at opening, and kept with its data."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from checkpoints_db import SqlStore, check, initialise, migrations, open_store, schema
from checkpoints_db.address import parse
from checkpoints_db.engines import make_engine
from checkpoints_db.retry import Patience
from checkpoints_db.tables import Base
from checkpoints_db.testing.samples import REGION, region, sample
from checkpoints_db.views import VIEWS
from crkafka_core.model.errors import ConfigError, SchemaError, ServiceUnavailable
from crkafka_core.model.rows import ROWS, PauseMark, Region

_LATER = '''"""A version of tomorrow."""

import sqlalchemy as sa
from alembic import op

revision = "9001"
down_revision = "%s"


def upgrade() -> None:
    with op.batch_alter_table("member") as member:
        member.add_column(sa.Column("mood", sa.Text(), nullable=False, server_default="calm"))
        member.alter_column("host", new_column_name="machine")
    op.create_index("ix_member_mood", "member", ["region", "mood"])
'''


def test_opening_what_is_not_there_names_the_command_and_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "no" / "control.db"
    for call in (open_store, check):
        with pytest.raises(SchemaError, match="crkafka init"):
            call(f"sqlite:///{path}")
    assert not path.parent.exists()


def test_a_database_without_tables_is_refused(empty_url: str, tmp_path: Path) -> None:
    if empty_url.startswith("sqlite"):
        (tmp_path / "control.db").touch()
    with pytest.raises(SchemaError, match=r"no tables.*crkafka init"):
        open_store(empty_url)


def test_initialise_makes_the_folder_and_is_repeatable(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a/b/control.db"
    initialise(url)
    with_data = open_store(url)
    with_data.create(region(), lambda tx: None)
    initialise(url)
    check(url)
    assert [r.name for r in with_data.regions()] == [REGION]
    with_data.close()


def test_a_relative_path_is_relative_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    initialise("sqlite:///var/control.db")
    store = open_store("sqlite:///var/control.db")
    monkeypatch.chdir("/")
    store.create(region(), lambda tx: None)
    assert (tmp_path / "var" / "control.db").exists()
    store.close()


def test_several_processes_initialise_at_once(empty_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=initialise, args=(empty_url,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    check(empty_url)


def test_models_and_migrations_agree(new_url: str) -> None:
    with make_engine(parse(new_url)).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        for table in Base.metadata.sorted_tables:
            reflected = inspect(connection).get_pk_constraint(table.name)["constrained_columns"]
            assert reflected == [c.name for c in table.primary_key.columns], table.name


def test_a_missing_index_would_be_found(new_url: str) -> None:
    """The comparison above can fail."""
    with make_engine(parse(new_url)).connect() as connection:
        connection.exec_driver_sql("DROP INDEX ix_checkpoint_region_token_id")
        connection.exec_driver_sql("ALTER TABLE launch ADD COLUMN extra TEXT")
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert len(compare_metadata(context, Base.metadata)) == 2


def test_versions_are_those_of_the_files() -> None:
    folder = Path(migrations.__file__).parent / "versions"
    names = sorted(path.stem.partition("_")[0] for path in folder.glob("[0-9]*.py"))
    assert tuple(names) == migrations.VERSIONS


def test_a_newer_schema_is_refused(new_url: str) -> None:
    _set_version(new_url, "9001")
    for call in (check, open_store, initialise):
        with pytest.raises(SchemaError, match=r"9001.*crkafka init"):
            call(new_url)


def test_an_older_schema_is_refused_with_the_command(new_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "VERSIONS", (*migrations.VERSIONS, "9001"))
    monkeypatch.setattr(schema, "HEAD", "9001")
    with pytest.raises(SchemaError, match=rf"{migrations.HEAD}.*needs 9001.*crkafka init"):
        open_store(new_url)


@pytest.mark.parametrize("version", migrations.VERSIONS)
def test_an_upgrade_from_each_version_keeps_the_data(empty_url: str, version: str) -> None:
    store = SqlStore(parse(empty_url), may_create=True)
    with store.engine.connect() as connection:
        if not store.address.postgres:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        schema.migrate(connection, upto=version)
        connection.commit()
    if version == migrations.HEAD:
        _fill(store)
    store.close()
    initialise(empty_url)
    if version == migrations.HEAD:
        _is_filled(empty_url)


def test_P1_pauses_of_an_older_schema_count_for_whoever_holds_the_partition(empty_url: str) -> None:
    """Version 0002 gives the mark's member a column in the key."""
    store = SqlStore(parse(empty_url), may_create=True)
    with store.engine.connect() as connection:
        if not store.address.postgres:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        schema.migrate(connection, upto="0001")
        connection.exec_driver_sql("INSERT INTO pause_mark VALUES ('r', 'topic', 'orders', 'me', 7.0)")
        connection.commit()
    store.close()
    initialise(empty_url)
    opened = open_store(empty_url)
    with opened.read() as reader:
        assert reader.select(PauseMark) == [PauseMark("r", "topic", "orders", "", "me", 7.0)]
    opened.close()


def test_an_upgrade_to_a_version_of_tomorrow_keeps_the_data(
    new_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables that are rebuilt (SQLite) or altered (PostgreSQL), with views on them."""
    store = open_store(new_url)
    _fill(store)
    store.close()
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, folder)
    (folder / "versions" / "9001_later.py").write_text(_LATER % migrations.HEAD)
    monkeypatch.setattr(schema, "_FOLDER", folder)
    monkeypatch.setattr(schema, "create_views", lambda connection: None)
    initialise(new_url)
    with make_engine(parse(new_url)).connect() as connection:
        rows = connection.exec_driver_sql("SELECT name, machine, mood FROM member ORDER BY name").fetchall()
        assert [row[2] for row in rows] == ["calm"] * 5
        assert {row[1] for row in rows} == {_member_host(n) for n in range(5)}
        assert schema.version_of(connection) == "9001"
    with pytest.raises(SchemaError, match="9001"):
        open_store(new_url)


def test_a_failed_upgrade_changes_nothing(new_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(new_url)
    _fill(store)
    store.close()
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, folder)
    broken = _LATER % migrations.HEAD + "    raise RuntimeError('half way')\n"
    (folder / "versions" / "9001_later.py").write_text(broken)
    monkeypatch.setattr(schema, "_FOLDER", folder)
    with pytest.raises(RuntimeError, match="half way"):
        initialise(new_url)
    monkeypatch.undo()
    check(new_url)
    _is_filled(new_url)
    with make_engine(parse(new_url)).connect() as connection:
        assert set(VIEWS) <= set(inspect(connection).get_view_names())


def test_checking_needs_no_alembic(tmp_path: Path) -> None:
    """Members in Spark open stores by the dozen: the check costs one question, and no import of Alembic."""
    url = f"sqlite:///{tmp_path}/control.db"
    initialise(url)
    code = (
        f"import sys, checkpoints_db; checkpoints_db.open_store({url!r}).close(); assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://me:hush@host/db", "mysql"),
        ("nonsense hush", "cannot be read"),
        ("postgresql+psycopg2://me:hush@host/db", "psycopg 3"),
        ("sqlite://hush/relative", "three slashes"),
        ("sqlite:///file.db?mode=hush", "question mark"),
        ("sqlite+aiosqlite:///hush.db", "driver"),
    ],
)
def test_a_url_that_cannot_work_is_told_without_its_secret(url: str, words: str) -> None:
    for call in (open_store, initialise, check):
        with pytest.raises(ConfigError, match=words) as caught:
            call(url)
        assert "hush@" not in str(caught.value)
        assert caught.value.hint


def test_a_database_that_is_not_there_is_told_without_the_password() -> None:
    url = "postgresql://me:very-secret@127.0.0.1:1/db"
    for call in (open_store, initialise, check):
        with pytest.raises(ServiceUnavailable) as caught:
            call(url, patience=Patience(bound=0.2))  # type: ignore[operator]
        assert "very-secret" not in str(caught.value)
        assert "127.0.0.1" in str(caught.value)
        assert caught.value.__cause__ is None


def _fill(store: SqlStore) -> None:
    store.create(region(), lambda tx: None)
    for row in ROWS:
        if row is not Region:
            store.run(REGION, lambda tx, row=row: tx.put(*(sample(row, n) for n in range(5))))  # type: ignore[misc]


def _is_filled(url: str) -> None:
    store = open_store(url)
    with store.read() as reader:
        for row in ROWS:
            if row is not Region:
                found = reader.select(row)
                assert len(found) == 5
                assert all(sample(row, n) in found for n in range(5)), row
    store.close()


def _member_host(number: int) -> str:
    from crkafka_core.model.rows import Member

    return sample(Member, number).host


def _set_version(url: str, version: str) -> None:
    with make_engine(parse(url)).begin() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{version}'")
