"""What follows from each cause of a reset: the table, and the one decision between rest and stop (SPEC X6)."""

from __future__ import annotations

import pytest

from crkafka_core.model.rows import Region, Reset, ResetCause
from crkafka_core.protocol import reset_policy
from crkafka_core.protocol.reset_policy import CHANCE, POLICY, Decision, hindered

NOW = 10_000.0


def decide(
    cause: ResetCause, text: str, member: str, *, recent: int = 0, hindering: int = 0, **counts: int
) -> Decision:
    """After so many resets of the member within the window, and as many of long ago that kept a cut away."""
    late = [Reset("r", epoch, NOW, cause, ran=CHANCE) for epoch in range(1, recent + 1)]
    early = [Reset("r", recent + epoch, 0.0, cause, ran=0.0) for epoch in range(1, hindering + 1)]
    return reset_policy.decide(cause, text, member, Region("r", "u", 0, **counts), [*late, *early], NOW)


def test_x6_every_cause_has_its_policy() -> None:
    assert set(POLICY) == set(ResetCause)


@pytest.mark.parametrize(
    "cause",
    [
        ResetCause.JOIN,
        ResetCause.REBALANCE,
        ResetCause.LEFT,
        ResetCause.LATE,
        ResetCause.UNAVAILABLE,
        ResetCause.OFFSET_GONE,
        ResetCause.PERSON,
    ],
)
def test_x6_what_is_nobodys_failure_never_stops_a_region(cause: ResetCause) -> None:
    assert decide(cause, "x", "orders/0", consecutive=10**6, failing=10**6, recent=100, hindering=100).stop == ""


def test_x6_only_a_person_leads_out_of_stopped() -> None:
    assert {c for c, p in POLICY.items() if p.leaves_stopped} == {
        ResetCause.PERSON,
        ResetCause.START,
        ResetCause.RESTORED,
    }


@pytest.mark.parametrize("cause", [ResetCause.FAILURE, ResetCause.MISMATCH, ResetCause.STUCK])
def test_x6_the_fifth_failure_in_a_row_stops_the_region_with_its_reason(cause: ResetCause) -> None:
    assert decide(cause, "boom", "m", consecutive=3).stop == ""
    assert "5 resets in a row" in decide(cause, "boom", "m", consecutive=4).stop
    assert "boom" in decide(cause, "boom", "m", consecutive=4).stop


def test_x6_a_budget_is_of_a_time_and_of_the_cuts_that_got_no_chance() -> None:
    cause = ResetCause.LOST
    assert decide(cause, "x", "m", recent=19, hindering=9).stop == ""
    assert "20 times in 600 s" in decide(cause, "x", "m", recent=20).stop
    assert "10 times without a completed cut" in decide(cause, "x", "m", hindering=10).stop


def test_x6_outages_back_off_up_to_a_cap_and_losses_do_not() -> None:
    waits = [decide(ResetCause.UNAVAILABLE, "x", "m", failing=n).wait for n in (0, 1, 2, 10, 5_000)]
    assert waits == [2, 4, 8, 60, 60]
    assert decide(ResetCause.LOST, "x", "m", failing=3).wait == 0


def test_x6_failing_counts_what_backs_off_and_is_nobodys_failure() -> None:
    failing = {c: decide(c, "x", "m", failing=3).failing for c in ResetCause}
    assert {c for c, n in failing.items() if n == 4} == {
        ResetCause.UNAVAILABLE,
        ResetCause.OFFSET_GONE,
        ResetCause.LATE,
    }
    assert set(failing.values()) == {3, 4}


def test_x6_who_made_the_region_reset_is_named() -> None:
    stop = decide(ResetCause.LOST, "x", "r/1", recent=20).stop
    assert stop.startswith("r/1 made the region reset 20 times")


def test_x6_what_keeps_a_cut_away() -> None:
    assert hindered(cut=7, ran=1_000.0), "a cut was open"
    assert not hindered(cut=0, ran=1_000.0), "there was time for one"
    assert not hindered(cut=0, ran=CHANCE), "just enough"
    assert hindered(cut=0, ran=1.0), "it dies at once"
