"""What happens to a table of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crkafka_core.lake.port import Unknown
from crkafka_core.plane.reading import ReadPlan
from tests.lake.rig import (
    Rig,
)


def gone(plan: ReadPlan) -> Iterator[Any]:
    """Kafka has nothing any more."""
    return iter(())


def filled(rig: Rig, checkpoints: int = 3) -> Rig:
    for _ in range(checkpoints):
        rig.land()
        rig.advance()
    return rig


def packed(rig: Rig) -> list[str]:
    snapshot = rig.means.logs(rig.region, rig.table()).look()
    assert snapshot is not None
    return [file.path for file in snapshot.files() if "/packed/" in file.path]


def answers_are_lost(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    commit = rig.snapshot.commit

    def lost(self: Any, *given: Any) -> Any:
        commit(self, *given)
        raise Unknown("no answer")

    patch.setattr(rig.snapshot, "commit", lost)


def meanwhile(rig: Rig, patch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """`work` is done once, between the files of a writer and its commit."""
    commit = rig.snapshot.commit

    def slept(self: Any, *given: Any) -> Any:
        patch.setattr(rig.snapshot, "commit", commit)
        work()
        return commit(self, *given)

    patch.setattr(rig.snapshot, "commit", slept)
