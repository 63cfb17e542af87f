"""A region in SQLite with some history, made by the control plane's own rows, and the command line over it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.cli.main import run
from crkafka_core.config import RegionConfig
from crkafka_core.control import Store, Tx
from crkafka_core.model import limits
from crkafka_core.model.offsets import TP, pack
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    Contribution,
    Group,
    Initial,
    Member,
    MergedOffset,
    Region,
    Segment,
)
from crkafka_core.plane import events, life, transact
from crkafka_core.plane.transact import ControlPlane

YAML = """\
region: orders
control_plane: sqlite:///var/crkafka.db
storage: var/segments
kafka: {bootstrap.servers: "127.0.0.1:9", group.id: orders}
topics: [orders]
members: 2
"""

SOON = 12.0
"""Seconds: ten are promised, and test machines are slow."""


def _closed_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


POSTGRES = f"postgresql+psycopg://me@127.0.0.1:{_closed_port()}/db"
"""A port on which no process listens."""


@dataclass(frozen=True)
class Answer:
    """The output of a call, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Crkafka = Callable[..., Answer]


def python(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, which imports these sources."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    given: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60, "env": environment, **options}
    return subprocess.run([sys.executable, *words], check=False, **given)


def findings(crkafka: Crkafka) -> dict[str, str]:
    """The failed checks of `crkafka check`, and its text on the region."""
    return {f["what"]: f["text"] for f in crkafka("check", "--json").json if not f["ok"] or f["what"] == "region"}


@pytest.fixture
def region_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """region.yaml in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CRKAFKA_CONFIG", raising=False)
    monkeypatch.delenv("CRKAFKA_DEBUG", raising=False)
    file = tmp_path / "region.yaml"
    file.write_text(YAML)
    return file


@pytest.fixture
def check_soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait of `crkafka check` for the Kafka of the region file, which never starts."""
    if "kafka" not in request.fixturenames:
        monkeypatch.setattr("crkafka_core.cli.checks._PATIENCE", 0.3)


@pytest.fixture
def crkafka(region_file: Path, capsys: pytest.CaptureFixture[str]) -> Crkafka:
    """Calls the command line in this process."""

    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        code = run(arguments)
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return call


@pytest.fixture
def plane(region_file: Path) -> ControlPlane:
    """A running region with two members and checkpoints 1 and 2."""
    config = RegionConfig.load(region_file)
    transact.initialise(config.resolved_control_plane())
    store: Store = transact.open_store(config.resolved_control_plane())
    row = Region(
        name="orders",
        uid="u1",
        region_index=0,
        members_wanted=2,
        config_json=config.to_json(),
        limits_json=limits.dump(config.limits()),
    )
    life.declare(store, row)
    control = ControlPlane(store, "orders")
    control.do(_history)
    return control


def _history(tx: Tx) -> None:
    now, tps = tx.now(), [TP("orders", p) for p in range(4)]
    tx.put(Group("c1", "orders", "orders", 0))
    tx.put(*(Initial("orders", "t1", tp.partition, tp.topic, 0, "beginning", now) for tp in tps))
    times = {"registered_at": now, "first_registered_at": now}
    at = {"host": "h", "epoch": 1, "base": 2, "generation": 3, **times}
    for n in (0, 1):
        tx.put(Member("orders", f"orders/{n}", f"inc{n}", 1, assignment_json=pack(tps[n * 2 : n * 2 + 2]), **at))
    counts = {"rows": 40, "segments": 2, "members": 2, "drain_ms": 7, "opened_at": now, "merged_at": now}
    for number in (1, 2):
        tx.put(Checkpoint("orders", number, number - 1, 1, CheckpointStatus.MERGED, cause="every 60 s", **counts))
        for tp in tps:
            offsets = number * 10 - 10, number * 10
            tx.put(MergedOffset("orders", number, *tp, "t1", *offsets, 10, f"orders/{tp.partition // 2}"))
        for n in (0, 1):
            who = f"orders/{n}", f"inc{n}"
            tx.put(Contribution("orders", number, *who, 1, number - 1, 3, "[]", "{}", 20, 1, 7, "h"))
            tx.put(Segment("orders", f"s{number}-{n}", number, *who, 1, 20, 1, "h", "[]"))
        events.log(tx, "merged", "40 rows of 2 members", checkpoint=number)
    state = {"phase": Phase.RUNNING, "wanted": Wanted.RUN, "head": 2, "filling": 2, "opened": 2, "born": True}
    when = dict.fromkeys(("phase_since", "resumed_at", "last_cut_at"), now)
    tx.set_region(wait_for_wanted=False, cluster_id="c1", group_id="orders", **state, **when)
