"""Names and patterns of topics. A pattern is read by Python, and by librdkafka, which takes it for a POSIX extended expression (`regcomp`
of the C library), or with KIP-848 by the broker (RE2/J)."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
NO_TOPIC = "is not a topic name: letters, digits, dot, underscore and hyphen, at most 249"
_PARTS = re.compile(
    r"\\(?P<escaped>.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|\(\?..?|[+}]\?|[*+?}]\+|\{(?!N(?:,N?)?\})[^}]*\}?".replace(
        "N", "(?:[0-9]{1,3}|1000)"
    ),
    re.DOTALL,
)
"""Also Python's lazy and possessive quantifiers: in POSIX a second quantifier repeats the first, so that `.+?` matches nothing, too.
And braces that are no count to RE2/J, as `{,3}` and `{1001}`, or none to POSIX, as `{x}`."""
_SAME = frozenset("wWsSbB")
"""Letters with the same meaning after a backslash, outside brackets."""
_OTHER_IN_SET = re.compile(r"\\[A-Za-z0-9\]]|\\-(?!\])|\[[:.=]")
"""In POSIX brackets a backslash is a plain character, and so is the next one."""


def is_topic(name: str) -> bool:
    """Whether Kafka accepts this name of a topic."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def checked_names(topics: Sequence[str] | None) -> Sequence[str] | None:
    """The names of a region's topics; else ValueError."""
    if topics is None:
        return None
    if not topics:
        raise ValueError("must name a topic")
    for topic in topics:
        if topic.startswith("^"):
            raise ValueError(f"{topic!r} is a pattern; write it under pattern")
        if not is_topic(topic):
            raise ValueError(f"{topic!r} {NO_TOPIC}")
        if topics.count(topic) > 1:
            raise ValueError(f"{topic!r} is listed twice")
    return topics


def checked_pattern(pattern: str | None) -> str | None:
    """The pattern of a region's topics; else ValueError."""
    if pattern is not None:
        if not pattern.startswith("^"):
            raise ValueError(f"must begin with ^, else Kafka's clients take it for a topic's name; write ^{pattern}")
        check_pattern(pattern)
    return pattern


def check_pattern(pattern: str) -> None:
    """ValueError for what is no regular expression, or another one to Kafka's client."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error.msg} at position {error.pos}") from None
    if strange := not_posix(pattern):
        raise ValueError(
            f"has {strange}, which Kafka's client or broker reads otherwise: write as for `grep -E`, with [0-9] for a digit, {{0,3}} for a "
            "count, which is 1000 at most, [{] for a brace, and without (?…) and \\1"
        )


def not_posix(pattern: str) -> str:
    """The first part of a pattern with different meanings in Python and in POSIX or RE2/J, or empty."""
    for part in _PARTS.finditer(pattern):
        escaped, brackets = part["escaped"], part["set"]
        if escaped is not None:
            same = not escaped.isalnum() or escaped in _SAME
        else:
            same = brackets is not None and not _OTHER_IN_SET.search(brackets[1:])
        if not same:
            return part[0]
    return ""
