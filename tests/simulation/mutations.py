"""Planted breakages of the protocol: each takes one rule away, in the real code; the simulation must find every one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from crkafka_core.lake import files, standing
from crkafka_core.member import event_loop
from crkafka_core.member.submitter import Submitter
from crkafka_core.model import phase
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import ClientEvent, ClientState, Phase
from crkafka_core.model.rows import Reset
from crkafka_core.plane import (
    alarms,
    cuts,
    epochs,
    goals,
    handover,
    life,
    members,
    numbers,
    resets,
    restored,
    retire,
    roster,
    settling,
    starts,
    tables,
    transact,
    triggers,
    view,
)
from crkafka_core.plane.member_plane import MemberPlane
from crkafka_core.protocol import machine, merge, settle
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.machine import State
from crkafka_core.region import keeper
from crkafka_core.region import retire as region_retire
from crkafka_core.region.driver import Driver
from crkafka_core.segments import owner
from tests.rigs.simulation import Fault, Plan, plan
from tests.rigs.simulation.plan import RENEWED
from tests.simulation.breakage import Breakage, put


@dataclass(frozen=True)
class Mutation(Breakage):
    """A breakage, and the rules by which the oracle may find it."""

    name: str
    found_by: frozenset[str]
    plant: Callable[[ExitStack], None]
    faults: tuple[Fault, ...] = ()
    """Where only rare moments show the breakage: faults that make them frequent, in place of the seeds' own."""
    region: Mapping[str, Any] = field(default_factory=dict)
    """And what else of the plan makes them so."""
    since: int = 0
    """The first seed that is tried: near one that shows it, where one in a hundred does."""

    def plan(self, seed: int) -> Plan:
        chosen = replace(plan(seed), faults=self.faults, chaos=14.0) if self.faults else plan(seed)
        return replace(chosen, **self.region)


MUTATIONS: list[Mutation] = []

KILLS_IN_CUTS = tuple(
    Fault(4.0 + 2 * i, kind, i + who, 0.3, "CUTTING")
    for i in range(5)
    for who, kind in enumerate(("kill after sql", "stall"))
)
"""One member dies after it contributed, another is late."""
REWINDS_IN_RESETS = tuple(
    Fault(5.0 + 2 * i + j / 10, ("reset", "initial")[j], when=("", "RESETTING")[j]) for i in range(5) for j in (0, 1)
)
RESETS = tuple(Fault(4.0 + i, "reset") for i in range(8))
BACK_WHILE_STARTING = tuple(
    Fault(5.0 + 3 * i + j / 4, ("reset", "initial")[j], when=("", "RESETTING")[j]) for i in range(4) for j in (0, 1)
)
MADE_ANEW = tuple(Fault(5.0 + 3 * i, RENEWED, i, 0.2) for i in range(3))
REBALANCES = tuple(Fault(4.0 + i, "rebalance") for i in range(8))
SCALES = tuple(Fault(3.0 + 2 * i, "scale", value=(0.9, 0.1)[i % 2]) for i in range(4))
CUT_OFF_IN_REBALANCES = tuple(
    Fault(4.0 + 2 * i + j / 10, "rebalance" if j == 0 else "cut kafka", i, 0.6) for i in range(5) for j in (0, 1)
)


