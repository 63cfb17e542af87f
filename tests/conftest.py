"""What all tests share: real services as fixtures; and scripts/run_suites.py is told which test runs."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine

from checkpoints_db import schema
from checkpoints_db.address import Address
from crkafka_core.kafka.native import library

for _options in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_options, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
"""A Spark that lives for a minute takes a third of the work if its Java neither compiles for years nor collects in parallel."""

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
"""How quick an example is says what the machine does meanwhile."""

pytest_plugins = ["crkafka_core.testing.pytest_services", "tests.rigs.pytest_scenarios", "tests.rigs.object_stores"]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
"""Members that a test starts find its failpoints in `tests/rigs`."""


def pytest_runtest_logstart(nodeid: str) -> None:
    """Where a signal ends pytest, this is all that is left of it."""
    if place := os.environ.get("CRKAFKA_SUITE_AT"):
        Path(place).write_text(nodeid)


@pytest.fixture(scope="session", autouse=True)
def _records_come_as_they_are_told_to() -> None:
    """Natively, or through objects where the environment says so: an edge that is not built, or stale, would be passed over in silence."""
    by_objects = os.environ.get(library.SWITCH) == "0"
    assert (library.load() is None) == by_objects, "`make env` builds the native edge, with a C compiler"


@pytest.fixture(scope="session", autouse=True)
def _migrations_run_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A new control plane in SQLite is a copy of the first, and `initialise` finds it to be well; tests/checkpoints_db makes its own."""
    template = tmp_path_factory.mktemp("control_plane") / "made.db"
    real, making = schema._initialise, threading.RLock()

    def initialise(engine: Engine, address: Address) -> None:
        makes_its_own = os.environ.get("PYTEST_CURRENT_TEST", "").startswith("tests/checkpoints_db/")
        if address.path not in (None, template) and not makes_its_own:
            with making:
                if not template.exists():
                    schema.initialise(f"sqlite:///{template}")
                _copy_into_empty(template, address.path)
        real(engine, address)

    with patch.object(schema, "_initialise", initialise):
        yield


def _copy_into_empty(template: Path, path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=30)) as new, closing(sqlite3.connect(template)) as made:
        if not new.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            made.backup(new)
