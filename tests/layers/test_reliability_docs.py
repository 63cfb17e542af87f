"""docs/reliability.md says what is so: every test in it exists, and every test that bears the number of a fault is in its row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "reliability.md").read_text()
ROWS = [
    (int(m[1] or 0), re.findall(r"`(tests/[^`]+)`", m[0]))
    for m in re.finditer(r"^\| (?:(\d+) \| )?.*`tests/.*\|$", DOCS, re.MULTILINE)
]
TESTS = {
    f"{path.relative_to(ROOT)}::{node.name}"
    for path in (ROOT / "tests").rglob("test_*.py")
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}
FAULTS = {test: int(m[1]) for test in TESTS if (m := re.search(r"::test_(\d{1,2})_", test))}


def test_every_test_that_is_named_exists() -> None:
    assert [test for _, tests in ROWS for test in tests if test not in TESTS] == []
    assert len(ROWS) > 70


def test_every_numbered_test_is_in_the_row_of_its_fault() -> None:
    named = {(number, test) for number, tests in ROWS for test in tests}
    assert sorted(test for test, fault in FAULTS.items() if (fault, test) not in named) == []


def test_each_fault_has_one_row() -> None:
    numbers = [number for number, _ in ROWS if number]
    assert len(numbers) == len(set(numbers))


def test_every_test_that_the_table_of_security_names_exists() -> None:
    rows = re.findall(
        r"^\| (?!what \| from|-).*\|$",
        (ROOT / "docs" / "security.md").read_text().partition("## Supply")[0],
        re.MULTILINE,
    )
    assert len(rows) > 10
    named = [re.findall(r"`(tests/[^`]+)`", row) for row in rows]
    assert all(named), "each row says how it is tested"
    assert [test for tests in named for test in tests if test not in TESTS] == []
