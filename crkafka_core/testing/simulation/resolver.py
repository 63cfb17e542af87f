"""The resolver thread of a simulated member: looks up where partitions start, then writes it; in between, anything may happen (SPEC S1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.plane import starts
from crkafka_core.plane.starts import Proposal, Resolved
from crkafka_core.protocol import signals as sg
from crkafka_core.testing.simulation.stage import Stage

if TYPE_CHECKING:
    from crkafka_core.testing.simulation.process import Process


@dataclass(frozen=True)
class Found:
    """A start was looked up; now it is to be written."""

    asked: sg.Resolve
    ids: dict[TP, str]
    proposals: dict[TP, Proposal]

    @property
    def stamp(self) -> sg.Stamp:
        return self.asked.stamp


def resolve(p: Process) -> None:
    """One move: look up, write, or answer."""
    if p.answer is not None:
        answer, p.answer = p.answer, None
        p.inbox.append(answer)
        return
    if p.question is None or p.stage is not Stage.RUNNING:
        return
    stamp = p.question.stamp
    try:
        if isinstance(p.question, Found):
            found, p.question = p.question, None
            p.answer = _write(p, found)
        else:
            p.question = _look_up(p, p.question)
    except CrkafkaError as error:
        p.note("not started", error)
        p.question = None
        p.answer = sg.NotStarted(stamp)


def _look_up(p: Process, asked: sg.Resolve) -> Found:
    broker = p.world.broker
    if broker.down or not p.reaches_kafka():
        raise ServiceUnavailable("Kafka is not there.")
    ids = {tp: broker.ids[tp.topic] for tp in asked.held}
    looked: Resolved = p.world.ask(p, lambda r, region: starts.lookup(r, region, ids))
    wanted = looked.missing if looked.born else broker.all()
    return Found(asked, ids, {tp: Proposal(broker.ids[tp.topic], *_position(p, tp, looked.born)) for tp in wanted})


def _position(p: Process, tp: TP, born: bool) -> tuple[int, str]:
    """Start position of a partition nobody saw before; a later one starts at its beginning (SPEC S3)."""
    return (p.world.broker.ends[tp], "end") if p.world.plan.from_end and not born else (0, "beginning")


def _write(p: Process, found: Found) -> sg.Event:
    stamp = found.stamp
    resolved = p.sql(
        lambda tx: starts.resolve(
            tx, member=p.name, incarnation=p.incarnation, epoch=stamp.epoch, base=stamp.base, topic_ids=found.ids,
            proposals=found.proposals, gaps={}, accept_gaps=False,
        ),
        "resolve",
    )  # fmt: skip
    if resolved.missing:
        return sg.NotStarted(stamp)
    return sg.Started(
        stamp, {tp: resolved.offsets[tp] for tp in found.asked.held}, {tp.topic: i for tp, i in found.ids.items()}
    )
