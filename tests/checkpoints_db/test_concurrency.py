"""Real processes on one control plane: 8 members, 2 drivers, a retirer, a reader that checks, and somebody who kills them."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from checkpoints_db import SqlStore, initialise, open_store
from checkpoints_db.address import parse
from checkpoints_db.retry import Patience
from checkpoints_db.testing.samples import REGION, region
from crkafka_core.control import Tx
from crkafka_core.model.errors import LeaseHeld, LeaseLost, Refused, ServiceUnavailable, WrongRegion
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Lease
from crkafka_core.plane import advance, cuts, leases, life, members, retire
from crkafka_core.plane.transact import ControlPlane
from tests.rigs.invariants import Invariants
from tests.rigs.players import PARTITIONS, Player, new_region

NAME = "crowd"
MEMBERS = 8
ORPHANED = 900.0
"""Seconds after which processes end by themselves, if the test is gone."""
_fork = multiprocessing.get_context("fork")


def test_a_crowd_keeps_the_invariants(new_url: str) -> None:
    _crowd(new_url, kills=6, merges=4)


@pytest.mark.soak
def test_a_crowd_keeps_the_invariants_for_a_minute(new_url: str) -> None:
    _crowd(new_url, kills=120, merges=30)


@pytest.mark.postgres
def test_of_two_regions_that_bind_a_group_at_once_the_second_is_refused(new_postgresql_url: str) -> None:
    """SPEC G1: neither saw the other's row when it looked."""
    store, inserts = open_store(new_postgresql_url), list[str]()
    for name in ("first", "second"):
        life.declare(store, new_region(name, members_wanted=1))
        store.run(name, lambda tx: life.start(tx, by="test"))
    refused: list[BaseException] = []

    def register(name: str) -> None:
        who = members.Registration(f"{name}/0", name, 1, 1, "cluster", "shared", host="h")
        try:
            ControlPlane(store, name).do(lambda tx: members.register(tx, who))
        except BaseException as error:
            refused.append(error)

    second = threading.Thread(target=register, args=("second",))

    def meanwhile(statement: str) -> None:
        if statement.startswith("INSERT INTO consumer_group"):
            inserts.append(statement)
        if statement == "commit" and not second.ident:
            second.start()
            deadline = time.monotonic() + 20
            while len(inserts) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.2)  # the second one waits for the first one's row

    store.on_statement = meanwhile
    register("first")
    second.join(20)
    store.close()
    assert [type(error) for error in refused] == [WrongRegion], refused
    assert "belongs to region first" in str(refused[0])


def _crowd(url: str, *, kills: int, merges: int) -> None:
    """However slow the machine is: only the test's own limit ends it early."""
    store = open_store(url)
    life.declare(store, new_region(NAME, members_wanted=MEMBERS, retain=3, driver_lease=2.0))
    store.run(NAME, lambda tx: life.start(tx, by="test"))
    store.close()
    until, errors = _fork.RawValue("d", time.time() + ORPHANED), _fork.Queue()
    jobs: dict[str, tuple[Callable[..., None], int]] = {f"member {n}": (_member, n) for n in range(MEMBERS)}
    jobs |= {"driver 0": (_driver, 0), "driver 1": (_driver, 1), "retirer": (_retirer, 0), "reader": (_reader, 0)}
    running = {name: _start(name, url, until, errors, *jobs[name]) for name in jobs}
    chance = random.Random(11)
    try:
        for _ in range(kills):
            time.sleep(0.5)
            victim = chance.choice([name for name in jobs if name != "reader"])
            pid = running[victim].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            running[victim].join(10)
            running[victim] = _start(victim, url, until, errors, *jobs[victim])
        while _merged(url) < merges and errors.empty():
            time.sleep(0.2)
        until.value = 0.0
        for name, process in running.items():
            process.join(60)
            assert process.exitcode == 0, (name, process.exitcode, None if errors.empty() else errors.get())
    finally:
        for process in running.values():
            if process.is_alive():
                process.kill()
    assert errors.empty(), errors.get()
    store = open_store(url)
    Invariants(NAME).check_store(store)
    store.close()


