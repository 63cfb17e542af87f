"""Compliance: who waits for a region hears of a change within milliseconds."""

from __future__ import annotations

import statistics
import threading
import time

from checkpoints_db.testing.samples import REGION, region, sample
from crkafka_core.control import Store
from crkafka_core.model.rows import Launch


class WaitCompliance:
    """Each test gets a store that is empty."""

    def test_a_version_that_differs_is_returned_at_once(self, store: Store) -> None:
        store.create(region(), lambda tx: tx.set_region(epoch=2))
        started = time.monotonic()
        assert store.wait(REGION, 0, 5) == 1
        assert store.wait(REGION, 7, 5) == 1
        assert time.monotonic() - started < 1

    def test_no_change_is_waited_out(self, store: Store) -> None:
        store.create(region(), lambda tx: None)
        store.wait(REGION, 5, 1)
        started = time.monotonic()
        assert store.wait(REGION, 0, 0.3) == 0
        assert 0.25 <= time.monotonic() - started < 1

    def test_a_change_wakes_within_milliseconds(self, store: Store) -> None:
        store.create(region(), lambda tx: None)
        took = [self._wake(store) for _ in range(10)]
        assert statistics.median(took) < 0.05, took

    def test_a_change_of_another_region_does_not_end_the_wait(self, store: Store) -> None:
        store.create(region(), lambda tx: None)
        store.create(region("other"), lambda tx: None)
        stop = threading.Event()

        def disturb() -> None:
            while not stop.is_set():
                store.run("other", lambda tx: tx.set_region(epoch=tx.region().epoch + 1))
                store.run(REGION, lambda tx: tx.put(sample(Launch, 1)))
                time.sleep(0.005)

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline:
                assert store.wait(REGION, 0, max(0.0, deadline - time.monotonic())) == 0
        finally:
            stop.set()
            thread.join(10)

    def test_many_wait_and_all_hear(self, store: Store) -> None:
        store.create(region(), lambda tx: None)
        heard: list[int] = []

        def wait() -> None:
            version, deadline = 0, time.monotonic() + 10
            while version == 0 and time.monotonic() < deadline:
                version = store.wait(REGION, 0, 10)
            heard.append(version)

        threads = [threading.Thread(target=wait) for _ in range(10)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        store.run(REGION, lambda tx: tx.set_region(epoch=2))
        for thread in threads:
            thread.join(15)
        assert heard == [1] * 10

    @staticmethod
    def _wake(store: Store) -> float:
        """Seconds from the commit until the waiter has the new version."""
        before = store.regions()[0].version
        woken: list[float] = []

        def wait() -> None:
            deadline = time.monotonic() + 5
            while store.wait(REGION, before, 5) == before and time.monotonic() < deadline:
                pass
            woken.append(time.monotonic())

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.02)
        store.run(REGION, lambda tx: tx.set_region(epoch=tx.region().epoch + 1))
        done = time.monotonic()
        thread.join(10)
        return woken[0] - done
