"""Patterns of topics are read twice: by Python, and by librdkafka, which takes POSIX extended ones as `regcomp` of the C library does."""

from __future__ import annotations

import re

_PARTS = re.compile(r"\\(?P<escaped>.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|\(\?..?|[+}]\?|[*+?}]\+", re.DOTALL)
"""Also what Python calls lazy and possessive: a second sign of repetition repeats the first one there: `.+?` matches nothing, too."""
_SAME = frozenset("wWsSbB")
"""Letters that mean the same behind a backslash, outside of brackets."""
_OTHER_IN_SET = re.compile(r"\\[A-Za-z0-9\]]|\\-(?!\])|\[[:.=]")
"""A backslash is itself there; so is what it stands before."""


def not_posix(pattern: str) -> str:
    """The first part of a pattern that the two read otherwise; empty if there is none."""
    for part in _PARTS.finditer(pattern):
        escaped, brackets = part["escaped"], part["set"]
        if escaped is not None:
            same = not escaped.isalpha() or escaped in _SAME
        else:
            same = brackets is not None and not _OTHER_IN_SET.search(brackets[1:])
        if not same:
            return part[0]
    return ""
