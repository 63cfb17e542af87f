"""What the tests of the database share; assertions of the shipped compliance suite are explained as those of the tests are."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("checkpoints_db.testing")

from checkpoints_db import initialise  # noqa: E402
from crkafka_core.dev.postgres import Postgres  # noqa: E402
from crkafka_core.testing.pytest_services import unique  # noqa: E402


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/control.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def new_url(request: pytest.FixtureRequest) -> str:
    """A database that was initialised, of each kind."""
    url: str = request.getfixturevalue(f"new_{request.param}_url")
    return url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An initialised file; tests get copies, since to make one takes twenty times as long."""
    path = tmp_path_factory.mktemp("template") / "control.db"
    initialise(f"sqlite:///{path}")
    return path


@pytest.fixture
def new_sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path)}"


@pytest.fixture(scope="session")
def postgres_template(postgres: Postgres) -> str:
    """The name of an initialised database."""
    initialise(postgres.url("template_crkafka"))
    return "template_crkafka"


@pytest.fixture
def new_postgresql_url(postgres: Postgres, postgres_template: str) -> Iterator[str]:
    name = unique("t").replace("-", "_")
    postgres.sql(f'CREATE DATABASE "{name}" TEMPLATE "{postgres_template}"')
    yield postgres.address(name)
    postgres.heal()
    postgres.drop(name)
