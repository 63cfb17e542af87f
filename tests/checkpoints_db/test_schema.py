"""The schema: made once, from the models, checked at opening, and carried over with its data."""

from __future__ import annotations

import hashlib
import multiprocessing
import shutil
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.schema import CreateTable

from checkpoints_db import SqlStore, initialise, migrations, open_store, schema
from checkpoints_db.address import parse
from checkpoints_db.engines import make_engine
from checkpoints_db.retry import Patience
from checkpoints_db.tables import METADATA, TABLES
from checkpoints_db.testing.samples import REGION, region, sample
from checkpoints_db.views import VIEWS
from crkafka_core.dev.postgres import Postgres
from crkafka_core.model.errors import ConfigError, SchemaError, ServiceUnavailable
from crkafka_core.model.rows import ROWS, Region

_COMPARED = {"compare_type": True, "version_table": migrations.VERSION_TABLE}
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
    with pytest.raises(SchemaError, match="crkafka init"):
        open_store(f"sqlite:///{path}")
    assert not path.parent.exists()


def test_a_path_is_the_one_that_is_written(tmp_path: Path) -> None:
    """SQLAlchemy 2.1 makes `50 off` of `50%20off`: a folder beside the project's."""
    url = f"sqlite:///{tmp_path}/50%20off/control.db"
    initialise(url)
    assert [each.name for each in tmp_path.iterdir()] == ["50%20off"]
    with closing(open_store(url)) as store:
        assert store.place().shown == url
        assert store.place().key == url.replace("///", "", 1)


def test_a_timeout_that_is_no_number_is_told() -> None:
    for given in ("connect_timeout=soon", "connect_timeout=1&connect_timeout=2"):
        with pytest.raises(ConfigError, match="connect_timeout is a whole number of seconds"):
            parse(f"postgresql://u@h/db?{given}")
    assert parse("postgresql://u@h/db?connect_timeout=-1").postgres


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
    open_store(url).close()
    assert [r.name for r in with_data.regions()] == [REGION]
    with_data.close()


@pytest.mark.postgres
def test_a_database_that_cannot_hold_every_name_is_refused_with_the_command_that_makes_one(postgres: Postgres) -> None:
    postgres.sql("CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    with pytest.raises(ConfigError, match=r"has the encoding SQL_ASCII.*createdb -E UTF8 -T template0"):
        initialise(postgres.address("ascii"))
    assert postgres.sql("SELECT to_regnamespace('crkafka') IS NULL", database="ascii") == "t"
    postgres.drop("ascii")


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
    open_store(empty_url).close()


def test_a_change_of_the_models_takes_a_migration() -> None:
    """A new control plane is made from the models; an older one is carried over by a migration alone. (Until 0.2.0 is out, none is.)"""
    dialect = sqlite.dialect()
    statements = [str(CreateTable(table).compile(dialect=dialect)) for table in METADATA.sorted_tables]
    indexes = [f"{index.name} {index.table.name}" for table in METADATA.sorted_tables for index in table.indexes]
    digest = hashlib.sha256("\n".join([*statements, *sorted(indexes)]).encode()).hexdigest()[:16]
    assert (migrations.HEAD, digest) == ("0001", "432ed8168de14a34"), (
        "write the migration, then its version and this digest here"
    )


def test_a_new_database_is_as_the_models_are(new_url: str) -> None:
    with make_engine(parse(new_url)).connect() as connection:
        context = MigrationContext.configure(connection, opts=_COMPARED)
        assert compare_metadata(context, METADATA) == []
        for table in METADATA.sorted_tables:
            reflected = inspect(connection).get_pk_constraint(table.name)["constrained_columns"]
            assert reflected == [c.name for c in table.primary_key.columns], table.name


def test_versions_are_those_of_the_files() -> None:
    folder = Path(migrations.__file__).parent / "versions"
    names = sorted(path.stem.partition("_")[0] for path in folder.glob("[0-9]*.py"))
    assert tuple(names) == migrations.VERSIONS


def test_a_newer_schema_is_refused(new_url: str) -> None:
    _set_version(new_url, "9001")
    for call in (open_store, initialise):
        with pytest.raises(SchemaError, match=r"9001.*crkafka init"):
            call(new_url)


def test_an_older_schema_is_refused_with_the_command(new_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "VERSIONS", (*migrations.VERSIONS, "9001"))
    monkeypatch.setattr(schema, "HEAD", "9001")
    with pytest.raises(SchemaError, match=rf"{migrations.HEAD}.*needs 9001.*crkafka init"):
        open_store(new_url)


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
    with monkeypatch.context() as tomorrow:
        _program_of_tomorrow(tomorrow, folder)
        tomorrow.setattr(schema, "create_views", lambda connection: None)
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
    _program_of_tomorrow(monkeypatch, folder)
    with pytest.raises(RuntimeError, match="half way"):
        initialise(new_url)
    monkeypatch.undo()
    open_store(new_url).close()
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
    for call in (open_store, initialise):
        with pytest.raises(ConfigError, match=words) as caught:
            call(url)
        assert "hush@" not in str(caught.value)
        assert caught.value.hint


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:very-secret@127.0.0.1:1/db", "postgresql://127.0.0.1:1/db?password=very-secret&sslmode=prefer"],
)
def test_a_database_that_is_not_there_is_told_without_the_password(url: str) -> None:
    for call in (open_store, initialise):
        with pytest.raises(ServiceUnavailable) as caught:
            call(url, patience=Patience(bound=0.2))  # type: ignore[operator]
        assert "very-secret" not in str(caught.value)
        assert "127.0.0.1" in str(caught.value)
        assert caught.value.__cause__ is None


