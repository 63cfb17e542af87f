"""The member's decisions as one pure state machine: (state, event) → (state, effects). No clock, thread, client or SQL (SPEC M9).

`step` takes in one event and then lets `_decide` compare what is with what is desired (level, not edge): a member that missed any
number of changes does the right next thing all the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crkafka_core.model.desired import Desired
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import CLIENT, ClientEvent, ClientState, Phase
from crkafka_core.model.rows import ResetCause
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.signals import ExitKind, Outcome, Stamp
from crkafka_core.protocol.state import IN_NO_CUT, NOWHERE, Gate, State, Step


def step(state: State, event: sg.Event) -> tuple[State, list[sg.Effect]]:
    if state.ended is not None:
        return state, []
    m = _Member(state)
    m.hear(event)
    m.decide()
    return m.s, m.effects


class _Member:
    """One step in the making."""

    def __init__(self, state: State) -> None:
        self.s = state
        self.effects: list[sg.Effect] = []
        self.observed_now = False
        """This step brought a fresh look at SQL."""

    def set(self, **changes: Any) -> None:
        """As `dataclasses.replace`, which sets all fields one by one: that was a third of a step."""
        assert changes.keys() <= vars(self.s).keys()
        changed = object.__new__(State)
        vars(changed).update(vars(self.s), **changes)
        self.s = changed

    def do(self, effect: sg.Effect) -> None:
        self.effects.append(effect)

    def end(self, kind: ExitKind, why: str) -> None:
        if self.s.ended is None:
            self.set(ended=kind)
            self.do(sg.Exit(kind, why))

    def client(self, event: ClientEvent) -> None:
        self.set(client=CLIENT[self.s.client, event])

    # What happened

    def hear(self, event: sg.Event) -> None:
        s = self.s
        match event:
            case sg.Observed(desired):
                self.observed(desired)
            case sg.Assigned(held, generation):
                self.assigned(held, generation)
            case sg.Revoked(why):
                self.revoked(why)
            case sg.Fetched() if s.client in (ClientState.SUBSCRIBED, ClientState.RESET_COMPLETE):
                self.client(ClientEvent.FETCH)
            case sg.GateClosed():
                self.set(gate=Gate.CLOSED)
            case sg.Lease(held):
                self.set(lease=held)
            case sg.Triggered(epoch, base) if (epoch, base) == (s.epoch, s.base) and not s.triggered:
                self.set(triggered=True)
                self.do(sg.AskCut(epoch, base))
            case sg.Disturbed():
                self.set(disturbed=True)
            case sg.Trouble(epoch, why, cause) if epoch == s.epoch:
                self.trouble(why, cause)
            case sg.Fenced():
                self.set(fenced=True)
                self.do(sg.Refresh())
            case sg.Broken(why):
                self.end(ExitKind.FAILED, why)
            case sg.WronglyShared(why) if s.held is not None and s.step is Step.NONE:
                self.do(sg.ForceRebalance(why))
            case sg.Led(partitions):
                self.led(partitions)
            case sg.Stop():
                self.set(stopping=True)
            case _:
                self.hear_answer(event)

    def hear_answer(self, event: sg.Event) -> None:
        """An answer to an effect; one to an old stamp or report, or about another cut, changes nothing (SPEC S1)."""
        s = self.s
        match event:
            case sg.Started(stamp) if stamp == s.resolving:
                self.started(event)
            case sg.NotStarted(stamp) if stamp == s.resolving:
                self.set(resolving=None)
                self.do(sg.Refresh())
            case sg.Sought(stamp) if self.is_sought(stamp):
                self.set(seeking=None, started=s.seeking)
            case sg.NotSought(stamp) if self.is_sought(stamp):
                self.set(disturbed=True)
            case sg.Committed(cut) if self.is_at(Step.SAVING, cut):
                self.committed(event)
            case sg.Saved(cut, payload) if self.is_at(Step.SAVING, cut):
                self.set(payload=payload)
            case sg.Contributed(cut) if self.is_at(Step.CONTRIBUTING, cut):
                self.set(step=Step.CONTRIBUTED)
                if s.commit_at_drain:
                    self.commit()
            case sg.Reported(report):
                self.set(reported=s.reported or report == s.report)
            case sg.NotReported(report):
                self.set(report=None if report == s.report else s.report)
                self.do(sg.Refresh())
            case sg.NotContributed():
                self.do(sg.Refresh())

    def started(self, event: sg.Started) -> None:
        """The starts that were asked for are resolved: seek them, unless Kafka has assigned otherwise meanwhile."""
        stamp, held = event.stamp, frozenset(event.offsets)
        if stamp != self.s.stamp or self.assignment() != held | event.leaderless or self.keeps():
            self.set(resolving=None)
            return
        self.do(sg.Seek(stamp, event.offsets, event.leader_epochs, event.landed))
        self.set(held=held, leaderless=event.leaderless, seeking=stamp, resolving=None, topic_ids=event.topic_ids)
        self.set(starts=event.offsets, leader_epochs=event.leader_epochs)

    def assignment(self) -> frozenset[TP] | None:
        """All that Kafka assigned."""
        return None if self.s.held is None else self.s.held | self.s.leaderless

    def keeps(self) -> bool:
        """It has what it fills the number of now with: no start is resolved before the next epoch (SPEC X10)."""
        return self.s.flows and self.s.starts is not None

    def is_sought(self, stamp: Stamp) -> bool:
        """Compared by the serial: a merge may have changed the base since the seek began (SPEC D5)."""
        return self.s.seeking is not None and stamp.serial == self.s.seeking.serial

    def is_at(self, step: Step, cut: int) -> bool:
        """Whether it is at this step of this cut."""
        return self.s.step is step and self.s.cut is not None and self.s.cut.id == cut

    def observed(self, d: Desired) -> None:
        last = self.s.desired
        if last is not None:
            fewer = d.epoch == last.epoch and (d.filling < last.filling or d.opened < last.opened)
            if d.uid != last.uid or d.epoch < last.epoch or d.version < last.version or fewer:
                why = f"the control plane went back: epoch {d.epoch} after {last.epoch} (SPEC G10)"
                self.end(ExitKind.FAILED, why)
                return
        paused = last is not None and d.marks != last.marks  # what is fetched of them is not handed out (SPEC P1)
        self.set(desired=d, disturbed=self.s.disturbed or paused)
        self.observed_now = True
        # Repeat a report or a request that SQL does not show: a backup without it was restored (SPEC G10).
        s, at = self.s, (d.epoch, d.head)
        if s.reported and s.report and (s.report.epoch, s.report.base) == at and not d.reported:
            self.set(report=None)
        if s.triggered and (s.epoch, s.base) == at and not d.asked:
            self.do(sg.AskCut(*at))
        if s.client is ClientState.INITIALIZED:
            self.client(ClientEvent.SUBSCRIBE)

    def assigned(self, held: frozenset[TP], generation: int) -> None:
        s = self.s
        if s.held is not None and (held or s.held) and (s.flows or s.client is ClientState.RECORDS_FETCHED):
            self.revoked("assigned again without a revocation")  # `lost` can fail to come (docs/clients.md C-K8)
        self.moved(held, generation=generation, disturbed=False)

    def led(self, partitions: frozenset[TP]) -> None:
        """Take part with all that is assigned, as after a rebalance, which may come at any step of a cut."""
        held = self.assignment()
        if held is not None and partitions & self.s.leaderless:
            self.revoked("a partition that had no leader has one")
            self.moved(held, disturbed=False)

    def revoked(self, why: str) -> None:
        """Where nothing flows, ignored if nothing was fetched since subscribing or the last reset; the report is withdrawn all the same
        (SPEC R2, R3)."""
        if self.s.client is ClientState.INITIALIZED:
            return
        if self.s.flows and self.s.client is not ClientState.CR_RESET_PENDING:
            self.client(ClientEvent.FETCH)
        self.client(ClientEvent.REVOKE)
        self.moved(None, report=None)
        self.do(sg.Withdraw(why))

    def moved(self, held: frozenset[TP] | None, **changes: Any) -> None:
        """It holds other partitions: the queue is void. What is submitted counts, and its next holder commits it (SPEC X10)."""
        if self.s.step is not Step.NONE:
            self.set(committed=True)
        self.set(held=held, leaderless=frozenset(), serial=self.s.serial + 1, **NOWHERE, **changes)
        self.do(sg.Clear(self.s.stamp, drop=False))

    def committed(self, event: sg.Committed) -> None:
        if event.outcome in (Outcome.DONE, Outcome.REBALANCED):  # after a rebalance the handover commits (SPEC X10)
            self.set(committed=True)
        elif event.outcome is Outcome.ABORT:
            self.do(sg.GiveUp(event.cut, event.why, ResetCause.UNAVAILABLE))
            self.set(step=Step.CONTRIBUTED)
        else:
            self.end(ExitKind.FAILED, event.why)

    def trouble(self, why: str, cause: ResetCause) -> None:
        s = self.s
        if cause is ResetCause.OFFSET_GONE and s.cut is not None and s.cut.handover:
            return  # what was submitted before counts, and the reset that comes finds the gap (SPEC X10)
        if s.marked and cause is ResetCause.OFFSET_GONE:
            self.set(gone=sg.AskReset(s.epoch, why, cause))
        elif s.step in (Step.DRAINING, Step.SAVING):
            assert s.cut is not None
            self.do(sg.GiveUp(s.cut.id, why, cause))
            self.set(step=Step.CONTRIBUTED)
        else:
            self.do(sg.AskReset(s.epoch, why, cause))

    # What follows

    def decide(self) -> None:
        d = self.s.desired
        if d is None or self.s.ended is not None or not self.standing(d):
            return
        self.merged(d)
        self.adopt(d)
        self.cut(d)
        self.leave(d)
        if self.s.ended is None:
            self.requeue()
            self.resolve(d)
            self.report()
            self.gate()

    def standing(self, d: Desired) -> bool:
        """Whether this incarnation is the registered one in SQL (SPEC G3, R7)."""
        if d.superseded:
            self.end(ExitKind.SUPERSEDED, "a newer process of this name is registered")
        elif not d.registered:
            self.end(ExitKind.LOST, "this incarnation is no longer registered")
        elif self.s.fenced and self.observed_now:
            self.end(ExitKind.FAILED, "Kafka fenced this member, and SQL has it registered")
        return self.s.ended is None

    def merged(self, d: Desired) -> None:
        """The cut I took part in became the head: go on from it, unless it went without me."""
        s = self.s
        if s.cut is None or d.epoch != s.epoch or (d.phase is Phase.CUTTING and d.fills is None):
            return
        if d.head == s.cut.id:
            cut = s.cut.id
            self.commit(merged=not self.s.commit_at_drain)
            stamp = Stamp(s.epoch, cut, s.serial)
            started, seeking = (stamp if at == s.stamp else None for at in (s.started, s.seeking))
            report = replace(s.report, base=cut) if s.report else None
            self.set(base=cut, started=started, seeking=seeking, report=report)
            self.do(sg.Merged(cut))
            self.over()
        elif d.head == s.base and (d.cut is None or d.cut.id != s.cut.id):
            # Over in the same epoch, so not aborted: it had nothing new, and the head is what it was (SPEC V1).
            self.do(sg.Merged(s.base))
            self.over()

    def over(self) -> None:
        """Leave the cut, and ask for the reset that waited for its end."""
        gone = self.s.gone
        self.set(**IN_NO_CUT)
        if gone is not None:
            self.do(gone)

    def commit(self, *, merged: bool = False) -> None:
        """Commit what the cut has taken, once it is contributed or merged; a failure is a warning (SPEC D2, D5)."""
        if not self.s.committed:
            assert self.s.cut is not None
            self.set(committed=True)
            self.do(sg.Commit(self.s.cut.id, merged))

    def adopt(self, d: Desired) -> None:
        """Another epoch, or a head without my contribution: come to rest, drop all, start from the head (SPEC X2)."""
        s = self.s
        if (s.epoch, s.base) == (d.epoch, d.head):
            return
        if s.gate is not Gate.CLOSED:
            return  # until the holder of the permit is done
        self.client(ClientEvent.RESET)
        uncommitted = s.uncommitted or d.head > 0 or d.head < s.base
        self.set(epoch=d.epoch, base=d.head, serial=s.serial + 1, disturbed=False, uncommitted=uncommitted)
        self.set(starts=None, asked=False, **NOWHERE)
        self.over()
        self.do(sg.Clear(self.s.stamp, drop=True))

    def cut(self, d: Desired) -> None:
        """The open cut: take the offsets, close what was written up to there, contribute (SPEC C1). Behind a mark it goes on at once with
        the number that the opening handed out, and commits once it has contributed (SPEC D5). Else it stops first, and commits while it
        saves (SPEC D1, D2), but in a rebalance (SPEC X10)."""
        s = self.s
        mine = d.cut is not None and s.starts is not None and d.cut.mine == frozenset(s.starts)
        if s.step is Step.NONE and s.cut is None and mine and d.cut and (s.epoch, s.base) == (d.epoch, d.cut.parent):
            moves = s.client is ClientState.CR_RESET_PENDING
            if d.filling > d.cut.id and d.fills == s.held and not (s.leaves or s.triggered or moves):
                self.set(cut=d.cut, step=Step.SAVING, marked=d.filling, taken_in=s.generation)
                if not self.s.submits:
                    self.gate()  # a pause that came with the cut holds for what is behind the mark (SPEC P1)
                self.do(sg.Save(d.cut.id, d.filling))
            else:
                committed = moves or d.cut.handover
                self.set(cut=d.cut, step=Step.DRAINING, taken_in=s.generation, committed=committed)
        if self.s.step is Step.DRAINING and self.s.gate is Gate.CLOSED:
            assert self.s.cut is not None
            self.set(step=Step.SAVING)
            self.do(sg.Save(self.s.cut.id, d.filling))
            if self.s.commit_at_drain and not self.s.committed:
                self.do(sg.Commit(self.s.cut.id))
        s = self.s
        if s.step is Step.SAVING and s.payload is not None and (s.committed or s.marked or not s.commit_at_drain):
            assert s.cut is not None
            self.set(step=Step.CONTRIBUTING)
            self.do(sg.Contribute(s.cut, s.epoch, s.base, s.taken_in, s.topic_ids, s.payload))

    def leave(self, d: Desired) -> None:
        """A leaving member waits for an open cut first, and for a handover of what it has submitted (SPEC R5, X10)."""
        s = self.s
        if not s.leaves:
            return
        if s.flows and d.fills:
            if not s.asked or (self.observed_now and d.phase is Phase.RUNNING):
                self.set(asked=True)
                self.do(sg.AskToLeave(s.epoch))
        elif s.step is Step.NONE and s.gate is Gate.CLOSED:
            self.end(ExitKind.CLEAN, "a clean end was asked for")

    def requeue(self) -> None:
        """Fetch again from the offset manager's offsets, once the permit is free (SPEC M5)."""
        s = self.s
        if not s.disturbed or s.rests:
            return
        if s.stamp not in (s.started, s.seeking):
            self.set(disturbed=False)
        elif s.gate is Gate.CLOSED:
            stamp = Stamp(s.epoch, s.base, s.serial + 1)
            self.set(serial=stamp.serial, seeking=stamp, started=None, disturbed=False)
            self.do(sg.Requeue(stamp))

    def resolve(self, d: Desired) -> None:
        """Where what I hold starts: one resolver for assignment and reset (SPEC S1, R4). A joiner waits for a cut that expects nothing of
        it: the cut may have what comes after the head, and Kafka may not (SPEC D5, S4)."""
        s, held = self.s, self.assignment()
        joins = d.cut is not None and d.cut.mine is None
        rests = d.phase in (Phase.IDLE, Phase.STOPPED) or s.client is ClientState.CR_RESET_PENDING or s.leaves
        known = s.stamp in (s.started, s.seeking) or s.resolving is not None or self.keeps()
        if held is not None and not (known or rests or joins) and (s.epoch, s.base) == (d.epoch, d.head):
            self.set(resolving=s.stamp)
            self.do(sg.Resolve(s.stamp, held))

    def report(self) -> None:
        s = self.s
        report = sg.Report(s.epoch, s.base, s.generation, s.held or frozenset())
        if s.ready and report != s.report:
            self.set(report=report, reported=False)
            self.do(report)

    def gate(self) -> None:
        """Open or close the gate; what above waits for a closed one is a reason against submitting."""
        s = self.s
        if s.submits and s.gate is Gate.CLOSED:
            assert s.desired is not None
            self.set(gate=Gate.OPEN)
            self.do(sg.OpenGate(s.stamp, s.desired.filling))
            if s.uncommitted and s.starts is not None:
                self.set(uncommitted=False)
                self.do(sg.CommitStarts(s.starts, s.base, s.leader_epochs))
        elif not s.submits and s.gate is Gate.OPEN:
            self.set(gate=Gate.CLOSING)
            self.do(sg.CloseGate())
