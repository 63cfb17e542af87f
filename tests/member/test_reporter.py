"""What the reporter says of topics: as Kafka has them when the cut is made, not as they were when the start was resolved (SPEC S4)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from crkafka_core.kafka.errors import NotAllowed
from crkafka_core.member import reporter as module
from crkafka_core.member.reporter import Reporter
from crkafka_core.member.submitter import Payload
from crkafka_core.model.desired import OpenCut
from crkafka_core.model.errors import SchemaError, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.plane import contributions
from crkafka_core.protocol import signals as sg


def contributed(monkeypatch: pytest.MonkeyPatch, found: Mapping[str, str] | Exception) -> Mapping[str, str]:
    """The topic ids of a contribution whose start was resolved under id `old`."""
    parts: list[contributions.Part] = []

    def hand_in(_: object, part: contributions.Part) -> None:
        parts.append(part)

    def ids() -> Mapping[str, str]:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(module.merging, "hand_in", hand_in)
    plane = SimpleNamespace(do=lambda work: work(None), name="orders/0", incarnation="a")
    thread = Reporter(plane, lambda _: None, topic_ids=ids)  # type: ignore[arg-type]
    thread.start()
    cut = OpenCut(1, 0, 1, ("orders/0",), frozenset({TP("t", 0)}))
    thread.do(sg.Save(1, 2))
    thread.do(sg.Contribute(cut, 1, 0, 1, {"t": "old"}, Payload({TP("t", 0): (0, 0, 0)}, (), 0)))
    end = time.monotonic() + 5
    while not parts and time.monotonic() < end:
        time.sleep(0.01)
    thread.end()
    return parts[0].topic_ids


def test_20_a_topic_made_anew_quickly_is_told_by_its_new_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/clients.md C-R9: no callback comes, the consumer goes on at its old offset; only the id tells, and the merge compares it."""
    assert contributed(monkeypatch, {"t": "new"}) == {"t": "new"}


@pytest.mark.parametrize("found", [{"t": "old"}, {}, {"t": ""}, ServiceUnavailable("no broker")])
def test_s4_what_kafka_does_not_tell_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, found: Mapping[str, str] | Exception
) -> None:
    assert contributed(monkeypatch, found) == {"t": "old"}


@pytest.mark.parametrize(
    "error", [ServiceUnavailable("no broker"), NotAllowed("no right to describe"), RuntimeError("x")]
)
def test_s4_what_was_told_at_an_earlier_cut_is_forgotten_however_the_question_ends(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    parts: list[contributions.Part] = []
    answers: list[Mapping[str, str] | Exception] = [{"t": "then"}, error]

    def ids() -> Mapping[str, str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module.merging, "hand_in", lambda _, part: parts.append(part))
    plane = SimpleNamespace(do=lambda work: work(None), name="orders/0", incarnation="a")
    thread = Reporter(plane, lambda _: None, topic_ids=ids)  # type: ignore[arg-type]
    for number in (1, 2):
        cut = OpenCut(number, 0, 1, ("orders/0",), frozenset({TP("t", 0)}))
        thread.do(sg.Save(number, number + 1))
        thread.do(sg.Contribute(cut, 1, 0, 1, {"t": "start"}, Payload({TP("t", 0): (0, 0, 0)}, (), 0)))
    for _ in range(4):
        thread.turn(0.0)
    assert [part.topic_ids for part in parts] == [{"t": "then"}, {"t": "start"}]


def test_what_sql_did_not_hear_is_said_again_before_what_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is away, and also when it took what it did not answer: each effect finds its own earlier doing."""
    answers = iter(["away", "no table", "lost", "", "away", ""])
    heard: list[str] = []

    def do(work: object) -> None:
        answer = next(answers)
        if answer == "away":
            raise ServiceUnavailable("no SQL")
        if answer == "no table":
            raise SchemaError("a dump is being restored")
        work(None)  # type: ignore[operator]
        if answer == "lost":
            raise ServiceUnavailable("no answer")

    monkeypatch.setattr(module.events, "log", lambda _, kind, text, by: heard.append(text))
    monkeypatch.setattr("crkafka_core.loop.time.sleep", lambda _: None)
    thread = Reporter(SimpleNamespace(do=do, name="orders/0", incarnation="a"), lambda _: None)  # type: ignore[arg-type]
    thread.do(sg.Tell("x", "first"))
    thread.do(sg.Tell("x", "second"))
    for _ in range(6):
        assert thread.turn(0.0)
    assert heard == ["first", "first", "second"]
    assert thread.turn(0.0) and next(answers, None) is None, "nothing is left to say"
