"""Planted breakages in handovers and marks (SPEC X10, D5)."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from crkafka_core.member.submitter import Submitter
from crkafka_core.plane import epochs, handover, merging, numbers
from crkafka_core.protocol import machine, merge, state
from crkafka_core.protocol import signals as sg
from tests.rigs.simulation import Fault
from tests.simulation.breakage import mutation, put
from tests.simulation.mutations import REBALANCES, SCALES


@mutation("X10", faults=REBALANCES)
def a_rebalance_drops_what_was_submitted(stack: ExitStack) -> None:
    put(stack, merging, "hand_over", lambda tx, why: merging._reset(tx, why))


@mutation("X10", faults=REBALANCES, period=0.3, drain="flow", trigger_count=0)
def a_rebalance_aborts_an_open_cut(stack: ExitStack) -> None:
    real = merging.hand_over

    def hand_over(tx: Any, why: Any) -> None:
        (merging._reset if tx.region().open_cut and not tx.region().handover_json else real)(tx, why)

    put(stack, merging, "hand_over", hand_over)


@mutation("X10", faults=REBALANCES, since=1)
def a_handover_waits_for_nobody(stack: ExitStack) -> None:
    real = merging._gather
    put(stack, merging, "_gather", lambda reader: replace(real(reader), waits=()))


@mutation("I8", faults=REBALANCES)
def a_handover_raises_no_epoch(stack: ExitStack) -> None:
    """Whoever it went without is not fenced."""
    put(stack, merging, "_reset", lambda tx, why: tx.set_region(handover_json=""))


@mutation("I4", faults=tuple(Fault(1.5 + 0.5 * i, "kill", i) for i in range(8)), members=3, period=2.0, since=1)
def a_partition_of_who_is_lost_is_in_no_map(stack: ExitStack) -> None:
    put(stack, handover, "carried", lambda fillers, checkpoint, known: [])


@mutation("X10", "I10", faults=SCALES, members=4, since=1)
def who_leaves_drops_what_it_has_submitted(stack: ExitStack) -> None:
    def leave(self: Any, d: Any) -> None:
        if self.s.leaves and self.s.step is state.Step.NONE and self.s.gate is state.Gate.CLOSED:
            self.end(sg.ExitKind.CLEAN, "a clean end was asked for")

    put(stack, machine._Member, "leave", leave)


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
    since=178,
)
def an_abort_behind_a_mark_hands_the_next_number_out_again(stack: ExitStack) -> None:
    real = epochs.raise_epoch

    def raise_epoch(tx: Any, cause: Any, text: str, **kwargs: Any) -> Any:
        if before := tx.region().open_cut:
            numbers.leave_behind(tx)
            tx.set_region(filling=before)
        return real(tx, cause, text, **kwargs)

    put(stack, epochs, "raise_epoch", raise_epoch)
