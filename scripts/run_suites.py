"""Runs the test suites of `tests/suites.toml` in lanes, and ends with a table.

Suites with real services wait more than they compute: two of them run at once. Beside them, in lanes of their own, run those that hardly
compute at all and, at a lower priority, those that only compute. Once a minute the current test of each running suite is printed; the
output of a suite appears when it ends.

`run_suites.py test` is `make test`, `run_suites.py soak` is `make soak`; names of suites after that run only these. A suite fails when
a test fails, when it has no tests, or when it leaves a process running. Its budget is a warning, since machines differ in speed; in CI
it is an error, by processor time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import uuid
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "artifacts" / "tests"
MARK = "CRKAFKA_SUITE"
AT = "CRKAFKA_SUITE_AT"
"""Names the file in which tests/conftest.py keeps the current test's name, for the report on a pytest that a signal ended."""
LANES = int(os.environ.get("CRKAFKA_LANES", "2"))
"""Suites with real services that run at once: their tests have deadlines, which a third one on two cores would break."""
NICE = 5
"""Priority of suites that only compute: they get a third of what a busy suite with services gets."""
PRINTING = threading.Lock()
PATIENCE = 10.0
"""A suite that has taken this many times its budget is ended: it hangs, on any machine. Each test has a limit of its own."""
PROGRESS = 60.0
"""Seconds between two lines on what runs."""
RUNNING: dict[str, Path] = {}
"""Running suites, each with the file that names its current test."""
LAST_LINES = 40
"""Length of the output that is repeated at the very end for a suite whose pytest did not end by itself."""


@dataclass(frozen=True)
class Suite:
    """One entry of `tests/suites.toml`."""

    name: str
    paths: tuple[str, ...]
    budget: float
    """Seconds on two cores with another suite at the same time."""
    select: str
    """A pytest marker expression."""
    environment: dict[str, str]
    """Added to this process's."""
    computes: bool
    """Uses no real service and no real time: runs beside the others at a lower priority."""
    waits: bool
    """Mostly waits, for deadlines of a client: runs beside the others."""


@dataclass
class Outcome:
    """What one suite did."""

    suite: Suite
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    """Seconds of a core, by all of its processes but those that outlived their parents: the rest is waiting."""
    troubles: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Test and reason, said again at the very end."""
    last_words: str = ""
    """The end of the output, where pytest was ended by a signal or by us."""


def read_suites(kind: str) -> list[Suite]:
    """The suites of `make test` or of `make soak`."""
    everything = tomllib.loads((ROOT / "tests" / "suites.toml").read_text())
    return [
        Suite(
            entry["name"],
            tuple(entry["paths"]),
            float(entry["budget"]),
            entry.get("select", "not soak"),
            entry.get("environment", {}),
            entry.get("computes", False),
            entry.get("waits", False),
        )
        for entry in everything.get(kind, [])
    ]


def run(suite: Suite) -> Outcome:
    """One suite, in a pytest process of its own, with a temporary folder of its own."""
    outcome = Outcome(suite)
    report = REPORTS / f"{suite.name}.xml"
    report.unlink(missing_ok=True)
    mark = uuid.uuid4().hex
    began = time.monotonic()
    log = report.with_suffix(".log")
    with tempfile.TemporaryDirectory(prefix="crk-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        at = RUNNING[suite.name] = Path(folder) / "test-that-runs"
        env = {**os.environ, **suite.environment, MARK: mark, AT: str(at), "TMPDIR": folder, "PYTHONUNBUFFERED": "1"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes would each compile the project
        child = _start(suite, report, log, env)
        if suite.computes:
            os.setpriority(os.PRIO_PROCESS, child.pid, NICE)
        heard = _Heard(child.pid)
        try:
            code, outcome.busy = heard.wait(child, suite.budget * PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            code = 0
            outcome.troubles.append(f"ended after {suite.budget * PATIENCE:.0f} s{_within(at)}")
            outcome.last_words = _end_of(log) + heard.rest()
        except BaseException:
            os.killpg(child.pid, signal.SIGTERM)
            end_leftovers(mark)
            raise
        outcome.seconds = time.monotonic() - began
        if code < 0:
            outcome.troubles.append(f"pytest was ended by {signal.Signals(-code).name}{_within(at)}")
            outcome.last_words = _end_of(log) + heard.rest()
        outcome.troubles += end_leftovers(mark)
    del RUNNING[suite.name]
    read_report(report, outcome)
    if code > 1:
        outcome.troubles.append("has no tests" if code == 5 else f"pytest ended with {code}")
    if os.environ.get("CI") and outcome.busy > suite.budget:
        outcome.troubles.append("over its budget of processor time")
    elif outcome.seconds > suite.budget:
        outcome.warnings.append("took longer than its budget")
    _print(outcome, log)
    return outcome


def _start(suite: Suite, report: Path, log: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pytest", *suite.paths, "-m", suite.select, "-q", "--no-header", "--tb=short"]
    command += ["-p", "no:cacheprovider", f"--junitxml={report}"]
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _print(outcome: Outcome, log: Path) -> None:
    suite = outcome.suite
    took = f"{outcome.seconds:.0f} s of a budget of {suite.budget:.0f} s"
    with PRINTING:
        print(f"\n== {suite.name}: {' '.join(suite.paths)}, {took}", flush=True)
        print(log.read_text(errors="replace").rstrip(), flush=True)


class _Heard:
    """What pytest has captured and not said yet: a library's last words before it aborts are in a file without a name."""

    def __init__(self, pid: int) -> None:
        self._stderr = Path(f"/proc/{pid}/fd/2")
        self._captured: BinaryIO | None = None

    def wait(self, child: subprocess.Popen[bytes], patience: float) -> tuple[int, float]:
        """Until it ends: its exit code, and what it and its children took of a core. What its standard error is by now is opened anew."""
        began = time.monotonic()
        while True:
            ended, status, used = os.wait4(child.pid, os.WNOHANG)
            if ended:
                child.returncode = os.waitstatus_to_exitcode(status)
                return child.returncode, used.ru_utime + used.ru_stime
            if time.monotonic() - began > patience:
                raise subprocess.TimeoutExpired(child.args, patience)
            with contextlib.suppress(OSError):
                self._captured = self._stderr.open("rb")
            time.sleep(0.5)

    def rest(self) -> str:
        if self._captured is None:
            return ""
        return "\n" + _last_lines(self._captured.read().decode(errors="replace"))