def mutation(
    *found_by: str, faults: tuple[Fault, ...] = (), since: int = 0, **region: Any
) -> Callable[[Callable[[ExitStack], None]], Callable[[ExitStack], None]]:
    def add(plant: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
        MUTATIONS.append(Mutation(plant.__name__, frozenset(found_by), plant, faults, region, since))
        return plant

    return add


@mutation("I4", "I8", faults=KILLS_IN_CUTS)
def merge_counts_instead_of_comparing_sets(stack: ExitStack) -> None:
    """A contribution counts, whoever made it: members are known by their name only, and a loss aborts nothing."""

    def counts(expected: Any, contributions: Any) -> tuple[set[str], set[str]]:
        complete = len(contributions) >= len(expected)
        return (set() if complete else {e.member for e in expected} - {c.member for c in contributions}), set()

    put(stack, merge, "wrong_sets", counts)
    _loss_forgets_the_cut(stack)


def _loss_forgets_the_cut(stack: ExitStack) -> None:
    real = members._reset_for

    def reset_for(tx: Any, lost: Any, text: str) -> None:
        if tx.region().phase is not Phase.CUTTING:
            real(tx, lost, text)

    put(stack, members, "_reset_for", reset_for)


@mutation("I8", "I4", faults=KILLS_IN_CUTS)
def merge_with_a_lost_member(stack: ExitStack) -> None:
    _loss_forgets_the_cut(stack)


@mutation("I4", "I1")
def a_partition_is_forgotten_in_the_merged_map(stack: ExitStack) -> None:
    real = cuts._close

    def close(tx: Any, cut: Any, merged: Any) -> Any:
        if len(merged) > 1:
            gone = merged[0]
            where = ("checkpoint", "=", cut.row.id), ("topic", "=", gone.topic)
            tx.delete(cuts.MergedOffset, *where, ("partition", "=", gone.partition))
        return real(tx, cut, merged)

    put(stack, cuts, "_close", close)


@mutation("I4")
def a_merge_does_not_look_for_uncovered_partitions(stack: ExitStack) -> None:
    """Members leave out a partition that they fill."""
    put(stack, merge, "broken", _without(merge.broken, "nobody contributed"))
    _members_contribute(stack, lambda offsets: {tp: o for tp, o in offsets.items() if tp != TP("t0", 0)})


def _members_contribute(stack: ExitStack, what: Callable[[Mapping[TP, Any]], Mapping[TP, Any]]) -> None:
    """Something else than what they fill, without their segments; only the merge compares."""
    real = cuts.contribute
    put(
        stack,
        cuts,
        "contribute",
        lambda tx, part: real(tx, replace(part, offsets=what(part.offsets), segments=())),
    )
    put(stack, cuts, "_mismatch", lambda region, checkpoint, fillers, part: None)


@mutation("G8", since=20)
def partitions_that_nobody_holds_do_not_count(stack: ExitStack) -> None:
    put(stack, settle, "missing", _without(settle.missing, "nobody holds"))


def _only(real: Callable[..., str], words: str) -> Callable[..., str]:
    def asked(*args: Any, **kwargs: Any) -> str:
        answer = real(*args, **kwargs)
        return answer if answer.startswith(words) else ""

    return asked


def _without(real: Callable[..., str], words: str) -> Callable[..., str]:
    def asked(*args: Any, **kwargs: Any) -> str:
        answer = real(*args, **kwargs)
        return "" if answer.startswith(words) else answer

    return asked


@mutation("G8")
def resume_before_settled(stack: ExitStack) -> None:
    """But what nobody has reported to hold, nobody can fill."""
    put(stack, settling, "unready", _only(settling.unready, "no report"))


@mutation("G8", faults=CUT_OFF_IN_REBALANCES, since=8)
def generations_are_not_compared(stack: ExitStack) -> None:
    put(stack, settle, "missing", _without(settle.missing, "members report different generations"))


@mutation("G8")
def resume_before_all_have_reset(stack: ExitStack) -> None:
    put(stack, settle, "unready", settle.missing)


@mutation("I7", "I1")
def starts_from_a_stale_head(stack: ExitStack) -> None:
    real = starts.lookup

    def lookup(reader: Any, region: Any, topic_ids: Any) -> Any:
        row = reader.get(cuts.Checkpoint, region.head)
        found = real(reader, replace(region, head=row.parent) if row else region, topic_ids)
        return replace(found, base=region.head)

    put(stack, starts, "lookup", lookup)


@mutation(
    "I7",
    "M3",
    "machine",
    faults=BACK_WHILE_STARTING,
    since=23,
    sluggish="resolver",
    members=4,
    period=0.3,
    trigger_count=0,
    chaos=17.0,
)
def answers_with_an_old_stamp_are_believed(stack: ExitStack) -> None:
    real = machine._Member.hear

    def hear(self: Any, event: Any) -> None:
        if isinstance(event, sg.Started) and self.s.held == frozenset(event.offsets):
            event = replace(event, stamp=self.s.stamp)
            self.set(resolving=self.s.stamp)
        real(self, event)

    put(stack, machine._Member, "hear", hear)


@mutation("M8", faults=RESETS)
def the_gate_opens_while_resetting(stack: ExitStack) -> None:
    """Nor is it asked which partitions the member fills, none while resetting (SPEC C8)."""
    real = State.submits.fget
    assert real is not None

    def submits(self: State) -> bool:
        d = self.desired
        if d is not None and d.phase is Phase.RESETTING:
            return bool(real(replace(self, desired=replace(d, phase=Phase.RUNNING, fills=self.held))))
        return bool(real(self))

    def fetches(self: State) -> bool:
        return self.desired is not None and self.ready and not self.leaves

    put(stack, State, "submits", property(submits))
    put(stack, State, "fetches", property(fetches))


@mutation("M3", "I2")
def segments_are_kept_on_reset(stack: ExitStack) -> None:
    real = machine._Member.do
    put(
        stack,
        machine._Member,
        "do",
        lambda self, e: real(self, replace(e, drop=False) if isinstance(e, sg.Clear) else e),
    )


@mutation("M3", "I7", "I2", faults=REBALANCES)
def a_revocation_asks_for_no_reset(stack: ExitStack) -> None:
    """And starts are resolved while what came before is not merged."""
    table = {**phase.CLIENT, (ClientState.RECORDS_FETCHED, ClientEvent.REVOKE): ClientState.SUBSCRIBED}
    put(stack, machine, "CLIENT", table)
    put(stack, machine._Member, "keeps", lambda self: False)
    put(stack, members, "_takes_part", lambda reader, row: False)


@mutation("X10", faults=REBALANCES)
def a_rebalance_drops_what_was_submitted(stack: ExitStack) -> None:
    put(stack, cuts, "hand_over", lambda tx, why: cuts._reset(tx, why))


@mutation("X10", faults=REBALANCES, period=0.3, drain="flow", trigger_count=0)
def a_rebalance_aborts_an_open_cut(stack: ExitStack) -> None:
    real = cuts.hand_over

    def hand_over(tx: Any, why: Any) -> None:
        (cuts._reset if tx.region().open_cut and not tx.region().handover_json else real)(tx, why)

    put(stack, cuts, "hand_over", hand_over)


@mutation("X10", faults=REBALANCES)
def a_handover_waits_for_nobody(stack: ExitStack) -> None:
    put(stack, cuts, "waits_for", lambda reader, checkpoint: [])


@mutation("I8", faults=REBALANCES)
def a_handover_raises_no_epoch(stack: ExitStack) -> None:
    """Whoever it went without is not fenced."""
    put(stack, cuts, "_reset", lambda tx, why: tx.set_region(handover_json=""))


@mutation("I4", faults=tuple(Fault(1.5 + 0.5 * i, "kill", i) for i in range(8)), members=3, period=2.0)
def a_partition_of_who_is_lost_is_in_no_map(stack: ExitStack) -> None:
    put(stack, handover, "carried", lambda fillers, checkpoint, known: [])


@mutation("X10", "I10", faults=SCALES, members=4)
def who_leaves_drops_what_it_has_submitted(stack: ExitStack) -> None:
    def leave(self: Any, d: Any) -> None:
        if self.s.leaves and self.s.step is machine.Step.NONE and self.s.gate is machine.Gate.CLOSED:
            self.end(sg.ExitKind.CLEAN, "a clean end was asked for")

    put(stack, machine._Member, "leave", leave)


@mutation("D4", "I6", "V1")
def an_abort_does_not_raise_the_epoch(stack: ExitStack) -> None:
    real = epochs.raise_epoch

    def raise_epoch(tx: Any, cause: Any, text: str, **kwargs: Any) -> Any:
        before = tx.region()
        real(tx, cause, text, **kwargs)
        if before.open_cut:
            tx.delete(Reset, ("epoch", "=", tx.region().epoch))
            tx.set_region(epoch=before.epoch)
        return tx.region()

    put(stack, epochs, "raise_epoch", raise_epoch)


@mutation("X4", faults=REWINDS_IN_RESETS)
def a_rewind_supersedes_nothing(stack: ExitStack) -> None:
    def rewind(tx: Any, target: int, cause: str) -> None:
        tx.set_region(head=target)

    put(stack, epochs, "rewind", rewind)


@mutation("D3", "D1", "I2", "I8", "M3", "I10", drain="stop")
def a_cut_does_not_close_the_gate(stack: ExitStack) -> None:
    real = machine._Member.cut

    def cut(self: Any, d: Any) -> None:
        gate = self.s.gate
        self.set(gate=machine.Gate.CLOSED)
        real(self, d)
        self.set(gate=gate)

    put(stack, machine._Member, "cut", cut)


@mutation("I4", "I8", "I1", faults=KILLS_IN_CUTS)
def incarnations_are_not_compared(stack: ExitStack) -> None:
    """Whoever bears the name of an expected member is that member."""
    _loss_forgets_the_cut(stack)
    real_of = roster.of

    def of(reader: Any, name: str, incarnation: str) -> Any:
        row = reader.get(cuts.rows.Member, name)
        return row if row is not None and row.incarnation != incarnation else real_of(reader, name, incarnation)

    put(stack, roster, "of", of)
    put(stack, cuts, "_mismatch", lambda region, checkpoint, fillers, part: None)
    real = view._cut

    def desired_cut(reader: Any, region: Any, name: str, incarnation: str) -> Any:
        found = reader.select(
            cuts.rows.Filler,
            ("checkpoint", "=", region.open_cut),
            ("member", "=", name),
        )
        return real(reader, region, name, found[0].incarnation if found else incarnation)

    put(stack, view, "_cut", desired_cut)


@mutation("T3", "I13")
def orphans_are_taken_for_granted(stack: ExitStack) -> None:
    put(stack, retire, "named", lambda reader: set())


@mutation("I1")
def a_merge_believes_any_beginning(stack: ExitStack) -> None:
    """Members contribute from where they have come to, without the rows before it."""
    put(stack, merge, "broken", lambda fillers, offsets, parent, due, known: "")
    _members_contribute(stack, lambda offsets: {tp: (to, to, 0) for tp, (_, to, _) in offsets.items()})


@mutation("X1", "I7")
def initial_offsets_follow_the_head(stack: ExitStack) -> None:
    real = starts.resolve

    def resolve(tx: Any, **kwargs: Any) -> Any:
        head = starts.merged(tx, tx.region().head)
        moved = [replace(i, offset=head[tp].to_offset) for tp, i in starts.known(tx).items() if tp in head]
        tx.put(*moved)
        return real(tx, **kwargs)

    put(stack, starts, "resolve", resolve)


@mutation("G8", "I8", "G9", faults=SCALES)
def a_cut_opens_whenever_somebody_asks(stack: ExitStack) -> None:
    put(stack, cuts, "settling", SimpleNamespace(unready=lambda reader, region: ""))


@mutation("I10")
def nothing_flows_after_the_first_merge(stack: ExitStack) -> None:
    real = State.fetches.fget
    assert real is not None
    put(stack, State, "fetches", property(lambda self: real(self) and self.base == 0))


@mutation("I10")
def one_partition_is_never_fetched(stack: ExitStack) -> None:
    real = event_loop.paused
    put(stack, event_loop, "paused", lambda tp, *rest: tp == TP("t0", 0) or real(tp, *rest))


@mutation("I10", "G9")
def a_merge_moves_no_base_of_a_member_in_sql(stack: ExitStack) -> None:
    real = cuts._close

    def close(tx: Any, cut: Any, merged: Any) -> Any:
        found = real(tx, cut, merged)
        there = tx.select(cuts.rows.Member)
        tx.put(*(replace(m, base=cut.row.parent) for m in there))
        return found

    put(stack, cuts, "_close", close)


@mutation("D1")
def a_merge_moves_no_base_of_a_machine(stack: ExitStack) -> None:
    """It adopts the head as a stranger's: all that was fetched is dropped and fetched again after each cut."""
    put(stack, machine._Member, "merged", lambda self, d: None)


@mutation("I10")
def asks_for_a_cut_are_ignored(stack: ExitStack) -> None:
    put(stack, triggers, "ask", lambda tx, **_: None)


RESTORES = tuple(Fault(4.0 + 2 * i, "restore", value=0.1 + 0.15 * i) for i in range(5))


@mutation("T3", "I7", "I1", "I2", "M8", "I10", "I8", "machine", faults=RESTORES)
def an_older_control_plane_is_trusted(stack: ExitStack) -> None:
    """Nobody compares SQL with what lies outside of it, nor with what was seen of it."""
    put(stack, restored, "beyond", lambda reader, region, seen: "")
    nobody_remembers_what_was_seen_of_sql(stack)


@mutation("T3", "X4", "I7", "I10", "D3", "M8", faults=RESTORES, since=238)
def nobody_remembers_what_was_seen_of_sql(stack: ExitStack) -> None:
    put(stack, MemberPlane, "_saw", lambda self, epoch, version, head, opened: None)


CONFIGURES = tuple(Fault(4.0 + 3 * i, "configure", value=(0.6, 0.3, 0.8)[i]) for i in range(3))


@mutation("I10", faults=CONFIGURES, partitions=(2, 2), period=1.0)
def a_topic_that_leaves_the_configuration_stays_known(stack: ExitStack) -> None:
    put(stack, members, "drop_topics", lambda tx: None)


@mutation("I1", "I4", "I7", "I10", faults=CONFIGURES, since=35, partitions=(2, 2), period=1.0)
def who_reads_a_forgotten_topic_says_anew_where_it_begins(stack: ExitStack) -> None:
    put(stack, starts, "_remember", lambda tx, topic_ids: None)


@mutation("X9", faults=tuple(Fault(4.0 + 2 * i, "skip", i, 0.9) for i in range(5)))
def what_a_person_gives_up_is_forgotten_with_the_next_reset(stack: ExitStack) -> None:
    put(stack, starts, "_accepted_gaps", lambda reader, base: {})


@mutation("T1", faults=tuple(Fault(3.0 + i, "read", value=0.9) for i in range(8)), period=0.3)
def retirement_does_not_ask_who_reads(stack: ExitStack) -> None:
    put(stack, retire, "_readers", lambda reader, region: [])


@mutation("V3", faults=tuple(Fault(3.0 + i, "consume") for i in range(8)))
def a_bounded_run_believes_that_all_is_reached(stack: ExitStack) -> None:
    put(stack, goals, "missing", lambda reader, epoch, token: frozenset())


@mutation("I10", "machine", faults=tuple(Fault(4.0 + 2 * i, "undeclare", value=0.3) for i in range(4)), tables=1)
def a_table_that_is_declared_again_begins_its_numbers_anew(stack: ExitStack) -> None:
    """The format drops what it takes for commits that it has."""
    put(stack, tables, "commits", lambda reader, table: [])


LOST_ANSWERS = tuple(Fault(3.0 + i, ("lake fails", "writer kill")[i % 2], i, 0.5) for i in range(9))


@mutation("I2", faults=LOST_ANSWERS, tables=1, adopts=True)
def a_table_is_not_asked_what_it_has(stack: ExitStack) -> None:
    """A commit whose answer was lost is made again."""
    put(stack, standing, "standing", lambda reader, table, stamp: standing.Standing.ACKNOWLEDGED)


@mutation("I10", tables=1, adopts=True, aided=False, faults=(Fault(4.0, "reset"),))
def hosts_feed_no_table(stack: ExitStack) -> None:
    put(stack, keeper.Keeper, "_feed", lambda self: False)


@mutation(
    "I10", faults=tuple(Fault(5.0 + 2 * i, "rewind", value=0.1) for i in range(4)), tables=1, adopts=True, aided=False
)
def hosts_fence_no_table(stack: ExitStack) -> None:
    real = keeper.due
    put(stack, keeper, "due", lambda *given: ([], real(*given)[1]))


@mutation("X4", faults=tuple(Fault(5.0 + 2 * i, "rewind", value=0.1) for i in range(4)), tables=1, adopts=True)
def a_fence_takes_nothing_out(stack: ExitStack) -> None:
    put(stack, files, "parted", lambda *_: ([], []))


@mutation(
    "I2",
    "X4",
    "I10",
    "machine",
    faults=tuple(Fault(3.0 + 1.2 * i, "restore", value=0.03 * (i % 5)) for i in range(9)),
    tables=1,
    adopts=True,
    period=0.3,
)
def a_table_that_is_newer_than_sql_is_believed(stack: ExitStack) -> None:
    """And so is the mark beside the segments."""
    newer = standing.Standing.NEWER
    real = standing.standing
    old = standing.Standing.ACKNOWLEDGED
    put(stack, standing, "standing", lambda *of: old if real(*of) is newer else real(*of))
    put(stack, restored, "beyond", lambda reader, region, seen: "")


@mutation("T3", faults=tuple(Fault(4.0 + 2 * i, "copy", value=0.9) for i in range(5)), tables=1, adopts=True)
def a_copy_of_the_control_plane_is_not_told_from_it(stack: ExitStack) -> None:
    put(stack, owner, "check", lambda storage, uid, place, *, region: owner.read(storage, uid))


@mutation("upgrade", faults=(Fault(5.0, "upgrade"),))
def an_older_program_goes_on_after_an_upgrade(stack: ExitStack) -> None:
    put(stack, transact, "check_protocol", lambda region, spoken: None)


@mutation("I10", faults=tuple(Fault(4.0 + 2 * i, "restore", value=0.05 * i) for i in range(4)))
def a_launch_number_from_before_sql_went_back_is_drawn_again(stack: ExitStack) -> None:
    """Whoever is launched after it is taken for an older process, and ends for good."""
    real = members.launch

    def launch(tx: Any, name: str) -> int:
        number = real(tx, name)
        held = tx.get(cuts.rows.Member, name)
        return min(number, held.launch) if held is not None else number

    put(stack, members, "launch", launch)


PAUSES = tuple(Fault(3.0 + i, "pause", i, 0.1 + i / 8) for i in range(6))
CUT_LOGS = tuple(Fault(4.5 + 0.7 * i, "cut log", i, 0.2) for i in range(6))
FAILURES = tuple(Fault(3.0 + 0.4 * i, "trouble", i) for i in range(25))


@mutation("P2", faults=PAUSES)
def a_pause_mark_is_ignored(stack: ExitStack) -> None:
    put(stack, event_loop, "paused", lambda *of: False)


@mutation("S4", faults=(*PAUSES, *CUT_LOGS), since=95, data_loss="gap")
def a_seek_tells_no_leader_epoch(stack: ExitStack) -> None:
    """What is paused is not told that its log was cut, and goes on behind what has grown there since."""
    real = event_loop.EventLoop._sought
    put(stack, event_loop.EventLoop, "_sought", lambda self, stamp, offsets, epochs: real(self, stamp, offsets, {}))


@mutation("I2", faults=MADE_ANEW)
def a_merge_does_not_compare_the_ids_of_topics(stack: ExitStack) -> None:
    put(stack, cuts, "_wrong_topics", lambda *of: "")


@mutation("X4", faults=(*MADE_ANEW, Fault(9.0, "initial"), Fault(11.0, "initial"), Fault(13.0, "initial")))
def a_rewind_does_not_ask_what_nobody_reads_again(stack: ExitStack) -> None:
    put(stack, resets, "_read_by_nobody", lambda *of: [])


@mutation("I10")
def nothing_is_ever_retired(stack: ExitStack) -> None:
    put(stack, Driver, "_retire", lambda self: None)


@mutation("I10", faults=RESETS)
def orphans_are_left_where_they_are(stack: ExitStack) -> None:
    put(stack, region_retire, "collect_orphans", lambda *of: 0)


@mutation(
    "T1", faults=tuple(Fault(3.0 + 2 * i, "writer stall", i, 0.9) for i in range(6)), tables=1, adopts=True, period=0.3
)
def retirement_does_not_ask_tables(stack: ExitStack) -> None:
    put(stack, retire, "_bound", lambda reader, region: retire._lowest(retire._readers(reader, region), region.head))


@mutation("V1", period=0.3)
def an_idle_region_makes_checkpoints(stack: ExitStack) -> None:
    put(stack, cuts, "_nothing_new", lambda merged, parent: False)


@mutation("I10", faults=SCALES)
def a_person_scales_in_vain(stack: ExitStack) -> None:
    put(stack, life, "scale", lambda tx, wanted, *, by: tx.region())


@mutation("I10", faults=SCALES, members=4)
def who_is_scaled_in_stays(stack: ExitStack) -> None:
    real = view.desired

    def desired(reader: Any, region: Any, *of: Any) -> Any:
        return replace(real(reader, region, *of), wanted=region.phase is not Phase.IDLE)

    put(stack, view, "desired", desired)


@mutation("X6", faults=FAILURES)
def failures_in_a_row_stop_nothing(stack: ExitStack) -> None:
    real = resets.reset_policy.decide
    put(stack, resets.reset_policy, "decide", lambda *of: replace(real(*of), stop=""))


@mutation("X6", faults=FAILURES)
def no_reset_waits_before_the_next(stack: ExitStack) -> None:
    real = epochs.rest
    put(stack, epochs, "rest", lambda tx, cause, wait=0.0: real(tx, cause))


@mutation("X6", faults=tuple(Fault(3.0 + 2 * i, "kafka down", value=0.9) for i in range(5)), period=1.0)
def nobody_tells_that_no_merge_comes(stack: ExitStack) -> None:
    put(stack, alarms, "watch_merges", lambda tx: None)


@mutation("I10", commit_at_drain=False)
def what_is_merged_is_never_committed(stack: ExitStack) -> None:
    put(stack, event_loop.EventLoop, "_commit_cut", lambda self, cut, *, merged: None)


@mutation("D3", drain="flow", trigger_count=0)
def a_row_behind_the_mark_bears_the_number_of_the_cut(stack: ExitStack) -> None:
    real = Submitter._take_mark

    def take_mark(self: Any) -> None:
        number = self._number
        real(self)
        self._number = number

    put(stack, Submitter, "_take_mark", take_mark)


@mutation("D5", drain="flow", trigger_count=0)
def a_mark_is_taken_in_the_middle_of_a_batch(stack: ExitStack) -> None:
    real = Submitter.save

    def save(self: Any, cut: int, number: int) -> None:
        real(self, cut, number)
        self._take_mark()

    put(stack, Submitter, "save", save)


@mutation("I2", "I1", drain="flow", trigger_count=0, period=0.3)
def a_merge_has_the_offsets_of_when_the_segments_were_closed(stack: ExitStack) -> None:
    real = Submitter._close

    def close(self: Any, taken: Any, handed: Any) -> None:
        later = {tp: (at, self.offsets.next.get(tp, to), rows) for tp, (at, to, rows) in taken.offsets.items()}
        real(self, replace(taken, offsets=later), handed)

    put(stack, Submitter, "_close", close)
    put(stack, merge, "broken_spans", lambda offsets, spans: "")


@mutation("I10", "X6", "I7", drain="flow", trigger_count=0)
def the_merge_of_a_mark_says_nothing_of_where_the_next_number_begins(stack: ExitStack) -> None:
    put(stack, numbers, "begin", lambda tx, offsets: None)


@mutation(
    "I6",
    "C5",
    "I10",
    "X6",
    "T3",
    drain="flow",
    trigger_count=0,
    faults=tuple(Fault(4.0 + i, "reset", when="CUTTING") for i in range(8)),
    period=0.3,
)
def an_abort_behind_a_mark_hands_the_next_number_out_again(stack: ExitStack) -> None:
    real = epochs.raise_epoch

    def raise_epoch(tx: Any, cause: Any, text: str, **kwargs: Any) -> Any:
        if before := tx.region().open_cut:
            numbers.leave_behind(tx)
            tx.set_region(filling=before)
        return real(tx, cause, text, **kwargs)

    put(stack, epochs, "raise_epoch", raise_epoch)
