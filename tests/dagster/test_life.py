"""The jobs that start, scale and stop a region, and retire what is old: each in one run, without members (SPEC A1)."""

from __future__ import annotations

import json

import pytest

from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from tests.dagster.conftest import LandedSeat, Seat, failure, shown

pytestmark = pytest.mark.dagster


def test_a_region_is_started_scaled_and_stopped(seat: Seat) -> None:
    assert shown(seat.run("start_region"), "start") == {"phase": "BIRTH", "epoch": 2}
    assert shown(seat.run("scale_region", {"scale": {"members": 3}}), "scale") == {"members": 3}
    said = failure(seat.run("scale_region", {"scale": {"members": 0}}, raise_on_error=False))
    assert said.startswith("A region cannot be scaled to 0 members.") and "stop_region makes it rest" in said
    assert shown(seat.run("stop_region"), "stop") == {"phase": "IDLE", "head": 0}


@pytest.mark.parametrize(
    ("job", "op", "wrong"),
    [
        ("cut", "open_cut", {"patience": -1}),
        ("prune_runs", "prune", {"days": -1}),
        ("prune_runs", "prune", {"limit": 0}),
    ],
)
def test_a_bound_is_told_in_one_sentence(seat: Seat, job: str, op: str, wrong: dict[str, int]) -> None:
    said = failure(seat.run(job, {op: wrong}, raise_on_error=False))
    ((name, value),) = wrong.items()
    assert said.startswith(f"`{name}` is {value}, and cannot be less than")


def test_what_is_older_than_is_kept_is_retired(landed: LandedSeat) -> None:
    landed.landing.land(10, times=4)
    landed.region.plane.do(lambda tx: tx.set_region(limits_json=json.dumps({"retain": 2})))
    done = shown(landed.run("retire_checkpoints"), "retire")
    assert (done["checkpoints"], done["segments"], done["held_by"]) == (2, 4, "nobody")
    kept = landed.region.plane.read(
        lambda r, _: [c.id for c in r.select(Checkpoint) if c.status is CheckpointStatus.MERGED]
    )
    assert sorted(kept) == [3, 4]
