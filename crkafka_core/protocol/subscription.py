"""What a configuration reads, as text that SQL keeps: topics by name or by pattern (SPEC M7, S4). Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

UNKNOWN = "{}"
"""Of a member that did not say: it may read anything."""


def dump(topics: Iterable[str] | None, pattern: str | None) -> str:
    """As stored; equal for equal subscriptions."""
    said = {"topics": sorted(topics)} if topics is not None else {"pattern": pattern}
    return json.dumps(said, ensure_ascii=False)


def reads(subscription: str, topic: str) -> bool:
    """Whether it reads this topic."""
    said = json.loads(subscription)
    if "topics" in said:
        return topic in said["topics"]
    return "pattern" not in said or re.search(said["pattern"], topic) is not None
