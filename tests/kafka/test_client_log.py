"""librdkafka's log lines, as a person sees them (docs/clients.md R12)."""

from __future__ import annotations

import logging

import pytest

from crkafka_core.kafka.log import client_log

SLOW = "REQTMOUT [x#consumer-2] [thrd:127.0.0.1:9/1]: 127.0.0.1:9/1: Timed out 2 in-flight, 0 retry-queued"


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO])
def test_a_request_without_an_answer_in_time_is_no_warning(level: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(level, client_log.name):
        client_log.log(logging.WARNING, f"{SLOW}, {level}{'x' * level}")
        client_log.log(logging.ERROR, f"FAIL {'y' * level}: connection refused")
    slow = [("INFO", "REQTMOUT")] if level == logging.INFO else []
    assert [(r.levelname, r.getMessage().split()[0]) for r in caplog.records] == [*slow, ("ERROR", "FAIL")]
