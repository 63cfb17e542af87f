"""Players on a control plane without Kafka: a member that obeys its desired state, and a stranger that obeys nothing."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from crkafka_core.model import limits
from crkafka_core.model.errors import Lost, NotRunning, Refused, Superseded
from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region
from crkafka_core.model.segment import ClosedSegment, Span, segment_path
from crkafka_core.plane import contributions, member_plane, members, roster, starts
from crkafka_core.plane.contributions import Part
from crkafka_core.plane.transact import ControlPlane

TOPIC_IDS = {"orders": "id-orders", "refunds": "id-refunds"}
PARTITIONS = tuple(TP(topic, number) for topic in TOPIC_IDS for number in range(3))


def new_region(name: str, *, members_wanted: int, **changes: float) -> Region:
    """A region whose waits are short, and whose budgets do not end a test."""
    budgets = dict.fromkeys(("forced_budget", "forced_without_cut", "max_consecutive_resets"), 10**9)
    short = {"start_grace": 0.0, "backoff_base": 0.0, **budgets}
    stored = limits.dump(replace(Limits(), **{**short, **changes}))  # type: ignore[arg-type]
    return Region(name=name, uid=f"uid-{name}", region_index=1, members_wanted=members_wanted, limits_json=stored)


@dataclass
class Player:
    """A member: one mutation per step, each found by comparing its own state with the desired one."""

    plane: ControlPlane
    name: str
    held: frozenset[TP] = frozenset()
    generation: int = 0
    """What the group, played by the test, last gave it."""
    random: random.Random = field(default_factory=random.Random)
    launch: int = 0
    incarnation: str = ""
    epoch: int = 0
    base: int = -1
    reported: tuple[int, frozenset[TP]] | None = None
    start: dict[TP, int] = field(default_factory=dict)
    position: dict[TP, int] = field(default_factory=dict)
    contributed: int = 0

    def step(self) -> str:
        """Do the next thing that is due; what it was."""
        try:
            return self._step()
        except (Lost, Superseded):
            self.crash()
            return "ended"

    def crash(self) -> None:
        """The process is gone; the next step starts a new one."""
        self.launch, self.incarnation, self.epoch, self.base = 0, "", 0, -1
        self.reported, self.start, self.position, self.contributed = None, {}, {}, 0

    def assign(self, generation: int, held: Collection[TP]) -> None:
        """The group's next generation; the member says so at its next step."""
        self.generation, self.held = generation, frozenset(held)

    def part(self, checkpoint: int, names: Collection[str], generation: int | None = None) -> Part:
        offsets = {tp: (self.start[tp], self.position[tp], self.position[tp] - self.start[tp]) for tp in self.start}
        spans = tuple(Span(tp, *o) for tp, o in sorted(offsets.items()) if o[2])
        rows = sum(o[2] for o in offsets.values())
        path = segment_path(f"uid-{self.plane.region}", self.epoch, self.incarnation, checkpoint, 0)
        return Part(
            checkpoint=checkpoint,
            member=self.name,
            incarnation=self.incarnation,
            epoch=self.epoch,
            base=self.base,
            generation=self.generation if generation is None else generation,
            members=tuple(names),
            offsets=offsets,
            topic_ids={tp.topic: TOPIC_IDS[tp.topic] for tp in self.start},
            segments=[ClosedSegment(path, rows, rows * 100, f"hash {path}", spans)] if rows else [],
        )

    # --- inside ---

    def _step(self) -> str:
        if not self.incarnation:
            return self._start()
        want = self.plane.read(
            lambda reader, row: member_plane.desired(reader, row, roster.all_of(reader), self.name, self.incarnation)
        )
        if want.superseded or not want.registered:
            self.crash()
            return "ended"
        if self.reported is not None and self.reported != (self.generation, self.held):
            return self._withdraw()
        if want.epoch == self.epoch and self.contributed and want.head == self.contributed:
            self.base, self.start, self.contributed = want.head, dict(self.position), 0
            return "merged"
        fills = want.fills is not None and want.fills == self.start.keys() and self.epoch == want.epoch
        if (self.epoch, self.base) != (want.epoch, want.head) or (self.reported is None and not fills):
            return self._resolve(want.epoch, want.head)
        if want.phase is Phase.RUNNING:
            for tp in self.held & self.start.keys():
                self.position[tp] += self.random.randrange(4)
            return "submitted"
        if want.cut is not None and want.cut.mine is not None and self.contributed != want.cut.id:
            part = self.part(want.cut.id, want.cut.members, want.cut.generation)
            self.plane.do(lambda tx: contributions.contribute(tx, part))
            self.contributed = want.cut.id
            return "contributed"
        return "waits"

    def _start(self) -> str:
        launch = self.launch or self.plane.do(lambda tx: members.launch(tx, self.name))
        self.launch = launch
        who = members.Registration(
            self.name, f"{self.name.replace('/', '-')}.{launch}", launch, 1, "cluster", f"group of {self.plane.region}"
        )
        try:
            self.plane.do(lambda tx: members.register(tx, who))
        except NotRunning:
            return "not wanted"
        self.incarnation = who.incarnation
        return "registered"

    def _withdraw(self) -> str:
        self.plane.do(lambda tx: members.withdraw(tx, self.name, self.incarnation, why="rebalance"))
        self.reported, self.contributed = None, 0
        return "withdrew"

    def _resolve(self, epoch: int, head: int) -> str:
        proposals = {tp: starts.Proposal(TOPIC_IDS[tp.topic], 100 * tp.partition, "beginning") for tp in PARTITIONS}
        who: dict[str, Any] = {"incarnation": self.incarnation, "epoch": epoch, "base": head}
        ids = {tp: TOPIC_IDS[tp.topic] for tp in self.held}
        resolved = self.plane.do(
            lambda tx: starts.resolve(tx, member=self.name, topic_ids=ids, proposals=proposals, **who)
        )
        self.start = {tp: resolved.offsets[tp] for tp in self.held}
        self.position, self.contributed = dict(self.start), 0
        self.epoch, self.base = epoch, head
        given = self.generation, self.held
        self.plane.do(lambda tx: members.report(tx, self.name, generation=given[0], held=given[1], **who))
        self.reported = given
        return "reset"


