"""An interrupt prints one word, at any time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from checkpoints_db.store import SqlStore
from crkafka_core.cli import call, hosting
from crkafka_core.config import RegionConfig
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.plane import transact
from tests.cli.conftest import POSTGRES, YAML


@pytest.mark.parametrize("after", [0.05, 0.4, 1.0])
def test_an_interrupt_at_any_time_is_a_word(region_file: Path, after: float) -> None:
    region_file.write_text(YAML.replace("sqlite:///var/crkafka.db", POSTGRES))
    # A process that was started in the background ignores Ctrl-C, and so would its children.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from crkafka_core.cli.entry import main; print('begun', flush=True); main(['show', '--watch', '--json'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=region_file.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err.strip()) == (130, "interrupted")


def test_a_second_interrupt_of_a_host_ends_it_at_once_whatever_it_still_waits_for() -> None:
    program = (
        "import time\nfrom crkafka_core.cli import hosting\n"
        "with hosting._interrupts() as stop:\n"
        "    try:\n        print('begun', flush=True)\n        stop.wait()\n        print('ends', flush=True)\n        time.sleep(60)\n"
        "    finally:\n        time.sleep(60)  # a member that does not end\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for said in ("begun\n", "ends\n"):
        assert process.stdout.readline() == said
        process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = process.communicate(timeout=50)
    assert (process.returncode, err) == (130, "interrupted\n") and time.monotonic() - began < 20


@pytest.mark.timeout(30)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_is_heard_also_while_the_main_thread_holds_the_lock_of_the_event(number: int) -> None:
    """As between two instructions of `stop.wait`: a handler that sets the event then waits for its own thread."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with hosting._interrupts() as stop:
            with stop._cond:
                signal.raise_signal(number)
            assert stop.wait(5)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupt_of_a_verb_with_spark_is_no_error_of_java(
    region_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark's own handler cancels jobs over the busy connection: Ctrl-C of a replay was "An error occurred while calling o207.save"."""

    def opens(*_: object, **__: object) -> str:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return "spark"

    monkeypatch.setattr("crkafka_core.spark.session.fetches", lambda _: ())
    monkeypatch.setattr("crkafka_core.spark.session.open_session", opens)
    before = signal.getsignal(signal.SIGINT)
    assert call.lazy_session(RegionConfig.load(region_file), lambda _: None)() == "spark"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("since", ["while Spark starts", "before the first look at members"])
def test_a_host_whose_sql_is_frozen_for_21_s_before_it_has_members_begins_once_sql_is_back(
    region_file: Path, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    clock, frozen_until, told = [0.0], [0.0], list[str]()

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock[0] += timeout or 0.0
            return self.is_set()

    def freezes(moment: str) -> None:
        if moment == since:
            frozen_until[0] = clock[0] + 21.0

    def answers(real: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*given: Any) -> Any:
            if clock[0] < frozen_until[0]:
                raise ServiceUnavailable("The control plane does not answer.")
            return real(*given)

        return asked

    class Members:
        def begin(self) -> None:
            told.append("members begin")
            freezes("before the first look at members")

        def end(self) -> None: ...

        def given_up(self) -> str:
            return ""

    def opened(*_: object) -> Members:
        freezes("while Spark starts")
        return Members()

    for name in ("run", "read"):
        monkeypatch.setattr(SqlStore, name, answers(getattr(SqlStore, name)))
    monkeypatch.setattr("crkafka_core.region.host.open_host", opened)
    monkeypatch.setattr("crkafka_core.region.host.feeding", lambda *_, **__: nullcontext())
    for name in ("kafka_away", "lacks_topics"):
        monkeypatch.setattr(hosting, name, lambda *_: "")
    config = RegionConfig.load(region_file)
    transact.initialise(config.resolved_control_plane())
    hosting.host(config, stop=Stop(), start=False, drive=False, until_idle=True, tell=told.append)
    assert clock[0] == 21.0 and "members begin" in told
    assert any("does not answer" in line for line in told)
    assert told[-1] == "hosting region orders; Ctrl-C makes a last cut and ends it"
