"""What grows with each cut or rebalance ends a process that runs for months: 200 cuts, 30 rebalances, and nothing has grown."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rigs.scenario import Scenario

Make = Callable[..., Scenario]
WARM_CUTS, CUTS, REBALANCES = 30, 200, 30
LOOKS = 40
"""At what is open: the least counts, since a segment and its folder are open only at times."""
MORE_MEMORY = 25.0
"""Mebibytes: below what one object of a kilobyte per record would leave, above what an allocator keeps."""


@dataclass(frozen=True)
class Size:
    """Of one process, as the kernel counts."""

    threads: int
    files: int
    mib: float

    @classmethod
    def of(cls, pid: int) -> Size:
        said = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return cls(int(said["Threads"]), min(_files(pid) for _ in range(LOOKS)), int(said["VmRSS"].split()[0]) / 1024)


def _files(pid: int) -> int:
    time.sleep(0.05)
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _rebalance(s: Scenario) -> None:
    with s.stranger():
        s.until(lambda: len(s.held()) < 4, "the group rebalances")
    s.settle()


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_200_cuts_and_30_rebalances_leave_threads_files_and_memory_as_they_were(scenario: Make) -> None:
    """Measured after a first part of the same, in which pools and caches fill."""
    s = scenario(rate=500, session=8.0, forced_budget=1_000, retain=20)
    pids = s.host.pids()
    for _ in range(5):
        _rebalance(s)
    for _ in range(WARM_CUTS):
        s.cut_soon()
    before = {name: Size.of(pid) for name, pid in pids.items()}
    for number in range(CUTS):
        if number % (CUTS // REBALANCES) == 0:
            _rebalance(s)
        s.cut_soon()
        if number % 50 == 0:
            s.region.retire()
    after = {name: Size.of(pid) for name, pid in s.host.pids().items()}
    assert s.host.pids() == pids, "nobody was restarted"
    for name, size in after.items():
        print(name, before[name], size)
        assert size.threads <= before[name].threads + 1, (before, after)
        assert size.files <= before[name].files + 2, (before, after)
        assert size.mib <= before[name].mib + MORE_MEMORY, (before, after)
    s.finish_and_verify()
