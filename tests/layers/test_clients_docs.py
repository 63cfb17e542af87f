"""What comments call "docs/clients.md K9" stands in docs/clients.md, once, and what that page says of tests is so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "clients.md").read_text()
FOLDERS = ("crkafka", "crkafka_core", "checkpoints_db", "dagster_project", "tests", "bench", "docs", "examples")
TOLD = Counter(re.findall(r"^- \*\*([A-Z]\d+)\*\*", DOCS, re.MULTILINE))


def _named() -> Iterator[tuple[str, str]]:
    """Each fact that a comment or page names, and where: `docs/clients.md R6, R7` names two."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix not in (".py", ".md", ".c", ".toml", ".yaml", ".txt") or path == Path(__file__):
                continue
            for names in re.findall(
                r"docs/clients\.md((?:(?:,|,? and)?\s+[KRBDPE]\d+)+)", path.read_text(errors="replace")
            ):
                yield from ((name, str(path.relative_to(ROOT))) for name in re.findall(r"[A-Z]\d+", names))


def test_every_fact_that_a_comment_names_is_told() -> None:
    named = set(_named())
    assert len(named) > 50, "the search finds what is there"
    assert sorted((name, where) for name, where in named if name not in TOLD) == []


def test_each_fact_is_told_once() -> None:
    assert [name for name, times in TOLD.items() if times > 1] == []


def test_the_tests_that_the_page_names_exist() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \| \[(tests/[^\]]+)\]\(\.\./(tests/[^)]+)\) \|$", DOCS, re.MULTILINE)
    assert len(rows) > 20
    for fact, shown, target in rows:
        assert fact in TOLD
        assert shown == target
        assert (ROOT / target).is_file(), target
