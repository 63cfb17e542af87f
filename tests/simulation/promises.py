"""What is promised of one failure each, as schedules that raise `Unnoticed` where it is not kept."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

from crkafka_core.kafka.errors import Fenced, KafkaFailed, KafkaUnavailable, NotAllowed
from crkafka_core.member.exit_codes import NO_RESTART
from crkafka_core.member.observer import Observer
from crkafka_core.member.resolver import IDLE as LOOK
from crkafka_core.member.watchdog import HARD_EXIT
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Initial, Lease, ResetCause
from crkafka_core.plane import tables
from crkafka_core.plane.alarms import STRANGERS
from crkafka_core.plane.leases import DRIVER
from crkafka_core.protocol import signals as sg
from crkafka_core.segments.errors import StorageUnavailable
from tests.rigs.simulation import Fault
from tests.rigs.simulation.broker import Client
from tests.rigs.simulation.configuration import LIMITS
from tests.rigs.simulation.faults import EPOCH
from tests.rigs.simulation.visitors import VISITORS
from tests.rigs.simulation.world import World
from tests.simulation.one_failure import (
    AT,
    LONG,
    SOON,
    Struck,
    Watched,
    ask_for_a_reset,
    fails_once,
    first,
    hang,
    parts,
    watch,
)

Promise = Callable[[int], None]
PROMISES: list[Promise] = []
SEEN_LOST = LIMITS.session_timeout + 2.5
"""Seconds from the last sign of life of a member to its loss: its lease, and two looks by another one."""
ISOLATED = LIMITS.session_timeout + LIMITS.isolation_timeout + 1.5
"""Seconds after which a member that does not reach SQL has ended by itself (SPEC G4)."""


def promise(check: Promise) -> Promise:
    PROMISES.append(check)
    return check


@promise
def without_faults_nothing_is_reset_and_cuts_come_in_time(seed: int) -> None:
    period = (1.0, 2.0)[seed % 2]
    seen = watch(seed, period=period, chaos=40.0, tables=1, adopts=True, aided=False)
    seen.undisturbed()
    times = [at for at in seen.history.merges if at < seen.history.healed_at]
    seen.resumed(0.0, 8.0)
    gaps = [later - at for at, later in zip(times, [*times[1:], 40.0], strict=True)]
    seen.expect(max(gaps) <= period + 3.0, f"a cut every {period} s: {gaps}")
    for lease in (lease for lease in seen.rows(Lease) if not lease.slot):
        held_once = lease.number == 1 or lease.kind not in (DRIVER, tables.FEEDER)
        seen.expect(held_once, f"the lease {lease.kind} with its first holder: {lease.number}")


@promise
def cuts_that_members_ask_for_come_in_time(seed: int) -> None:
    seen = watch(seed, period=None, trigger_count=24, chaos=40.0, members=1)
    seen.undisturbed()
    times = [at for at in seen.history.merges if at < seen.history.healed_at]
    gaps = [later - at for at, later in zip(times, [*times[1:], 40.0], strict=True)]
    seen.expect(max(gaps) <= 6.0, f"a cut for 24 records: {gaps}")


def _consumer(method: str) -> Callable[[World], tuple[object, str]]:
    return lambda world: (parts(world).loop._consumer, method)


@promise
def a_seek_that_fails_is_made_again(seed: int) -> None:
    struck, strike = fails_once(_consumer("seek"), KafkaUnavailable("Seeking failed."))
    seen = watch(seed, (AT, strike), (AT, ask_for_a_reset))
    at = seen.reset_for(ResetCause.PERSON, "", AT)
    seen.expect(at <= struck.at, "a seek that fails in the reset")
    seen.resumed(at, SOON)


@promise
def a_save_that_fails_resets_at_once(seed: int) -> None:
    error = StorageUnavailable("The disk is full.")
    struck, strike = fails_once(lambda world: (parts(world).submitter._segments, "close"), error)
    seen = watch(seed, (AT, strike))
    seen.resumed(seen.reset_for(ResetCause.UNAVAILABLE, "The disk is full.", struck.at), SOON)


def _a_commit_fails(error: Exception, cause: ResetCause) -> Promise:
    def check(seed: int) -> None:
        struck, strike = fails_once(_consumer("commit"), error)
        seen = watch(
            seed, (AT, strike), static=True, drain="stop"
        )  # a dynamic one that comes back makes another rebalance
        seen.resumed(seen.reset_for(cause, "", struck.at), 2 * SOON)

    check.__name__ = f"a_drain_whose_commit_fails_by_{type(error).__name__}_resets_at_once"
    return promise(check)


A_COMMIT_FAILS = [
    _a_commit_fails(KafkaUnavailable("The coordinator did not answer."), ResetCause.UNAVAILABLE),
    _a_commit_fails(NotAllowed("No right to commit one partition."), ResetCause.UNAVAILABLE),
    _a_commit_fails(KafkaFailed("The client is broken."), ResetCause.LOST),
    _a_commit_fails(Fenced("Another consumer has joined."), ResetCause.LOST),
]


@promise
def what_fails_downstream_resets_at_once(seed: int) -> None:
    struck = Struck()

    def strike(world: World) -> None:
        struck.times.append(world.now - EPOCH)
        epoch = parts(world).loop.state.epoch
        first(world).post(sg.Trouble(epoch, "downstream failed", ResetCause.FAILURE))

    seen = watch(seed, (AT, strike))
    seen.resumed(seen.reset_for(ResetCause.FAILURE, "downstream failed", struck.at), SOON)


@promise
def what_fails_while_sql_is_away_is_told_afterwards(seed: int) -> None:
    away = 1.5

    def strike(world: World) -> None:
        epoch = parts(world).loop.state.epoch
        first(world).sql_cut_until = world.now + away
        first(world).post(sg.Trouble(epoch, "downstream failed", ResetCause.FAILURE))

    seen = watch(seed, (AT, strike))
    seen.resumed(seen.reset_for(ResetCause.FAILURE, "downstream failed", AT, away + SOON), SOON)


@promise
def a_rebalance_of_one_member_resets_at_once(seed: int) -> None:
    seen = watch(seed, (AT, lambda world: world.broker.rebalance()), members=1)
    seen.resumed(seen.reset_for(ResetCause.REBALANCE, "", AT), SOON)


@promise
def a_peer_that_does_not_renew_is_lost_by_its_lease(seed: int) -> None:
    def strike(world: World) -> None:
        first(world).sql_cut_until = world.now + LONG

    seen = watch(seed, (AT, strike), members=3)
    _lost_by_its_lease(seen, AT)


def _lost_by_its_lease(seen: Watched, since: float) -> float:
    lost = seen.events("lost")
    seen.expect(bool(lost), "seeing it lost")
    at, event = lost[0]
    seen.expect("its lease was not renewed" in event.text and event.by != event.member, f"by a peer: {event}")
    seen.expect(at <= since + SEEN_LOST, f"lost within {SEEN_LOST} s after {since:.2f} s: {at:.2f} s")
    return at


@promise
def who_does_not_reach_sql_stops_before_its_lease_ends_and_leaves_after_it(seed: int) -> None:
    struck: list[str] = []

    def strike(world: World) -> None:
        struck.append(first(world).name)
        first(world).sql_cut_until = world.now + LONG

    seen = watch(seed, (AT, strike), members=3)
    who = struck[0]
    told = [at for at, heard in seen.hears(who, sg.Lease) if not heard.event.held]
    seen.expect(bool(told) and told[0] <= AT + LIMITS.session_timeout + 0.5, f"telling that its lease ends: {told}")
    at, words = seen.ended(who)
    seen.expect(at <= AT + ISOLATED, f"ended within {ISOLATED} s: {at:.2f} s {words}")


def _hangs(what: str, noticed: float, stands_still: Callable[[World], float]) -> Promise:
    """Its lease is renewed no more, it is lost, and the process is ended; its host starts it anew. `stands_still` says since when."""

    def check(seed: int) -> None:
        who, since = list[str](), list[float]()

        def strike(world: World) -> None:
            who.append(first(world).name)
            since.append(stands_still(world))

        seen = watch(seed, (AT, strike), chaos=AT + noticed + 20.0)
        seen.expect(len(since) == 1, f"{what} that hangs")
        lost = _lost_by_its_lease(seen, since[0] + noticed)
        at, words = seen.ended(who[0])
        seen.expect(at <= lost + HARD_EXIT + 1.2, f"ended soon after it was lost at {lost:.2f} s: {at:.2f} s {words}")
        seen.expect(int(words.split()[-1]) not in (0, *NO_RESTART), f"ended so that it is started anew: {words}")

    check.__name__ = f"a_process_is_ended_with_{what}_that_hangs"
    return promise(check)


UNRENEWED = 2 * LIMITS.renew_every
"""Seconds from when a thread stands still to the last renewal: that is looked at before each."""
A_MAIN_THREAD_HANGS = _hangs("a_main_thread", UNRENEWED, lambda world: hang(world, "main"))
A_WRITE_HANGS = _hangs("a_write", UNRENEWED, lambda world: hang(world, "process", lambda p: p.submitter._holder))
AN_OBSERVER_HANGS = _hangs("an_observer", UNRENEWED + LIMITS.session_timeout, lambda world: hang(world, "observer"))
A_REPORTER_HANGS = _hangs(
    "a_reporter",
    UNRENEWED + LIMITS.session_timeout,
    lambda world: hang(world, "reporter", lambda p: p.reporter._busy_since is not None),
)


def _segments_do_not_go(world: World) -> float:
    """What is dropped for a reset: the storage does not answer."""
    segments = parts(world).submitter._segments
    real = segments.drop

    def drop() -> None:
        real()
        world.scheduler.sleep(LONG)

    segments.drop = drop  # type: ignore[method-assign]
    ask_for_a_reset(world)
    return AT + SOON


DROPPING_HANGS = _hangs("a_drop_of_segments", LIMITS.drain_timeout + UNRENEWED, _segments_do_not_go)


@promise
def a_start_that_kafka_holds_up_is_asked_for_again(seed: int) -> None:
    """Once Kafka answers the region resumes, without another reset (SPEC S1)."""
    away = 2.5

    def strike(world: World) -> None:
        world.broker.down_until = world.now + away

    seen = watch(seed, (AT, strike), (AT, ask_for_a_reset))
    at = seen.reset_for(ResetCause.PERSON, "", AT)
    seen.resumed(at, away + SOON)


@promise
def a_partition_that_nobody_holds_makes_the_group_rebalance(seed: int) -> None:
    """Who shares the partitions out lacks one that is known, once: its metadata is old (SPEC G8)."""
    struck = Struck()

    def strike(world: World) -> None:
        broker, real = world.broker, world.broker._complete

        def complete() -> None:
            before = broker.generation
            real()
            if broker.generation > before and not struck.times:
                struck.times.append(world.now - EPOCH)
                for seat in broker.seats.values():
                    seat.parts -= {TP("t0", 2)}

        broker._complete = complete  # type: ignore[method-assign]
        broker.rebalance()

    seen = watch(seed, (AT, strike))
    at = seen.reset_for(ResetCause.REBALANCE, "", AT)
    seen.expect(struck.at < at + SOON, "an assignment that lacks a partition")
    seen.resumed(at, 2 * (LIMITS.unheld_timeout + SOON))


def _without_a_leader(begins: float, arrives: Callable[[World], None]) -> Promise:
    """A partition that is new to the region has no leader for a while (SPEC S3, R4, fault 94)."""
    away = 9.0

    def holds_up_no_other(seed: int) -> None:
        def strike(world: World) -> None:
            arrives(world)
            world.broker.leaderless[TP("t0", world.broker.partitions["t0"] - 1)] = world.now + away

        seen = watch(seed, (begins, strike), period=1.0, chaos=begins + away + 2 * LOOK + SOON)
        during = [at for at in seen.history.merges if begins + SOON < at < begins + away]
        seen.expect(len(during) >= 2, "cuts while it has no leader")
        led = [at for at, r in seen.resets() if r.cause is ResetCause.REBALANCE and at >= begins + away]
        seen.expect(len(led) == 1 and led[0] < begins + away + 2 * LOOK + SOON, "one reset soon after it has one")
        there = set(range(seen.world.broker.partitions["t0"]))
        seen.expect({i.partition for i in seen.rows(Initial)} == there, "a start of each")

    return holds_up_no_other


@promise
def a_new_partition_without_a_leader_holds_up_no_other(seed: int) -> None:
    def arrives(world: World) -> None:
        world.broker.add_partition("t0")
        world.broker.rebalance()

    _without_a_leader(AT, arrives)(seed)


@promise
def a_birth_goes_without_a_partition_that_has_no_leader(seed: int) -> None:
    _without_a_leader(0.0, lambda world: None)(seed)


@promise
def a_stranger_in_the_group_is_named(seed: int) -> None:
    """Once the region has waited for long (SPEC G8). Each forced rebalance puts the look at the group off, and here they come too often."""
    stranger = Client("somebody-else", None, stranger=True)
    with patch.object(Observer, "_watch_unheld", lambda self, desired, peers: None):
        seen = watch(
            seed,
            (AT, lambda world: world.broker.join(stranger)),
            (35.0, lambda world: world.broker.remove(stranger)),
            chaos=36.0,
        )
    named = [at for at, event in seen.events(STRANGERS) if stranger.name in event.text]
    seen.expect(bool(named) and named[0] <= AT + LIMITS.settle_timeout + 3 * SOON, f"naming a stranger: {named}")


@promise
def a_bounded_run_ends_with_the_cut_that_has_all(seed: int) -> None:
    def strike(world: World) -> None:
        world.visitors.append(VISITORS["consume"](world, Fault(AT, "consume")))

    seen = watch(seed, (AT, strike))
    ended = [at for at, _, what, _ in seen.history.entries if what == "has caught up"]
    seen.expect(bool(ended) and ended[0] <= AT + 2 * SOON, f"a bounded run that ends: {ended}")
