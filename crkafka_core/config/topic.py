"""What Kafka takes as the name of a topic."""

from __future__ import annotations

import re

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
NO_TOPIC = "is not a topic name: letters, digits, dot, underscore and hyphen, at most 249"


def is_topic(name: str) -> bool:
    """Whether a topic may be called this."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")
