"""The jobs that start, scale, stop and retire, each in one run; what a run's failure shows (SPEC A1, U2); what is opened once."""

from __future__ import annotations

import json
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

import dagster as dg
import pytest

from crkafka_core.config.resolving import remember
from crkafka_core.model.errors import Refused, ServiceUnavailable
from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from dagster_project import opened
from dagster_project.failures import as_dagster_failure
from tests.dagster.conftest import LandedSeat, Seat, failure, shown


@pytest.mark.dagster
def test_a_region_is_started_scaled_and_stopped(seat: Seat) -> None:
    assert shown(seat.run("start_region"), "start") == {"phase": "BIRTH", "epoch": 2}
    assert shown(seat.run("scale_region", {"scale": {"members": 3}}), "scale") == {"members": 3}
    said = failure(seat.run("scale_region", {"scale": {"members": 0}}, raise_on_error=False))
    assert said.startswith("A region cannot be scaled to 0 members.") and "stop_region makes it rest" in said
    assert shown(seat.run("stop_region"), "stop") == {"phase": "IDLE", "head": 0}


@pytest.mark.dagster
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


@pytest.mark.dagster
def test_what_is_older_than_is_kept_is_retired(landed: LandedSeat) -> None:
    landed.landing.land(10, times=4)
    landed.region.plane.do(lambda tx: tx.set_region(limits_json=json.dumps({"retain": 2})))
    done = shown(landed.run("retire_checkpoints"), "retire")
    assert (done["checkpoints"], done["segments"], done["held_by"]) == (2, 4, "nobody")
    kept = landed.region.plane.read(
        lambda r, _: [c.id for c in r.select(Checkpoint) if c.status is CheckpointStatus.MERGED]
    )
    assert sorted(kept) == [3, 4]


CANARY = "canary-in-a-run"


class Stubborn(Exception):
    """Says what it was given whatever its arguments are."""

    def __str__(self) -> str:
        return f"connecting with {CANARY} failed"


def _raised(outer: type[Exception], cause: Exception) -> None:
    try:
        raise cause
    except Exception as error:
        raise outer(f"refused: {CANARY}") from error


@pytest.mark.parametrize("outer", [Refused, ServiceUnavailable, OSError])
@pytest.mark.parametrize("cause", [OSError(5, f"login {CANARY}"), ValueError(CANARY), Stubborn()])
def test_no_error_of_a_run_and_nothing_that_caused_it_shows_a_secret(outer: type[Exception], cause: Exception) -> None:
    remember(CANARY)
    with pytest.raises((dg.Failure, dg.RetryRequested, OSError, RuntimeError)) as raised, as_dagster_failure():
        _raised(outer, cause)
    text = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    assert "***" in text
    # The lines of this file that a traceback quotes are no part of what was raised.
    assert CANARY not in text.replace(f'CANARY = "{CANARY}"', "")


def test_an_error_without_one_stays_what_it_is() -> None:
    error = KeyError("orders")
    with pytest.raises(KeyError) as raised, as_dagster_failure():
        raise error
    assert raised.value is error


def test_a_database_that_does_not_answer_keeps_no_other_region_waiting() -> None:
    """Sensors of all regions of a code location are evaluated in threads of one process."""
    answers, made = threading.Event(), []
    with ThreadPoolExecutor(3) as threads:
        slow = [threads.submit(opened.once, "test", "slow", lambda: answers.wait(20) and made.append(1)) for _ in "ab"]
        try:
            assert threads.submit(opened.once, "test", "other", lambda: "there").result(5) == "there"
        finally:
            answers.set()
        assert [each.result(5) for each in slow] == [None, None] and made == [1]
