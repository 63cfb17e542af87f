"""Every mutation of the control plane, and a region that stands just before it: what the tests of crashes let die."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from crkafka_core.control import Store, Tx
from crkafka_core.model import limits
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Lease, Region, Reset, ResetCause
from crkafka_core.plane import (
    advance,
    alarms,
    contributions,
    cuts,
    epochs,
    erasure,
    events,
    goals,
    leases,
    life,
    members,
    merging,
    passes,
    pauses,
    permits,
    reading,
    resets,
    restored,
    retire,
    roster,
    starts,
    tables,
)
from crkafka_core.plane.transact import ControlPlane
from tests.rigs.merging import merge_cut
from tests.rigs.players import PARTITIONS, Player, new_region

NAME = "crash"


class Stage:
    """A region that stands just before a mutation, made anew for each crash."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.plane = ControlPlane(store, NAME)
        self.players = [Player(self.plane, f"{NAME}/{n}", random=random.Random(n)) for n in range(2)]
        self.players[0].assign(1, PARTITIONS[:3])
        self.players[1].assign(1, PARTITIONS[3:])
        life.declare(store, new_region(NAME, members_wanted=2, retain=1))
        self.plane.do(lambda tx: life.start(tx, by="test"))
        self.plane.do(lambda tx: tables.declare(tx, "t", "delta", "t"))

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            for player in self.players:
                player.step()
            self.plane.do(advance.advance)

    def cut(self, token: str) -> None:
        self.play(2)
        self.plane.do(lambda tx: cuts.open_cut(tx, token=token, cause="test"))
        self.play(2)

    def open(self, contribute: int) -> None:
        self.cut("one")
        self.play(1)
        self.plane.do(lambda tx: cuts.open_cut(tx, token="two", cause="test"))
        for player in self.players[:contribute]:
            assert player.step() == "contributed"

    def region(self) -> Region:
        return self.store.regions()[0]


def _member(stage: Stage, number: int = 0) -> dict[str, str]:
    return {"member": stage.players[number].name, "incarnation": stage.players[number].incarnation}


def _who(stage: Stage, number: int = 0) -> dict[str, str]:
    return {"name": stage.players[number].name, "incarnation": stage.players[number].incarnation}


Case = tuple[Callable[[Stage], None], Callable[[Stage], Callable[[Tx], Any]]]


def _register(stage: Stage) -> Callable[[Tx], Any]:
    who = members.Registration(f"{NAME}/0", "new", 9, 1, "cluster", f"group of {NAME}", host="h")
    return lambda tx: members.register(tx, who)


def _resolve(stage: Stage) -> Callable[[Tx], Any]:
    player = stage.players[0]
    proposals = {tp: starts.Proposal(f"id-{tp.topic}", 5, "beginning") for tp in PARTITIONS}
    ids = {tp: f"id-{tp.topic}" for tp in player.held}
    return lambda tx: starts.resolve(
        tx,
        member=player.name,
        incarnation=player.incarnation,
        epoch=tx.region().epoch,
        base=tx.region().head,
        topic_ids=ids,
        proposals=proposals,
    )


def _last_part(stage: Stage) -> contributions.Part:
    return stage.players[1].part(stage.region().open_cut, [p.name for p in stage.players])


def _contribute(stage: Stage) -> Callable[[Tx], Any]:
    part = _last_part(stage)
    return lambda tx: contributions.contribute(tx, part)


def _hand_in(stage: Stage) -> Callable[[Tx], Any]:
    part = _last_part(stage)
    return lambda tx: merging.hand_in(tx, part)


def _give_up(stage: Stage) -> Callable[[Tx], Any]:
    opened, player = stage.region().open_cut, stage.players[1]
    return lambda tx: merging.give_up(
        tx, opened, member=player.name, incarnation=player.incarnation, why="disk", cause=ResetCause.UNAVAILABLE
    )


def _failed(stage: Stage) -> Callable[[Tx], Any]:
    name, epoch = stage.players[1].name, stage.region().epoch
    return lambda tx: merging.failed(tx, ResetCause.FAILURE, "boom", member=name, epoch=epoch)


def _wrong_contribution(stage: Stage) -> Callable[[Tx], Any]:
    part = stage.players[1].part(stage.region().open_cut, ["nobody"])
    return lambda tx: contributions.contribute(tx, part)


def _past_the_deadline(stage: Stage) -> None:
    stage.open(1)
    row = stage.region()

    def age(tx: Tx) -> None:
        found = tx.get(cuts.rows.Checkpoint, row.open_cut)
        assert found is not None
        tx.put(replace(found, deadline=1.0))

    stage.plane.do(age)


