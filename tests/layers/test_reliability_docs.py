"""docs/reliability.md says what is so: every test in it exists, and every test that bears the number of a fault is in its row."""

from __future__ import annotations

import ast
import re
import runpy
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


PAGE = """| | what happens | what follows | tests |
|---|---|---|---|
| 1 | killed | back | `tests/a/test_b.py::test_1_killed`<br>`tests/a/test_b.py::test_1_frozen` | 9.9 |
| 2 | torn | refused | `tests/a/test_b.py::test_2_torn` |

| a | b |
|---|---|
"""


WRITTEN = runpy.run_path(str(ROOT / "scripts" / "reliability.py"))
filled, results = WRITTEN["filled"], WRITTEN["results"]


def _junit(folder: Path, *cases: str) -> Path:
    (folder / "a.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return folder


def _case(name: str, inside: str = "") -> str:
    return f'<testcase classname="tests.a.test_b" name="{name}" time="1">{inside}</testcase>'


def _seconds(value: str) -> str:
    return f'<properties><property name="recovered" value="{value}"/></properties>'


def test_measured_times_are_written_beside_the_tests_that_passed(tmp_path: Path) -> None:
    cases = [
        _case("test_1_killed[a]", _seconds("2.52")),
        _case("test_1_killed[b]", _seconds("4.04")),
        _case("test_1_frozen"),
    ]
    page, bad = filled(PAGE, results(_junit(tmp_path, *cases, _case("test_2_torn"))))
    assert bad == []
    assert page.splitlines()[:4] == [
        "| | what happens | what follows | tests | seconds |",
        "|---|---|---|---|---|",
        "| 1 | killed | back | `tests/a/test_b.py::test_1_killed`<br>`tests/a/test_b.py::test_1_frozen` | 4.0 |",
        "| 2 | torn | refused | `tests/a/test_b.py::test_2_torn` | – |",
    ]
    assert page.splitlines()[4:] == PAGE.splitlines()[4:]
    assert filled(page, results(tmp_path)) == (page, [])


def test_a_test_that_failed_or_did_not_run_is_named(tmp_path: Path) -> None:
    cases = [_case("test_1_killed[a]"), _case("test_1_killed[b]", "<failure/>"), _case("test_1_frozen")]
    _, bad = filled(PAGE, results(_junit(tmp_path, *cases)))
    assert bad == ["tests/a/test_b.py::test_1_killed", "tests/a/test_b.py::test_2_torn"]


def test_what_only_the_soak_runs_is_told_from_what_make_test_runs() -> None:
    """By its own mark, or its module's; a parameter that is left to the soak leaves the others."""
    only_in_soak = WRITTEN["only_in_soak"]
    away, cut, ends = (
        f"tests/{name}.py" for name in ("dagster/test_live_away", "dagster/test_live_cut", "faults/test_host_ends")
    )
    assert only_in_soak(f"{away}::test_58_killed_daemon")
    assert only_in_soak(f"{cut}::test_8_a_run_stopped_past_its_lease_opens_nothing_when_it_wakes")
    assert not only_in_soak(f"{ends}::test_81_signal_to_the_whole_group_and_to_each_member_still_makes_the_last_cut")


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
