"""Writes into docs/reliability.md what the last `make test` measured: how long it took from a fault to the next merged checkpoint.

    .venv/bin/python scripts/reliability.py

Each row of a fault gets the longest time of its tests: from the first reset or aborted cut to the next merge. A row whose tests disturbed
no cut gets a dash, and so does one whose tests only `make soak` runs. If another test of a row failed, or did not run, nothing is
written, and the tests are named.
"""

from __future__ import annotations

import ast
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "artifacts" / "tests"
ROW = re.compile(r"^(?P<row>\|.*`(?P<last>tests/[^`]+)` \|)(?: [^|`]* \|)?$")
HEAD = re.compile(r"^(?P<row>\|.*what follows \| tests \|)(?: [^|]* \|)?$")
RULE = re.compile(r"^\|(?:---\|)+$")

Results = dict[str, list[tuple[bool, float | None]]]
"""Test without its parameters → whether it passed, and the seconds, of each of its runs."""


def results(folder: Path) -> Results:
    """Of all suites that have run."""
    found: Results = defaultdict(list)
    for report in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(report).iter("testcase"):
            passed = not any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
            took = [float(p.attrib["value"]) for p in case.iter("property") if p.attrib["name"] == "recovered"]
            path = case.attrib["classname"].replace(".", "/") + ".py"
            found[f"{path}::{case.attrib['name'].partition('[')[0]}"].append((passed, max(took, default=None)))
    return found


def filled(page: str, found: Results) -> tuple[str, list[str]]:
    """The page with a last column, and the tests that have not passed."""
    lines, bad, in_table = [], list[str](), False
    for line in page.splitlines():
        row = ROW.match(line)
        if head := HEAD.match(line):
            in_table, line = True, f"{head['row']} seconds |"
        elif in_table and RULE.match(line):
            line = "|---" * (lines[-1].count("|") - 1) + "|"
        elif row and in_table:
            tests = re.findall(r"`(tests/[^`]+)`", row["row"])
            bad += [test for test in tests if not found.get(test) or not all(passed for passed, _ in found[test])]
            took = [seconds for test in tests for _, seconds in found.get(test, ()) if seconds is not None]
            line = f"{row['row']} {f'{max(took):.1f}' if took else '–'} |"
        elif not line.startswith("|"):
            in_table = False
        lines.append(line)
    return "\n".join(lines) + "\n", bad


def only_in_soak(test: str) -> bool:
    """Whether `make test` leaves it out."""
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    marks = [ast.unparse(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    marks += [
        ast.unparse(d)
        for f in ast.walk(tree)
        if isinstance(f, ast.FunctionDef) and f.name == name
        for d in f.decorator_list
    ]
    return any(re.search(r"(^|[\[ ])pytest\.mark\.soak($|[,\]])", mark) for mark in marks if "parametrize" not in mark)


def main() -> int:
    found = results(RESULTS)
    page, bad = filled(PAGE.read_text(), found)
    missing = sorted({test for test in bad if test in found or not only_in_soak(test)})
    if missing:
        print("These have not passed in the last `make test`:", *missing, sep="\n  ", file=sys.stderr)
        return 1
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