def _acknowledged(stage: Stage) -> None:
    for token in "abc":
        stage.cut(token)
    permit = stage.plane.do(lambda tx: permits.permit_commit(tx, "t", holder="w", token="w"))
    stage.plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=1))


def _quiet(stage: Stage) -> None:
    shape = "crkafka.records:quiet@quiet"
    stage.plane.do(lambda tx: tables.declare(tx, "quiet", "delta", "quiet", shape=shape, here=True))
    stage.cut("a")


def _finish_commit(stage: Stage) -> Callable[[Tx], Any]:
    permit = stage.plane.do(lambda tx: permits.permit_commit(tx, "t", holder="w", token="w"))
    return lambda tx: permits.finish_commit(tx, permit, version="1", rows=1)


def _rewound(stage: Stage) -> None:
    _acknowledged(stage)
    stage.plane.do(lambda tx: resets.request(tx, cause="test", by="me", target=1))


def _finish_fence(stage: Stage) -> Callable[[Tx], Any]:
    permit = stage.plane.do(lambda tx: permits.permit_fence(tx, "t", holder="w", token="f"))
    return lambda tx: permits.finish_fence(tx, permit, version="2")


def _lose(stage: Stage) -> Callable[[Tx], Any]:
    return lambda tx: members.lose(tx, **_who(stage), renewals=0, by="test", why="silent")


def _permitted(stage: Stage) -> permits.Permit:
    return stage.plane.do(lambda tx: permits.permit_commit(tx, "t", holder="w", token="w"))


def _renew_commit(stage: Stage) -> Callable[[Tx], Any]:
    permit = _permitted(stage)
    stage.plane.do(lambda tx: tx.put(replace(permit.lease, until=1.0)))
    return lambda tx: permits.renew(tx, permit)


def _leave_undone(stage: Stage) -> Callable[[Tx], Any]:
    permit = _permitted(stage)
    return lambda tx: permits.leave_undone(tx, "t", permit.commit.number)


def _fail_commit(stage: Stage) -> Callable[[Tx], Any]:
    permit = _permitted(stage)
    return lambda tx: permits.fail_commit(tx, permit, "disk")


def _count_rows(stage: Stage) -> Callable[[Tx], Any]:
    permit = _permitted(stage)
    return lambda tx: permits.note_counts(tx, [(permit, dict.fromkeys(permit.plan.checkpoints, 1))])


def _driver(stage: Stage, change: Callable[[Tx, Lease], Any]) -> Callable[[Tx], Any]:
    lease = stage.plane.do(lambda tx: leases.take(tx, "driver", holder="h", token="d", length=60))
    return lambda tx: change(tx, lease)


def _reader(stage: Stage, change: Callable[[Tx, Lease], Any]) -> Callable[[Tx], Any]:
    lease = stage.plane.do(lambda tx: reading.take(tx, holder="h", token="r", length=60)).lease
    return lambda tx: change(tx, lease)


def _paused(stage: Stage) -> None:
    _running(stage)
    stage.plane.do(lambda tx: pauses.pause(tx, "topic", "orders", by="me"))


def _stopping(stage: Stage) -> None:
    """A stop that came in an unsettled moment, which is over."""
    _running(stage)
    stage.plane.do(lambda tx: tx.set_region(wanted=Wanted.STOP, stopping=True))


def _marked(stage: Stage) -> None:
    _running(stage)
    player = stage.players[0]
    stage.plane.do(lambda tx: pauses.pause(tx, "partition", str(PARTITIONS[0]), by="me", member=player.name))


def _aimed(stage: Stage) -> None:
    _running(stage)
    stage.plane.do(lambda tx: goals.aim(tx, "goal", dict.fromkeys(PARTITIONS, 9)))


def _ahead(stage: Stage) -> None:
    stage.open(1)
    stage.plane.do(lambda tx: leases.take(tx, "driver", holder="h", token="d", length=60))
    stage.plane.do(lambda tx: tx.set_region(phase_since=9e9))
    stage.plane.do(lambda tx: tx.put(*(replace(m, registered_at=9e9) for m in roster.all_of(tx))))


def _stalled(stage: Stage) -> None:
    _running(stage)
    stage.plane.do(lambda tx: tx.set_region(period=1.0, last_cut_at=1.0))
    stage.plane.do(lambda tx: tx.put(replace(tx.get(Reset, tx.region().started_epoch), at=1.0)))  # type: ignore


def _noticed(stage: Stage) -> None:
    _running(stage)
    stage.plane.do(lambda tx: restored.notice(tx, "a backup", by="me"))


