"""I10, asked for without mercy: once the faults are over nobody helps, and everything comes right by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from crkafka_core.model import limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Member, MemberStatus, Segment, Table
from crkafka_core.model.segment import SegmentName
from crkafka_core.plane import alarms
from crkafka_core.protocol.state import Gate
from tests.rigs.simulation.faults import EPOCH, RECREATED
from tests.rigs.simulation.history import Violation
from tests.rigs.simulation.plan import Fault, kinds
from tests.rigs.simulation.tables import judge

if TYPE_CHECKING:
    from tests.rigs.simulation.world import World

WITHIN = 90.0
"""Simulated seconds in which each step of it happens."""
IN_A_ROW = 2
"""Cuts that complete one after the other, with no reset in between."""
STOPS = kinds(
    "kill, kill before sql, kill after sql, lose reply, stall, hang, cut sql, cut kafka, duplicate, trouble, "
    "rebalance, commit fails, seek fails, seek is lost, poll fails, partition fails, slow, scale, stranger, "
    "clock step, host kill"
)
"""Kinds of faults that, often enough, are a cause to be STOPPED: losses, forced resets, failures (SPEC X6)."""
ENOUGH = 3
"""Fewer of them never are."""
HEARD = 4.0
"""Simulated seconds after the end of the faults by which the control plane has heard of all failures among them, those of a client that
was not where it was told to go included: that shows once records flow."""


class Progress:
    def __init__(self, world: World) -> None:
        self.world = world

    def run(self) -> None:
        self.heal()
        self.goes_on()
        self.everything_lands()
        self.ends_cleanly()

    def until(self, done: Callable[[], bool], what: str, within: float = WITHIN) -> None:
        world, end = self.world, self.world.now + within
        while not done():
            if world.now > end:
                raise Violation("I10", f"{what}: not within {within:.0f} simulated seconds; {world.oracle.row}")
            if world.oracle.row.phase is Phase.STOPPED:
                self._stopped(what)
            world.host.supervise()
            for _ in range(16):
                world.step()

    def _stopped(self, what: str) -> None:
        """Only for a control plane that went back in time, after which a person says how to go on (SPEC G10); or for a topic that was
        made anew and that nobody had noticed yet."""
        world, row = self.world, self.world.oracle.row
        if RECREATED in row.stop_reason:
            self._ask("forget")
            self._ask("start")
            return
        if not (row.went_back and world.oracle.lost):
            raise Violation("I10", f"{what}: STOPPED, and no fault is there: {row.stop_reason}")
        self._ask("go on")
        self._ask_for_what_is_gone()

    def heal(self) -> None:
        """The faults end. A region that they stopped, and one that a person wants stopped, is started by a person."""
        world, row, healed = self.world, self.world.oracle.row, self.world.now
        world.note("world", "faults are over")
        world.history.healed_at, world.history.resets = healed - EPOCH, row.epoch - world.first_epoch
        world.faults.heal()
        while world.faults.troubled and world.now < healed + HEARD:  # who was held up may fail one time too many
            world.step()
        self._hear_the_person()
        stops = [reason for reason in world.oracle.stops if RECREATED not in reason]
        if stops and not world.oracle.lost and sum(f.kind in STOPS for f in world.plan.faults) < ENOUGH:
            raise Violation("X6", f"STOPPED without a cause in the plan: {stops[0]}")
        if world.paused:
            self._ask("resume")
        row = world.oracle.row
        if world.broker.former:
            self._ask("forget")
        if row.went_back:
            self._ask("go on")
        elif row.phase in (Phase.STOPPED, Phase.IDLE) or row.wanted is Wanted.STOP or row.stopping:
            self._ask("start")
        self._ask_for_what_is_gone()

    def _ask_for_what_is_gone(self) -> None:
        """Files that were retired before SQL was put back to when it named them: tables may have to have them, so all is read once more.

        That is refused as long as nobody has said how to go on after SQL went back.
        """
        if self.world.oracle.lost and self.world.oracle.lacks():
            self._ask("initial")

    def _ask(self, kind: str) -> None:
        world = self.world
        world.person.ask(Fault(0.0, kind))
        self._hear_the_person()

    def _hear_the_person(self) -> None:
        """Until the region has said yes or no to all that was asked for."""
        world, end = self.world, self.world.now + WITHIN
        world.scheduler.look(world.person)
        while world.person.asks:
            if world.now > end:
                raise Violation("I10", f"nobody heard a person: {world.person.asks[0]}")
            world.step()

    def goes_on(self) -> None:
        """Several cuts in a row, none of them aborted; once they come, none of them makes anybody start anew (D1)."""
        world, oracle = self.world, self.world.oracle
        self.until(
            lambda: all(p.config is world.config for p in world.processes), "everybody has the new configuration"
        )
        disturbed, cuts, starts, settled = (-1, -1, -1), 0, 0, False

        def in_a_row() -> bool:
            nonlocal disturbed, cuts, starts, settled
            now = oracle.row.epoch, world.broker.rebalances, world.launches
            states = [p.parts.loop.state for p in world.processes if p.parts is not None]
            joins = any(state.leaderless for state in states)
            if now != disturbed or joins:  # what has a leader since is taken in by a reset (SPEC R4)
                disturbed, cuts, starts, settled = now, oracle.cuts, 0, False
            elif not settled and oracle.cuts > cuts and all(s.gate is Gate.OPEN or not s.held for s in states):
                cuts, starts, settled = oracle.cuts, oracle.starts, True
            if settled and oracle.starts != starts:
                raise Violation("D1", "cuts come in a row, and somebody starts anew")
            return settled and oracle.cuts >= cuts + IN_A_ROW

        self.until(in_a_row, f"a cut, and {IN_A_ROW} in a row")

    def everything_lands(self) -> None:
        """Lag 0, and each declared table has it; whoever came for a while has gone."""
        world, oracle = self.world, self.world.oracle
        self.until(lambda: all(visitor.gone for visitor in world.visitors), "visitors have gone")
        self.until(self._as_many_as_wanted, "the members that are wanted are there, and no others")
        world.producer.stopped = True
        if world.plan.period is not None:
            self.until(self._landed, "everything that was produced is merged", 2 * WITHIN)
            self.until(self._fed, "every table is fed")
        else:  # the rest is fewer tuples than trigger a cut: the last cut takes it
            self.until(self._submitted, "everything that was produced is submitted", 2 * WITHIN)
        self.until(self._nothing_is_alarmed, "nothing is alarmed")
        self.until(self._committed, "Kafka has what is merged")
        self.until(self._retired, "what nobody needs is deleted")
        if oracle.row.phase is Phase.STOPPED:
            raise Violation("I10", f"STOPPED, and no fault is there: {oracle.row.stop_reason}")

    def _landed(self) -> bool:
        oracle = self.world.oracle
        return all(not self.world.broker.fetch(tp, oracle.next_of(tp), 1) for tp in self._read())

    def _read(self) -> list[TP]:
        """Partitions of topics that the configuration reads."""
        return [tp for tp in self.world.broker.ends if tp.topic in (self.world.config.topics or ())]

    def _submitted(self) -> bool:
        oracle = self.world.oracle
        now = {tp: at for tp, (epoch, at) in oracle.reached.items() if epoch == oracle.row.epoch}
        return all(not self.world.broker.fetch(tp, max(now.get(tp, 0), oracle.next_of(tp)), 1) for tp in self._read())

    def _nothing_is_alarmed(self) -> bool:
        with self.world.store.read(self.world.region) as reader:
            return not alarms.current(reader, self.world.oracle.row)

    def _fed(self) -> bool:
        world = self.world
        with world.store.read(world.region) as reader:
            tables = reader.select(Table)
        newest = max((c for c in world.oracle.line() if world.oracle.landed[c]), default=0)
        return all(t.acknowledged >= newest for t in tables)

    def _retired(self) -> bool:
        """T1, T3: no checkpoint that is not to be kept, and no file that nobody can name any more."""
        world, row = self.world, self.world.oracle.row
        with world.store.read(world.region) as reader:
            kept = reader.count(Checkpoint, ("status", "=", CheckpointStatus.MERGED))
            named = {segment.path for segment in reader.select(Segment)}
        begun = ((path, SegmentName.parse(path)) for path in world.disk.keys() - named)
        orphans = [path for path, name in begun if name is not None and name.number <= row.head]
        return kept <= limits.of(row).retain and not orphans

    def _as_many_as_wanted(self) -> bool:
        world, row = self.world, self.world.oracle.row
        with world.store.read(world.region) as reader:
            reported = reader.select(Member, ("status", "=", MemberStatus.LIVE))
        live = sorted(m.name for m in reported)
        if any(not m.assignment_json or (m.epoch, m.base) != (row.epoch, row.head) for m in reported):
            return False  # one is coming, which may cost a reset
        count = row.members_wanted if world.oracle.lost else world.wanted
        wanted = sorted(world.config.member_name(i) for i in range(count))
        return live == wanted == sorted(p.operator for p in world.processes)

    def ends_cleanly(self) -> None:
        """A stop with a last cut, which merges; then what Kafka has committed is what the head says (I12)."""
        world, oracle = self.world, self.world.oracle
        world.note("world", "a clean end")
        self.until(lambda: oracle.row.phase is Phase.RUNNING, "running")
        cuts = oracle.cuts
        self._ask("stop")
        self.until(lambda: oracle.row.phase is Phase.IDLE and not world.processes, "stopping")
        if oracle.cuts == cuts:
            raise Violation("G9", "the region was stopped without a last cut")
        if not self._landed():
            raise Violation(
                "I10",
                f"the last cut leaves records behind: {oracle.merged[oracle.row.head]}, produced {world.broker.ends}",
            )
        world.history.tuples = oracle.final()
        self.until(self._fed, "every table is fed with the last cut")
        judge(world)
        if world.config.commit == "drain" and not self._committed():
            merged = oracle.merged[oracle.row.head]
            raise Violation("I12", f"committed {world.broker.committed}, merged {merged}")

    def _committed(self) -> bool:
        committed, merged = self.world.broker.committed, self.world.oracle.merged[self.world.oracle.row.head]
        return all(committed.get(tp) == merged.get(tp) for tp in self._read())
