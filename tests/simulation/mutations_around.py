"""Planted breakages around the members: in backups, tables, retirement, and in what people ask for."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from crkafka_core.lake import files, standing
from crkafka_core.member import event_loop
from crkafka_core.model.phase import Phase
from crkafka_core.plane import (
    alarms,
    cuts,
    epochs,
    goals,
    life,
    member_plane,
    members,
    merging,
    resets,
    restored,
    retire,
    starts,
    tables,
    transact,
)
from crkafka_core.plane.member_plane import MemberPlane
from crkafka_core.region import keeper
from crkafka_core.region import retire as region_retire
from crkafka_core.region.driver import Driver
from crkafka_core.segments import owner
from tests.rigs.simulation import Fault
from tests.rigs.simulation.plan import RENEWED
from tests.simulation.breakage import mutation, put
from tests.simulation.mutations import RESETS, SCALES

MADE_ANEW = tuple(Fault(5.0 + 3 * i, RENEWED, i, 0.2) for i in range(3))


RESTORES = tuple(Fault(4.0 + 2 * i, "restore", value=0.1 + 0.15 * i) for i in range(5))


@mutation("T3", "I7", "I1", "I2", "M8", "I10", "I8", "machine", faults=RESTORES, since=6)
def an_older_control_plane_is_trusted(stack: ExitStack) -> None:
    """Nobody compares SQL with what lies outside of it, nor with what was seen of it."""
    put(stack, restored, "beyond", lambda reader, region, seen: "")
    nobody_remembers_what_was_seen_of_sql(stack)


@mutation("T3", "X4", "I7", "I10", "D3", "M8", faults=RESTORES, since=241)
def nobody_remembers_what_was_seen_of_sql(stack: ExitStack) -> None:
    put(stack, MemberPlane, "_saw", lambda self, now: None)


CONFIGURES = tuple(Fault(4.0 + 3 * i, "configure", value=(0.6, 0.3, 0.8)[i]) for i in range(3))


@mutation("I10", faults=CONFIGURES, partitions=(2, 2), period=1.0)
def a_topic_that_leaves_the_configuration_stays_known(stack: ExitStack) -> None:
    put(stack, members, "drop_topics", lambda tx: None)


@mutation("I1", "I4", "I7", "I10", faults=CONFIGURES, since=37, partitions=(2, 2), period=1.0)
def who_reads_a_forgotten_topic_says_anew_where_it_begins(stack: ExitStack) -> None:
    put(stack, starts, "_remember", lambda tx, topic_ids: None)


@mutation("X9", faults=tuple(Fault(4.0 + 2 * i, "skip", i, 0.9) for i in range(5)))
def what_a_person_gives_up_is_forgotten_with_the_next_reset(stack: ExitStack) -> None:
    put(stack, starts, "_accepted_gaps", lambda reader, base: {})


@mutation("T1", faults=tuple(Fault(3.0 + i, "read", value=0.9) for i in range(8)), period=0.3)
def retirement_does_not_ask_who_reads(stack: ExitStack) -> None:
    put(stack, retire, "_readers", lambda reader, region: [])


@mutation("V3", faults=tuple(Fault(3.0 + i, "consume") for i in range(8)), since=1)
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
    since=1,
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


@mutation("I10", faults=tuple(Fault(4.0 + 2 * i, "restore", value=0.05 * i) for i in range(4)), since=2)
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
    put(stack, event_loop.EventLoop, "_marks", lambda self: frozenset())


@mutation("S4", faults=(*PAUSES, *CUT_LOGS), since=100, data_loss="gap")
def a_seek_tells_no_leader_epoch(stack: ExitStack) -> None:
    """What is paused is not told that its log was cut, and goes on behind what has grown there since."""
    real = event_loop.EventLoop._sought
    put(stack, event_loop.EventLoop, "_sought", lambda self, stamp, offsets, epochs: real(self, stamp, offsets, {}))


@mutation("I2", faults=MADE_ANEW, since=7)
def a_merge_does_not_compare_the_ids_of_topics(stack: ExitStack) -> None:
    put(stack, merging, "_wrong_topics", lambda *of: "")


@mutation("X4", faults=(*MADE_ANEW, Fault(9.0, "initial"), Fault(11.0, "initial"), Fault(13.0, "initial")))
def a_rewind_does_not_ask_what_nobody_reads_again(stack: ExitStack) -> None:
    put(stack, resets, "_unread_topics", lambda *of: [])


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
    put(stack, merging, "_nothing_new", lambda merged, parent: False)


@mutation("I10", faults=SCALES)
def a_person_scales_in_vain(stack: ExitStack) -> None:
    put(stack, life, "scale", lambda tx, wanted, *, by: tx.region())


@mutation("I10", faults=SCALES, members=4)
def who_is_scaled_in_stays(stack: ExitStack) -> None:
    real = member_plane.desired

    def desired(reader: Any, region: Any, *of: Any) -> Any:
        return replace(real(reader, region, *of), wanted=region.phase is not Phase.IDLE)

    put(stack, member_plane, "desired", desired)


@mutation("X6", faults=FAILURES)
def failures_in_a_row_stop_nothing(stack: ExitStack) -> None:
    real = resets.reset_policy.decide
    put(stack, resets.reset_policy, "decide", lambda *of: replace(real(*of), stop=""))


@mutation("X6", faults=FAILURES, since=3)
def no_reset_waits_before_the_next(stack: ExitStack) -> None:
    real = epochs.rest
    put(stack, epochs, "rest", lambda tx, cause, wait=0.0: real(tx, cause))


@mutation("X6", faults=tuple(Fault(3.0 + 2 * i, "kafka down", value=0.9) for i in range(5)), period=1.0, since=1)
def nobody_tells_that_no_merge_comes(stack: ExitStack) -> None:
    put(stack, alarms, "watch_merges", lambda tx: None)


@mutation("I10", commit_at_drain=False)
def what_is_merged_is_never_committed(stack: ExitStack) -> None:
    put(stack, event_loop.EventLoop, "_commit_cut", lambda self, cut, *, merged: None)
