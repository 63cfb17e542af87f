"""Planted breakages by which something fails and nobody tells it: deadlines bring the region back all the same (`promises`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from crkafka_core.member import main
from crkafka_core.member.event_loop import EventLoop
from crkafka_core.member.observer import LossWatch, Observer
from crkafka_core.member.reporter import Reporter
from crkafka_core.member.resolver import Resolver
from crkafka_core.member.submitter import Submitter
from crkafka_core.member.watchdog import Watchdog
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.plane import leases, members, permits, reading, tables
from crkafka_core.plane.member_plane import MemberPlane
from crkafka_core.protocol import machine
from crkafka_core.protocol import signals as sg
from crkafka_core.region.host import LEASE as HOST
from tests.simulation import promises, promises_of_rights
from tests.simulation.breakage import Breakage, put
from tests.simulation.promises import Promise


@dataclass(frozen=True)
class Silence(Breakage):
    """A breakage, and the promise that it breaks."""

    name: str
    breaks: Promise
    plant: Callable[[ExitStack], None]


SILENCES: list[Silence] = []


def silence(breaks: Promise) -> Callable[[Callable[[ExitStack], None]], Callable[[ExitStack], None]]:
    def add(plant: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
        SILENCES.append(Silence(plant.__name__, breaks, plant))
        return plant

    return add


# A member


@silence(promises.a_start_that_kafka_holds_up_is_asked_for_again)
def a_resolver_that_fails_says_nothing(stack: ExitStack) -> None:
    real = Resolver.__init__

    def init(self: Any, *args: Any, **keys: Any) -> None:
        real(self, *args, **keys)
        post = self._post
        self._post = lambda event: None if isinstance(event, sg.NotStarted) else post(event)

    put(stack, Resolver, "__init__", init)


@silence(promises.a_start_that_kafka_holds_up_is_asked_for_again)
def a_start_that_was_not_resolved_is_not_asked_for_again(stack: ExitStack) -> None:
    real = machine._Member.hear

    def hear(self: Any, event: Any) -> None:
        if not isinstance(event, sg.NotStarted):
            real(self, event)

    put(stack, machine._Member, "hear", hear)


@silence(promises.a_seek_that_fails_is_made_again)
def a_seek_that_failed_counts_as_done(stack: ExitStack) -> None:
    def sought(self: Any, stamp: Any, offsets: Any, leader_epochs: Any) -> Any:
        with suppress(CrkafkaError):
            self._consumer.seek(offsets, leader_epochs)
        return sg.Sought(stamp)

    put(stack, EventLoop, "_sought", sought)


@silence(promises.a_seek_that_fails_is_made_again)
def a_seek_that_failed_is_told_to_nobody(stack: ExitStack) -> None:
    real = machine._Member.hear
    put(
        stack,
        machine._Member,
        "hear",
        lambda self, event: None if isinstance(event, sg.NotSought) else real(self, event),
    )


@silence(promises.a_save_that_fails_resets_at_once)
def a_failed_save_is_swallowed(stack: ExitStack) -> None:
    put(stack, Submitter, "_break_save", lambda self, epoch, why, error: None)


def _a_failed_commit_ends_as(outcome: sg.Outcome | None) -> Callable[[ExitStack], None]:
    def plant(stack: ExitStack) -> None:
        real = EventLoop._commit_cut

        def commit(self: Any, cut: int, *, merged: bool) -> None:
            heard: list[Any] = []
            with patch.object(self, "post", heard.append):
                real(self, cut, merged=merged)
            for event in heard:
                done = isinstance(event, sg.Committed) and event.outcome is sg.Outcome.DONE
                if done:
                    self.post(event)
                elif outcome is not None:
                    self.post(sg.Committed(cut, outcome))

        put(stack, EventLoop, "_commit_cut", commit)

    return plant


for _promise in promises.A_COMMIT_FAILS:
    for _outcome, _words in ((sg.Outcome.DONE, "counts as done"), (None, "is told to nobody")):
        SILENCES.append(
            Silence(
                f"a failed drain commit {_words}: {_promise.__name__}", _promise, _a_failed_commit_ends_as(_outcome)
            )
        )


def _dropped(effect: type[Any]) -> Callable[[ExitStack], None]:
    """The reporter takes it for carried out: each first time after the start, but what is said anyhow until SQL has it, always."""
    always = effect is sg.Reach

    def plant(stack: ExitStack) -> None:
        real = Reporter._carry_out

        def carry_out(self: Any, what: Any) -> None:
            if not isinstance(what, effect) or self._runtime.now() < 1000.0 + 5.0 or hasattr(self, "dropped"):
                real(self, what)
            elif not always:
                self.dropped = True

        put(stack, Reporter, "_carry_out", carry_out)

    return plant


for _effect, _promise in (
    (sg.Report, promises.what_fails_downstream_resets_at_once),
    (sg.Contribute, promises.without_faults_nothing_is_reset_and_cuts_come_in_time),
    (sg.Withdraw, promises.a_rebalance_of_one_member_resets_at_once),
    (sg.GiveUp, promises.a_save_that_fails_resets_at_once),
    (sg.AskReset, promises.what_fails_downstream_resets_at_once),
    (sg.AskCut, promises.cuts_that_members_ask_for_come_in_time),
    (sg.Reach, promises.a_bounded_run_ends_with_the_cut_that_has_all),
):
    SILENCES.append(Silence(f"the reporter drops {_effect.__name__}", _promise, _dropped(_effect)))


@silence(promises.what_fails_while_sql_is_away_is_told_afterwards)
def the_reporter_drops_what_sql_did_not_hear(stack: ExitStack) -> None:
    real = Reporter._try
    put(stack, Reporter, "_try", lambda self, effect: real(self, effect) or True)


@silence(promises.a_stranger_in_the_group_is_named)
def a_resolver_looks_for_nobody(stack: ExitStack) -> None:
    put(stack, Resolver, "_look", lambda self, what, look: None)


@silence(promises.a_peer_that_does_not_renew_is_lost_by_its_lease)
def a_lost_peer_is_never_reported(stack: ExitStack) -> None:
    put(stack, Observer, "_lose", lambda self, peer: None)


@silence(promises.A_MAIN_THREAD_HANGS)
def a_lost_peer_is_never_seen(stack: ExitStack) -> None:
    put(stack, LossWatch, "lost", lambda self, peers, now: [])


@silence(promises.a_partition_that_nobody_holds_makes_the_group_rebalance)
def nobody_forces_a_rebalance(stack: ExitStack) -> None:
    put(stack, Observer, "_watch_unheld", lambda self, desired, peers: None)


@silence(promises.who_does_not_reach_sql_stops_before_its_lease_ends_and_leaves_after_it)
def a_watchdog_that_says_nothing(stack: ExitStack) -> None:
    def turn(self: Any, patience: float = 0.1) -> bool:
        return not self._over.wait(patience)

    put(stack, Watchdog, "turn", turn)


def _posts(stack: ExitStack, unwanted: type[Any]) -> None:
    """A watchdog says nothing of this kind."""
    real = Watchdog.__init__

    def init(self: Any, *args: Any, **keys: Any) -> None:
        real(self, *args, **keys)
        post = self._post
        self._post = lambda event: None if isinstance(event, unwanted) else post(event)

    put(stack, Watchdog, "__init__", init)


@silence(promises.who_does_not_reach_sql_stops_before_its_lease_ends_and_leaves_after_it)
def a_watchdog_does_not_tell_that_the_lease_ends(stack: ExitStack) -> None:
    _posts(stack, sg.Lease)


@silence(promises.who_does_not_reach_sql_stops_before_its_lease_ends_and_leaves_after_it)
def an_isolated_member_stays(stack: ExitStack) -> None:
    """Neither told to end, nor ended."""
    _posts(stack, sg.Broken)
    put(stack, Watchdog, "doom", lambda self, code=None: None)


@silence(promises.A_MAIN_THREAD_HANGS)
def a_process_that_hangs_is_not_ended(stack: ExitStack) -> None:
    put(stack, Watchdog, "doom", lambda self, code=None: None)


@silence(promises.A_MAIN_THREAD_HANGS)
def a_lease_is_renewed_though_a_thread_hangs(stack: ExitStack) -> None:
    put(stack, main, "_standstill", lambda *of: 0.0)


@silence(promises.A_MAIN_THREAD_HANGS)
def a_process_that_hangs_does_not_ask_whether_it_was_lost(stack: ExitStack) -> None:
    put(stack, MemberPlane, "check_registered", lambda self: None)


@silence(promises.AN_OBSERVER_HANGS)
def an_observer_that_hangs_is_not_seen(stack: ExitStack) -> None:
    put(stack, Observer, "stuck_for", lambda self, now: 0.0)


@silence(promises.A_REPORTER_HANGS)
def a_reporter_that_hangs_is_not_seen(stack: ExitStack) -> None:
    put(stack, Reporter, "stuck_for", lambda self, now: 0.0)


@silence(promises.A_WRITE_HANGS)
def a_process_thread_that_hangs_is_not_seen(stack: ExitStack) -> None:
    put(stack, Submitter, "stuck_for", lambda self, now: 0.0)


@silence(promises.DROPPING_HANGS)
def a_drop_of_segments_that_hangs_is_not_seen(stack: ExitStack) -> None:
    put(stack, Submitter, "tidying_for", lambda self, now: 0.0)


@silence(promises.without_faults_nothing_is_reset_and_cuts_come_in_time)
def a_member_does_not_renew_its_lease(stack: ExitStack) -> None:
    put(stack, members, "renew", lambda *of: None)


# Rights of drivers, hosts, feeders and writers


@silence(promises.without_faults_nothing_is_reset_and_cuts_come_in_time)
def a_driver_does_not_renew_its_lease(stack: ExitStack) -> None:
    _of_kind(stack, leases.DRIVER)


@silence(promises.without_faults_nothing_is_reset_and_cuts_come_in_time)
def a_feeder_does_not_renew_its_lease(stack: ExitStack) -> None:
    _of_kind(stack, tables.FEEDER)


@silence(promises_of_rights.nobody_takes_a_right_that_is_renewed)
def a_host_does_not_renew_its_lease(stack: ExitStack) -> None:
    _of_kind(stack, HOST)


def _of_kind(stack: ExitStack, kind: str) -> None:
    real = leases.renew

    def renew(tx: Any, lease: Any, length: float) -> Any:
        return lease if lease.kind == kind else real(tx, lease, length)

    put(stack, leases, "renew", renew)


def a_writer_does_not_renew_its_hold(stack: ExitStack) -> None:
    put(stack, permits, "renew", lambda tx, permit: permit.lease)


for _promise in promises_of_rights.SLOW_WRITES:
    SILENCES.append(
        Silence(f"a writer does not renew its hold: {_promise.__name__}", _promise, a_writer_does_not_renew_its_hold)
    )


@silence(promises_of_rights.what_is_read_for_a_write_is_there_for_as_long_as_that_takes)
def a_reader_does_not_renew_its_hold(stack: ExitStack) -> None:
    _of_kind(stack, reading.KIND)
