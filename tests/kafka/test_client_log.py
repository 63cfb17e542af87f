"""librdkafka's log lines, as a person sees them (docs/clients.md C-R12)."""

from __future__ import annotations

import logging
import time

import pytest

from crkafka_core.kafka.clients import Throttle, client_log
from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.properties import client_properties
from crkafka_core.model.limits import Limits

WHO = "[x#consumer-2] [thrd:b1:9092/1]: b1:9092/1"
SLOW = f"REQTMOUT {WHO}: Timed out 2 in-flight, 0 retry-queued"
AWAY = (
    "Connect to ipv4#10.1.2.3:9092 failed: Connection refused (after 0ms in state CONNECT)",
    "Connection setup timed out in state CONNECT (after 30030ms in state CONNECT, 1 identical error(s) suppressed)",
    "Disconnected (after 60000ms in state UP)",
    "1 request(s) timed out: disconnect (average rtt 12.100ms) (after 61000ms in state UP)",
)
TELLS_MORE = (
    "Failed to resolve 'b1:9092': Name or service not known (after 2ms in state CONNECT)",
    "Disconnected: verify that security.protocol is correctly configured, broker might require SASL authentication",
    "SSL handshake failed: certificate verify failed: broker certificate could not be verified",
    "SASL authentication error: Authentication failed",
    "Receive failed: Connection reset by peer",
)


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another test has logged does not count."""
    kept = [f for f in client_log.filters if not isinstance(f, Throttle)]
    monkeypatch.setattr(client_log, "filters", [*kept, Throttle()])


def test_one_outage_is_one_line_whether_it_names_the_broker_or_not(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("crkafka.test.outage")
    log.addFilter(Throttle())
    for where in ("in group shop, at broker 127.0.0.1:9092", "in group shop", "in group other"):
        log.warning("Kafka does not answer (%s). Is the broker up?", where)
    assert [r.getMessage()[23:40] for r in caplog.records] == ["in group shop, at", "in group other). "]


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO])
def test_a_request_without_an_answer_in_time_is_no_warning(level: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(level, client_log.name):
        client_log.log(logging.WARNING, SLOW)
        client_log.log(
            logging.WARNING, f"SESSTMOUT {WHO}: Consumer group session timed out (in join-state steady) after 6010 ms"
        )
        client_log.log(logging.ERROR, "FAIL of another kind")
    slow = [("INFO", "REQTMOUT"), ("INFO", "SESSTMOUT")] if level == logging.INFO else []
    assert [(r.levelname, r.getMessage().split()[0]) for r in caplog.records] == [*slow, ("ERROR", "FAIL")]


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_what_a_sentence_of_ours_tells_is_for_who_looks_closer_and_what_nothing_else_tells_stays(
    level: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(level, client_log.name):
        for text in (*AWAY, *TELLS_MORE):
            client_log.log(logging.ERROR, f"FAIL {WHO}: {text}")
    away = [("DEBUG", text) for text in AWAY] if level == logging.DEBUG else []
    assert [(r.levelname, r.getMessage().removeprefix(f"FAIL {WHO}: ")) for r in caplog.records] == [
        *away,
        *(("ERROR", text) for text in TELLS_MORE),
    ]


def test_of_a_broker_that_is_away_a_sentence_tells_which_it_is_and_no_raw_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g"}
    consumer = GroupConsumer(client_properties(given, Limits(), client_id="a", single_topic=True))
    told, until = [], time.monotonic() + 20
    with caplog.at_level(logging.DEBUG, client_log.name):
        consumer.subscribe(["t"])
        while not (told and caplog.records) and time.monotonic() < until:
            told += consumer.poll(10, 0.1).errors
    consumer.close()
    assert any(str(e).startswith("Kafka does not answer (in group g, at broker 127.0.0.1:9).") for e in told), told
    assert {r.levelname for r in caplog.records} == {"DEBUG"} and "Connection refused" in caplog.text
