"""A hypothesis state machine over all mutations of the control plane: members, drivers, a retirer, a writer, a person, zombies.

Needs hypothesis. Subclass it with a store, and run it: after every rule all `Invariants` are checked.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from crkafka_core.control import Store, Tx
from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import Checkpoint, Filler, Region, ResetCause
from crkafka_core.plane import (
    advance,
    cuts,
    goals,
    leases,
    life,
    members,
    merging,
    pauses,
    permits,
    reading,
    resets,
    retire,
    roster,
    tables,
)
from crkafka_core.plane.transact import ControlPlane
from tests.rigs.invariants import Invariants
from tests.rigs.merging import merge_cut
from tests.rigs.players import CHANGES, PARTITIONS, Player, Zombie, new_region

NAME = "played"
NAMES = tuple(f"{NAME}/{number}" for number in range(4))
WHO = st.integers(0, len(NAMES) - 1)


class Crash(BaseException):
    """The process that runs a mutation ends between two statements."""


class Clock:
    """Time that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class PlaneMachine(RuleBasedStateMachine):
    """`make_store` is given the clock, and gives an empty store with an attribute `on_statement`."""

    make_store: Callable[[Clock], Any]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store: Store = type(self).make_store(self.clock)
        self.plane = ControlPlane(self.store, NAME)
        self.random = random.Random(0)
        self.players = [Player(self.plane, name, random=self.random) for name in NAMES]
        self.zombie = Zombie(self.plane)
        self.watched = Invariants(NAME)
        self.generation = 0
        self.token = ""
        self.permit: permits.Permit | None = None
        self.repeat: Callable[[Tx], Any] = lambda tx: None

    def teardown(self) -> None:
        self.store.close()

    # --- what rules are made of ---

    def do(self, work: Callable[[Tx], Any]) -> Any:
        """A mutation by somebody who may be refused, or may crash."""
        self.repeat = work
        try:
            return self.plane.do(work)
        except (Refused, Crash):
            return None
        finally:
            self._hook(None)

    def region(self) -> Region:
        return self.store.regions()[0]

    def _hook(self, hook: Callable[[str], None] | None) -> None:
        self.store.on_statement = hook  # type: ignore[attr-defined]

    def _play(self, which: Player) -> None:
        try:
            which.step()
        except Refused:
            pass
        except Crash:
            which.crash()
        finally:
            self._hook(None)

    # --- rules ---

    @initialize(seed=st.integers(0, 2**16), wanted=st.integers(1, 3))
    def begin(self, seed: int, wanted: int) -> None:
        self.random.seed(seed)
        life.declare(self.store, new_region(NAME, members_wanted=wanted))
        self.plane.do(lambda tx: life.start(tx, by="test"))
        self.plane.do(lambda tx: tables.declare(tx, "bronze", "delta", "bronze"))
        self.rebalance()
        self.go_on(4)

    @rule(who=WHO)
    def step(self, who: int) -> None:
        self._play(self.players[who])

    @rule(rounds=st.integers(1, 6))
    def go_on(self, rounds: int) -> None:
        """Everybody does what is due, and somebody looks after the region."""
        for _ in range(rounds):
            self.clock.now += 0.1
            for player in self.players[: self.region().members_wanted]:
                self._play(player)
            self.do(advance.advance)

    @rule(count=st.integers(1, 3))
    def cuts(self, count: int) -> None:
        """History grows."""
        for _ in range(count):
            self.go_on(2)
            self.open_cut()
            self.go_on(2)

    def open_cut(self) -> None:
        self.token = f"cut {self.random.random()}"
        self.do(lambda tx: cuts.open_cut(tx, token=self.token, cause="test"))

    @rule(contribute=st.sets(WHO))
    def cut_to_which_some_contribute(self, contribute: set[int]) -> None:
        """The state in which most goes wrong: a cut is open, and not all have contributed."""
        self.go_on(2)
        self.open_cut()
        for who in contribute:
            self._play(self.players[who])

    @rule()
    def open_the_same_cut_again(self) -> None:
        self.do(lambda tx: cuts.open_cut(tx, token=self.token, cause="test"))

    @rule()
    def advance(self) -> None:
        self.do(advance.advance)

    @rule(back=st.integers(0, 3))
    def merge(self, back: int) -> None:
        self.do(lambda tx: merge_cut(tx, tx.region().opened - back))

    @rule(who=WHO)
    def crash(self, who: int) -> None:
        self.players[who].crash()

    @rule(who=WHO, statement=st.integers(1, 25))
    def crash_between_statements(self, who: int, statement: int) -> None:
        left = [statement]

        def hook(what: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Crash(what)

        self._hook(hook)
        if who:
            self._play(self.players[who])
        else:
            self.do(advance.advance)

    @rule()
    def a_rebalance(self) -> None:
        self.rebalance()
        self.go_on(1)

    def rebalance(self) -> None:
        """The group gives the partitions anew to who is wanted; each member says so when it moves."""
        wanted = self.region().members_wanted
        self.generation += 1
        for number, player in enumerate(self.players):
            held = [tp for at, tp in enumerate(PARTITIONS) if (at + self.generation) % wanted == number]
            player.assign(self.generation, held)

    @rule(wanted=st.integers(1, 4))
    def scale(self, wanted: int) -> None:
        self.do(lambda tx: life.scale(tx, wanted, by="test"))
        self.rebalance()

    @rule(who=WHO)
    def lose(self, who: int) -> None:
        player = self.players[who]

        def work(tx: Tx) -> None:
            row = next((m for m in roster.all_of(tx) if m.name == player.name), None)
            if row is not None:
                members.lose(
                    tx, player.name, row.incarnation, renewals=row.renewals, by="test", why="its counter stands still"
                )

        self.do(work)

    @rule(who=WHO)
    def leave(self, who: int) -> None:
        player = self.players[who]
        self.do(lambda tx: members.leave(tx, player.name, player.incarnation))
        player.crash()

    @rule(who=WHO)
    def give_up(self, who: int) -> None:
        player, opened = self.players[who], self.region().open_cut
        self.do(
            lambda tx: merging.give_up(
                tx, opened, member=player.name, incarnation=player.incarnation, why="test", cause=ResetCause.FAILURE
            )
        )

    @rule(who=WHO, change=st.sampled_from(CHANGES), old=st.booleans(), then_merge=st.booleans())
    def zombie_contributes(self, who: int, change: str, old: bool, then_merge: bool) -> None:
        """Something that an honest member could have sent, changed in one thing: to the open cut, or to an old one."""
        row = self.region()
        if not old and not row.open_cut:
            self.cut_to_which_some_contribute(set())
            row = self.region()
        zombie = self.players[who % row.members_wanted]
        self._zombie(zombie, change, row.opened - old)
        if then_merge:
            for player in self.players[: row.members_wanted]:
                if player is not zombie:
                    self._play(player)
            self.do(advance.advance)

    @rule()
    def newcomer_contributes(self) -> None:
        """A member that registered after the cut was opened sends what another one holds."""
        row = self.region()
        if row.members_wanted == len(NAMES):
            return
        self.cut_to_which_some_contribute(set())
        self.do(lambda tx: life.scale(tx, row.members_wanted + 1, by="test"))
        newcomer = self.players[row.members_wanted]
        self._play(newcomer)
        for player in self.players[1 : row.members_wanted]:
            self._play(player)
        self._zombie(self.players[0], "member", self.region().open_cut, newcomer)

    def _zombie(self, player: Player, change: str, checkpoint: int, other: Player | None = None) -> None:
        if not player.held or any(tp not in player.position for tp in player.held):
            return
        with self.store.read(NAME) as reader:
            names = reader.column(Filler, "member", ("checkpoint", "=", checkpoint))
            opened = reader.get(Checkpoint, checkpoint)
        part = player.part(checkpoint, names, opened.generation if opened else None)
        self.zombie.contribute(part, change, other or self.players[self.random.randrange(len(NAMES))])

    @rule(back=st.integers(0, 4), person=st.booleans())
    def reset(self, back: int, person: bool) -> None:
        """To the head, to an older checkpoint of its line, or to initial state."""
        row = self.region()
        with self.store.read(NAME) as reader:
            line = [0, *reader.line(row.head)]
        target = line[-1 - back] if person and back < len(line) else None
        if person:
            self.do(lambda tx: resets.request(tx, cause="test", by="test", target=target))
            self.the_table_keeps_up()
        else:
            self.do(lambda tx: resets.failed(tx, ResetCause.FAILURE, "test", member=NAMES[0], epoch=row.epoch))

    @rule()
    def stop(self) -> None:
        self.do(lambda tx: life.stop(tx, token="stop", by="test"))
        self.go_on(2)
        self.start()

    @rule()
    def start(self) -> None:
        self.do(lambda tx: life.start(tx, by="test"))
        self.go_on(3)

    @rule(keep=st.integers(1, 3))
    def retire(self, keep: int) -> None:
        self.the_table_keeps_up()
        self.do(lambda tx: tx.set_region(limits_json=_with_retain(tx.region().limits_json, keep)))
        self.do(lambda tx: retire.retire(tx, retire.plan(tx, tx.region()).retire))

    @rule(what=st.sampled_from(("permit", "fence", "finish", "fail")), token=st.sampled_from(("a", "b")))
    def write_to_the_table(self, what: str, token: str) -> None:
        permit = self.permit
        if what == "permit":
            self.permit = self.do(lambda tx: permits.permit_commit(tx, "bronze", holder=token, token=token)) or permit
        elif what == "fence":
            self.permit = self.do(lambda tx: permits.permit_fence(tx, "bronze", holder=token, token=token)) or permit
        elif permit is not None and what == "fail":
            self.do(lambda tx: permits.fail_commit(tx, permit, "test"))
        elif permit is not None:
            self._finish(permit)

    def _finish(self, permit: permits.Permit) -> None:
        if permit.commit.kind == tables.FENCE:
            self.do(lambda tx: permits.finish_fence(tx, permit, version="1"))
        else:
            self.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=1))

    @rule()
    def the_table_keeps_up(self) -> None:
        """It follows a rewind, then takes what is new; leases of dead writers are waited out."""
        self.clock.now += 31
        for work in (permits.permit_fence, permits.permit_commit):
            permit = self.do(lambda tx, work=work: work(tx, "bronze", holder="keeper", token=f"k{self.clock.now}"))  # type: ignore[misc]
            if permit is not None:
                self._finish(permit)
        self.go_on(3)

    @rule(seconds=st.sampled_from((0.5, 12.0, 61.0, 200.0)))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(what=st.sampled_from(("renew", "pause", "resume", "goal", "reach", "read", "drive")), who=WHO)
    def small_things(self, what: str, who: int) -> None:
        """Mutations that touch no checkpoint."""
        me = self.players[who]

        def reach(tx: Tx) -> None:
            begun = next((goal.at for goal in goals.current(tx)), 0.0)
            epoch, held = me.epoch, me.held
            goals.reach(tx, "goal", begun, member=me.name, incarnation=me.incarnation, epoch=epoch, reached=held)

        works: dict[str, Callable[[Tx], Any]] = {
            "renew": lambda tx: members.renew(tx, me.name, me.incarnation, {"n": 1}),
            "pause": lambda tx: pauses.pause(tx, "member", me.name, by="test"),
            "resume": lambda tx: pauses.resume(tx, "member", me.name, by="test"),
            "goal": lambda tx: goals.aim(tx, "goal", dict.fromkeys(PARTITIONS, 5)),
            "reach": reach,
            "read": lambda tx: reading.take(tx, holder=me.name, token=me.name, length=30),
            "drive": lambda tx: leases.take(tx, "driver", holder=me.name, token=me.name, length=30),
        }
        self.do(works[what])

    @rule()
    def the_last_mutation_again(self) -> None:
        """Its outcome was unknown: it is run again, and finds its own effect."""
        self.do(self.repeat)

    # --- what holds after each rule ---

    @invariant()
    def holds(self) -> None:
        with self.store.read(NAME) as reader:
            self.watched.check(reader)


def _with_retain(text: str, keep: int) -> str:
    return json.dumps({**json.loads(text), "retain": keep})
