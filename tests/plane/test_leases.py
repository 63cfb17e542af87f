"""Leases: one driver at a time, void once it has slept past its end (SPEC A6, T1; faults 7, 8)."""

from __future__ import annotations

import pytest

from crkafka_core.model.errors import LeaseHeld, LeaseLost
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Lease
from crkafka_core.plane import cuts, leases
from tests.plane.conftest import Kit


def test_7_second_driver_is_refused_with_the_holder_named(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: leases.take(tx, "driver", holder="run 1", token="a", length=30.0))
    with pytest.raises(LeaseHeld, match="run 1"):
        kit.do(lambda tx: leases.take(tx, "driver", holder="run 2", token="b", length=30.0))
    assert kit.row.phase is Phase.RUNNING


def test_8_driver_that_slept_past_its_lease_cannot_go_on(kit: Kit) -> None:
    kit.running()
    first = kit.do(lambda tx: leases.take(tx, "driver", holder="run 1", token="a", length=30.0))
    kit.now += 31.0
    second = kit.do(lambda tx: leases.take(tx, "driver", holder="run 2", token="b", length=30.0))
    assert second.number > first.number
    for act in (lambda tx: leases.renew(tx, first, 30.0), lambda tx: leases.check(tx, first)):
        with pytest.raises(LeaseLost, match="run 2"):
            kit.do(act)
    kit.do(lambda tx: leases.release(tx, first))
    kit.do(lambda tx: leases.check(tx, second))


def test_7_a_lease_is_over_at_its_end_and_numbers_only_grow(kit: Kit) -> None:
    first = kit.do(lambda tx: leases.take(tx, "driver", holder="run 1", token="a", length=30.0))
    kit.now = first.until
    second = kit.do(lambda tx: leases.take(tx, "driver", holder="run 2", token="b", length=30.0))
    kit.do(lambda tx: leases.release(tx, second))
    third = kit.do(lambda tx: leases.take(tx, "driver", holder="run 3", token="c", length=30.0))
    assert [lease.number for lease in (first, second, third)] == [1, 2, 3]


def test_a6_a_run_whose_retry_has_taken_over_ends_nothing_of_the_retrys(kit: Kit) -> None:
    """A run and its retry have one token; the older one may have been taken for dead, and come to its end later."""
    first = kit.do(lambda tx: leases.take(tx, "host", holder="run 1", token="a", length=30.0))
    retry = kit.do(lambda tx: leases.take(tx, "host", holder="run 1", token="a", length=30.0))
    kit.do(lambda tx: leases.release(tx, first))
    assert kit.read(lambda reader, row: leases.held(reader, "host")) == [retry]
    with pytest.raises(LeaseLost):
        kit.do(lambda tx: leases.renew(tx, first, 30.0))


def test_t1_the_row_of_a_readers_lease_goes_with_it(kit: Kit) -> None:
    lease = kit.do(lambda tx: leases.take(tx, "reader", holder="x", token="a", length=30.0, slot="a"))
    kit.do(lambda tx: leases.release(tx, lease))
    assert kit.read(lambda reader, row: reader.get(Lease, "reader", "a")) is None


def test_8_a_driver_that_slept_past_its_lease_opens_no_cut(kit: Kit) -> None:
    kit.running()
    first = kit.do(lambda tx: leases.take(tx, "driver", holder="run 1", token="a", length=30.0))
    kit.now += 31.0
    second = kit.do(lambda tx: leases.take(tx, "driver", holder="run 2", token="b", length=30.0))
    with pytest.raises(LeaseLost, match="run 2"):
        kit.do(lambda tx: cuts.open_cut(tx, token="late", cause="due", lease=first))
    assert kit.row.phase is Phase.RUNNING
    assert kit.do(lambda tx: cuts.open_cut(tx, token="ours", cause="due", lease=second)).id == kit.row.open_cut
