"""Bounded runs: each has ends of its own, and none ends another (SPEC V3; fault 78)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from crkafka_core.config.sections import TriggerConfig
from crkafka_core.model.errors import NotRunning, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Initial
from crkafka_core.plane import cuts, goals, hosts, leases, life, member_plane, resets, roster, starts
from crkafka_core.region import waiting
from crkafka_core.region.caught_up import consume, still_to_reach
from tests.plane.conftest import P0, P1, Kit
from tests.rigs.merging import merge_cut


def _missing(kit: Kit, token: str) -> frozenset[TP]:
    return kit.read(lambda reader, row: goals.missing(reader, row.epoch, token))


def _reach(kit: Kit, token: str, number: int, *reached: TP, begun: float | None = None) -> None:
    name, since = f"orders/{number}", _begun(kit, token) if begun is None else begun
    kit.do(
        lambda tx: goals.reach(
            tx, token, since, member=name, incarnation=kit.live[name], epoch=tx.region().epoch, reached=reached
        )
    )


def _begun(kit: Kit, token: str) -> float:
    return next(goal.at for goal in kit.read(lambda reader, _: goals.current(reader)) if goal.token == token)


def test_v3_what_was_reached_before_a_reset_is_not_reached(kit: Kit) -> None:
    """It was submitted and not merged: it is read again from the head."""
    kit.running()
    kit.do(lambda tx: goals.aim(tx, "run", {P0: 10, P1: 10}))
    _reach(kit, "run", 0, P0)
    assert _missing(kit, "run") == {P1}
    kit.do(lambda tx: resets.request(tx, by="me"))
    kit.settle()
    assert _missing(kit, "run") == {P0, P1}


def test_v3_what_was_reached_of_a_run_says_nothing_of_the_same_run_begun_again(kit: Kit) -> None:
    """Its ends may lie further; members are told when it was begun, and say again what they have reached."""
    kit.running()
    kit.do(lambda tx: goals.aim(tx, "run", {P0: 10}))
    first = _begun(kit, "run")
    kit.do(lambda tx: goals.drop(tx, "run"))
    kit.now += 1.0
    kit.do(lambda tx: goals.aim(tx, "run", {P0: 20}))
    _reach(kit, "run", 0, P0, begun=first)
    assert _missing(kit, "run") == {P0}
    _reach(kit, "run", 0, P0)
    assert _missing(kit, "run") == frozenset()


def _aims(kit: Kit) -> dict[str, dict[TP, int]]:
    desired = kit.read(
        lambda reader, row: member_plane.desired(reader, row, roster.all_of(reader), "orders/0", kit.live["orders/0"])
    )
    return {aim.token: dict(aim.ends) for aim in desired.aims}


def test_78_two_bounded_runs_at_once_are_both_answered_truly(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: goals.aim(tx, "first", {P0: 10, P1: 10}))
    kit.do(lambda tx: goals.aim(tx, "second", {P0: 20, P1: 20}))
    assert _aims(kit) == {"first": {P0: 10, P1: 10}, "second": {P0: 20, P1: 20}}, "members work towards both"
    assert _missing(kit, "first") == _missing(kit, "second") == {P0, P1}
    _reach(kit, "first", 0, P0), _reach(kit, "first", 1, P1), _reach(kit, "second", 1, P1)
    assert (_missing(kit, "first"), _missing(kit, "second")) == (frozenset(), {P0})
    kit.do(lambda tx: goals.drop(tx, "first"))
    assert _missing(kit, "second") == {P0}, "the end of one changes nothing for the other"


def test_v3_a_topic_that_is_forgotten_meanwhile_is_not_waited_for(kit: Kit) -> None:
    """Or taken out of the configuration: nobody will ever reach its end, and the run waited for ever."""
    kit.running()
    kit.do(lambda tx: goals.aim(tx, "run", {P0: 10, P1: 10}))
    _reach(kit, "run", 0, P0)
    left: Callable[[], frozenset[TP]] = lambda: kit.read(lambda r, row: still_to_reach(r, row, "run"))  # noqa: E731
    assert left() == {P1}
    kit.do(lambda tx: starts.forget(tx, "t", by="me"))
    assert left() == frozenset()


def test_v3_what_a_member_had_reached_that_was_started_again_is_not_reached(kit: Kit) -> None:
    """It begins at the head again: the run ended with a checkpoint that lacked what the earlier process had read."""
    kit.running()
    kit.do(lambda tx: goals.aim(tx, "run", {P0: 10}))
    _reach(kit, "run", 0, P0)
    assert _missing(kit, "run") == frozenset()
    kit.register(0)
    assert _missing(kit, "run") == {P0}
    _reach(kit, "run", 0, P0)
    assert _missing(kit, "run") == frozenset()


def test_v3_the_end_of_a_topic_that_was_made_anew_meanwhile_is_not_waited_for(kit: Kit) -> None:
    """The new one may never reach it."""
    kit.running()
    kit.do(lambda tx: goals.aim(tx, "run", {P0: 1000, TP("other", 0): 5}))
    kit.do(lambda tx: starts.forget(tx, "t", by="me"))
    again = Initial("orders", "id-t2", 0, "t", 0, "beginning")
    kit.do(lambda tx: tx.put(again))
    assert kit.read(lambda r, row: still_to_reach(r, row, "run")) == frozenset()
    assert _missing(kit, "run") == {TP("other", 0)}, "of the others the ends are kept"


class LostReply:
    """A region whose first cut is made, and nobody hears of it."""

    config = SimpleNamespace(kafka={}, trigger=TriggerConfig(manual=True))

    def __init__(self, kit: Kit) -> None:
        self.kit, self.plane, self.end, self.lost = kit, kit.plane, 10, False

    def await_running(self, progress: object) -> None: ...

    def admin(self) -> Any:
        return SimpleNamespace(watermarks=lambda tps, _: dict.fromkeys(tps, (0, self.end)))

    def cut(self, *, cause: str, token: str, progress: object) -> Checkpoint:
        made = self.kit.do(lambda tx: cuts.open_cut(tx, token=token, cause=cause))
        if self.lost:
            return self.kit.checkpoint(made.id)
        for number in (0, 1):
            self.kit.contribute(made.id, number, 10)
        self.kit.do(lambda tx: merge_cut(tx, made.id))
        self.lost = True
        raise ServiceUnavailable("no reply")


def test_v3_a_run_whose_cut_was_made_without_a_reply_goes_on_with_its_ends(kit: Kit) -> None:
    """Else it would wait for what came since, and name a checkpoint that has it not."""
    kit.running()
    region: Any = LostReply(kit)

    def reach(_: str) -> None:
        _reach(kit, "run", 0, P0), _reach(kit, "run", 1, P1)

    with pytest.raises(ServiceUnavailable):
        consume(region, token="run", progress=reach)
    region.end, kit.now = 20, kit.now + 60.0
    assert consume(region, token="run", progress=reach).checkpoint.id == 1
    assert _aims(kit) == {}


def test_v3_a_run_does_not_end_with_a_cut_that_went_without_a_member(kit: Kit) -> None:
    """It lacks what that member has submitted: the run was green, and rows were missing."""
    kit.running()
    region: Any = Loses(kit)

    def reach(_: str) -> None:
        _reach(kit, "run", 0, P0), _reach(kit, "run", 1, P1)

    done = consume(region, token="run", progress=reach).checkpoint
    assert region.first.without == ("orders/1",)
    assert (done.id, done.without, done.rows) == (kit.row.head, (), 20)


class Loses(LostReply):
    """A region of which a member dies in the first cut."""

    first: Checkpoint | None = None

    def cut(self, *, cause: str, token: str, progress: object) -> Checkpoint:
        kit, made = self.kit, self.kit.do(lambda tx: cuts.open_cut(tx, token=token, cause=cause, flow=True))
        kit.contribute(made.id, 0, 10)
        if self.first is None:
            kit.at[P0] += 10
            kit.dies(1)
            kit.settle()
            self.first = kit.checkpoint(made.id)
            return self.first
        kit.contribute(made.id, 1, 10)
        kit.do(lambda tx: merge_cut(tx, made.id))
        return kit.checkpoint(made.id)


def test_v3_a_run_whose_members_have_no_host_any_more_says_so(kit: Kit) -> None:
    """Those of a machine that is gone are live as far as SQL knows: it waited without a word, and nobody would ever come."""
    kit.running()
    kit.do(lambda tx: leases.take(tx, hosts.LEASE, holder="anna", token="t", length=30.0))
    said: list[str] = []

    def progress(text: str) -> None:
        said.append(text)
        kit.now += 40.0
        if len(said) == 2:
            raise KeyboardInterrupt

    region: Any = LostReply(kit)
    with pytest.raises(KeyboardInterrupt):
        consume(region, token="run", progress=progress)
    assert said[0] == "0 of 2 partitions caught up"
    assert said[1].startswith("0 of 2 partitions caught up; the host of its members, anna, has shown no life for")


def test_v3_goals_of_runs_that_were_killed_do_not_pile_up(kit: Kit) -> None:
    kit.running()
    for number in range(goals.MOST + 5):
        kit.now += 1.0
        kit.do(lambda tx, n=number: goals.aim(tx, f"run {n}", {P0: 1}))  # type: ignore[misc]
    assert set(_aims(kit)) == {f"run {n}" for n in range(5, goals.MOST + 5)}


def test_78_who_waits_for_a_region_that_another_run_has_stopped_is_told_and_waits_no_more(kit: Kit) -> None:
    """The run that hosted it was done first: its stop made the region idle, and the other one waited for RUNNING for ever."""
    kit.running()
    kit.do(lambda tx: life.stop(tx, token="stop", by="first"))
    cut = kit.row.opened
    assert waiting.until_running(kit.plane, 0, lambda _: None).phase is Phase.CUTTING, "the last cut may still be his"
    for number in (0, 1):
        kit.contribute(cut, number)
    kit.do(lambda tx: merge_cut(tx, cut))
    kit.advance()
    assert kit.row.phase is Phase.IDLE
    with pytest.raises(NotRunning, match="idle"):
        waiting.until_running(kit.plane, 0, lambda _: None, timeout=5.0)


def test_v3_each_step_of_a_bounded_run_wakes_those_who_wait_and_what_changes_nothing_does_not(kit: Kit) -> None:
    """Who waits for a change of the region waits for its version."""
    kit.running()
    versions = [kit.row.version]

    def woken() -> bool:
        versions.append(kit.row.version)
        return versions[-1] > versions[-2]

    kit.do(lambda tx: goals.aim(tx, "run", {P0: 10, P1: 10}))
    assert woken()
    assert kit.do(lambda tx: goals.aim(tx, "run", {P0: 99})) == {P0: 10, P1: 10} and not woken()
    assert [e.text for e in kit.events("goal")] == ["consume until caught up: 2 partitions"]
    _reach(kit, "run", 0, P0)
    assert woken()
    _reach(kit, "run", 0, P0)
    assert not woken()
    kit.do(lambda tx: goals.drop(tx, "run"))
    assert woken() and _aims(kit) == {}
    kit.do(lambda tx: goals.drop(tx, "run"))
    assert not woken()
