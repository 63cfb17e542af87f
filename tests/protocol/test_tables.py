"""The transition tables as data: of the client (SPEC M6) and of the region (SPEC G9)."""

from __future__ import annotations

import pytest

from crkafka_core.model.phase import CLIENT, TRANSITIONS, UNSETTLED, ClientEvent, ClientState, Phase

S, E = ClientState, ClientEvent
EXPECTED = {
    S.INITIALIZED: {E.SUBSCRIBE: S.SUBSCRIBED},
    S.SUBSCRIBED: {E.FETCH: S.RECORDS_FETCHED, E.REVOKE: S.SUBSCRIBED, E.RESET: S.RESET_COMPLETE},
    S.RECORDS_FETCHED: {E.FETCH: S.RECORDS_FETCHED, E.REVOKE: S.CR_RESET_PENDING, E.RESET: S.RESET_COMPLETE},
    S.CR_RESET_PENDING: {E.REVOKE: S.CR_RESET_PENDING, E.RESET: S.RESET_COMPLETE},
    S.RESET_COMPLETE: {E.FETCH: S.RECORDS_FETCHED, E.REVOKE: S.RESET_COMPLETE, E.RESET: S.RESET_COMPLETE},
}


@pytest.mark.parametrize("state", list(ClientState))
@pytest.mark.parametrize("event", list(ClientEvent))
def test_M6_the_client_goes_where_the_table_says(state: ClientState, event: ClientEvent) -> None:
    assert CLIENT.get((state, event)) == EXPECTED[state].get(event)


@pytest.mark.parametrize("state", [S.SUBSCRIBED, S.RESET_COMPLETE])
def test_R2_a_revocation_before_anything_was_fetched_is_ignored(state: ClientState) -> None:
    assert CLIENT[state, E.REVOKE] is state


def test_M6_every_state_is_reached_and_a_reset_leads_out_of_each_that_may_be_revoked() -> None:
    assert {to for (_, _), to in CLIENT.items()} | {S.INITIALIZED} == set(ClientState)
    for (state, event), _ in CLIENT.items():
        if event is E.REVOKE:
            assert CLIENT[state, E.RESET] is S.RESET_COMPLETE


def test_G9_running_is_entered_only_by_merge_or_resume() -> None:
    assert {phase for phase, to in TRANSITIONS.items() if Phase.RUNNING in to} == {
        Phase.BIRTH,
        Phase.CUTTING,
        Phase.RESETTING,
    }


def test_G9_only_running_is_cut_and_every_phase_can_be_stopped_or_left() -> None:
    assert {phase for phase, to in TRANSITIONS.items() if Phase.CUTTING in to} == {Phase.RUNNING}
    assert set(TRANSITIONS) == set(Phase)
    for phase in set(Phase) - {Phase.IDLE, Phase.STOPPED}:
        assert {Phase.STOPPED, Phase.IDLE} <= TRANSITIONS[phase]
    assert Phase.RUNNING not in TRANSITIONS[Phase.STOPPED] | TRANSITIONS[Phase.IDLE] | TRANSITIONS[Phase.REWINDING]
    assert {Phase.BIRTH, Phase.RESETTING, Phase.REWINDING} == UNSETTLED