def _program_of_tomorrow(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(schema, "_FOLDER", folder)
    monkeypatch.setattr(schema, "VERSIONS", (*migrations.VERSIONS, "9001"))
    monkeypatch.setattr(schema, "HEAD", "9001")


def _fill(store: SqlStore) -> None:
    store.create(region(), lambda tx: None)
    for row in ROWS:
        if row is not Region:
            store.run(REGION, lambda tx, row=row: tx.put(*(sample(row, n) for n in range(5))))  # type: ignore[misc]


def _is_filled(url: str) -> None:
    store = open_store(url)
    with store.read(REGION) as reader:
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
        connection.exec_driver_sql(f"UPDATE {migrations.VERSION_TABLE} SET version_num = '{version}'")


def test_t3_a_control_plane_is_known_by_its_place_and_a_copy_is_another_one(new_url: str, tmp_path: Path) -> None:
    stores = [open_store(new_url) for _ in range(2)]
    places = {store.place() for store in stores}
    assert len(places) == 1
    other = f"sqlite:///{tmp_path}/other.db"
    initialise(other)
    with closing(open_store(other)) as elsewhere:
        assert elsewhere.place().key not in {p.key for p in places}
    for store in stores:
        store.close()


@pytest.mark.postgres
def test_t3_who_may_not_ask_for_the_clusters_number_knows_the_place_by_its_tables(
    postgres_url: str, tmp_path: Path
) -> None:
    """The same by another address; another one after a dump was restored at the same address."""

    def place(url: str) -> str:
        with closing(open_store(url)) as store:
            return store.place().key

    who = f"plain_{uuid.uuid4().hex}"

    def restricted() -> None:
        with make_engine(parse(postgres_url)).begin() as connection:
            for statement in (
                "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
                f"GRANT USAGE ON SCHEMA crkafka TO {who}",
                f"GRANT SELECT ON ALL TABLES IN SCHEMA crkafka TO {who}",
            ):
                connection.exec_driver_sql(statement)

    with make_engine(parse(postgres_url)).begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {who} LOGIN")
    initialise(postgres_url)
    restricted()
    plain = make_url(postgres_url).set(username=who)
    (tmp_path / "other").symlink_to(str(plain.query["host"]))
    elsewhere = plain.update_query_dict({"host": str(tmp_path / "other")})
    there = place(str(plain))
    assert place(str(elsewhere)) == there
    assert place(postgres_url) != there, "who may ask goes by the cluster's number"
    with make_engine(parse(postgres_url)).begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA crkafka CASCADE")
    initialise(postgres_url)
    restricted()
    assert place(str(plain)) != there
    with make_engine(parse(postgres_url)).begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {who}")
        connection.exec_driver_sql(f"DROP ROLE {who}")


def test_nobody_else_reads_a_sqlite_file_nor_what_lies_beside_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new/crkafka.db"
    initialise(url)
    with make_engine(parse(url)).connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        found = {path.name: f"{path.stat().st_mode & 0o777:o}" for path in (tmp_path / "new").iterdir()}
    assert found == {"crkafka.db": "600", "crkafka.db-wal": "600", "crkafka.db-shm": "600"}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.postgres
def test_tables_are_in_a_schema_of_ours_and_another_alembic_in_the_database_is_no_affair_of_ours(
    postgres_url: str,
) -> None:
    """Dagster keeps its own storage in PostgreSQL with Alembic: both may share a database."""
    with make_engine(parse(postgres_url)).begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num varchar(32) NOT NULL)")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('7e2f3204cf8e')")
        connection.exec_driver_sql("CREATE TABLE runs (id int)")
    with pytest.raises(SchemaError, match="no tables of a control plane"):
        open_store(postgres_url)
    for _ in range(2):
        initialise(postgres_url)
    store = open_store(postgres_url)
    _fill(store)
    assert store.place().key.endswith("/crkafka")
    assert store.wait(REGION, -1, 1.0) >= 0
    store.close()
    with make_engine(parse(postgres_url)).connect() as connection:
        assert set(inspect(connection).get_table_names("public")) == {"alembic_version", "runs"}
        assert connection.exec_driver_sql("SELECT version_num FROM public.alembic_version").scalar() == "7e2f3204cf8e"
        assert {"region", "crkafka_version"} <= set(inspect(connection).get_table_names("crkafka"))


