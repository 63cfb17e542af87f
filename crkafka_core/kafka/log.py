"""librdkafka's log lines, each kind at most every ten seconds: an absent broker writes many a second (docs/clients.md C-R12).

Lines that repeat a message of ours are DEBUG: `CRKAFKA_LOG=DEBUG` shows them.
"""

from __future__ import annotations

import logging
import re
import threading
import time

EVERY = 10.0
_SLOW = ("REQTMOUT", "SESSTMOUT")
"""Timeouts of a request or a session. Our own lines report both, as the caller's error or as "Kafka does not answer": these are INFO."""
_AWAY = re.compile(
    r"FAIL .*: (Connect to \S+ failed: |Connection setup timed out|Disconnected( \(|$)|\d+ request\(s\) timed out: disconnect)"
)
"""A connection that was refused, cut or not answered: also reported as an error with the broker's name, so these lines are DEBUG.
Lines about host names, TLS and logins have more detail than our errors and keep their level."""
_NUMBERS = re.compile(r"\d+")
_BROKER = re.compile(r", at broker \S+(?=\))")
"""The same outage is reported with the broker's name, and again without it."""


class Throttle(logging.Filter):
    """Lets a line pass if no line of its kind (equal but for numbers) passed within `EVERY` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = _NUMBERS.sub("0", _BROKER.sub("", record.getMessage()))[:200], time.monotonic()
        with self._lock:
            if now - self._seen.get(kind, -EVERY) < EVERY:
                return False
            if len(self._seen) > 200:
                self._seen.clear()
            self._seen[kind] = now
        return True


def _set_level(record: logging.LogRecord) -> bool:
    """Lower the level of lines that repeat ours; whether the new level is shown."""
    line = record.getMessage()
    level = logging.INFO if line.startswith(_SLOW) else logging.DEBUG if _AWAY.match(line) else record.levelno
    record.levelno, record.levelname = level, logging.getLevelName(level)
    return client_log.isEnabledFor(level)


client_log = logging.getLogger("crkafka_core.kafka.client")
client_log.addFilter(_set_level)
client_log.addFilter(Throttle())
