"""What comments call "docs/clients.md C-K9" stands in docs/clients.md, once, and what that page says of tests is so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tests.layers.sources import ROOT, sources

DOCS = (ROOT / "docs" / "clients.md").read_text()
TOLD = Counter(re.findall(r"^- \*\*(C-[A-Z]\d+)\*\*", DOCS, re.MULTILINE))


def _named() -> Iterator[tuple[str, str]]:
    """Each fact that a comment or page names, and where: `docs/clients.md C-R6, C-R7` names two, `C-R2–C-R5` the first and the last."""
    for path in sources():
        for name in re.findall(r"\bC-[A-Z]\d+\b", path.read_text(errors="replace")):
            yield name, str(path.relative_to(ROOT))


def test_no_fact_is_named_as_a_rule_of_the_protocol_is() -> None:
    bare = [
        (str(path.relative_to(ROOT)), named)
        for path in sources()
        for named in re.findall(r"clients\.md\)?,?[\s#]+[A-Z]\d+\b", path.read_text(errors="replace"))
    ]
    assert bare == []


def test_every_fact_that_a_comment_names_is_told() -> None:
    named = set(_named())
    assert len(named) > 50, "the search finds what is there"
    assert sorted((name, where) for name, where in named if name not in TOLD) == []


def test_each_fact_is_told_once() -> None:
    assert [name for name, times in TOLD.items() if times > 1] == []


def test_the_tests_that_the_page_names_exist() -> None:
    rows = re.findall(r"^\| (C-[A-Z]\d+) \| \[(tests/[^\]]+)\]\(\.\./(tests/[^)]+)\) \|$", DOCS, re.MULTILINE)
    assert len(rows) > 20
    for fact, shown, target in rows:
        assert fact in TOLD
        assert shown == target
        assert (ROOT / target).is_file(), target
