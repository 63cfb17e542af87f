"""Members end with their host, and after the last cut when all are signalled at once (faults 81, 85)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import yaml

from crkafka_core.model.phase import Phase
from tests.rigs.scenario import Scenario

Make = Callable[..., Scenario]


class Host:
    """`crkafka host` in a process group of its own, as a shell or a supervisor starts it."""

    def __init__(self, s: Scenario, name: str = "host") -> None:
        file = s.folder / "region.yaml"
        file.write_text(yaml.safe_dump(s.config.model_dump(mode="json", exclude_none=True)))
        self.output = s.folder / f"{name}.log"
        with self.output.open("wb") as output:
            words = ["-c", str(file), "host", "--logs", str(s.folder / f"logs-{name}")]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "crkafka_core.cli.main", *words],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.members: list[int] = []

    def await_members(self, s: Scenario) -> None:
        if s.config.host.spark is not None:
            s.until(lambda: s.phase is Phase.RUNNING, "Spark has started", timeout=180)
        s.settle()
        s.until(lambda: all("pid" in m.metrics for m in s.region.status().members), "all members told their pid")
        self.members = [int(m.metrics["pid"]) for m in s.region.status().members]

    def living(self) -> list[int]:
        return [pid for pid in self.members if _lives(pid)]

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for pid in self.living():
            os.kill(pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


Hosted = Callable[..., tuple[Scenario, Host]]


@pytest.fixture
def hosted(scenario: Make) -> Iterator[Hosted]:
    with ExitStack() as stack:

        def made(**keys: object) -> tuple[Scenario, Host]:
            s = scenario(begin=False, partitions=2, **keys)
            host = Host(s)
            stack.callback(host.end)
            host.await_members(s)
            return s, host

        yield made


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.soak),
        pytest.param(signal.SIGHUP, marks=pytest.mark.soak),
        signal.SIGTERM,
    ],
)
def test_81_signal_to_the_whole_group_and_to_each_member_still_makes_the_last_cut(
    hosted: Hosted, number: signal.Signals
) -> None:
    """Ctrl-C and a closed terminal reach the process group; systemd's default reaches every process of the service, members too."""
    s, host = hosted(rate=0)
    s.generator.send(s.topics[0], 300, partitions=2)
    s.until(lambda: s.submitted() >= 300, "all is submitted")
    os.killpg(host.process.pid, number)
    for pid in host.members if number != signal.SIGHUP else ():
        os.kill(pid, number)
    assert host.process.wait(40) == 0, host.output.read_text()
    assert host.living() == []
    assert s.phase is Phase.IDLE
    assert sum(c.rows for c in s.region.checkpoints()) == 300, "the last cut has it all"


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_81_host_of_members_in_spark_that_is_terminated_still_makes_the_last_cut(
    hosted: Hosted, number: signal.Signals
) -> None:
    """As Ctrl-C, systemd with KillMode=mixed, Docker and Kubernetes do it. Java, where the members are, has a session of its own."""
    s, host = hosted(rate=0, host={"spark": "local[3]", "conf": {"spark.ui.enabled": "false"}})
    s.generator.send(s.topics[0], 300, partitions=2)
    s.until(lambda: s.submitted() >= 300, "all is submitted")
    os.killpg(host.process.pid, number)
    assert host.process.wait(90) == 0, host.output.read_text()
    assert s.phase is Phase.IDLE
    assert sum(c.rows for c in s.region.checkpoints()) == 300, "the last cut has it all"
    s.until(lambda: not host.living(), "the tasks of the members have ended with Java")


def test_85_second_host_is_refused_by_name_and_the_first_one_takes_its_members_with_it_when_it_is_killed(
    hosted: Hosted,
) -> None:
    """The second one leaves the region as it is."""
    s, host = hosted()
    before, mark = s.region.status().region, s.mark()
    second = Host(s, "second")
    try:
        assert second.process.wait(30) == 1
        said = second.output.read_text()
        assert f"(process {host.process.pid}) already" in said, said
    finally:
        second.end()
    after = s.region.status().region
    assert (after.phase, after.epoch) == (Phase.RUNNING, before.epoch)
    assert not s.events("registered", "reset", "stop", since=mark)
    assert len(host.living()) == 2
    host.process.kill()
    s.until(lambda: not host.living(), "the members have ended", timeout=30)
    s.until(lambda: not [m for m in s.region.status().members if m.status == "LIVE"], "they left", timeout=30)
    s.host.begin()
    s.finish_and_verify()


def test_81_member_that_is_terminated_alone_leaves_and_is_started_again(scenario: Make) -> None:
    s = scenario(members=1, partitions=1, rate=0)
    before = s.incarnation(0)
    s.kill(0, signal.SIGTERM)
    s.await_new(0, before)
    s.settle()
