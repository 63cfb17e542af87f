"""Thirty simulated days of a region: what Dagster keeps stays bounded, and what is done each time costs no more at the end (SPEC A3)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.runs.schema import RunsTable

from dagster_project.names import key_of
from tests.dagster.conftest import LandedSeat, merged_in_sql

pytestmark = pytest.mark.dagster

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


@pytest.mark.parametrize("keys", [{"ui_history": 20}])
def test_thirty_days_leave_the_partitions_of_the_history_and_the_runs_of_two_weeks(landed: LandedSeat) -> None:
    live_through(landed, 2, 5)
    bounded(landed, 2, 20, 5)
