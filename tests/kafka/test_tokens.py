"""Functions that give tokens for OAUTHBEARER, and what becomes of those that give none (SPEC U1)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.kafka import clients
from crkafka_core.kafka.errors import KafkaUnavailable
from crkafka_core.model.errors import ConfigError
from tests.kafka.declared import declare

GIVES: Any = None
PLACE = "given"


def gives(_: str) -> Any:
    return GIVES


@pytest.fixture(autouse=True)
def declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path / "package", monkeypatch, clients.TOKENS, given="tests.kafka.test_tokens:gives")


@pytest.mark.parametrize("where", ["os:system", "tests.kafka.test_tokens:gives", "builtins.exec"])
def test_only_what_an_installed_package_declares_is_called(where: str) -> None:
    """A line of configuration names no code of its choice."""
    with pytest.raises(ConfigError, match=r"no installed package declares as an entry point of the group crkafka\."):
        clients.token_function(where)


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


ASKS = {
    "bootstrap.servers": "localhost:1",
    "group.id": "g",
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.config": "who=me",
    clients.CALLBACK: PLACE,
}


@pytest.mark.parametrize("make", [clients.consumer, clients.admin])
def test_without_a_token_no_client_is_made(
    make: Callable[[dict[str, str]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """An error of the client's own would count, and stop the region while whoever gives tokens is away (SPEC X6); in some runs
    confluent-kafka raised what is no exception, and the process ended (docs/clients.md C-K32)."""
    began = time.monotonic()
    with pytest.raises(KafkaUnavailable, match="gave no token"):
        make(ASKS)
    assert time.monotonic() - began < 5, "the client was not made, which waits for ten seconds"
    assert "gave no token: TypeError" in caplog.text


def test_the_first_token_is_asked_for_once_and_the_next_ones_by_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def given(config: str) -> Any:
        asked.append(config)
        return f"token-{len(asked)}", time.time() + 3_600

    monkeypatch.setattr("tests.kafka.test_tokens.gives", given)
    clients.consumer(ASKS).close()
    assert asked == ["who=me"]
    ask = clients._with_first_token(PLACE, "who=me")
    assert [ask("who=me")[0] for _ in range(2)] == ["token-2", "token-3"]
