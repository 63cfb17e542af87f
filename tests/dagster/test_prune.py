"""What the region's jobs leave in Dagster is removed; what somebody still needs is not (SPEC A3)."""

from __future__ import annotations

import dagster as dg
import pytest

from tests.dagster.conftest import LandedSeat

pytestmark = pytest.mark.dagster


def test_old_runs_that_materialize_nothing_are_removed_and_nothing_else(landed: LandedSeat) -> None:
    landed.landing.land(1)
    landed.publish()

    def run(job: str, status: dg.DagsterRunStatus, tags: dict[str, str] | None = None) -> str:
        made = landed.defs.resolve_job_def(f"orders_{job}")
        return landed.instance.create_run_for_job(made, status=status, tags=tags or {"crkafka/region": "orders"}).run_id

    ended, failed, going = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED
    old = [run("cut", ended) for _ in range(3)]
    kept = [run("cut", failed), run("cut", going), run("reset_region", ended), run("replay", ended)]
    other = run("cut", ended, {"crkafka/region": "another"})  # of another code location, with a job of this name
    newest = run("observe_group", ended)
    assert landed.run("prune_runs", {"prune": {"days": 0, "limit": 2}}).success
    there = {r.run_id for r in landed.instance.get_runs()}
    assert len(there & set(old)) == 1 and {*kept, other, newest} <= there
    assert landed.run("prune_runs", {"prune": {"days": 0}}).success
    there = {r.run_id for r in landed.instance.get_runs()}
    assert not there & set(old) and {*kept, other, newest} <= there
    assert len(landed.instance.fetch_materializations(landed.names.records, limit=10).records) == 1
    assert landed.run("prune_runs", {"prune": {"days": 0, "failures": 0}}).success
    assert kept[0] not in {r.run_id for r in landed.instance.get_runs()}
