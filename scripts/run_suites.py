"""Runs the test suites of `tests/suites.toml`, two at a time, each with a budget, and ends with a table.

Much of a suite's time is waiting for real services: two lanes keep two cores busy. What a suite prints appears when it ends.

`run_suites.py test` is what `make test` runs, `run_suites.py soak` the long ones; names of suites after that run only
these. A suite fails when a test fails, when it has no tests, when it takes longer than its budget, or when it leaves a
process running. Time that a virtual machine's host gave to others is not the suite's: budgets are longer by it. Where a machine is
slower than the one for which they are written, as told by a piece of work that is done now and then, they are longer in proportion.
"""

from __future__ import annotations

import contextlib
import json
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
"""Names a file in which tests/conftest.py keeps the test that runs: all that is left to say which one ended pytest."""
LANES = 2
"""Suites that run at once: with three, both cores are busy all the time and nothing ends sooner."""
PRINTING = threading.Lock()
WORK_S = 0.13
"""Seconds of a core that `work` takes where two suites run on the machine for which budgets are written."""
LOOK_S = 30.0
"""Between two looks at the machine's pace."""
PATIENCE = 1.5
"""A suite that has taken this many times its budget is ended."""
LAST_LINES = 40
"""Of the output of a suite whose pytest did not end by itself, said again at the very end."""


@dataclass(frozen=True)
class Suite:
    """One entry of `tests/suites.toml`."""

    name: str
    paths: tuple[str, ...]
    budget: float
    """Seconds; generous enough for a machine half as fast."""
    select: str
    """A pytest marker expression."""
    environment: dict[str, str]
    """Beside this one's."""


@dataclass
class Outcome:
    """What one suite did."""

    suite: Suite
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    stolen: float = 0.0
    """Of these, what the machine's host gave to others."""
    slower: float = 1.0
    """How many times more than the budget's machine this one took for the same work."""
    busy: float = 0.0
    """Seconds of a core, by all of its processes but those that outlived their parents: the rest is waiting."""
    troubles: list[str] = field(default_factory=list)
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
        )
        for entry in everything.get(kind, [])
    ]