def _merged(url: str) -> int:
    store = open_store(url)
    with store.read(NAME) as reader:
        done = (CheckpointStatus.MERGED, CheckpointStatus.RETIRED)
        number = sum(c.status in done for c in reader.select(Checkpoint))
    store.close()
    return number


def _start(name: str, url: str, until: Any, errors: Any, job: Callable[..., None], number: int) -> BaseProcess:
    def run() -> None:
        try:
            job(url, until, number)
        except BaseException:
            errors.put(f"{name}: {traceback.format_exc()}")
            raise

    process = _fork.Process(target=run, daemon=True)
    process.start()
    return process


def _member(url: str, until: Any, number: int) -> None:
    """Obeys; whatever is refused, it asks again."""
    store = open_store(url)
    player = Player(ControlPlane(store, NAME), f"{NAME}/{number}")
    player.assign(1, [tp for at, tp in enumerate(PARTITIONS) if at % MEMBERS == number])
    version = 0
    while time.time() < until.value:
        try:
            did = player.step()
        except Refused:
            did = "refused"
        if did in ("waits", "submitted", "refused", "not wanted"):
            version = store.wait(NAME, version, 0.05)


def _driver(url: str, until: Any, number: int) -> None:
    """Cuts while it holds the lease; the other one is refused, with the holder named."""
    plane = ControlPlane(open_store(url), NAME)
    token, cut = f"driver {number} {os.getpid()}", 0
    while time.time() < until.value:
        try:
            lease = plane.do(lambda tx: leases.take(tx, "driver", holder=token, token=token, length=1.0))
            phase = plane.do(lambda tx, lease=lease: _advance(tx, lease))  # type: ignore[misc]
            if phase is Phase.RUNNING:
                cut += 1
                plane.do(lambda tx, cut=cut: cuts.open_cut(tx, token=f"{token} {cut}", cause="test"))  # type: ignore[misc]
        except (LeaseHeld, LeaseLost) as held:
            assert "driver" in str(held)
            time.sleep(0.1)
        except Refused:
            pass
        time.sleep(0.02)


def _advance(tx: Tx, lease: Lease) -> Phase:
    leases.check(tx, lease)
    return advance.advance(tx)


def _retirer(url: str, until: Any, number: int) -> None:
    plane = ControlPlane(open_store(url), NAME)
    while time.time() < until.value:
        plane.do(lambda tx: retire.retire(tx, retire.plan(tx, tx.region()).retire))
        time.sleep(0.1)


def _reader(url: str, until: Any, number: int) -> None:
    """Checks one snapshot after another, against each other too."""
    store, invariants = open_store(url), Invariants(NAME)
    while time.time() < until.value:
        invariants.check_store(store)
        time.sleep(0.02)


FREEZE = textwrap.dedent("""
    import os, signal, sys
    from checkpoints_db import open_store
    open_store(sys.argv[1]).run(sys.argv[2], lambda tx: (tx.set_region(reset_cause="x"), os.kill(os.getpid(), signal.SIGSTOP)))
""")


def test_writers_wait_for_a_stopped_process_and_go_on_when_it_has_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/control.db"
    initialise(url)
    with closing(SqlStore(parse(url), patience=Patience(bound=0.5))) as store:
        store.create(region(), lambda tx: None)
        frozen = subprocess.Popen([sys.executable, "-c", FREEZE, url, REGION])
        try:
            while Path(f"/proc/{frozen.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.05)
            with store.read(REGION) as reader:
                assert reader.now() > 0, "reading goes on"
            with pytest.raises(ServiceUnavailable, match=r"held by another process .*fuser .*control\.db"):
                store.run(REGION, lambda tx: tx.set_region(reset_cause="y"))
        finally:
            os.kill(frozen.pid, signal.SIGKILL)
            frozen.wait()
        assert store.run(REGION, lambda tx: tx.set_region(reset_cause="y")).reset_cause == "y"
