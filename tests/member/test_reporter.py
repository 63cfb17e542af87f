"""What the reporter says of topics: as Kafka has them when the cut is made, not as they were when the start was resolved (SPEC S4)."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from crkafka_core.kafka.errors import NotAllowed
from crkafka_core.member import reporter as module
from crkafka_core.member.reporter import Reporter
from crkafka_core.member.submitter import Taken
from crkafka_core.model.desired import OpenCut
from crkafka_core.model.errors import SchemaError, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.plane import contributions
from crkafka_core.protocol import signals as sg


def contributed(monkeypatch: pytest.MonkeyPatch, *answers: Mapping[str, str] | Exception) -> list[Mapping[str, str]]:
    """The topic ids of contributions whose starts were resolved under id `old`; what Kafka tells at each."""
    parts: list[contributions.Part] = []
    left = list(answers)

    def ids() -> Mapping[str, str]:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module.merging, "hand_in", lambda _, part: parts.append(part))
    plane = SimpleNamespace(do=lambda work: work(None), name="orders/0", incarnation="a")
    thread = Reporter(plane, lambda _: None, topic_ids=ids)  # type: ignore[arg-type]
    for number in range(1, 1 + len(answers)):
        cut = OpenCut(number, 0, 1, ("orders/0",), frozenset({TP("t", 0)}))
        thread.do(sg.Save(number, number + 1))
        thread.do(sg.Contribute(cut, 1, 0, 1, {"t": "old"}, Taken(1, 1, {TP("t", 0): (0, 0, 0)}, {})))
        thread.turn(0.0), thread.turn(0.0)
    return [part.topic_ids for part in parts]


def test_20_a_topic_made_anew_quickly_is_told_by_its_new_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/clients.md C-R9: no callback comes, the consumer goes on at its old offset; only the id tells, and the merge compares it."""
    assert contributed(monkeypatch, {"t": "new"}) == [{"t": "new"}]


@pytest.mark.parametrize("found", [{"t": "old"}, {}, {"t": ""}, ServiceUnavailable("no broker")])
def test_s4_what_kafka_does_not_tell_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, found: Mapping[str, str] | Exception
) -> None:
    assert contributed(monkeypatch, found) == [{"t": "old"}]


@pytest.mark.parametrize(
    "error", [ServiceUnavailable("no broker"), NotAllowed("no right to describe"), RuntimeError("x")]
)
def test_s4_what_was_told_at_an_earlier_cut_is_forgotten_however_the_question_ends(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    assert contributed(monkeypatch, {"t": "then"}, error) == [{"t": "then"}, {"t": "old"}]


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
