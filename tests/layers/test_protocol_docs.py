"""docs/protocol.md says what is so: its diagrams are the tables of the code, and every rule has tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from crkafka_core.model.phase import CLIENT, TRANSITIONS
from crkafka_core.protocol.reset_policy import POLICY
from tests.layers.sources import ROOT, sources

DOCS = (ROOT / "docs" / "protocol.md").read_text()
ROWS = {
    m[1]: re.findall(r"`(tests/[^`]+)`", m[2]) for m in re.finditer(r"^\| ([A-Z]\d+) \|(.*)\|$", DOCS, re.MULTILINE)
}

COMING: set[str] = set()
"""Rules that code may cite before their row is in the table; who adds the row takes the rule out here."""


@cache
def _functions(path: Path) -> frozenset[str]:
    return frozenset(n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef))


@pytest.mark.parametrize("rule", ROWS)
def test_every_rule_has_tests_that_exist(rule: str) -> None:
    assert ROWS[rule], f"docs/protocol.md names no test for {rule}"
    for test in ROWS[rule]:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), f"{rule}: there is no file {path}"
        assert name in _functions(ROOT / path), f"{rule}: {path} has no {name}"


def test_the_table_has_each_rule_once() -> None:
    listed = re.findall(r"^\| ([A-Z]\d+) \|", DOCS, re.MULTILINE)
    assert len(listed) == len(set(listed)) > 80


def _cited() -> Iterator[tuple[str, str]]:
    """Each rule that a text cites, and where: `SPEC K6, X4` cites two, `SPEC D1-D4` four, `test_X6_…` one."""
    for path in sources():
        text, where = path.read_text(errors="replace"), str(path.relative_to(ROOT))
        for rules in re.findall(
            r"\bSPEC\s+([^\s,;:.)`\"]+(?:(?:,| and)\s+(?:§ ?)?[A-Z]?\d+(?:[-–][A-Z]\d+)?(?!\w))*)", text
        ):
            for rule in re.split(r",\s+|\s+and\s+", rules):
                if m := re.fullmatch(r"([A-Z])(\d+)[-–]\1(\d+)", rule):
                    yield from ((f"{m[1]}{n}", where) for n in range(int(m[2]), int(m[3]) + 1))
                else:
                    yield rule, where
        yield from ((name.upper(), where) for name in re.findall(r"def test_([A-Za-z]\d+)_", text))


def test_every_citation_is_of_a_rule_in_the_table() -> None:
    cited = set(_cited())
    assert len(cited) > 500, "the search finds what is there"
    assert sorted((rule, where) for rule, where in cited if rule not in {*ROWS, *COMING, "X"}) == []
    assert sorted(COMING & set(ROWS)) == [], "in the table by now: take it out of COMING"
    assert sorted(set(ROWS) - {rule for rule, _ in cited}) == [], "cited by no code and no test"


def test_M6_the_diagram_of_client_states_is_the_table() -> None:
    drawn = set(re.findall(r"^    (\w+) --> (\w+): (\w+)$", DOCS, re.MULTILINE))
    assert drawn == {(str(state), str(to), str(event)) for (state, event), to in CLIENT.items()}


def test_G9_the_diagram_of_phases_is_the_table() -> None:
    drawn = set(re.findall(r"^    ([A-Z]+) --> ([A-Z]+)$", DOCS, re.MULTILINE))
    assert drawn == {(str(phase), str(to)) for phase, targets in TRANSITIONS.items() for to in targets}


def test_X6_the_table_of_causes_is_the_policy() -> None:
    told = {
        m[1]: [word == "yes" for word in m[2].split(" | ")]
        for m in re.finditer(r"^\| `([a-z ]+)` \| [^|]+ \| ((?:(?:yes|–)(?: \| )?){4}) \|$", DOCS, re.MULTILINE)
    }
    assert told == {str(cause): [p.counts, p.backs_off, p.budgeted, p.leaves_stopped] for cause, p in POLICY.items()}


def test_M1_only_the_event_thread_has_the_consumer() -> None:
    """SPEC M1: in the member's room nothing but the event loop, and what makes it, knows the group's consumer."""
    knows = set()
    for path in (ROOT / "crkafka_core" / "member").glob("*.py"):
        names = {n.id for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Name)}
        if {"Consumer", "GroupConsumer"} & names:
            knows.add(path.name)
    assert knows == {"event_loop.py", "main.py", "edges.py"}