def _overdue(stage: Stage) -> None:
    """At rest for ever: nobody holds a partition."""
    stage.plane.do(lambda tx: tx.set_region(reset_at=1.0))


def _archived(stage: Stage) -> None:
    """More retired checkpoints than `history` keeps, of which the table lacks none."""
    for token in "xyz":
        stage.cut(token)
    _acknowledged(stage)
    stage.plane.do(lambda tx: retire.retire(tx, retire.plan(tx, tx.region()).retire))
    stage.plane.do(lambda tx: tx.set_region(limits_json=limits.dump(replace(limits.of(tx.region()), history=1))))
    with stage.store.read(NAME) as reader:
        assert len(reader.column(Checkpoint, "id", ("status", "=", CheckpointStatus.RETIRED))) > 2


def _skip(stage: Stage) -> Callable[[Tx], Any]:
    tp = next(iter(stage.players[0].held))
    stands = stage.players[0].position[tp]
    return lambda tx: resets.skip(tx, tp, stands, stands + 4, by="me", token="skip")


def _erase(stage: Stage) -> Callable[[Tx], Any]:
    return lambda tx: erasure.record(tx, tx.region().head, {PARTITIONS[0]: [5, 6]}, by="me")


def _idle(stage: Stage) -> None:
    stage.plane.do(lambda tx: epochs.idle(tx, "test"))


def _running(stage: Stage) -> None:
    stage.play(4)
    assert stage.region().phase is Phase.RUNNING


def _cut(stage: Stage) -> None:
    stage.cut("a")


def _open(stage: Stage) -> None:
    stage.open(1)


