"""The suites of `make test`: every test is in one, and the runner sees what a suite did wrong."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests import conftest

ROOT = Path(__file__).resolve().parents[2]
TELLS_WHICH_RUNS = "import os\nfrom pathlib import Path\n\n\n" + inspect.getsource(conftest.pytest_runtest_logstart)
"""Of tests/conftest.py, whose services no suite of these tests needs."""


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_suites", ROOT / "scripts" / "run_suites.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_suites"] = module
    spec.loader.exec_module(module)
    return module


def test_every_test_file_is_in_a_suite(runner: ModuleType) -> None:
    listed = [ROOT / path for kind in ("test", "soak") for suite in runner.read_suites(kind) for path in suite.paths]
    assert [path for path in listed if not path.exists()] == []
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert [str(f.relative_to(ROOT)) for f in files if not any(f == p or p in f.parents for p in listed)] == []


def test_every_file_with_a_soak_test_is_in_a_suite_of_soak(runner: ModuleType) -> None:
    """Else nobody ever runs it; so it is with tests that get the mark from a fixture."""
    listed = [
        ROOT / path
        for suite in runner.read_suites("soak")
        if suite.select in ("soak", "soak or not soak")
        for path in suite.paths
    ]
    marked = [
        file
        for file in (ROOT / "tests").rglob("*.py")
        if "rigs" not in file.parts and re.search(r"mark\.soak", file.read_text())
    ]
    named = [file.parent if file.name == "conftest.py" else file for file in sorted(marked) if file != Path(__file__)]
    assert len(named) > 10
    assert [str(f.relative_to(ROOT)) for f in named if not any(f == p or p in f.parents for p in listed)] == []


def test_no_test_file_runs_twice(runner: ModuleType) -> None:
    listed = [ROOT / path for suite in runner.read_suites("test") if suite.select == "not soak" for path in suite.paths]
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert [str(f.relative_to(ROOT)) for f in files if sum(f == p or p in f.parents for p in listed) > 1] == []


@pytest.fixture
def one_suite(runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Runs the runner itself over one suite of one file; returns its exit code and what it said."""

    def run(test: str, budget: float = 30) -> tuple[int, str]:
        (tmp_path / "tests").mkdir(exist_ok=True)
        (tmp_path / "tests" / "test_it.py").write_text(test)
        (tmp_path / "tests" / "conftest.py").write_text(TELLS_WHICH_RUNS)
        entry = f'[[test]]\nname = "it"\npaths = ["tests/test_it.py"]\nbudget = {budget}\n'
        (tmp_path / "tests" / "suites.toml").write_text(entry)
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a third of the time, in each of a dozen pytests
        monkeypatch.setattr(runner, "ROOT", tmp_path)
        monkeypatch.setattr(runner, "REPORTS", tmp_path / "artifacts")
        code = runner.main(["test"])
        return code, capfd.readouterr().out

    return run


def test_a_good_suite_ends_with_its_count_alone_on_the_last_line(one_suite) -> None:
    code, said = one_suite("def test_a(): pass\ndef test_b(): pass\n")
    assert code == 0
    assert said.splitlines()[-1] == "2 passed, 0 failed"


def test_what_failed_is_said_again_at_the_very_end(one_suite) -> None:
    """Who sees only the last lines of a long log sees which test it was, and why."""
    code, said = one_suite("def test_a(): assert 1 + 1 == 3, 'the sum'\n")
    assert code == 1
    named, counted = said.splitlines()[-2:]
    assert named.startswith("failed: tests.test_it::test_a: AssertionError: the sum"), named
    assert counted == "0 passed, 1 failed"


def test_the_table_says_what_a_suite_and_its_processes_took_of_a_core(one_suite) -> None:
    burn = "import time; end = time.process_time() + 1.6\nwhile time.process_time() < end: pass"
    _, said = one_suite(
        f"import subprocess, sys\ndef test_a(): subprocess.run([sys.executable, '-c', {burn!r}], check=True)\n"
    )
    row = next(line for line in said.splitlines() if line.startswith("it  "))
    assert float(row.split()[4]) >= 2, row


def test_a_failing_test_fails_the_run(one_suite) -> None:
    code, said = one_suite("def test_a(): pass\ndef test_b(): assert False\n")
    assert code == 1
    assert said.splitlines()[-1] == "1 passed, 1 failed"


def test_a_suite_without_tests_fails_the_run(one_suite) -> None:
    code, said = one_suite("")
    assert code == 1
    assert "has no tests" in said


def test_a_suite_that_hangs_is_ended_and_fails_the_run(one_suite) -> None:
    code, said = one_suite("import time\ndef test_a(): time.sleep(90)\n", budget=0.8)
    assert code == 1
    assert "ended after 8 s in tests/test_it.py::test_a" in said


def test_a_slow_suite_says_which_test_it_is_at_and_is_a_warning(one_suite, runner, monkeypatch) -> None:
    monkeypatch.setattr(runner, "PROGRESS", 0.5)
    monkeypatch.setattr(runner, "PATIENCE", 20)
    monkeypatch.delenv("CI", raising=False)
    code, said = one_suite("import time\ndef test_a(): time.sleep(2)\n", budget=1.5)
    assert code == 0 and "took longer than its budget" in said
    assert " s: it in tests/test_it.py::test_a; 0 suites to begin" in said


def test_in_ci_a_suite_may_take_no_more_processor_than_its_budget(one_suite, runner, monkeypatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(runner, "PATIENCE", 20)
    code, _ = one_suite("import time\ndef test_a(): time.sleep(2.5)\n", budget=2)
    assert code == 0
    code, said = one_suite("import time\ndef test_a():\n    while time.process_time() < 2.5: pass\n", budget=2)
    assert code == 1 and "over its budget of processor time" in said


def test_a_pytest_that_a_signal_ends_fails_the_run_with_the_signal_the_test_and_all_that_was_said(one_suite) -> None:
    test = """
import os, time
def test_a(): pass
def test_b():
    os.write(2, b"*** assert: refcnt > 0\\n")
    time.sleep(3)
    os.abort()
"""
    code, said = one_suite(test)
    assert code == 1
    assert "pytest was ended by SIGABRT in tests/test_it.py::test_b" in said
    last = said[said.index("the last lines:") :]
    assert "*** assert: refcnt > 0" in last and "in test_b" in last
    assert said.splitlines()[-1] == "0 passed, 0 failed"


def test_a_process_left_running_is_ended_and_fails_the_run(one_suite, runner: ModuleType, monkeypatch) -> None:
    original = runner.end_leftovers
    monkeypatch.setattr(runner, "end_leftovers", lambda mark: original(mark, 0.5))
    code, said = one_suite("import subprocess\ndef test_a(): subprocess.Popen(['sleep', '7331'])\n")
    assert code == 1
    assert "left running: sleep 7331" in said
