"""Random faults on real processes, a real Kafka of three nodes and a real PostgreSQL, with the oracle after each of them (FAULTS)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.postgres import Postgres
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Lease
from crkafka_core.testing import failpoints as fp
from crkafka_core.testing.pytest_scenarios import Lasting
from crkafka_core.testing.scenario import Scenario
from tests.soak.conftest import SECONDS, SEED

pytestmark = [pytest.mark.soak, pytest.mark.kafka, pytest.mark.timeout(SECONDS + 600)]
MEMBERS = 3
SETTLES = 90.0
"""Seconds within which a checkpoint is merged once the fault is over (I10)."""
DRIVER = """
import sys
from crkafka_core.config import RegionConfig
from crkafka_core.region import Region
from crkafka_core.region.driver import Driver
Driver(Region.open(RegionConfig.from_json(sys.stdin.read())), retire_every=10.0).run()
"""


class Drivers:
    """Two processes that want to drive the region; one of them has the lease, the other waits for it."""

    def __init__(self, s: Scenario) -> None:
        self.s = s
        self.processes = [self._start(), self._start()]

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdin is not None
        process.stdin.write(self.s.config.to_json().encode())
        process.stdin.close()
        return process

    def lease(self) -> Lease | None:
        return self.s.region.plane.read(lambda reader, row: reader.get(Lease, row.name, "driver", ""))

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


class Faults:
    """Each method is one fault, from its beginning to its end; its name tells its number in FAULTS."""

    def __init__(self, s: Scenario, drivers: Drivers, postgres: Postgres, rng: random.Random) -> None:
        self.s, self.drivers, self.postgres, self.rng = s, drivers, postgres, rng

    def f1_kill_a_member(self) -> None:
        self.s.kill(self.rng.randrange(MEMBERS))

    def f8_driver_sleeps_past_its_lease(self) -> None:
        """Which of the two has it, nobody can see from outside: both are frozen in turn, so one of them was it."""
        for process in self.drivers.processes:
            before = self.drivers.lease()
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(self.rng.uniform(3.5, 5.0))
            os.kill(process.pid, signal.SIGCONT)
            after = self.drivers.lease()
            assert before is None or after is None or after.number >= before.number

    def f9_member_frozen_past_its_session(self) -> None:
        self.s.stop_for(self.rng.randrange(MEMBERS), self.s.session + self.rng.uniform(0.5, 4.0))

    def f14_rebalances_during_a_reset(self) -> None:
        self.s.region.reset(cause="fault 14")
        for _ in range(self.rng.randint(1, 3)):
            with self.s.stranger():
                time.sleep(self.rng.uniform(0.2, 1.5))

    def f23_partition_leader_down(self) -> None:
        leaders = sorted(set(self.s.kafka.topics.leaders(self.s.topics[0]).values()))
        self._node_down(self.rng.choice(leaders))

    def f24_coordinator_down(self) -> None:
        self._node_down(self.s.region.admin().describe_group(self.s.config.group_id).coordinator.id)

    def _node_down(self, node: int) -> None:
        self.s.kafka.kill(node)
        time.sleep(self.rng.uniform(1.0, 8.0))
        self.s.kafka.start_node(node)

    def f37_control_plane_away(self) -> None:
        end = self.rng.choice((self.postgres.kill, self.postgres.stop))
        if self.rng.random() < 0.5:  # in the middle of a cut
            self.s.until(lambda: self.s.phase is not Phase.RUNNING, "a cut is open")
        end()
        time.sleep(self.rng.choice((0.0, 1.0, self.rng.uniform(2.0, 15.0))))
        self.postgres.start()

    def f43_member_cut_off_from_sql(self) -> None:
        member = self.s.member(self.rng.randrange(MEMBERS))
        self.s.points.set(member, fp.SQL, "down")
        time.sleep(self.rng.uniform(1.0, self.s.session + 6.0))
        self.s.points.clear(member, fp.SQL)

    def all(self) -> dict[str, Callable[[], None]]:
        return {name: getattr(self, name) for name in sorted(dir(self)) if name.startswith("f") and name[1].isdigit()}


@pytest.fixture
def region(
    kafka3: KafkaCluster, postgres: Postgres, tmp_path: Path, lasting: Lasting
) -> Iterator[tuple[Scenario, Drivers]]:
    lasting.drop()
    s = Scenario(
        kafka3, tmp_path, members=MEMBERS, partitions=6, replication=3, session=8.0, rate=300, producer_timeout=180.0,
        url=postgres.url(f"soak_{SEED}"), trigger={"period": 2.0}, retain=50, static_membership=bool(SEED % 2),
        forced_budget=1_000, forced_without_cut=100,
    )  # fmt: skip
    with s:
        drivers = Drivers(s)
        try:
            yield s, drivers
        finally:
            drivers.end()


def test_random_faults_for_a_while_break_no_invariant(
    region: tuple[Scenario, Drivers], postgres: Postgres, capsys: pytest.CaptureFixture[str]
) -> None:
    """FAULTS, the soak: 1, 8, 9, 14, 23, 24, 37, 43, one or two at a time; after each a checkpoint (I10), and every invariant."""
    s, drivers = region
    rng = random.Random(SEED)
    faults = Faults(s, drivers, postgres, rng)
    done: dict[str, int] = {}
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for name in rng.sample(sorted(faults.all()), rng.choice((1, 1, 2))):
            done[name] = done.get(name, 0) + 1
            _say(capsys, f"seed {SEED}, {end - time.monotonic():.0f} s left: {name}")
            faults.all()[name]()
        began = time.monotonic()
        _recovers(s)
        verdict = s.verify()
        _say(
            capsys,
            f"  recovered and verified in {time.monotonic() - began:.1f} s: head {verdict.head}, {verdict.rows} rows",
        )
    drivers.end()
    verdict = s.finish_and_verify()
    _say(capsys, f"seed {SEED}: {done}; {verdict}")
    assert sum(done.values()) >= SECONDS / 120


def _recovers(s: Scenario) -> None:
    """A checkpoint that was opened after the fault is merged, by whichever driver, and all members are there again."""
    s.points.clear_all()
    s.wake()
    s.settle(timeout=SETTLES)
    opened = max((e.checkpoint for e in s.events("cut opened")), default=0)
    s.wait_head(opened + 1, timeout=SETTLES)


def _say(capsys: pytest.CaptureFixture[str], words: str) -> None:
    """What goes on is seen at once; half an hour of silence would tell nothing."""
    with capsys.disabled(), contextlib.suppress(BrokenPipeError):
        print(words, flush=True)
