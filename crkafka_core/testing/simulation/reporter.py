"""The reporter thread of a simulated member: writes what the machine wants written, in order, until SQL has answered."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.plane import advance, cuts, members, resets, triggers
from crkafka_core.plane.members import Registration
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.signals import ExitKind
from crkafka_core.testing.simulation.stage import Stage
from crkafka_core.testing.simulation.storage import Saved

if TYPE_CHECKING:
    from crkafka_core.testing.simulation.process import Process


def report(p: Process) -> None:
    """One move: at most one mutation. What SQL could not be told stays at the head of the queue."""
    try:
        if p.stage is Stage.LAUNCHING:
            p.launch = p.sql(lambda tx: members.launch(tx, p.name), "launch")
            p.stage = Stage.REGISTERING
        elif p.stage is Stage.REGISTERING:
            _register(p)
            p.stage = Stage.RUNNING
        elif p.replies:
            p.inbox.append(p.replies.popleft())
        elif p.outbox:
            _perform(p, p.outbox[0])
            if p.outbox:
                p.outbox.popleft()
        elif p.stage is Stage.ENDING:
            _gone(p)
    except ServiceUnavailable:
        if p.stage is Stage.ENDING and p.world.now > p.lease_until + p.world.limits.isolation_timeout:
            _gone(p)
    except CrkafkaError as refused:
        p.note("refused", refused)
        if p.stage in (Stage.LAUNCHING, Stage.REGISTERING):
            p.ended = ExitKind.SUPERSEDED
            p.vanish()
        elif p.outbox:
            _refused(p, p.outbox.popleft())


def _gone(p: Process) -> None:
    if p.client.id:
        if p.ended is ExitKind.CLEAN and p.state.scaled_in:
            p.world.broker.remove(p.client)  # scale-in is quick also for static members (SPEC R7)
        else:
            p.world.broker.leave(p.client)
    p.note("gone")
    p.vanish()


def _register(p: Process) -> None:
    sent = p.world.now
    who = Registration(
        p.name, p.incarnation, p.launch, 0, "cluster", "group", host="sim", instance_id=p.client.instance or ""
    )
    p.sql(lambda tx: members.register(tx, who), "register")
    p.lease_until = sent + p.world.limits.session_timeout
    p.renew_at = sent + p.world.limits.renew_every
    p.world.broker.join(p.client)


def _perform(p: Process, effect: Any) -> None:
    match effect:
        case sg.Report(epoch, base, generation, held):
            p.sql(
                lambda tx: members.report(
                    tx, p.name, p.incarnation, epoch=epoch, base=base, generation=generation, held=held
                ),
                "report",
            )
            p.replies.append(sg.Reported(effect))
            p.outbox.insert(1, _Advance())
        case sg.Withdraw(epoch, cause, wants):
            p.sql(
                lambda tx: members.withdraw(tx, p.name, p.incarnation, epoch=epoch, cause=cause, wants_reset=wants),
                "withdraw",
            )
        case sg.Contribute():
            _contribute(p, effect)
        case sg.GiveUp(cut, why, counted, forced):
            give_up = partial(
                cuts.give_up, member=p.name, incarnation=p.incarnation, why=why, counted=counted, forced=forced
            )
            p.sql(lambda tx: give_up(tx, cut), "give up")
        case sg.AskReset(epoch, why, counted):
            p.sql(
                lambda tx: resets.request(tx, cause=why, by=p.name, epoch=epoch, member=p.name, counted=counted),
                "ask reset",
            )
        case sg.AskCut(epoch, head):
            p.sql(
                lambda tx: triggers.ask(tx, member=p.name, incarnation=p.incarnation, epoch=epoch, head=head), "ask cut"
            )
        case sg.Exit(kind, why):
            if kind is ExitKind.CLEAN:
                p.sql(lambda tx: members.leave(tx, p.name, p.incarnation), "leave")
            else:
                p.sql(lambda tx: members.fail(tx, p.name, p.incarnation, why), "fail")
        case _Advance():
            p.sql(advance.advance, "advance")
        case _:
            raise AssertionError(f"nobody performs {effect}")


class _Advance:
    """A report may be the last that was missing: advance (SPEC G7)."""


def _contribute(p: Process, effect: sg.Contribute) -> None:
    saved: Saved = effect.payload
    part = cuts.Part(
        checkpoint=effect.cut.id, member=p.name, incarnation=p.incarnation, epoch=effect.epoch, base=effect.base,
        generation=effect.generation, members=effect.cut.members, offsets=saved.offsets, topic_ids=effect.topic_ids,
        segments=saved.segments,
    )  # fmt: skip
    p.sql(lambda tx: cuts.hand_in(tx, part), f"contribute to {effect.cut.id}")
    p.replies.append(sg.Contributed(effect.cut.id))


def _refused(p: Process, effect: Any) -> None:
    match effect:
        case sg.Report():
            p.replies.append(sg.NotReported(effect))
        case sg.Contribute():
            p.replies.append(sg.NotContributed(effect.cut.id))
        case _:
            p.look = True
