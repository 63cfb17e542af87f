"""Which mutants of the rules does nobody notice? `python -m tests.simulation.killers --help`.

Each test and schedule is run once with the lines of the rules that it comes through written down. A mutant is then shown only to
those that come through its line, the quickest first, each time in a fork of a process that has everything loaded. What is found is
kept in a file, so that a next run goes on from it, and asks again only about mutants that nobody noticed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

import crkafka_core
from tests.rigs.simulation import simulate
from tests.simulation.mutants import ROOMS, Mutant, all_mutants

TESTS = (
    "tests/protocol",
    "tests/plane",
    "tests/member",
    "tests/tables",
    "tests/oracle",
    "tests/cli",
    "tests/checkpoints_db/test_clock.py",
    "tests/checkpoints_db/test_state_machine.py",
)
NO_SERVICES = "not (soak or kafka or postgres or spark or dagster or browser)"
SHOWN = 25
"""Schedules that a mutant is shown to, at most."""
SLOW = 3.0
"""Seconds of work; a test that takes longer, with its lines written down, is not asked."""
TRACED = 40.0
"""Seconds that it is given for it."""
KEEP = 20
"""After so many, what is known is written down."""
LONG = 60.0
"""Seconds after which a mutant that runs in circles counts as found,"""
PATIENCE = 5.0
"""and so many times what all who come through it take."""
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
_ROOT = Path(crkafka_core.__file__).parent
_FOLDERS = tuple(str(_ROOT / room) + os.sep for room in ROOMS)

Line = tuple[str, int]
"""(module, line)."""


@dataclass
class Ways:
    """Who comes through which line, and how long each takes."""

    of: dict[str, tuple[set[Line], float]] = field(default_factory=dict)
    """None of who fails, or takes too long to be asked, has lines."""

    def through(self, mutant: Mutant) -> list[str]:
        spots = {(mutant.module, at) for at in range(mutant.line, mutant.end + 1)}
        return sorted((who for who, (seen, _) in self.of.items() if seen & spots), key=lambda who: self.of[who][1])

    @classmethod
    def kept(cls, file: Path) -> Ways:
        """What an earlier run found out, if the rules are what they were."""
        with contextlib.suppress(OSError):
            rules, of = pickle.loads(file.read_bytes())
            if rules == _rules():
                return cls(of)
        return cls()

    def keep(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps((_rules(), self.of)))


def _rules() -> str:
    files = sorted(file for room in ROOMS for file in (_ROOT / room).glob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


class Tracer:
    """Writes down the lines of the rules that this process runs."""

    def __init__(self) -> None:
        self.seen: set[Line] = set()
        self._modules: dict[str, str] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in self._modules:
            ours = file.startswith(_FOLDERS)
            self._modules[file] = file[len(str(_ROOT.parent)) + 1 : -3].replace("/", ".") if ours else ""
        module = self._modules[file]
        if not module:
            return None
        seen = self.seen

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                seen.add((module, frame.f_lineno))
            return line

        return line

    @contextlib.contextmanager
    def on(self) -> Iterator[set[Line]]:
        threading.settrace(self)
        sys.settrace(self)
        try:
            yield self.seen
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]


def in_a_fork(work: Callable[[], Any], seconds: float) -> Any:
    """What `work` gives in a fork of this process; None if it does not end in time or ends otherwise."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        with contextlib.suppress(BaseException), os.fdopen(writing, "wb") as pipe:
            quiet = os.open(os.devnull, os.O_RDWR)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            pickle.dump(work(), pipe)
        os._exit(0)
    os.close(writing)
    late = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
    late.start()
    try:
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
    finally:
        late.cancel()
        os.waitpid(pid, 0)
    return pickle.loads(said) if said else None


