"""docs/protocol.md says what is so: its diagrams are the tables of the code, and every rule has tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from crkafka_core.model.phase import CLIENT, TRANSITIONS
from crkafka_core.protocol.reset_policy import POLICY

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "protocol.md").read_text()
COUNTS = {"G": 11, "M": 9, "S": 4, "R": 7, "D": 4, "C": 7, "T": 3, "X": 9, "V": 3, "P": 3}
RULES = [f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)]
ROWS = {
    m[1]: re.findall(r"`(tests/[^`]+)`", m[2]) for m in re.finditer(r"^\| ([A-Z]\d+) \|(.*)\|$", DOCS, re.MULTILINE)
}


@cache
def _functions(path: Path) -> frozenset[str]:
    return frozenset(n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_tests_that_exist(rule: str) -> None:
    assert ROWS.get(rule), f"docs/protocol.md names no test for {rule}"
    for test in ROWS[rule]:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), f"{rule}: there is no file {path}"
        assert name in _functions(ROOT / path), f"{rule}: {path} has no {name}"


def test_no_other_rules_are_listed() -> None:
    assert sorted(ROWS) == sorted(RULES)


def test_M6_the_diagram_of_client_states_is_the_table() -> None:
    drawn = set(re.findall(r"^    (\w+) --> (\w+): (\w+)$", DOCS, re.MULTILINE))
    assert drawn == {(str(state), str(to), str(event)) for (state, event), to in CLIENT.items()}


def test_G9_the_diagram_of_phases_is_the_table() -> None:
    drawn = set(re.findall(r"^    ([A-Z]+) --> ([A-Z]+)$", DOCS, re.MULTILINE))
    assert drawn == {(str(phase), str(to)) for phase, targets in TRANSITIONS.items() for to in targets}


def test_X6_the_table_of_causes_is_the_policy() -> None:
    told = {
        m[1]: [word == "yes" for word in m[2].split(" | ")]
        for m in re.finditer(r"^\| `([a-z ]+)` \| [^|]+ \| ((?:(?:yes|–)(?: \| )?){5}) \|$", DOCS, re.MULTILINE)
    }
    assert told == {
        str(cause): [p.counts, p.backs_off, p.clears, p.budgeted, p.leaves_stopped] for cause, p in POLICY.items()
    }


def test_M1_only_the_event_thread_has_the_consumer() -> None:
    """SPEC M1: in the member's room nothing but the event loop, and what makes it, knows the group's consumer."""
    knows = set()
    for path in (ROOT / "crkafka_core" / "member").glob("*.py"):
        names = {n.id for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Name)}
        if {"Consumer", "GroupConsumer"} & names:
            knows.add(path.name)
    assert knows == {"event_loop.py", "main.py", "edges.py"}
