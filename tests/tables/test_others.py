"""Which commits of others to a table are told, by its history (SPEC K6)."""

from __future__ import annotations

import pytest

from crkafka_core.tables.others import of_others
from crkafka_core.tables.stamp import LogEntry, Stamp


def ours(version: str, back_to: str | None = None) -> LogEntry:
    return LogEntry(version, Stamp("uid", "bronze", int(version), "token"), True, back_to)


def mend(version: str, settles: str) -> LogEntry:
    return LogEntry(version, Stamp("uid", "bronze", int(version), "token"), True, settles=settles)


def theirs(version: str, *, left_behind: bool = False) -> LogEntry:
    return LogEntry(version, None, True, left_behind=left_behind)


WRITTEN = {1: "1", 2: "2", 3: "3"}


@pytest.mark.parametrize(
    ("seen", "written", "acknowledged", "found", "changed"),
    [
        ([ours("2"), ours("3")], WRITTEN, "3", [], []),
        ([ours("2"), ours("3"), theirs("4")], WRITTEN, "3", ["4"], [2]),
        ([ours("2"), theirs("4"), ours("3")], WRITTEN, "3", ["4"], [2]),
        ([theirs("4"), ours("2"), ours("3")], WRITTEN, "3", [], []),
        ([ours("2"), theirs("4"), ours("3"), ours("5")], {1: "1", 3: "3", 2: "5"}, "5", [], []),
        ([ours("2"), theirs("4"), ours("5", back_to="2"), ours("3")], WRITTEN, "3", [], []),
        ([theirs("4"), ours("2"), theirs("6"), ours("7", back_to="2")], {3: "1", 2: "1"}, "7", ["4"], [2]),
        ([ours("2"), theirs("4"), mend("5", "4"), ours("3")], WRITTEN, "3", [], []),
        ([ours("2"), theirs("4"), theirs("6"), mend("7", "4"), ours("3")], WRITTEN, "3", ["6"], [2]),
        ([ours("2"), mend("5", "2"), theirs("4"), ours("3")], WRITTEN, "3", ["4"], [2]),
        ([ours("3"), theirs("2", left_behind=True)], WRITTEN, "3", ["2"], [2]),
        ([LogEntry("2", None, False), LogEntry("9", None, False), ours("3")], WRITTEN, "3", [], []),
    ],
    ids=[
        "nobody else",
        "behind ours",
        "before one of ours",
        "before its checkpoint was written",
        "written again since",
        "put back since",
        "put back, but not so far",
        "mended",
        "another came while it was mended",
        "mended before",
        "gone back to before it",
        "compacted",
    ],
)
def test_of_others(
    seen: list[LogEntry], written: dict[int, str], acknowledged: str, found: list[str], changed: list[int]
) -> None:
    """Whatever they did touched checkpoint 2."""
    told = of_others(seen, lambda entry: entry.stamp is not None, acknowledged, written, lambda _: {2})
    assert ([entry.version for entry in told.commits], sorted(told.changed)) == (found, changed)


def test_where_nobody_knows_what_they_touched_it_may_be_anything_that_is_older() -> None:
    told = of_others(
        [ours("2"), theirs("4"), ours("3")], lambda entry: entry.stamp is not None, "3", WRITTEN, lambda _: None
    )
    assert sorted(told.changed) == [1, 2]