@dataclass
class Killers:
    """A plugin of pytest: in place of running the collected tests it shows mutants to them."""

    options: argparse.Namespace
    found: dict[str, str]
    """Mutant → who noticed; empty: nobody."""
    items: dict[str, pytest.Item] = field(default_factory=dict)
    ways: Ways = field(default_factory=lambda: Ways())
    end: float = 0.0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.end = time.monotonic() + self.options.seconds
        self.items = {item.nodeid: item for item in session.items}
        wanted = [m for m in chosen(self.options) if not self.found.get(m.key)]
        with ThreadPoolExecutor(self.options.workers) as pool:
            self.find_ways(pool)
            for at, (mutant, by) in enumerate(zip(wanted, pool.map(self.ask, wanted), strict=True)):
                if by is not None:
                    self.found[mutant.key] = by
                if at % KEEP == 0:
                    keep(self.options, self.found)
        return True

    def find_ways(self, pool: ThreadPoolExecutor) -> None:
        file = Path(self.options.keep).with_suffix(".ways")
        self.ways = Ways.kept(file)
        everybody = [*self.items, *(f"seed {n}" for n in range(self.options.schedules))]
        new = [who for who in everybody if who not in self.ways.of]
        for at, (who, way) in enumerate(zip(new, pool.map(self.one_way, new), strict=True)):
            seen, seconds = way or (set(), 0.0)
            self.ways.of[who] = (seen if seconds < SLOW else set()), seconds
            if at % KEEP == 0 or who == new[-1]:
                self.ways.keep(file)

    def one_way(self, who: str) -> tuple[set[Line], float] | None:
        way: tuple[set[Line], float] | None = in_a_fork(lambda: self.way(who), TRACED)
        return way

    def way(self, who: str) -> tuple[set[Line], float] | None:
        began = time.process_time()
        with Tracer().on() as seen:
            fine = self.passes(who)
        return (seen, time.process_time() - began) if fine else None

    def passes(self, who: str) -> bool:
        if who.startswith("seed "):
            return simulate(int(who.removeprefix("seed "))).violation is None
        reports = runtestprotocol(self.items[who], nextitem=None, log=False)
        return all(report.outcome != "failed" for report in reports)

    def ask(self, mutant: Mutant) -> str | None:
        """Who notices this one; None: there was no time left."""
        if time.monotonic() > self.end:
            return None
        there = [who for who in self.ways.through(mutant) if who in self.items or who.startswith("seed ")]
        tests = [who for who in there if not who.startswith("seed ")]
        seeds = [who for who in there if who.startswith("seed ")][:SHOWN]

        def show() -> str:
            with mutant.planted():
                return next((who for who in (*tests, *seeds) if not self.passes(who)), "")

        by = in_a_fork(show, LONG + PATIENCE * sum(self.ways.of[who][1] for who in (*tests, *seeds)))
        return "it never ends" if by is None else str(by)


def equivalent() -> dict[str, str]:
    """Mutants that change nothing that anybody could notice, each with the reason."""
    lines = [line for line in EQUIVALENT.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(" ⇒ ", 1) for line in lines)  # type: ignore[misc]


def chosen(options: argparse.Namespace) -> list[Mutant]:
    same = equivalent()
    mutants = [m for m in all_mutants() if m.key not in same and (not options.module or options.module in m.module)]
    order = Random(options.seed).sample(mutants, len(mutants))
    return order[: options.sample or None]


def show(options: argparse.Namespace) -> dict[str, str]:
    """Show the chosen mutants to tests and schedules, as far as the time goes; what is known of them all."""
    found = known(options)
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", NO_SERVICES, "--no-header", "--no-summary"]
    ended = pytest.main([*quiet, *options.tests], plugins=[Killers(options, found)])
    keep(options, found)
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"the tests could not be collected: pytest ended with {ended}")
    return found


def known(options: argparse.Namespace) -> dict[str, str]:
    kept = Path(options.keep)
    found: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    return found


def keep(options: argparse.Namespace, found: dict[str, str]) -> None:
    Path(options.keep).parent.mkdir(parents=True, exist_ok=True)
    Path(options.keep).write_text(json.dumps(found, indent=0, sort_keys=True, ensure_ascii=False))


def report(options: argparse.Namespace, found: dict[str, str]) -> tuple[float, list[str]]:
    """The share that is noticed, of those that were asked about, and what nobody notices."""
    asked = [m for m in chosen(options) if m.key in found]
    survivors = [str(m) for m in sorted(asked, key=lambda m: (m.module, m.line)) if not found[m.key]]
    return (len(asked) - len(survivors)) / max(1, len(asked)), survivors


def arguments(given: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Machine-made mutants of the rules, and who notices them.")
    parser.add_argument("--sample", type=int, default=0, help="how many; all unless said")
    parser.add_argument("--seed", default="0", help="which ones")
    parser.add_argument("--module", default="", help="only of modules whose name contains this")
    parser.add_argument("--seconds", type=float, default=3_600.0, help="after which no other mutant is begun")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tests", nargs="*", default=TESTS, help="files and folders of tests that they are shown to")
    parser.add_argument("--schedules", type=int, default=60, help="of which those are taken that come through the line")
    parser.add_argument("--keep", default="artifacts/mutants.json", help="file of what is known by now")
    return parser.parse_args(list(given))


def main() -> None:
    options = arguments(sys.argv[1:])
    found = show(options)
    share, survivors = report(options, found)
    wanted = chosen(options)
    asked = sum(m.key in found for m in wanted)
    print("\n".join(survivors))
    print(f"{asked} of {len(wanted)} mutants were asked about, and {share:.1%} of them are noticed")
    print(f"{len(survivors)} are noticed by nobody; {len(equivalent())} others change nothing")


if __name__ == "__main__":
    main()