CHANGES = ("nothing", "epoch", "incarnation", "base", "generation", "member", "claim", "shift", "lose")


@dataclass
class Zombie:
    """Sends what an honest member once sent, changed a little: everything of it must be refused, or be the same again."""

    plane: ControlPlane

    def contribute(self, honest: Part, change: str, other: Player) -> str:
        """Change one thing of an honest contribution, and send it."""
        part = self._changed(honest, change, other)
        try:
            self.plane.do(lambda tx: contributions.contribute(tx, part))
        except Refused:
            return f"{change}: refused"
        return f"{change}: accepted"

    def _changed(self, part: Part, change: str, other: Player) -> Part:
        if change == "epoch":
            return replace(part, epoch=part.epoch - 1)
        if change == "incarnation":
            return replace(part, incarnation=f"{part.member}@0")
        if change == "base":
            return replace(part, base=part.base - 1)
        if change == "generation":
            return replace(part, generation=part.generation - 1)
        if change == "member":
            return replace(part, member=other.name, incarnation=other.incarnation)
        if change == "claim":
            free = next((tp for tp in PARTITIONS if tp not in part.offsets), None)
            return part if free is None else replace(part, offsets={**part.offsets, free: (0, 0, 0)})
        if change == "shift":
            moved = {tp: (o[0] + 1, o[1] + 1, o[2]) for tp, o in part.offsets.items()}
            spans = [
                replace(s, spans=tuple(replace(k, first=k.first + 1, next=k.next + 1) for k in s.spans))
                for s in part.segments
            ]
            return replace(part, offsets=moved, segments=spans)
        if change == "lose" and part.offsets:
            left = dict(list(part.offsets.items())[1:])
            spans = [
                replace(s, spans=kept, rows=sum(k.rows for k in kept))
                for s in part.segments
                if (kept := tuple(k for k in s.spans if k.tp in left))
            ]
            return replace(part, offsets=left, segments=spans)
        return part
