"""A simulated process of a member: the real `MemberProcess` with all of its loops, over simulated edges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crkafka_core.config import RegionConfig
from crkafka_core.kafka.edge import Admin, Consumer
from crkafka_core.member.edges import Edges
from crkafka_core.member.exit_codes import CODES
from crkafka_core.member.main import MemberProcess
from crkafka_core.member.open_segments import Handed, OpenSegments
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.segment import SegmentName
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.signals import ExitKind
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import Writer
from tests.rigs.simulation.broker import Client
from tests.rigs.simulation.history import Heard, Violation
from tests.rigs.simulation.kafka import SimulatedAdmin, SimulatedConsumer
from tests.rigs.simulation.plane import SimulatedPlane
from tests.rigs.simulation.scheduler import Killed, Owner, SimulatedRuntime, SimulatedSignal
from tests.rigs.simulation.storage import SimulatedStorage, SimulatedWriter

if TYPE_CHECKING:
    from tests.rigs.simulation.world import World

KILLED = -9
_BUG = re.compile(r": [A-Z]\w*(Error|Exception): ")
"""In the words of a loop that says that only a new process mends it: an exception that Python raised, and no service."""


class SimulatedMember(Owner, Edges):
    """What a host starts, and what faults hit. Also the `Edges` of the member in it, and the `Process` that its host sees."""

    def __init__(self, world: World, name: str, number: int) -> None:
        super().__init__(f"{name}#{number}")
        self.world = world
        self.config = world.config
        self.operator = name
        self.pid = number
        self.code: int | None = None
        self.kafka_cut_until = 0.0
        self.clients: list[Client] = []
        self.parts: MemberProcess | None = None
        self.written: dict[TP, int] = {}
        """Where the tuples leave off that it has written since its segments were handed over or dropped."""
        self.left_off: dict[TP, int] = {}
        """And where those leave off that it has handed over since it started from a head."""
        self.begun: SegmentName | None = None
        """The last segment that it has begun, and not handed over or dropped."""
        self.stop = SimulatedSignal()
        self.runtime = SimulatedRuntime(world.scheduler, self, world.unique)
        world.scheduler.spawn(self, "main", self._main)

    def _main(self) -> None:
        world = self.world
        try:
            process = MemberProcess(self.config, SimulatedPlane(world, self), self.operator, "sim", self)
            world.incarnations[process.incarnation] = self
            code = process.run(self.stop, self._hook)
        except CrkafkaError:
            code = CODES[ExitKind.FAILED]
        self.end_process(code)

    def _hook(self, parts: MemberProcess) -> None:
        """Note what the machine hears and answers. Why a process ends is judged by what follows, a mistake of the program apart."""
        self.parts = parts
        loop, step = parts.loop, parts.loop._step

        def noted(event: sg.Event | None) -> None:
            if isinstance(event, sg.Broken) and _BUG.search(event.why):
                self.world.fail(Violation("machine", f"{self.name}: {event.why}"))
            before = len(self.world.history.entries)
            try:
                step(event)
            except Exception as error:
                if not self.dead:
                    self.world.crash(error)
                raise
            if event is not None:
                self.world.note_at(before, self.name, f"hears {type(event).__name__}", Heard(event, loop.state))

        setattr(loop, "_step", noted)  # noqa: B010 (the machine's only door)
        self._watch_segments(parts.submitter._segments)
        submitter, place = parts.submitter, parts.submitter.place

        def placed(stamp: sg.Stamp, offsets: Mapping[TP, int], leader_epochs: Mapping[TP, int]) -> None:
            self.world.judged(lambda: self.world.oracle.sought(self, stamp, offsets))
            if self.written and not (submitter._drop or submitter._dropping_since is not None):
                self.world.fail(Violation("M3", f"{self.name} seeks while its open segment holds tuples"))
            self.left_off = {}
            place(stamp, offsets, leader_epochs)

        setattr(submitter, "place", placed)  # noqa: B010

    def _watch_segments(self, segments: OpenSegments) -> None:
        """D1, D3, D5: nothing is submitted while they are handed over for a cut; after that, only to a number that is handed out."""
        hand_over, drop, world = segments.hand_over, segments.drop, self.world

        def hands_over() -> Handed:
            assert self.parts is not None
            submitter = self.parts.submitter
            begun = self.begun
            if submitter._open and begun is not None and (begun.epoch, begun.number + 1) not in world.oracle.ran:
                world.fail(Violation("D1", f"{self.name} saves while a permit is given, and no number is handed out"))
            if submitter._holder:
                world.fail(Violation("D5", f"{self.name} takes its offsets in the middle of a batch"))
            if self.begun is not None:
                world.oracle.closes(self.begun)
            self.left_off |= self.written
            self.written, self.begun = {}, None
            return hand_over()

        def drops() -> None:
            self.written, self.left_off, self.begun = {}, {}, None
            drop()

        setattr(segments, "hand_over", hands_over)  # noqa: B010
        setattr(segments, "drop", drops)  # noqa: B010

    # What hits it

    @property
    def running(self) -> bool:
        return not self.dead and self.parts is not None

    @property
    def submits(self) -> bool:
        """A permit is given, or held; what is to be dropped first is nobody's any more."""
        submitter = self.parts.submitter if self.parts is not None else None
        return submitter is not None and (submitter._open or submitter._holder) and not submitter._drop

    @property
    def away_until(self) -> float:
        return float("inf") if self.dead else max(self.stalled_until, self.kafka_cut_until)

    def away(self, *, stalled: float | None = None, cut: float | None = None) -> None:
        """It does not run, or does not reach Kafka, before this time."""
        self.stalled_until = self.stalled_until if stalled is None else stalled
        self.kafka_cut_until = self.kafka_cut_until if cut is None else cut
        for client in self.clients:
            client.away_until = self.away_until
        self.world.broker.calm = False

    def post(self, event: sg.Event) -> None:
        if self.parts is not None:
            self.parts.loop.post(event)
            self.world.scheduler.look(self)

    def gone(self, code: int) -> None:
        """It is no more; SQL and Kafka may not know yet."""
        if not self.dead:
            self.code = code
            self.world.scheduler.kill(self)
            self.away()
            self.world.note(self.name, f"ends with code {code}")

    # Its edges

    def admin(self, kafka: Mapping[str, str], client_id: str) -> Admin:
        return SimulatedAdmin(self.world, self)

    def consumer(self, properties: Mapping[str, str]) -> Consumer:
        return SimulatedConsumer(self, properties)

    def storage(self, config: RegionConfig) -> Storage:
        return SimulatedStorage(self.world, self)

    def writer(self, storage: Storage, path: str) -> Writer:
        assert isinstance(storage, SimulatedStorage)
        return SimulatedWriter(self.world, self, storage, path)

    def settle(self) -> None:
        """Memory is not simulated."""

    def nudge(self, properties: Mapping[str, str], config: RegionConfig) -> None:
        self.world.later(self.world.scheduler.latency(), self.world.broker.rebalance)

    def depart(self, properties: Mapping[str, str], config: RegionConfig) -> None:
        self.world.scheduler.give_way()
        for client in self.clients:
            self.world.broker.remove(client)

    def end_process(self, code: int) -> None:
        self.gone(code)
        raise Killed

    # As its host sees it

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        return self.code if self.code is not None else 0

    def terminate(self) -> None:
        self.stop.set()

    def kill(self) -> None:
        self.gone(KILLED)


def launcher(world: World) -> Any:
    return lambda order, log: world.launch(order["name"])
