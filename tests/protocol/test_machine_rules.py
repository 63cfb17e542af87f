"""Single rules of the member's machine, where events come in an order that Kafka and SQL permit but seldom show (SPEC M9)."""

from __future__ import annotations

from dataclasses import replace

from crkafka_core.model.desired import Desired
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import ClientState, Phase
from crkafka_core.protocol import machine
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.machine import Gate, State

P0, P1 = TP("t", 0), TP("t", 1)
RUNNING = Desired(
    uid="u", version=1, epoch=1, phase=Phase.RUNNING, head=0, registered=True, superseded=False, wanted=True
)


class Machine:
    """A machine and all effects so far."""

    def __init__(self) -> None:
        self.state, self.effects = State(), list[sg.Effect]()

    def hear(self, *events: sg.Event) -> list[sg.Effect]:
        """The effects of these events."""
        new: list[sg.Effect] = []
        for event in events:
            self.state, effects = machine.step(self.state, event)
            new += effects
        self.effects += new
        return new

    def flowing(self) -> Machine:
        """RUNNING, holding P0, records fetched, permits given."""
        self.hear(sg.Lease(True), sg.Observed(RUNNING), sg.Assigned(frozenset({P0}), 1))
        self.hear(sg.Started(self.state.stamp, {P0: 0}, {"t": "id"}), sg.Fetched())
        assert (self.state.gate, self.state.client) == (Gate.OPEN, ClientState.RECORDS_FETCHED)
        return self


def test_r2_an_assignment_without_a_revocation_is_taken_as_one() -> None:
    """FACTS K8: `lost` can fail to come. What was fetched under the old assignment must not go on as if nothing had been."""
    m = Machine().flowing()
    effects = m.hear(sg.Assigned(frozenset({P0, P1}), 2))
    assert any(isinstance(e, sg.Withdraw) and e.wants_reset for e in effects)
    assert not any(isinstance(e, sg.Resolve) for e in effects), "the reset does it"
    assert m.state.client is ClientState.CR_RESET_PENDING
    assert m.state.held == {P0, P1}
    again = m.hear(sg.GateClosed(), sg.Observed(replace(RUNNING, version=2, epoch=2, phase=Phase.RESETTING)))
    assert any(isinstance(e, sg.Resolve) and e.held == {P0, P1} for e in again)


def test_r2_an_idle_member_that_is_assigned_nothing_again_asks_for_no_reset() -> None:
    m = Machine()
    m.hear(sg.Lease(True), sg.Observed(RUNNING), sg.Assigned(frozenset(), 1))
    m.hear(sg.Started(m.state.stamp, {}, {}))
    assert not any(isinstance(e, sg.Withdraw) for e in m.hear(sg.Assigned(frozenset(), 2)))


def test_x2_a_reset_waits_for_the_holder_of_the_permit() -> None:
    m = Machine().flowing()
    effects = m.hear(sg.Observed(replace(RUNNING, version=2, epoch=2, phase=Phase.RESETTING)))
    assert any(isinstance(e, sg.CloseGate) for e in effects)
    assert not any(isinstance(e, sg.Clear | sg.Resolve) for e in effects)
    effects = m.hear(sg.GateClosed())
    assert [type(e) for e in effects][:1] == [sg.Clear]
    assert any(isinstance(e, sg.Resolve) for e in effects)


def test_r7_a_fenced_member_asks_sql_who_is_rightful() -> None:
    m = Machine().flowing()
    assert any(isinstance(e, sg.Refresh) for e in m.hear(sg.Fenced()))
    assert m.state.ended is None
    assert m.state.gate is not Gate.OPEN
    (end,) = [
        e
        for e in m.hear(sg.Observed(replace(RUNNING, version=2, superseded=True, registered=False)))
        if isinstance(e, sg.Exit)
    ]
    assert end.kind is sg.ExitKind.SUPERSEDED
