"""`crkafka consume` hosts a region without a host, and leaves it as it was (SPEC V3)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crkafka_core.cli import cuts, hosting
from crkafka_core.config import RegionConfig
from crkafka_core.model.phase import Phase
from crkafka_core.plane import leases
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region import Region
from crkafka_core.region.host import LEASE


@pytest.mark.parametrize(
    ("phase", "hosted", "hosts_here"),
    [
        (Phase.RUNNING, True, False),
        (Phase.RUNNING, False, True),  # wanted, and its host has left: nobody would ever come
        (Phase.STOPPED, False, False),  # refused before anything starts
    ],
)
def test_a_region_that_nobody_hosts_is_hosted_meanwhile(
    plane: ControlPlane,
    region_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    phase: Phase,
    hosted: bool,
    hosts_here: bool,
) -> None:
    done: list[str] = []

    @contextmanager
    def members(*_: Any) -> Iterator[None]:
        done.append("members")
        yield
        done.append("members left")

    def consume(region: Region, **_: Any) -> SimpleNamespace:
        done.append("consumed")
        return SimpleNamespace()

    monkeypatch.setattr(Region, "init", lambda self, **_: None)
    monkeypatch.setattr(hosting, "members", members)
    monkeypatch.setattr(cuts, "kafka_away", lambda *_: "")
    monkeypatch.setattr(cuts.caught_up, "consume", consume)
    plane.do(lambda tx: tx.set_region(phase=phase))
    if hosted:
        plane.do(lambda tx: leases.take(tx, LEASE, holder="anna@there", token="token", length=30.0))
    cuts.consume(RegionConfig.load(region_file))
    assert done == (["members", "consumed", "members left"] if hosts_here else ["consumed"])
    assert plane.read(lambda _, row: row.phase) is phase, "neither started nor stopped"
