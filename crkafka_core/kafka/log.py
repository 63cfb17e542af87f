"""librdkafka's log lines, each kind at most every ten seconds: an absent broker writes many a second (docs/clients.md R12)."""

from __future__ import annotations

import logging
import re
import threading
import time

EVERY = 10.0
_SLOW = "REQTMOUT"
"""A request got no answer in its time, which is short for some on purpose: who asked says so, or asks again. No news for a person."""
_NUMBERS = re.compile(r"\d+")


class Throttle(logging.Filter):
    """Lets a line pass if no line of its kind (equal but for numbers) passed within `EVERY` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = _NUMBERS.sub("0", record.getMessage())[:200], time.monotonic()
        with self._lock:
            if now - self._seen.get(kind, -EVERY) < EVERY:
                return False
            if len(self._seen) > 200:
                self._seen.clear()
            self._seen[kind] = now
        return True


def _slow_is_no_warning(record: logging.LogRecord) -> bool:
    if record.getMessage().startswith(_SLOW):
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
    return client_log.isEnabledFor(record.levelno)


client_log = logging.getLogger("crkafka_core.kafka.client")
client_log.addFilter(_slow_is_no_warning)
client_log.addFilter(Throttle())
