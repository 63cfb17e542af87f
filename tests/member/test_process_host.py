"""Which ends of a member make its host start it again (SPEC G3, K1)."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.config import RegionConfig
from crkafka_core.hosts import processes
from crkafka_core.member.main import CODES, REFUSED
from crkafka_core.model.rows import Region
from crkafka_core.plane import regions, resets
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol.signals import ExitKind
from crkafka_core.testing.memory import MemoryStore


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (CODES[ExitKind.CLEAN], True),
        (CODES[ExitKind.FAILED], True),
        (CODES[ExitKind.SUPERSEDED], False),
        (REFUSED, False),
    ],
)
def test_g3_who_is_wanted_is_started_again_unless_superseded_or_refused(
    code: int, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that came to a clean end in the instant between `stop` and `start` is wanted again, and must come back."""
    real, started = subprocess.Popen, []

    def popen(*_: Any, **keys: Any) -> Any:
        started.append(1)
        return real([sys.executable, "-c", f"import sys; sys.stdin.read(); sys.exit({code})"], stdin=subprocess.PIPE)

    monkeypatch.setattr(processes.subprocess, "Popen", popen)
    plane = ControlPlane(MemoryStore(), "orders")
    regions.declare(plane.store, Region(name="orders", uid="uid", region_index=0))
    plane.do(lambda tx: resets.start(tx, by="test"))
    config = RegionConfig.of(
        base=tmp_path, region="orders", control_plane="sqlite:///x.db", storage=str(tmp_path), topics=["t"], members=1,
        kafka={"bootstrap.servers": "localhost:1", "group.id": "g"}, trigger={"manual": True},
    )  # fmt: skip
    host = processes.ProcessHost(config, plane)
    host.begin()
    end = time.monotonic() + (10 if again else 2.0)
    while time.monotonic() < end and len(started) < 2:
        time.sleep(0.05)
    host.end()
    assert (len(started) >= 2) is again
