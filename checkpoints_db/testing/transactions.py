"""Compliance: a transaction is whole or nothing, holds its region, and tells that something changed exactly once."""

from __future__ import annotations

import threading
import time

from checkpoints_db.testing.samples import REGION, raises, region, sample
from crkafka_core.control import Store, Tx
from crkafka_core.model.errors import NoSuchRegion
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import Event, Launch, Region


class Boom(Exception):
    """What a piece of work raises."""


class TransactionCompliance:
    """Each test gets a store that is empty."""

    def test_what_work_returns_is_returned(self, store: Store) -> None:
        assert store.create(region(), lambda tx: "made") == "made"
        assert store.run(REGION, lambda tx: {"any": tx.region().name}) == {"any": REGION}

    def test_an_exception_rolls_back_and_is_raised_as_it_is(self, store: Store) -> None:
        def work(tx: Tx) -> None:
            tx.put(sample(Launch, 1))
            tx.add(sample(Launch, 3), sample(Launch, 4))
            tx.delete(Launch, ("name", "=", sample(Launch, 9).name))
            tx.set_region(epoch=9)
            raise boom

        boom = Boom("mine")
        store.create(region(), lambda tx: tx.put(sample(Launch, 9)))
        before = store.regions()
        try:
            store.run(REGION, work)
        except Boom as error:
            assert error is boom
        else:
            raise AssertionError("nothing was raised")
        assert store.regions() == before
        with store.read(REGION) as reader:
            assert reader.select(Launch) == [sample(Launch, 9)]

    def test_a_failed_creation_leaves_no_region(self, store: Store) -> None:
        def work(tx: Tx) -> None:
            tx.put(sample(Launch, 1))
            raise Boom

        with raises(Boom):
            store.create(region(), work)
        assert store.regions() == []
        with store.read(REGION) as reader:
            assert reader.count(Launch) == 0

    def test_an_exit_rolls_back_too(self, store: Store) -> None:
        def work(tx: Tx) -> None:
            tx.set_region(epoch=9)
            raise KeyboardInterrupt

        store.create(region(), lambda tx: None)
        with raises(KeyboardInterrupt):
            store.run(REGION, work)
        assert store.regions()[0].epoch == 1
        store.run(REGION, lambda tx: tx.set_region(epoch=2))

    def test_an_unknown_region_is_named(self, store: Store) -> None:
        called: list[int] = []
        for call in (
            lambda: store.run("nobody's", lambda tx: called.append(1)),
            lambda: store.wait("nobody's", 0, 0.01),
        ):
            try:
                call()
            except NoSuchRegion as error:
                assert "nobody's" in str(error)
            else:
                raise AssertionError("nothing was raised")
        assert not called

    def test_a_transaction_reads_its_own_writes(self, store: Store) -> None:
        def work(tx: Tx) -> None:
            tx.put(sample(Launch, 1), sample(Launch, 2))
            assert tx.count(Launch) == 2
            tx.delete(Launch, ("name", "=", sample(Launch, 1).name))
            assert tx.select(Launch) == [sample(Launch, 2)]
            tx.set_region(phase=Phase.BIRTH, wanted=Wanted.RUN, born=True)
            assert tx.region().phase is Phase.BIRTH
            assert tx.get(Region) == tx.region()
            tx.set_region(epoch=5)
            assert tx.select(Region) == [tx.region()]
            assert tx.count(Region, ("epoch", "=", 5)) == 1
            tx.set_region(epoch=6)

        store.create(region(), work)
        stored = store.regions()[0]
        assert (stored.phase, stored.wanted, stored.born, stored.epoch) == (Phase.BIRTH, Wanted.RUN, True, 6)

    def test_the_version_rises_once_per_transaction_that_changes_the_region(self, store: Store) -> None:
        def version() -> int:
            return store.regions()[0].version

        store.create(region(), lambda tx: None)
        assert version() == 0
        store.run(REGION, lambda tx: tx.region())
        assert version() == 0
        store.run(REGION, lambda tx: [tx.set_region(epoch=tx.region().epoch + 1) for _ in range(5)])
        assert version() == 1
        store.run(REGION, lambda tx: (tx.set_region(epoch=6), tx.get(Region), tx.set_region(epoch=9)))
        assert version() == 2
        store.run(REGION, lambda tx: tx.set_region(epoch=9))
        assert version() == 2, "nothing changed"
        store.run(REGION, lambda tx: tx.put(sample(Launch, 1)))
        assert version() == 2, "the region's row was not touched"
        store.run(REGION, lambda tx: tx.set_region())
        assert version() == 3, "without changes it says: look again"
        assert store.run(REGION, lambda tx: tx.set_region(epoch=10)).version == 4

    def test_name_and_version_cannot_be_set(self, store: Store) -> None:
        store.create(region(), lambda tx: None)
        with raises(TypeError):
            store.run(REGION, lambda tx: tx.set_region(version=9))
        with raises(TypeError):
            store.run(REGION, lambda tx: tx.set_region(name="other"))
        with raises(TypeError):
            store.run(REGION, lambda tx: tx.put(region()))

    def test_rows_of_another_region_are_refused(self, store: Store) -> None:
        store.create(region(), lambda tx: None)
        with raises(ValueError):
            store.run(REGION, lambda tx: tx.put(Launch("other", "m", 1)))
        with raises(ValueError):
            store.run(REGION, lambda tx: tx.add(sample(Launch, 1), Launch("other", "m", 1)))

    def test_a_region_can_be_deleted_by_its_own_transaction(self, store: Store) -> None:
        def work(tx: Tx) -> None:
            tx.set_region(epoch=2)
            tx.delete(Launch)
            assert tx.delete(Region) == 1

        store.create(region(), lambda tx: tx.put(sample(Launch, 1)))
        store.run(REGION, work)
        assert store.regions() == []
        with raises(NoSuchRegion):
            store.run(REGION, lambda tx: None)

    def test_no_transaction_inside_another(self, store: Store) -> None:
        store.create(region(), lambda tx: None)
        with raises(RuntimeError):
            store.run(REGION, lambda tx: store.run(REGION, lambda inner: None))
        store.run(REGION, lambda tx: tx.set_region(epoch=2))

    def test_threads_take_turns(self, store: Store) -> None:
        """Read, pause, write: without the lock, increments are lost."""
        threads, rounds = 4, 8
        errors: list[BaseException] = []

        def work(tx: Tx) -> None:
            epoch = tx.region().epoch
            seen = tx.count(Event)
            time.sleep(0.002)
            tx.add(Event(REGION, seen + 1, tx.now(), "turn", epoch))
            tx.set_region(epoch=epoch + 1)

        def loop() -> None:
            try:
                for _ in range(rounds):
                    store.run(REGION, work)
            except BaseException as error:
                errors.append(error)

        store.create(region(), lambda tx: None)
        running = [threading.Thread(target=loop) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(60)
        assert not errors, errors
        assert store.regions()[0].epoch == 1 + threads * rounds
        with store.read(REGION) as reader:
            assert [e.epoch for e in reader.select(Event)] == list(range(1, threads * rounds + 1))

    def test_database_time_goes_on(self, store: Store) -> None:
        store.create(region(), lambda tx: None)
        with store.read(REGION) as reader:
            first = reader.now()
            time.sleep(0.05)
            assert first + 0.03 <= reader.now() <= first + 5
        assert abs(first - time.time()) < 5
        assert isinstance(first, float)

    def test_time_stands_still_in_a_transaction(self, store: Store) -> None:
        def work(tx: Tx) -> tuple[float, float]:
            first = tx.now()
            time.sleep(0.01)
            return first, tx.now()

        store.create(region(), lambda tx: None)
        first, second = store.run(REGION, work)
        assert first == second
