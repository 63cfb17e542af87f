"""A pytest plugin: regions on a real Kafka as fixtures, one that lasts for many tests and one made for a single test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.testing.pytest_services import unique
from crkafka_core.testing.scenario import Scenario

SESSION_FOR_RESTARTS = 8.0
"""A static member that is killed is back within this on busy cores."""


class Lasting:
    """One region at a time that tests hand on to each other while they leave it whole: starting one costs seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kind = ""
        self._stack = contextlib.ExitStack()
        self._scenario: Scenario | None = None

    def get(self, kind: str, kafka: KafkaCluster, **keys: Any) -> Scenario:
        """The region of this kind, running; made anew if there is none that does."""
        if self._scenario is not None and self._kind == kind:
            with contextlib.suppress(Exception):
                self._scenario.settle(timeout=15)
                self._scenario.await_flow()
                return self._scenario
        self.drop()
        folder = self._folder / unique(kind)
        folder.mkdir()
        self._kind, self._scenario = kind, self._stack.enter_context(Scenario(kafka, folder, **keys))
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
    failed = request.session.testsfailed
    yield scenario
    scenario.points.clear_all()
    scenario.wake()
    if request.session.testsfailed > failed:
        print(scenario.account())
        lasting.drop()


@pytest.fixture
def pair(request: pytest.FixtureRequest, lasting: Lasting, kafka: KafkaCluster) -> Iterator[Scenario]:
    """A running region of two static members, four partitions, a thousand records a second; the next test gets it too."""
    yield from _lend(request, lasting, lasting.get("pair", kafka, session=SESSION_FOR_RESTARTS))


@pytest.fixture
def dynamic(request: pytest.FixtureRequest, lasting: Lasting, kafka: KafkaCluster) -> Iterator[Scenario]:
    """As `pair`, with dynamic membership."""
    yield from _lend(request, lasting, lasting.get("dynamic", kafka, static_membership=False))


@pytest.fixture
def scenario(kafka: KafkaCluster, tmp_path: Path, lasting: Lasting) -> Iterator[Callable[..., Scenario]]:
    """`scenario(members=2, …)`: a region for this test alone; the lasting one ends for it, since two cores are few."""
    lasting.drop()
    with contextlib.ExitStack() as stack:
        yield lambda **keys: stack.enter_context(Scenario(kafka, tmp_path, **keys))
