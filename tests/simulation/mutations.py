"""Planted breakages in members, cuts, handovers and resets: each takes one rule away, in the real code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from crkafka_core.member import event_loop
from crkafka_core.model import phase
from crkafka_core.model.desired import Mark
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import ClientEvent, ClientState, Phase
from crkafka_core.model.rows import Reset
from crkafka_core.plane import (
    contributions,
    cuts,
    epochs,
    member_plane,
    members,
    merging,
    retire,
    roster,
    settling,
    starts,
)
from crkafka_core.protocol import machine, merge, settle, state
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.state import State
from tests.rigs.simulation import Fault
from tests.simulation.breakage import mutation, put

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
REBALANCES = tuple(Fault(4.0 + i, "rebalance") for i in range(8))
SCALES = tuple(Fault(3.0 + 2 * i, "scale", value=(0.9, 0.1)[i % 2]) for i in range(4))
CUT_OFF_IN_REBALANCES = tuple(
    Fault(4.0 + 2 * i + j / 10, "rebalance" if j == 0 else "cut kafka", i, 0.6) for i in range(5) for j in (0, 1)
)


@mutation("I4", "I8", faults=KILLS_IN_CUTS, since=1)
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


@mutation("I8", "I4", faults=KILLS_IN_CUTS, since=1)
def merge_with_a_lost_member(stack: ExitStack) -> None:
    _loss_forgets_the_cut(stack)


@mutation("I4", "I1", since=1)
def a_partition_is_forgotten_in_the_merged_map(stack: ExitStack) -> None:
    real = merging._close

    def close(tx: Any, cut: Any, merged: Any) -> Any:
        if len(merged) > 1:
            gone = merged[0]
            where = ("checkpoint", "=", cut.row.id), ("topic", "=", gone.topic)
            tx.delete(merging.MergedOffset, *where, ("partition", "=", gone.partition))
        return real(tx, cut, merged)

    put(stack, merging, "_close", close)


@mutation("I4")
def a_merge_does_not_look_for_uncovered_partitions(stack: ExitStack) -> None:
    """Members leave out a partition that they fill."""
    put(stack, merge, "broken", _without(merge.broken, "nobody contributed"))
    _members_contribute(stack, lambda offsets: {tp: o for tp, o in offsets.items() if tp != TP("t0", 0)})


def _members_contribute(stack: ExitStack, what: Callable[[Mapping[TP, Any]], Mapping[TP, Any]]) -> None:
    """Something else than what they fill, without their segments; only the merge compares."""
    real = contributions.contribute
    put(stack, merging, "contribute", lambda tx, part: real(tx, replace(part, offsets=what(part.offsets), segments=())))
    put(stack, contributions, "_mismatch", lambda region, checkpoint, fillers, part: None)


@mutation("G8", since=24)
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


@mutation("G8", faults=CUT_OFF_IN_REBALANCES, since=24)
def generations_are_not_compared(stack: ExitStack) -> None:
    put(stack, settle, "missing", _without(settle.missing, "members report different generations"))


@mutation("G8")
def resume_before_all_have_reset(stack: ExitStack) -> None:
    put(stack, settling, "unready", settling.unsettled)


@mutation("I7", "I1", since=2)
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


@mutation("D4", "I6", "V1", since=4)
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
        self.set(gate=state.Gate.CLOSED)
        real(self, d)
        self.set(gate=gate)

    put(stack, machine._Member, "cut", cut)


@mutation("I4", "I8", "I1", faults=KILLS_IN_CUTS, since=1)
def incarnations_are_not_compared(stack: ExitStack) -> None:
    """Whoever bears the name of an expected member is that member."""
    _loss_forgets_the_cut(stack)
    real_of = roster.of

    def of(reader: Any, name: str, incarnation: str) -> Any:
        row = reader.get(cuts.rows.Member, name)
        return row if row is not None and row.incarnation != incarnation else real_of(reader, name, incarnation)

    put(stack, roster, "of", of)
    put(stack, contributions, "_mismatch", lambda region, checkpoint, fillers, part: "")
    real = member_plane._cut

    def desired_cut(reader: Any, region: Any, name: str, incarnation: str) -> Any:
        found = reader.select(cuts.rows.Filler, ("checkpoint", "=", region.open_cut), ("member", "=", name))
        return real(reader, region, name, found[0].incarnation if found else incarnation)

    put(stack, member_plane, "_cut", desired_cut)


@mutation("T3", "I13")
def orphans_are_taken_for_granted(stack: ExitStack) -> None:
    put(stack, retire, "named", lambda reader: set())


@mutation("I1")
def a_merge_believes_any_beginning(stack: ExitStack) -> None:
    """Members contribute from where they have come to, without the rows before it."""
    put(stack, merge, "broken", lambda fillers, offsets, parent, due, known: "")
    _members_contribute(stack, lambda offsets: {tp: (to, to, 0) for tp, (_, to, _) in offsets.items()})


@mutation("X1", "I1", "I5", "I7", since=2)
def initial_offsets_follow_the_head(stack: ExitStack) -> None:
    real = starts.resolve

    def resolve(tx: Any, **kwargs: Any) -> Any:
        head = starts.merged(tx, tx.region().head)
        moved = [replace(i, offset=head[tp].to_offset) for tp, i in starts.known(tx).items() if tp in head]
        tx.put(*moved)
        return real(tx, **kwargs)

    put(stack, starts, "resolve", resolve)


@mutation("G8", "I8", "G9", faults=SCALES, since=2)
def a_cut_opens_whenever_somebody_asks(stack: ExitStack) -> None:
    put(stack, cuts, "settling", SimpleNamespace(unready=lambda reader, region: ""))


@mutation("I10")
def nothing_flows_after_the_first_merge(stack: ExitStack) -> None:
    real = State.fetches.fget
    assert real is not None
    put(stack, State, "fetches", property(lambda self: real(self) and self.base == 0))


@mutation("I10")
def one_partition_is_never_fetched(stack: ExitStack) -> None:
    real = event_loop.EventLoop._marks
    put(stack, event_loop.EventLoop, "_marks", lambda self: real(self) | {Mark("partition", "t0[0]")})


@mutation("I10", "G9", since=41)
def a_merge_moves_no_base_of_a_member_in_sql(stack: ExitStack) -> None:
    real = merging._close

    def close(tx: Any, cut: Any, merged: Any) -> Any:
        found = real(tx, cut, merged)
        there = tx.select(cuts.rows.Member)
        tx.put(*(replace(m, base=cut.row.parent) for m in there))
        return found

    put(stack, merging, "_close", close)


@mutation("D1")
def a_merge_moves_no_base_of_a_machine(stack: ExitStack) -> None:
    """It adopts the head as a stranger's: all that was fetched is dropped and fetched again after each cut."""
    put(stack, machine._Member, "merged", lambda self, d: None)


@mutation("I10", since=9)
def asks_for_a_cut_are_ignored(stack: ExitStack) -> None:
    put(stack, cuts, "ask", lambda tx, **_: None)
