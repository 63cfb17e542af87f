"""The systemd unit and the Kubernetes manifests run existing commands, and leave time for a last cut."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from crkafka_core.cli.main import cli
from crkafka_core.hosts import supervisor
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.limits import Limits
from crkafka_core.region import feeder_process, keeper

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"


def _parsed(arguments: list[str]) -> dict[str, Any]:
    """Parse a command line without running it."""
    outer = cli.make_context("crkafka", list(arguments), resilient_parsing=False)
    name, command, rest = cli.resolve_command(outer, [*outer._protected_args, *outer.args])
    assert name == "host" and command is not None
    return command.make_context(name, list(rest), parent=outer).params


def last_cut(drain_timeout: float) -> float:
    """Longest time in seconds from SIGTERM to the end of a host, by the docs."""
    members_leave = supervisor.PATIENCE_S + supervisor.KILL_S
    tables_follow = max(feeder_process.PATIENCE, keeper.LAST + 10) + 10
    said = 2 * drain_timeout + 120  # the group settles, then the cut has its deadline
    assert said >= 2 * drain_timeout + members_leave + tables_follow
    return said


def test_the_pages_say_how_long_a_last_cut_takes() -> None:
    assert last_cut(Limits().drain_timeout) == 480
    docs = DEPLOY.parent
    dagster = (docs / "dagster.md").read_text()
    assert re.findall(r"stop_grace_period: (\w+)", dagster) == ["8m"]
    assert re.findall(r"terminationGracePeriodSeconds: (\d+)", dagster) == ["480"]
    assert "twice the `drain_timeout` and two minutes, 480 by default" in (docs / "clusters.md").read_text()
    assert "twice `drain_timeout` and two minutes, 8 min by default" in (docs / "operations.md").read_text()


def test_the_unit_of_systemd_is_well_formed_and_signals_the_host_alone(tmp_path: Path) -> None:
    text = (DEPLOY / "crkafka@.service").read_text()
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    program, *arguments = shlex.split(said["ExecStart"])
    assert _parsed(arguments)["metrics"] == "127.0.0.1:9400"
    # systemd gives its folders the mode that it is told, also those that are there
    assert said["LogsDirectoryMode"] == said["StateDirectoryMode"] == "0700" and said["UMask"] == "0077"
    assert said["KillMode"] == "mixed" and said["TimeoutStopSec"] == f"{last_cut(Limits().drain_timeout) / 60:.0f}min"
    if (analyze := shutil.which("systemd-analyze")) is not None:  # where there is none, the above has to do
        unit = tmp_path / "crkafka@orders.service"
        unit.write_text(text.replace(program, "/bin/true"))
        done = subprocess.run(
            [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
        )
        ours = [line for line in done.stderr.splitlines() if "crkafka" in line]
        assert ours == [], done.stderr
        # 10 is a unit that may do all; below 2.5 systemd calls it safe
        exposed = [analyze, "security", "--offline=yes", "--no-pager", "--threshold=20", str(unit)]
        done = subprocess.run(exposed, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout
    assert said["RestartPreventExitStatus"] == str(ConfigError.exit_code)
