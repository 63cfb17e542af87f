"""Who else moves in a simulated region: host, drivers, a person, producers, retirement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crkafka_core.model.errors import CrkafkaError, NotSettled, ServiceUnavailable
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Region
from crkafka_core.plane import cuts, pauses, regions, resets, retire, triggers
from crkafka_core.testing.simulation.watch import Watch

if TYPE_CHECKING:
    from crkafka_core.testing.simulation.plan import Fault
    from crkafka_core.testing.simulation.world import World


class Actor:
    """Somebody with a process of his own, who reaches SQL or does not."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.incarnation = name
        self.sql_cut_until = 0.0
        self.stalled_until = 0.0

    def moves(self) -> bool:
        return self.world.now >= self.stalled_until

    def sql(self, work: Any, what: str) -> Any:
        return self.world.sql(self, work, what)


class Host(Actor):
    """Starts the members that are wanted, and those that ended, after a while."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "host")
        self.at: dict[str, float] = {}

    def move(self) -> None:
        world = self.world
        row: Region = world.oracle.row
        if world.sql_is_down(self) or row.wanted is Wanted.STOP or row.phase is Phase.IDLE:
            return
        there = {p.name for p in world.processes if not p.gone}
        for i in range(row.members_wanted):
            name = f"{world.region}/{i}"
            if name in there:
                self.at.pop(name, None)
            elif name not in self.at:
                self.at[name] = world.now + world.rng.uniform(0.05, 0.6)
            elif world.now >= self.at[name]:
                del self.at[name]
                world.launch(name)


class Driver(Actor):
    """Opens cuts when they are due, and advances the region as anyone may."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"driver-{number}")
        self.token = ""
        self.count = 0
        self.watch = Watch(world, self.name)

    def move(self) -> None:
        if self.token:
            self.open()
            return
        self.watch.look(self)
        plan = self.world.plan
        try:
            cause = self.world.ask(
                self, lambda r, region: triggers.cause(r, region, period=plan.period, counted=bool(plan.trigger_count))
            )
        except ServiceUnavailable:
            return
        if cause:
            self.count += 1
            self.token = f"{self.name} {self.count}"

    def open(self) -> None:
        try:
            self.sql(lambda tx: cuts.open_cut(tx, token=self.token, cause="due"), "open cut")
        except (ServiceUnavailable, NotSettled):
            if self.world.rng.random() < 0.9:
                return  # the same token again: an unknown outcome is found
        except CrkafkaError:
            pass
        self.token = ""


class Retirer(Actor):
    """Retires what is older than `retain`, deletes its files one by one, and collects orphans."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "retirer")
        self.paths: list[str] = []

    def move(self) -> None:
        if self.paths:
            self.world.storage.pop(self.paths.pop(), None)
            return
        try:
            plan = self.world.ask(self, retire.plan)
            if plan.retire:
                self.paths = self.sql(lambda tx: retire.retire(tx, plan.retire), "retire")
            elif self.world.rng.random() < 0.2:
                self.paths = self.orphans()
        except CrkafkaError:
            return

    def orphans(self) -> list[str]:
        """Files of epochs below the current one that no merged checkpoint names (SPEC T3)."""
        listed = list(self.world.storage)
        named, epoch = self.world.ask(self, lambda r, region: (retire.named(r, region.name), region.epoch))
        return [path for path in listed if int(path.split("/")[0]) < epoch and path not in named]


class Person(Actor):
    """Asks for what the plan's faults say, until the region has said yes or no."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "person")
        self.asks: list[Fault] = []

    def move(self) -> None:
        if not self.asks:
            return
        ask = self.asks[0]
        try:
            self.do(ask)
        except ServiceUnavailable:
            return
        except CrkafkaError as refused:
            self.world.note(self.name, f"{ask.kind} refused", refused)
        self.asks.pop(0)

    def do(self, ask: Fault) -> None:
        match ask.kind:
            case "rewind":
                live = self.world.ask(
                    self,
                    lambda r, region: r.select(
                        Checkpoint, ("region", "=", region.name), ("status", "=", CheckpointStatus.MERGED)
                    ),
                )
                if live:
                    target = live[int(ask.value * len(live))].id
                    self.sql(
                        lambda tx: resets.request(tx, cause="a person", by="person", target=target),
                        f"rewind to {target}",
                    )
            case "initial":
                self.sql(lambda tx: resets.request(tx, cause="a person", by="person", target=0), "reset to initial")
            case "reset":
                self.sql(lambda tx: resets.request(tx, cause="a person", by="person"), "reset")
            case "scale":
                self.sql(
                    lambda tx: regions.scale(tx, 1 + int(ask.value * 4), by="person"),
                    f"scale to {1 + int(ask.value * 4)}",
                )
            case "stop":
                self.sql(lambda tx: regions.stop(tx, token=f"stop {ask.at}", by="person"), "stop")
            case "start":
                self.sql(lambda tx: resets.start(tx, by="person"), "start")
            case "pause":
                tps = sorted(self.world.broker.all())
                tp = tps[int(ask.value * len(tps))]
                self.sql(lambda tx: pauses.pause(tx, "partition", str(tp), by="person"), "pause")


class Producer(Actor):
    """Appends uniquely numbered records, with holes now and then."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "producer")
        self.stopped = False

    def move(self) -> None:
        if self.stopped:
            return
        rng, broker = self.world.rng, self.world.broker
        tp = rng.choice(sorted(broker.logs))
        for _ in range(rng.randint(1, 4)):
            broker.produce(tp, hole=rng.choice((0, 0, 0, 0, 1, 2)))