def _last_lines(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-LAST_LINES:])


def _within(at: Path) -> str:
    """The test that the file names, if its suite has begun one and still runs."""
    with contextlib.suppress(OSError):
        return f" in {at.read_text()}"
    return ""


def _end_of(log: Path) -> str:
    return _last_lines(log.read_text(errors="replace"))


def read_report(report: Path, outcome: Outcome) -> None:
    """Count the tests of pytest's own report."""
    if not report.is_file():
        if not outcome.troubles:
            outcome.troubles.append("pytest wrote no report")
        return
    for results in ElementTree.parse(report).getroot().iter("testsuite"):
        broken = int(results.get("failures", 0)) + int(results.get("errors", 0))
        skipped = int(results.get("skipped", 0))
        outcome.failed += broken
        outcome.skipped += skipped
        outcome.passed += max(0, int(results.get("tests", 0)) - broken - skipped)
        for case in results.iter("testcase"):
            for failure in (*case.iter("failure"), *case.iter("error")):
                why = (failure.get("message") or "").strip().splitlines()[:3]
                outcome.failures.append(f"{case.get('classname')}::{case.get('name')}: {' '.join(why)[:300]}")


def end_leftovers(mark: str, patience: float = 8.0) -> list[str]:
    """Processes that the suite left running, after a moment to end by themselves; they are ended and named."""
    deadline = time.monotonic() + patience
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    named = []
    for pid, command in left.items():
        named.append(f"left running: {command[:120]}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return named


def marked(mark: str) -> dict[int, str]:
    """Live processes whose environment has the mark of this run, with their command lines."""
    commands = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                commands[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
    return {pid: command for pid, command in commands.items() if command}


def table(outcomes: list[Outcome]) -> str:
    """Suite, tests, seconds, budget, and what went wrong."""
    width = max(len(o.suite.name) for o in outcomes)
    lines = [f"{'suite':<{width}}   tests  seconds  budget  core s"]
    for o in outcomes:
        what = (
            [f"{o.failed} failed"] * bool(o.failed)
            + [f"{o.skipped} skipped"] * bool(o.skipped)
            + o.troubles
            + o.warnings
        )
        tests = o.passed + o.failed + o.skipped
        took = f"{o.seconds:7.1f}  {o.suite.budget:6.0f}  {o.busy:6.0f}"
        lines.append(f"{o.suite.name:<{width}}  {tests:6d}  {took}  {'; '.join(what) or 'ok'}")
    total, busy = sum(o.seconds for o in outcomes), sum(o.busy for o in outcomes)
    tests = sum(o.passed + o.failed + o.skipped for o in outcomes)
    lines.append(f"{'all':<{width}}  {tests:6d}  {total:7.1f}          {busy:6.0f}")
    return "\n".join(lines)


def _announced(suite: Suite) -> Outcome:
    with PRINTING:
        print(f"-> {suite.name} (about {suite.budget:.0f} s)", flush=True)
    return run(suite)


def main(arguments: list[str]) -> int:
    kind, *names = arguments or ["test"]
    suites = read_suites(kind)
    unknown = set(names) - {suite.name for suite in suites}
    if unknown or not suites:
        print(f"no such suite: {', '.join(sorted(unknown)) or kind}; there is: {', '.join(s.name for s in suites)}")
        return 2
    REPORTS.mkdir(parents=True, exist_ok=True)
    chosen = sorted((s for s in suites if not names or s.name in names), key=lambda s: -s.budget)
    began = time.monotonic()
    with ThreadPoolExecutor(LANES) as lanes, ThreadPoolExecutor(1) as computing, ThreadPoolExecutor(1) as patient:
        running = {
            (computing if suite.computes else patient if suite.waits else lanes).submit(_announced, suite)
            for suite in chosen
        }
        try:
            waiting = running
            while waiting:
                done, waiting = wait(waiting, timeout=PROGRESS)
                if not done:
                    now = ", ".join(f"{name}{_within(at)}" for name, at in list(RUNNING.items()))
                    later = len(waiting) - len(RUNNING)
                    print(f".. {time.monotonic() - began:.0f} s: {now}; {later} suites to begin", flush=True)
        except BaseException:
            for lane in (lanes, computing, patient):
                lane.shutdown(wait=False, cancel_futures=True)
            raise
    took = f"{time.monotonic() - began:.0f} s in all"
    order = {suite.name: at for at, suite in enumerate(suites)}
    outcomes = sorted((f.result() for f in running), key=lambda o: order[o.suite.name])
    print(f"\n{table(outcomes)}\n\n{took}, {LANES} suites at a time, one that only computes, and one that mostly waits")
    for o in outcomes:
        if o.last_words:
            print(f"\n== {o.suite.name}, the last lines:\n{o.last_words}\n")
    for failure in (f for o in outcomes for f in o.failures):
        print(f"failed: {failure}")
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    troubled = [o.suite.name for o in outcomes if o.troubles]
    skipped = sum(o.skipped for o in outcomes)
    if troubled:
        print(f"not well: {', '.join(troubled)}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or troubled else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
