"""What the tests of the database share; assertions of the shipped compliance suite are explained as those of the tests are."""

import pytest

pytest.register_assert_rewrite("checkpoints_db.testing")

from pathlib import Path  # noqa: E402

from checkpoints_db import initialise  # noqa: E402


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/control.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def new_url(empty_url: str) -> str:
    """A database that was initialised, of each kind."""
    initialise(empty_url)
    return empty_url
