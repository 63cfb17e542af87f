"""Processes of a region on real services: two hosts and two drivers, of which one has the right each; and databases that go away."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from crkafka_core.dev.postgres import Postgres
from crkafka_core.dev.processes import process_began
from crkafka_core.model.rows import Lease
from crkafka_core.plane import leases
from tests.rigs.scenario import Scenario

TAKES_OVER = 60.0
"""Seconds within which a process that waits for a right has it, once the other is gone."""
DRIVER = """
import sys
from crkafka_core.config import RegionConfig
from crkafka_core.region import Region
from crkafka_core.region.driver import Driver
from crkafka_core.region.feeder import Feeder
region = Region.open(RegionConfig.from_json(sys.stdin.read()))
region.runtime.start(Feeder(region))
Driver(region, retire_every=10.0).run()
"""
CONFIGURATION = "region.json"
"""What the person who runs the region has written last."""
HOST = Path(__file__).with_name("host_process.py")


class Database(Protocol):
    def away(self, seconds: float, rng: random.Random) -> None: ...


class PostgresAway:
    """Killed or stopped, and started again; or frozen, so that who has asked hears nothing, and then goes on."""

    def __init__(self, server: Postgres) -> None:
        self.server = server

    def away(self, seconds: float, rng: random.Random) -> None:
        rng.choice((self.server.kill, self.server.stop))()
        time.sleep(seconds)
        self.server.start()

    def frozen(self, seconds: float) -> None:
        self.server.pause()
        time.sleep(seconds)
        self.server.resume()


class SqliteLocked:
    """Somebody else holds the file."""

    def __init__(self, url: str) -> None:
        self.path = url.removeprefix("sqlite:///")

    def away(self, seconds: float, rng: random.Random) -> None:
        with contextlib.closing(sqlite3.connect(self.path, timeout=60.0, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")


class Pair:
    """Two processes that want the same right of the region: one of them has it, the other waits for it."""

    def __init__(self, s: Scenario, right: str, start: Callable[[Scenario, int], subprocess.Popen[bytes]]) -> None:
        self.s, self.right, self._start = s, right, start
        self.processes = [start(s, 0), start(s, 1)]

    def replace(self, number: int, by: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes[number]
        process.send_signal(by)
        process.wait()
        self.processes[number] = self._start(self.s, number)

    def lease(self) -> Lease | None:
        return self.s.region.plane.read(lambda reader, row: reader.get(Lease, self.right, ""))

    def holder(self) -> tuple[int, str]:
        """Which of the two has the right, and its token."""
        pids = [process.pid for process in self.processes]

        def there() -> tuple[int, str] | None:
            held = self.s.region.plane.read(lambda reader, _: leases.held(reader, self.right))
            pid = json.loads(held[0].data_json).get("pid") if held else None
            return (pids.index(pid), held[0].token) if pid in pids else None

        number, token = self.s.until(there, f"one of the two has the right: {self.right}", timeout=TAKES_OVER)
        return int(number), str(token)

    def taken_over(self, token: str) -> None:
        """Until somebody has the right that was held by this token."""
        self.s.until(lambda: self.holder()[1] != token, f"it is taken over: {self.right}", timeout=TAKES_OVER)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def driver(s: Scenario, number: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(s.config.to_json().encode())
    process.stdin.close()
    return process


def host(s: Scenario, number: int) -> subprocess.Popen[bytes]:
    """It, and nobody else, starts members; its service manager would start it again."""
    (s.folder / CONFIGURATION).write_text(s.config.to_json())
    logs = s.folder / "logs"
    logs.mkdir(exist_ok=True)
    arguments = [s.folder / CONFIGURATION, logs, s.points.folder]
    with (logs / f"host-{number}.log").open("ab") as log:
        return subprocess.Popen([sys.executable, HOST, *arguments], stdout=log, stderr=log, start_new_session=True)


class Hosted(Scenario):
    """Its members are those of whatever host there is: begin no other."""

    def pids(self) -> dict[str, int]:
        """As they say; a member that has died says nothing."""
        told = {m.name: int(m.metrics.get("pid", 0)) for m in self.region.status().members}
        return {name: pid for name, pid in told.items() if pid and process_began(pid)}
