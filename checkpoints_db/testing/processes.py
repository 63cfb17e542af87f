"""Compliance: several processes on one control plane take turns, hear of each other, and lose nothing when one is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import time
from multiprocessing.process import BaseProcess
from typing import Any

from checkpoints_db import open_store
from checkpoints_db.testing.samples import REGION, eventually, region
from crkafka_core.control import Store, Tx
from crkafka_core.model.rows import Event, Launch

_spawn = multiprocessing.get_context("spawn")
_fork = multiprocessing.get_context("fork")


class ProcessCompliance:
    """Each test gets a store that is empty, and its URL."""

    def test_processes_take_turns(self, store: Store, url: str) -> None:
        store.create(region(), lambda tx: None)
        processes, rounds = 3, 30
        running = [_start(_spawn, _count_up, url, rounds) for _ in range(processes)]
        for process in running:
            process.join(60)
            assert process.exitcode == 0
        assert store.regions()[0].epoch == 1 + processes * rounds
        with store.read(REGION) as reader:
            assert [e.epoch for e in reader.select(Event)] == list(range(1, processes * rounds + 1))

    def test_a_change_by_another_process_wakes_within_milliseconds(self, store: Store, url: str) -> None:
        store.create(region(), lambda tx: None)
        process = _start(_spawn, _change_now_and_then, url, 10)
        took: list[float] = []
        version, deadline = 0, time.monotonic() + 60
        while len(took) < 10 and time.monotonic() < deadline:
            now = store.wait(REGION, version, 5)
            heard = time.time()
            if now != version:
                version = now
                with store.read(REGION) as reader:
                    at = reader.select(Launch)[0].number / 1e6
                took.append(heard - at)
        process.join(30)
        assert len(took) >= 5
        assert statistics.median(took) < 0.06, took

    def test_a_fork_makes_connections_of_its_own(self, store: Store, url: str) -> None:
        store.create(region(), lambda tx: None)
        store.wait(REGION, 5, 0.1)
        child = _fork.Process(target=_use_inherited, args=(store,))
        child.start()
        for _ in range(20):
            store.run(REGION, lambda tx: tx.set_region(epoch=tx.region().epoch + 1))
        child.join(30)
        assert child.exitcode == 0
        assert store.regions()[0].epoch == 1 + 20 + 20
        assert store.wait(REGION, 0, 1) == 40

    def test_a_process_killed_in_a_transaction_leaves_nothing(self, store: Store, url: str) -> None:
        store.create(region(), lambda tx: None)
        ready = _spawn.Event()
        process = _start(_spawn, _hang_in_transaction, url, ready)
        assert ready.wait(30)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(10)
        store.run(REGION, lambda tx: tx.set_region(epoch=tx.region().epoch + 1))
        assert store.regions()[0].epoch == 2
        with store.read(REGION) as reader:
            assert reader.count(Event) == 0

    def test_reads_do_not_wait_for_a_transaction(self, store: Store, url: str) -> None:
        store.create(region(), lambda tx: None)
        ready = _spawn.Event()
        process = _start(_spawn, _hang_in_transaction, url, ready)
        try:
            assert ready.wait(30)
            started = time.monotonic()
            with store.read(REGION) as reader:
                assert reader.count(Event) == 0
            assert store.wait(REGION, 9, 5) == 0
            assert time.monotonic() - started < 1
        finally:
            process.kill()
            process.join(10)

    def test_a_read_is_one_snapshot(self, store: Store, url: str) -> None:
        store.create(region(), lambda tx: None)
        with store.read(REGION) as reader:
            assert reader.count(Event) == 0
            process = _start(_spawn, _count_up, url, 3)
            process.join(60)
            assert process.exitcode == 0
            assert reader.count(Event) == 0
        with store.read(REGION) as reader:
            eventually(lambda: reader.count(Event) == 3, within=1, what="a new snapshot shows it")


def _start(context: Any, target: Any, *args: Any) -> BaseProcess:
    process: BaseProcess = context.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def _count_up(url: str, rounds: int) -> None:
    store = open_store(url)

    def work(tx: Tx) -> None:
        epoch = tx.region().epoch
        tx.add(Event(REGION, tx.count(Event) + 1, tx.now(), "turn", epoch))
        tx.set_region(epoch=epoch + 1)

    for _ in range(rounds):
        store.run(REGION, work)
    store.close()


def _change_now_and_then(url: str, rounds: int) -> None:
    store = open_store(url)
    for _ in range(rounds):
        time.sleep(0.1)
        store.run(REGION, _stamp)
    store.close()


def _stamp(tx: Tx) -> None:
    tx.set_region(epoch=tx.region().epoch + 1)
    tx.put(Launch(REGION, "at", int(time.time() * 1e6)))


def _use_inherited(store: Store) -> None:
    for _ in range(20):
        store.run(REGION, lambda tx: tx.set_region(epoch=tx.region().epoch + 1))
    assert store.wait(REGION, 0, 1) > 0


def _hang_in_transaction(url: str, ready: Any) -> None:
    store = open_store(url)

    def work(tx: Tx) -> None:
        tx.add(Event(REGION, 1, tx.now(), "never", 1))
        tx.set_region(epoch=99)
        tx.count(Event)
        ready.set()
        time.sleep(60)

    store.run(REGION, work)
