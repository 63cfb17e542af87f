"""Functions that give tokens for OAUTHBEARER, and what becomes of those that give none (SPEC 17)."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from crkafka_core.kafka import clients
from crkafka_core.kafka.errors import KafkaUnavailable

GIVES: Any = None
PLACE = "tests.kafka.test_tokens:gives"


def gives(_: str) -> Any:
    return GIVES


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("geheim-22", "has to return"),
        (("geheim-22",), "has to return"),
        (None, "has to return"),
        (("geheim-22", "1900000000"), "has to return"),
        (("geheim-22", 1_900_000_000_000), "milliseconds"),
        (("geheim-22", time.time() - 5), "has ended already"),
    ],
)
def test_what_is_no_token_is_told_without_it(
    given: Any, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tests.kafka.test_tokens.GIVES", given)
    with pytest.raises((TypeError, ValueError), match=said), caplog.at_level(logging.ERROR):
        clients.token_function(PLACE)("")
    assert said in caplog.text
    assert "geheim" not in caplog.text


def test_a_token_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("geheim-22", time.time() + 60, "me", {"a": "b"})
    monkeypatch.setattr("tests.kafka.test_tokens.GIVES", given)
    assert clients.token_function(PLACE)("") == given


def test_a_consumer_without_a_token_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the client's own would count, and stop the region while whoever gives tokens is away (SPEC X6)."""
    with pytest.raises(KafkaUnavailable, match="gave no token"):
        clients.consumer(
            {
                "bootstrap.servers": "localhost:1",
                "group.id": "g",
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "OAUTHBEARER",
                clients.CALLBACK: PLACE,
            }
        )
