"""What Dagster keeps of a region stays bounded in thirty simulated days, its partitions among it (SPEC A3)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.runs.schema import RunsTable
from hypothesis import given
from hypothesis import strategies as st

from dagster_project.names import checkpoint_of, key_of
from dagster_project.partitions import reconcile
from tests.dagster.conftest import LandedSeat, merged_in_sql

DAYS, KEPT_DAYS = 30, 14


def run_cuts(seat: LandedSeat, count: int, age: float) -> None:
    """Runs of cuts that ended so many days ago."""
    job = seat.defs.resolve_job_def("orders_cut")
    ids = [
        seat.instance.create_run_for_job(
            job, status=dg.DagsterRunStatus.SUCCESS, tags={"crkafka/region": "orders"}
        ).run_id
        for _ in range(count)
    ]
    storage: Any = seat.instance.run_storage
    created = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=age)
    with storage.connect() as connection:
        connection.execute(RunsTable.update().where(RunsTable.c.run_id.in_(ids)).values(create_timestamp=created))


def live_through(seat: LandedSeat, cuts_a_day: int, step: int) -> list[float]:
    """Thirty days, in steps of so many; the processor time of publishing one more checkpoint, after each."""
    costs, number, cuts = [], 0, cuts_a_day * step
    for day in range(step, DAYS + 1, step):
        merged_in_sql(seat.landing, number + 1, cuts - 1)
        seat.publish()
        merged_in_sql(seat.landing, number + cuts, 1)
        began = time.thread_time()
        seat.tick("publish", cursor=seat.cursor)
        costs.append(time.thread_time() - began)
        number += cuts
        run_cuts(seat, cuts, DAYS - day)
        if day % 10 == 0:
            assert seat.run("prune_runs", {"prune": {"days": KEPT_DAYS + DAYS - day, "limit": 100_000}}).success
    seat.publish()
    return costs


def bounded(seat: LandedSeat, cuts_a_day: int, history: int, step: int) -> None:
    """What is left: partitions of the history, runs of two weeks, and every materialization of a live partition."""
    last = DAYS * cuts_a_day
    live = [key_of(i) for i in range(last - history + 1, last + 1)]
    assert seat.partitions() == live
    kept = sum(step * cuts_a_day for age in range(0, KEPT_DAYS, step))
    assert seat.instance.get_runs_count(dg.RunsFilter(job_name="orders_cut")) == kept
    assert set(live) <= seat.instance.get_materialized_partitions(seat.names.records)


@pytest.mark.dagster
@pytest.mark.parametrize("keys", [{"ui_history": 20}])
def test_thirty_days_leave_the_partitions_of_the_history_and_the_runs_of_two_weeks(landed: LandedSeat) -> None:
    live_through(landed, 2, 5)
    bounded(landed, 2, 20, 5)


def test_keys_sort_as_their_checkpoints() -> None:
    ids = [1, 9, 10, 999, 1_000, 4_941, 2**31, 10**11]
    assert sorted(map(key_of, ids)) == [key_of(i) for i in ids]
    assert [checkpoint_of(key_of(i)) for i in ids] == ids


@pytest.mark.parametrize("key", ["7", "abc", "", "-00000000001", "0000000000001", "00000000001x"])
def test_a_key_that_names_no_checkpoint_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="names no checkpoint"):
        checkpoint_of(key)


def apply(present: list[str], wanted: list[str], chunk: int) -> tuple[list[str], int]:
    """Carry out ticks until none does anything; what is there then, and the number of ticks."""
    for ticks in range(200):
        change = reconcile(present, wanted, chunk=chunk)
        assert len(change.add) + len(change.remove) <= chunk
        if not change.add and not change.remove:
            assert not change.more
            return present, ticks
        present = [k for k in present if k not in change.remove]
        present += [k for k in change.add if k not in present]
    raise AssertionError("it does not come to an end")


@given(st.lists(st.integers(1, 40), unique=True), st.sets(st.integers(1, 40)), st.integers(1, 10))
def test_whatever_is_there_it_becomes_what_is_live_and_in_order(there: list[int], live: set[int], chunk: int) -> None:
    """From the lowest that is there and live: what left the history does not come back."""
    lowest = min(live & set(there), default=0)
    wanted = [key_of(i) for i in sorted(live)]
    assert apply([key_of(i) for i in there], wanted, chunk)[0] == [key_of(i) for i in sorted(live) if i >= lowest]