@pytest.mark.postgres
def test_views_keep_what_was_granted_and_what_others_made_of_them(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    initialise(postgres_url)
    engine = make_engine(parse(postgres_url))
    asked = (
        "SELECT array_agg(privilege_type::text ORDER BY privilege_type), bool_or(is_grantable = 'YES')"
        " FROM information_schema.role_table_grants WHERE table_name = 'v_regions' AND grantee = 'looks_on'"
    )
    options = "SELECT reloptions FROM pg_class WHERE relname = 'v_regions'"
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS looks_on; CREATE ROLE looks_on")
        connection.exec_driver_sql("GRANT SELECT ON v_regions TO looks_on WITH GRANT OPTION")
        connection.exec_driver_sql("GRANT SELECT ON v_tables TO PUBLIC")
        connection.exec_driver_sql("ALTER VIEW v_regions SET (security_invoker = true)")
        connection.exec_driver_sql("CREATE VIEW mine AS SELECT region FROM v_regions")
    try:
        initialise(postgres_url)
        with engine.begin() as connection:
            assert connection.exec_driver_sql(asked).one() == (["SELECT"], True)
            assert connection.exec_driver_sql(options).scalar() == ["security_invoker=true"]
            connection.exec_driver_sql("SELECT * FROM mine")
        # A version that changes what a view is made of drops it: only what was made of it by others is in the way.
        monkeypatch.setattr(schema, "VERSIONS", ("0000", *migrations.VERSIONS))
        monkeypatch.setattr(schema, "version_of", lambda connection: "0000")
        with pytest.raises(SchemaError, match="v_regions changes with this version"):
            initialise(postgres_url)
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP VIEW mine")
        initialise(postgres_url)
        with engine.begin() as connection:
            assert connection.exec_driver_sql(asked).one() == (["SELECT"], True)
            assert connection.exec_driver_sql(options).scalar() == ["security_invoker=true"]
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP OWNED BY looks_on; DROP ROLE looks_on")
        engine.dispose()


def test_every_row_type_has_a_table_of_its_own() -> None:
    assert set(TABLES) == set(ROWS)
    assert len({table.name for table in TABLES.values()}) == len(ROWS)


def test_columns_and_keys_are_those_of_the_rows() -> None:
    for row, table in TABLES.items():
        assert tuple(table.columns.keys()) == row.__match_args__
        assert tuple(c.name for c in table.primary_key.columns) == row.KEY
        assert not any(c.nullable for c in table.columns)
