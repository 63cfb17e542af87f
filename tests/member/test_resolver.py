"""What becomes of a region whose starts cannot be resolved."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from crkafka_core.kafka.errors import KafkaUnavailable, NotAllowed, TopicGone
from crkafka_core.loop import Threads
from crkafka_core.member import resolver as resolver_module
from crkafka_core.member.resolver import Resolver
from crkafka_core.model.errors import ConfigError, CrkafkaError, ServiceUnavailable
from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import StartReason
from crkafka_core.plane.starts import Resolved
from crkafka_core.protocol import signals as sg

Known = tuple[dict[TP, tuple[int, int]], dict[TP, CrkafkaError]]


class Clock(Threads):
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class Asked(Resolver):
    """A resolver whose answers are a list of errors; remembers for what it stopped the region."""

    def __init__(self, errors: list[Exception | None], clock: Clock) -> None:
        self.answers = errors
        self.stopped: list[str] = []
        self.posted: list[sg.Event] = []
        nothing: Any = None
        super().__init__(
            nothing, nothing, nothing, nothing, self.posted.append, limits=Limits(), ends=nothing, runtime=clock
        )

    def _answer(self, question: sg.Resolve) -> sg.Event:
        error = self.answers.pop(0)
        if error is not None:
            raise error
        return sg.Started(question.stamp, {}, {})

    def _stop_region(self, reason: str, epoch: int) -> None:
        self.stopped.append(reason)

    def answer_all(self) -> None:
        while self.answers:
            self.ask(sg.Resolve(sg.Stamp(1, 0, 1), frozenset()))
            self.turn(0.0)


def test_x6_rights_that_are_away_for_a_moment_stop_nothing() -> None:
    refused = NotAllowed("Kafka refused to describe topics: TOPIC_AUTHORIZATION_FAILED.")
    clock = Clock()
    resolver = Asked([refused] * 40 + [None] + [refused] * 40, clock)
    while len(resolver.answers) > 40:
        resolver.ask(sg.Resolve(sg.Stamp(1, 0, 1), frozenset()))
        resolver.turn(0.0)
    assert resolver.unavailable == "", "an answer ends the patience that was used up"
    clock.time += 50
    resolver.answer_all()
    assert resolver.stopped == []
    assert "TOPIC_AUTHORIZATION_FAILED" in resolver.unavailable, "told with the metrics while it lasts"


def test_x11_an_outage_between_two_refusals_counts_for_none() -> None:
    refused, clock = NotAllowed("No right to read orders."), Clock()
    away = ServiceUnavailable("Kafka does not answer.")
    resolver = Asked([refused, *[away] * 300, refused], clock)
    resolver.answer_all()
    assert clock.time > 60 and resolver.stopped == []
    resolver.answers = [refused, None, refused]
    while resolver.answers:
        resolver.answer_all()
    resolver.answers = [refused]
    clock.time += 120  # no question meanwhile: this member had no partitions
    resolver.answer_all()
    assert resolver.stopped == []


def test_x11_the_reason_for_which_a_start_waits_is_named_whatever_it_is() -> None:
    resolver = Asked([TopicGone("Kafka has no t[1].")], Clock())
    resolver.answer_all()
    assert "t[1]" in resolver.unavailable


def test_x6_rights_that_stay_away_stop_the_region_with_the_reason() -> None:
    clock = Clock()
    resolver = Asked([NotAllowed("No right to read orders.")] * 300, clock)
    resolver.answer_all()
    assert set(resolver.stopped) == {"No right to read orders."}
    assert len(resolver.stopped) == pytest.approx(100, abs=5), "not before a minute of refusals"


def test_g3_an_odd_error_of_a_look_is_not_the_end_of_the_thread() -> None:
    """The member went on without it: at the next reset nothing started any more."""
    clock = Clock()
    resolver = Asked([None], clock)
    clock.time += 60
    assert resolver.turn(0.0), "its looks have nothing to look at here"
    resolver.answer_all()
    assert [type(event) for event in resolver.posted] == [sg.Started]


def test_g10_what_lies_outside_sql_is_asked_for_again_until_it_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a member that came while the storage was away would go on from an older backup."""
    looks, posted = list[object](), list[sg.Event]()

    def look(*of: object) -> None:
        looks.append(of)
        raise ServiceUnavailable("The storage does not answer.")

    monkeypatch.setattr(resolver_module, "look_outside", look)
    config, nothing = cast(Any, SimpleNamespace(group_id="g")), cast(Any, None)
    resolver = Resolver(
        config, nothing, nothing, nothing, posted.append, limits=Limits(), ends=nothing, runtime=Clock()
    )
    for _ in range(3):
        resolver.ask(sg.Resolve(sg.Stamp(1, 0, 1), frozenset()))
        assert resolver.turn(0.0)
    assert len(looks) == 3 and [type(event) for event in posted] == [sg.NotStarted] * 3


