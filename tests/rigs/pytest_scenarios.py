"""A pytest plugin: regions on a real Kafka as fixtures, one that lasts for many tests and one made for a single test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.postgres import Postgres
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.testing.pytest_services import unique
from tests.rigs.scenario import Scenario

SESSION_FOR_RESTARTS = 8.0
"""A static member that is killed is back within this on busy cores."""


class Lasting:
    """One region at a time that tests hand on to each other while they leave it whole: starting one costs seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kind = ""
        self._stack = contextlib.ExitStack()
        self._scenario: Scenario | None = None

    def get(self, kind: str, kafka: KafkaCluster, *, database: Callable[[], str], **keys: Any) -> Scenario:
        """The region of this kind, running; made anew, in a new database, if there is none that does."""
        if self._scenario is not None and self._kind == kind:
            with contextlib.suppress(Exception):
                self._scenario.settle(timeout=15)
                self._scenario.await_flow()
                return self._scenario
        self.drop()
        folder = self._folder / unique(kind)
        folder.mkdir()
        self._kind, self._scenario = kind, self._stack.enter_context(Scenario(kafka, folder, url=database(), **keys))
        self._scenario.await_flow()
        return self._scenario

    def drop(self) -> None:
        """End it without a look."""
        self._stack.close()
        self._scenario = None

    def finish(self) -> None:
        """End it with the oracle: everything that was committed in all these tests has landed once."""
        if self._scenario is not None:
            self._scenario.finish_and_verify()
        self.drop()


@pytest.fixture(scope="session")
def lasting(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaCluster) -> Iterator[Lasting]:
    """Ended with the session, before its Kafka."""
    made = Lasting(tmp_path_factory.mktemp("regions"))
    try:
        yield made
    finally:
        made.drop()


def _lend(request: pytest.FixtureRequest, lasting: Lasting, scenario: Scenario) -> Iterator[Scenario]:
    failed, since = request.session.testsfailed, scenario.mark()
    yield scenario
    scenario.points.clear_all()
    scenario.wake()
    if request.session.testsfailed > failed:
        print(scenario.account())
        lasting.drop()
    else:
        _record(request, scenario, since)


def _record(request: pytest.FixtureRequest, scenario: Scenario, since: int = 0) -> None:
    """The longest time from a reset or an aborted cut to the next merge: `scripts/reliability.py` writes it into the docs."""
    took, disturbed = list[float](), 0.0
    with contextlib.suppress(CrkafkaError):  # a test may have deleted its region
        for event in scenario.events("reset", "abort", "merged", since=since):
            if event.kind != "merged":
                disturbed = disturbed or event.at
            elif disturbed:
                took.append(event.at - disturbed)
                disturbed = 0.0
    if took:
        request.node.user_properties.append(("recovered", f"{max(took):.2f}"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def control_plane(request: pytest.FixtureRequest) -> str:
    """Where a scenario keeps its SQL. Each runs on SQLite, and in the soak on PostgreSQL; a test that needs one of them says so by

    `@pytest.mark.parametrize("control_plane", ["postgres"], indirect=True)`.
    """
    kind: str = request.param
    return kind


@pytest.fixture
def control_plane_url(request: pytest.FixtureRequest, control_plane: str) -> Callable[[], str]:
    """Makes a new database on the server of this session; nothing, for a file beside the region's other files, on SQLite."""
    if control_plane == "sqlite":
        return lambda: ""
    server: Postgres = request.getfixturevalue("postgres")
    return lambda: server.url(unique("s").replace("-", "_"))


@pytest.fixture
def pair(
    request: pytest.FixtureRequest,
    lasting: Lasting,
    kafka: KafkaCluster,
    control_plane: str,
    control_plane_url: Callable[[], str],
) -> Iterator[Scenario]:
    """A running region of two static members and four partitions, with a steady producer; the next test gets it too."""
    kind = f"pair-{control_plane}"
    yield from _lend(
        request, lasting, lasting.get(kind, kafka, database=control_plane_url, session=SESSION_FOR_RESTARTS)
    )


@pytest.fixture
def dynamic(
    request: pytest.FixtureRequest,
    lasting: Lasting,
    kafka: KafkaCluster,
    control_plane: str,
    control_plane_url: Callable[[], str],
) -> Iterator[Scenario]:
    """As `pair`, with dynamic membership."""
    kind = f"dynamic-{control_plane}"
    yield from _lend(request, lasting, lasting.get(kind, kafka, database=control_plane_url, static_membership=False))


@pytest.fixture
def scenario(
    request: pytest.FixtureRequest,
    kafka: KafkaCluster,
    tmp_path: Path,
    lasting: Lasting,
    control_plane_url: Callable[[], str],
) -> Iterator[Callable[..., Scenario]]:
    """`scenario(members=2, …)`: a region for this test alone; the lasting one ends for it, since two cores are few."""
    lasting.drop()
    made: list[Scenario] = []
    with contextlib.ExitStack() as stack:

        def make(**keys: Any) -> Scenario:
            made.append(stack.enter_context(Scenario(kafka, tmp_path, **{"url": control_plane_url(), **keys})))
            return made[-1]

        failed = request.session.testsfailed
        yield make
        for one in made if request.session.testsfailed == failed else ():
            _record(request, one)
