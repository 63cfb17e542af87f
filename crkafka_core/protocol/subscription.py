"""What a configuration reads, as text that SQL keeps: topics by name or by pattern (SPEC M7, S4). Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

UNKNOWN = "{}"
"""Subscription of a member that named none: it may read anything."""


def dump(topics: Iterable[str] | None, pattern: str | None) -> str:
    """As stored; equal for equal subscriptions."""
    return json.dumps({"topics": sorted(topics)} if topics is not None else {"pattern": pattern}, ensure_ascii=False)


def reads(subscription: str, topic: str) -> bool:
    read = json.loads(subscription)
    if "topics" in read:
        return topic in read["topics"]
    return "pattern" not in read or re.search(read["pattern"], topic) is not None