def test_a_wrong_configuration_stops_at_once() -> None:
    resolver = Asked([ConfigError("A start position that is none.")], Clock())
    resolver.answer_all()
    assert resolver.stopped == ["A start position that is none."]


CUT = {
    "grown past it": (0, 300, 100, 100),
    "grown a little": (0, 120, 100, 100),
    "not grown": (0, 100, 100, 100),
    "grown, and its beginning is gone": (110, 120, 100, 110),
    "grown, and gone up to it": (160, 300, 100, 160),
    "all of it is gone": (170, 300, 100, 170),
    "not cut": (0, 300, None, None),
}


@pytest.mark.parametrize(("earliest", "end", "cut_at", "goes_on"), CUT.values(), ids=CUT)
def test_71_a_log_that_was_cut_is_read_from_where_it_was_cut(
    earliest: int, end: int, cut_at: int | None, goes_on: int | None
) -> None:
    """What others have written there since is new, whether or not the log has grown past the offset again."""
    tp = TP("t", 0)

    class Admin:
        def known_watermarks(self, tps: Any, isolation: str) -> Known:
            return {tp: (earliest, end)}, {}

        def cut_below(self, offsets: Mapping[TP, tuple[int, int]]) -> dict[TP, int]:
            return {} if cut_at is None else {tp: cut_at for tp, (offset, _) in offsets.items() if cut_at < offset}

    resolver = Asked([], Clock())
    resolver._admin = Admin()  # type: ignore[assignment]
    found = resolver._gaps(Resolved(1, 1, {tp: 160}, {tp: StartReason.HEAD}, left_off={tp: (160, 0)}))
    assert {at: gap.available for at, gap in found.items()} == ({} if goes_on is None else {tp: goes_on})
    if earliest <= 160 and goes_on is not None:
        # What a person has passed over; what a cut has been found to have left.
        for start, anew in ((165, True), (goes_on, False)):
            found = resolver._gaps(Resolved(1, 1, {tp: start}, {tp: StartReason.GAP}, left_off={tp: (160, 0)}))
            assert {at: gap.available for at, gap in found.items()} == ({tp: goes_on} if anew else {})


LED, LEADERLESS = TP("t", 0), TP("t", 1)


class OneWithoutLeader:
    """Two partitions that end at 300, one of which may not say so."""

    def __init__(self, error: CrkafkaError) -> None:
        self.silent = {LEADERLESS: error}

    def known_watermarks(self, tps: Any, isolation: str = "") -> Known:
        known = {tp: (0, 300) for tp in tps if tp not in self.silent}
        return known, {tp: error for tp, error in self.silent.items() if tp in set(tps)}

    def cut_below(self, offsets: Mapping[TP, tuple[int, int]]) -> dict[TP, int]:
        assert LEADERLESS not in offsets
        return {}


def test_94_a_partition_without_a_leader_starts_where_the_head_says_and_holds_up_no_other() -> None:
    """Once it has a leader, the client finds a gap by itself, and the reset that follows compares."""
    resolver = Asked([], Clock())
    resolver._admin = OneWithoutLeader(KafkaUnavailable("t[1] has no leader."))  # type: ignore[assignment]
    offsets, heads = {LED: 400, LEADERLESS: 160}, dict.fromkeys((LED, LEADERLESS), StartReason.HEAD)
    known = Resolved(1, 1, offsets, heads, left_off={LED: (400, 0), LEADERLESS: (160, 0)})
    assert resolver._gaps(known).keys() == {LED}, "its log ends before 400"
    alone = Resolved(1, 1, {LEADERLESS: 160}, {LEADERLESS: StartReason.HEAD}, left_off={LEADERLESS: (160, 0)})
    assert resolver._gaps(alone) == {}, "it may be all that this member holds"


def test_94_a_partition_that_is_refused_or_gone_is_waited_for() -> None:
    for error in (NotAllowed("No right to describe t."), TopicGone("Kafka has no t[1].")):
        resolver = Asked([], Clock())
        resolver._admin = OneWithoutLeader(error)  # type: ignore[assignment]
        offsets = dict.fromkeys((LED, LEADERLESS), 160)
        with pytest.raises(type(error)):
            resolver._gaps(Resolved(1, 1, offsets, dict.fromkeys(offsets, StartReason.HEAD), left_off={}))