CASES: dict[str, Case] = {
    "launch": (_running, lambda s: lambda tx: members.launch(tx, "crash/0")),
    "register the first": (lambda s: None, _register),
    "register anew while running": (_running, _register),
    "renew": (_running, lambda s: lambda tx: members.renew(tx, **_who(s), metrics={"a": 1})),
    "resolve at birth": (lambda s: (s.players[0].step(), None)[1], _resolve),
    "report": (
        lambda s: (s.players[0].step(), None)[1],
        lambda s: lambda tx: members.report(tx, **_who(s), epoch=2, base=0, generation=1, held=PARTITIONS),
    ),
    "withdraw while running": (_running, lambda s: lambda tx: members.withdraw(tx, **_who(s), why="revoked")),
    "withdraw in a cut": (_open, lambda s: lambda tx: members.withdraw(tx, **_who(s), why="revoked")),
    "leave in a cut": (_open, lambda s: lambda tx: members.leave(tx, **_who(s))),
    "lose while running": (_running, _lose),
    "lose in a cut": (_open, _lose),
    "fail": (_running, lambda s: lambda tx: members.lose(tx, **_who(s), by="x", why="boom")),
    "ask to leave": (_running, lambda s: lambda tx: members.ask_to_leave(tx, **_who(s))),
    "open a cut": (_running, lambda s: lambda tx: cuts.open_cut(tx, token="t", cause="test")),
    "contribute": (_open, _contribute),
    "contribute as the last, which merges": (_open, _hand_in),
    "contribute what does not match": (_open, _wrong_contribution),
    "merge": (lambda s: s.open(2), lambda s: lambda tx: merge_cut(tx, tx.region().opened)),
    "merge by whoever looks": (lambda s: s.open(2), lambda s: advance.advance),
    "abort past the deadline": (_past_the_deadline, lambda s: advance.advance),
    "resume": (lambda s: (s.play(1), [p.step() for p in s.players], None)[2], lambda s: advance.advance),
    "give up": (_open, _give_up),
    "a member's failure": (_running, _failed),
    "reset to the head": (_running, lambda s: lambda tx: resets.request(tx, cause="c", by="me")),
    "reset to an older one": (_acknowledged, lambda s: lambda tx: resets.request(tx, cause="c", by="me", target=1)),
    "stop with a last cut": (_running, lambda s: lambda tx: life.stop(tx, token="stop", by="me")),
    "cut a last time once the group is settled": (_stopping, lambda s: life.last_cut),
    "stopped for a reason": (_open, lambda s: lambda tx: epochs.halt(tx, "reason", member="m")),
    "scale": (_running, lambda s: lambda tx: life.scale(tx, 3, by="me")),
    "retire": (_acknowledged, lambda s: lambda tx: retire.retire(tx, retire.plan(tx, tx.region()).retire)),
    "clean up": (_archived, lambda s: retire.clean_up),
    "skip what no client can read": (_cut, _skip),
    "note what was erased": (_cut, _erase),
    "forget a topic": (_running, lambda s: lambda tx: starts.forget(tx, "refunds", by="me")),
    "a topic is gone": (
        _running,
        lambda s: lambda tx: starts.topics_gone(tx, {"refunds": "id-refunds"}, member="crash/0"),
    ),
    "permit a commit": (_cut, lambda s: lambda tx: permits.permit_commit(tx, "t", holder="w", token="w")),
    "permit a pass over several tables": (
        _quiet,
        lambda s: lambda tx: permits.permit_together(tx, ["t", "quiet"], holder="w", token="w", limit=9, most=1 << 30),
    ),
    "finish a commit": (_cut, _finish_commit),
    "pass over what has nothing of a table's topic": (_quiet, lambda s: passes.pass_over),
    "permit a fence": (_rewound, lambda s: lambda tx: permits.permit_fence(tx, "t", holder="w", token="f")),
    "finish a fence": (_rewound, _finish_fence),
    "undeclare the last table that owes a fence": (_rewound, lambda s: lambda tx: tables.undeclare(tx, "t")),
    "take a reader's lease": (_cut, lambda s: lambda tx: reading.take(tx, holder="h", token="r", length=60)),
    "take the driver's lease": (
        _running,
        lambda s: lambda tx: leases.take(tx, "driver", holder="h", token="d", length=60),
    ),
    "pause": (_running, lambda s: lambda tx: pauses.pause(tx, "topic", "orders", by="me")),
    "alarm: not settled": (_overdue, lambda s: alarms.unsettled),
    "after a clock that stepped back": (_ahead, lambda s: advance.restart_waits),
    "alarm: no merge": (_stalled, lambda s: alarms.watch_merges),
    "alarm: strangers": (_overdue, lambda s: lambda tx: alarms.strangers(tx, ["someone"], by="crash/0")),
    "report that ends a member's pause mark": (
        _marked,
        lambda s: (
            lambda tx: members.report(
                tx, **_who(s), epoch=tx.region().epoch, base=tx.region().head, generation=2, held=PARTITIONS[1:3]
            )
        ),
    ),
    "take the pause mark away": (_paused, lambda s: lambda tx: pauses.resume(tx, "topic", "orders", by="me")),
    "drop a goal": (_aimed, lambda s: lambda tx: goals.drop(tx, "goal")),
    "reach a goal": (
        _aimed,
        lambda s: (
            lambda tx: goals.reach(
                tx, "goal", goals.current(tx)[0].at, **_member(s), epoch=tx.region().epoch, reached=s.players[0].held
            )
        ),
    ),
    "start": (_idle, lambda s: lambda tx: life.start(tx, by="me")),
    "stop before what a backup lost": (
        _running,
        lambda s: lambda tx: restored.check(tx, restored.Seen(99, 99, "a commit in Kafka"), by="me"),
    ),
    "trust a control plane that caught up": (
        _noticed,
        lambda s: lambda tx: restored.trust(tx, restored.Seen(), by="me"),
    ),
    "go on from a restored backup": (
        _idle,
        lambda s: lambda tx: restored.rewind(tx, restored.Seen(99, 99, "a commit in Kafka"), by="me"),
    ),
    "delete": (_idle, lambda s: life.delete),
    "declare a table": (_running, lambda s: lambda tx: tables.declare(tx, "u", "delta", "u")),
    "name another schema of a table": (
        _running,
        lambda s: lambda tx: events.tell_schema(tx, "u", "u: version 2 is refused"),
    ),
    "go on writing": (_cut, _renew_commit),
    "count the rows of made files": (_cut, _count_rows),
    "give up a commit": (_cut, _fail_commit),
    "leave a commit undone": (_cut, _leave_undone),
    "renew the driver's lease": (
        _running,
        lambda s: _driver(s, lambda tx, lease: leases.renew(tx, replace(lease), 90)),
    ),
    "release the driver's lease": (_running, lambda s: _driver(s, leases.release)),
    "renew a reader's lease": (_cut, lambda s: _reader(s, lambda tx, lease: leases.renew(tx, lease, 90))),
    "release a reader's lease": (_cut, lambda s: _reader(s, leases.release)),
    "follow": (_cut, lambda s: lambda tx: reading.follow(tx, stream="s", holder="h", after=0, length=60)),
    "aim": (_running, lambda s: lambda tx: goals.aim(tx, "goal", dict.fromkeys(PARTITIONS, 9))),
    "ask for a cut": (
        _running,
        lambda s: lambda tx: cuts.ask(tx, **_member(s), epoch=tx.region().epoch, head=tx.region().head),
    ),
}
