"""What a pattern matches is the same for Python and for Kafka's client, or the pattern is refused (SPEC M7)."""

from __future__ import annotations

import ctypes
import re

import pytest

from crkafka_core.config.topics import not_posix

NAMES = [
    "shop",
    "shop.1",
    "shop.22",
    "shop.x",
    "shop-x_y",
    "Shop.d",
    "internal.a",
    "a.b.c",
    "x-y",
    "d",
    "w.5",
    "[a]",
    "topic.",
    "a",
    "_a",
]
_EXTENDED = 1


def posix(pattern: str) -> list[str] | None:
    """As librdkafka matches; None: it refuses the subscription."""
    library, compiled = ctypes.CDLL(None), ctypes.create_string_buffer(512)
    if library.regcomp(compiled, pattern.encode(), _EXTENDED):
        return None
    return [name for name in NAMES if library.regexec(compiled, name.encode(), 0, None, 0) == 0]


@pytest.mark.parametrize(
    "pattern",
    [
        "^",
        "^shop\\..*",
        "^shop\\.[0-9]+$",
        "^(shop|internal)\\.[a-z]$",
        "^[a-z.]+$",
        "^shop[.\\-]",
        "^[a-z_\\-]+$",
        "^[\\.a]",
        "^shop\\b",
        "^shop\\.\\w+$",
        "^[^.]+$",
        "^[]a[]",
        "^shop\\.[0-9]{1,2}$",
        "^\\S+$",
        "^shop(\\.[0-9])?",
        "^[A-Z]\\w",
        "^\\[a\\]$",
        "^[\\\\.]",
        "^s.*?p",
        "^[+?]?a",
        "^a\\+?",
        "^s?[a-z]{0,3}$",
        "^a{0,1000}[{]*$",
    ],
)
def test_what_is_accepted_matches_the_same(pattern: str) -> None:
    assert not_posix(pattern) == ""
    assert posix(pattern) == [name for name in NAMES if re.search(pattern, name)]


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("^shop\\.\\d+$", "\\d"),
        ("^shop\\.\\D$", "\\D"),
        ("^shop\\.1\\Z", "\\Z"),
        ("^(?!internal)", "(?!i"),
        ("^(?:shop|a)\\.", "(?:s"),
        ("^[\\w]+$", "[\\w]"),
        ("^[\\w.-]+\\.a", "[\\w.-]"),
        ("^shop\\.[\\d]$", "[\\d]"),
        ("^[\\-a]", "[\\-a]"),
        ("^[a\\]]$", "[a\\]]"),
        ("^shop.+?$", "+?"),
        ("^shop.{2}?$", "}?"),
        ("^.*+p$", "*+"),
    ],
)
def test_what_would_match_otherwise_is_refused(pattern: str, part: str) -> None:
    assert posix(pattern) != [name for name in NAMES if re.search(pattern, name)], "nobody is told no without need"
    assert not_posix(pattern) == part


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("^shop.{,3}$", "{,3}"),
        ("^a{1001}", "{1001}"),
        ("^a{1,1001}", "{1,1001}"),
        ("^a{x}", "{x}"),
        ("^a{", "{"),
        ("^([a-z])\\1", "\\1"),
    ],
)
def test_what_the_client_or_the_broker_of_kip848_refuses_is_refused(pattern: str, part: str) -> None:
    """RE2/J has no back references, counts of 1,000 at most, and takes `{,3}` for a text; of `{x}` the client makes no expression."""
    re.compile(pattern)
    assert not_posix(pattern) == part
