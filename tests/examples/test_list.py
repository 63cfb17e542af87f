"""examples/README.md is true: each example is in it, with the tests that run it and the command that runs these."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
ROWS = {name: line for line in LIST.splitlines() for name in re.findall(r"^\| \[(\w+)\]", line)}


def test_each_example_is_in_the_list() -> None:
    assert sorted(ROWS) == sorted(p.name for p in (ROOT / "examples").iterdir() if (p / "__init__.py").is_file())


def test_the_tests_that_it_names_are_there_and_run_where_it_says() -> None:
    for line in ROWS.values():
        (file,) = {ROOT / name for name in re.findall(r"`(tests/[\w/.]+)`", line)}
        assert file.is_file(), line
        assert ("`make soak`" in line) == ("pytest.mark.soak" in file.read_text(encoding="utf-8")), line
