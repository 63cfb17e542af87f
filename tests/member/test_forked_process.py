"""A forked member is to its host, and to a test that ends it, what a started one is (SPEC K1)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import checkpoints_db
from crkafka_core.config import RegionConfig
from crkafka_core.hosts.processes import Launch, LeashedProcess
from crkafka_core.member.exit_codes import CODES
from crkafka_core.model.rows import Region
from crkafka_core.plane import life, roster
from crkafka_core.plane.transact import open_plane
from crkafka_core.protocol.signals import ExitKind
from crkafka_core.testing.mock_broker import MockBroker
from tests.rigs.configs import configured
from tests.rigs.forked import ForkedProcess
from tests.rigs.until import until

BOTH = pytest.mark.parametrize("launch", [LeashedProcess, ForkedProcess])


@pytest.fixture
def order(tmp_path: Path, mock_broker: MockBroker, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a member whose region has one topic; what its Kafka client is called is in the environment alone."""
    monkeypatch.setenv("RACK_OF_TODAY", "left")
    kafka = {"bootstrap.servers": mock_broker.bootstrap, "group.id": "g", "client.rack": "${env:RACK_OF_TODAY}"}
    config = configured(tmp_path, topics=["t"], kafka=kafka, trigger={"manual": True}, members=1)
    mock_broker.create_topic("t")
    checkpoints_db.initialise(config.control_plane)
    plane = open_plane(config)
    life.declare(plane.store, Region(name="orders", uid="uid", region_index=0))
    plane.do(lambda tx: life.start(tx, by="test"))
    # Else a member looks at the group first, which the mock broker does not describe.
    plane.do(lambda tx: tx.set_region(head=1))
    plane.store.close()
    return {"name": "orders/0", "config": config.to_json()}


def works(order: dict[str, str]) -> None:
    """Until the member is registered: it has its configuration, and has found Kafka."""
    plane = open_plane(RegionConfig.from_json(order["config"]))
    until(lambda: plane.read(lambda reader, _: bool(roster.live(reader))), "the member is registered")
    plane.store.close()


@BOTH
def test_a_member_is_a_process_of_its_own_and_ends_with_its_leash(
    launch: Launch, order: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "logs" / "orders-0.log"
    member = launch(order, log)
    works(order)
    assert member.poll() is None
    assert os.getsid(member.pid) == member.pid != os.getsid(0), "what a terminal sends reaches the host alone"
    assert log.stat().st_mode & 0o777 == 0o600
    with pytest.raises(subprocess.TimeoutExpired):
        member.wait(0.05)
    os.kill(member.pid, signal.SIGSTOP)
    member.terminate()
    assert member.poll() is None, "who is stopped, is neither ended nor gone"
    os.kill(member.pid, signal.SIGCONT)
    assert member.wait(20) == member.poll() == CODES[ExitKind.CLEAN]


@BOTH
def test_a_member_that_is_killed_is_gone_and_says_by_what(
    launch: Launch, order: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "orders-0.log"
    member = launch(order, log)
    works(order)
    member.kill()
    assert member.wait(20) == -signal.SIGKILL
    assert not Path(f"/proc/{member.pid}").exists()
    member.kill()


@BOTH
def test_k1_a_member_leaves_when_its_host_is_killed(launch: Launch, order: dict[str, str], tmp_path: Path) -> None:
    log, path = tmp_path / "orders-0.log", f"{launch.__module__}"
    program = (
        f"import json, pathlib, sys, time; from {path} import {getattr(launch, '__name__')} as launch;"  # noqa: B009
        "member = launch(json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])); print(member.pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program, json.dumps(order), str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        works(order)
        host.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the member is gone with its host")
    assert "the host wants this member no more, or is gone" in log.read_text()