def run(suite: Suite) -> Outcome:
    """One suite, in a pytest process of its own, with a temporary folder of its own."""
    outcome = Outcome(suite)
    report = REPORTS / f"{suite.name}.xml"
    report.unlink(missing_ok=True)
    mark = uuid.uuid4().hex
    began, stolen = time.monotonic(), stolen_seconds()
    said = report.with_suffix(".log")
    with tempfile.TemporaryDirectory(prefix="crk-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        at = Path(folder) / "test-that-runs"
        env = {**os.environ, **suite.environment, MARK: mark, AT: str(at), "TMPDIR": folder, "PYTHONUNBUFFERED": "1"}
        child = _start(suite, report, said, env)
        heard, pace = _Heard(child.pid), Pace()
        try:
            code, outcome.busy = heard.wait(child, suite.budget * PATIENCE, pace)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            code = 0
            outcome.troubles.append(f"ended after {suite.budget * PATIENCE * pace.slower:.0f} s{_within(at)}")
            outcome.last_words = _end_of(said) + heard.rest()
        except BaseException:
            os.killpg(child.pid, signal.SIGTERM)
            end_leftovers(mark)
            raise
        outcome.seconds, outcome.stolen = time.monotonic() - began, stolen_seconds() - stolen
        outcome.slower = pace.slower
        if code < 0:
            outcome.troubles.append(f"pytest was ended by {signal.Signals(-code).name}{_within(at)}")
            outcome.last_words = _end_of(said) + heard.rest()
        outcome.troubles += end_leftovers(mark)
    read_report(report, outcome)
    if code > 1:
        outcome.troubles.append("has no tests" if code == 5 else f"pytest ended with {code}")
    if outcome.seconds - outcome.stolen > suite.budget * outcome.slower:
        outcome.troubles.append("over its budget")
    _print(outcome, said)
    return outcome


def _start(suite: Suite, report: Path, said: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pytest", *suite.paths, "-m", suite.select, "-q", "--no-header", "--tb=short"]
    command += ["-p", "no:cacheprovider", f"--junitxml={report}"]
    with said.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _print(outcome: Outcome, said: Path) -> None:
    suite = outcome.suite
    took = f"{outcome.seconds:.0f} of at most {suite.budget:.0f} s"
    with PRINTING:
        print(f"\n== {suite.name}: {' '.join(suite.paths)}, {took}", flush=True)
        print(said.read_text(errors="replace").rstrip(), flush=True)


class _Heard:
    """What pytest has captured and not said yet: a library's last words before it aborts are in a file without a name."""

    def __init__(self, pid: int) -> None:
        self._stderr = Path(f"/proc/{pid}/fd/2")
        self._captured: BinaryIO | None = None

    def wait(self, child: subprocess.Popen[bytes], patience: float, pace: Pace) -> tuple[int, float]:
        """Until it ends: its exit code, and what it and its children took of a core. What its standard error is by now is opened anew."""
        began, stolen = time.monotonic(), stolen_seconds()
        while True:
            ended, status, used = os.wait4(child.pid, os.WNOHANG)
            if ended:
                child.returncode = os.waitstatus_to_exitcode(status)
                return child.returncode, used.ru_utime + used.ru_stime
            pace.look()
            if time.monotonic() - began > patience * pace.slower + stolen_seconds() - stolen:
                raise subprocess.TimeoutExpired(child.args, patience)
            with contextlib.suppress(OSError):
                self._captured = self._stderr.open("rb")
            time.sleep(0.5)

    def rest(self) -> str:
        if self._captured is None:
            return ""
        return "\n" + _last_lines(self._captured.read().decode(errors="replace"))


class Pace:
    """How fast the machine is while a suite runs: what a virtual one gets of memory and caches, nothing counts as stolen."""

    def __init__(self) -> None:
        self._took: list[float] = []
        self._next = 0.0
        self.look()

    def look(self) -> None:
        if time.monotonic() >= self._next:
            self._took.append(work())
            self._next = time.monotonic() + LOOK_S

    @property
    def slower(self) -> float:
        """At least 1: a faster machine shortens no budget."""
        return max(1.0, sum(self._took) / len(self._took) / WORK_S)


def work() -> float:
    """Seconds of a core for some work of the kind that tests do."""
    began = time.thread_time()
    made = {f"key {i}": (i, str(i)) for i in range(40_000)}
    json.loads(json.dumps(sorted(made.items(), key=lambda item: item[1][1])))
    return time.thread_time() - began


def stolen_seconds() -> float:
    """Of each core since the start of the machine, on average: the host of a virtual machine gave them to others."""
    cores = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")][1:]
    return sum(int(core[8]) for core in cores) / len(cores) / os.sysconf("SC_CLK_TCK")


def _last_lines(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-LAST_LINES:])


def _within(at: Path) -> str:
    return f" in {at.read_text()}" if at.exists() else ""


def _end_of(said: Path) -> str:
    return _last_lines(said.read_text(errors="replace"))


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
            for said in (*case.iter("failure"), *case.iter("error")):
                why = (said.get("message") or "").strip().splitlines()[:3]
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
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
    return {pid: command for pid, command in found.items() if command}


def table(outcomes: list[Outcome]) -> str:
    """Suite, tests, seconds, budget, and what went wrong."""
    width = max(len(o.suite.name) for o in outcomes)
    lines = [f"{'suite':<{width}}   tests  seconds  stolen  slower  budget  core s"]
    for o in outcomes:
        what = [f"{o.failed} failed"] * bool(o.failed) + [f"{o.skipped} skipped"] * bool(o.skipped) + o.troubles
        tests = o.passed + o.failed + o.skipped
        took = f"{o.seconds:7.1f}  {o.stolen:6.0f}  {o.slower:6.2f}  {o.suite.budget:6.0f}  {o.busy:6.0f}"
        lines.append(f"{o.suite.name:<{width}}  {tests:6d}  {took}  {'; '.join(what) or 'ok'}")
    total, busy = sum(o.seconds for o in outcomes), sum(o.busy for o in outcomes)
    tests = sum(o.passed + o.failed + o.skipped for o in outcomes)
    lines.append(f"{'all':<{width}}  {tests:6d}  {total:7.1f}                          {busy:6.0f}")
    return "\n".join(lines)


def _announced(suite: Suite) -> Outcome:
    with PRINTING:
        print(f"-> {suite.name} (at most {suite.budget:.0f} s)", flush=True)
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
    began, stolen = time.monotonic(), stolen_seconds()
    with ThreadPoolExecutor(LANES) as lanes:
        running = {lanes.submit(_announced, suite): suite for suite in chosen}
        try:
            waiting = set(running)
            while waiting:
                done, waiting = wait(waiting, timeout=60)
                if not done:
                    left = ", ".join(running[f].name for f in waiting)
                    print(f".. {time.monotonic() - began:.0f} s; still to end: {left}", flush=True)
        except BaseException:
            lanes.shutdown(wait=False, cancel_futures=True)
            raise
    took = f"{time.monotonic() - began:.0f} s in all, of which the machine gave {stolen_seconds() - stolen:.0f} s to others"
    order = {suite.name: at for at, suite in enumerate(suites)}
    outcomes = sorted((f.result() for f in running), key=lambda o: order[o.suite.name])
    print(f"\n{table(outcomes)}\n\n{took}, {LANES} suites at a time")
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
