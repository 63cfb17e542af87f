"""Long verbs report their steps without a terminal too: the log of a CI run has no other sign of progress."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from crkafka_core import still
from crkafka_core.cli import hosting, output
from crkafka_core.cli.output import progress
from crkafka_core.region import host as region_host


class _Log(io.StringIO):
    """A file, no terminal; `enough` is set at the third line that work goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.enough = threading.Event()

    def write(self, text: str) -> int:
        done = super().write(text)
        if self.getvalue().count("still at") >= 3:
            self.enough.set()
        return done


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> _Log:
    made = _Log()
    monkeypatch.setattr(output, "sys", SimpleNamespace(stderr=made))
    monkeypatch.setattr(still, "FIRST", 0.01)
    return made


def test_a_host_tells_that_its_spark_is_still_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(still, "FIRST", 0.01)
    said: list[str] = []
    enough, ended = threading.Event(), threading.Event()

    def note(text: str) -> None:
        said.append(text)
        if len(said) == 3:
            enough.set()

    @contextmanager
    def hosted(*_: object, **__: object) -> Iterator[str]:
        assert enough.wait(20)
        yield "host"
        ended.set()

    monkeypatch.setattr(hosting, "note", note)
    monkeypatch.setattr(hosting, "hosting", hosted)
    region = SimpleNamespace(config=SimpleNamespace(host=SimpleNamespace(spark="local[2]", connect=False)))
    with hosting.members(region, None) as running:  # type: ignore[arg-type]
        told = len(said)
        assert running == "host" and not ended.wait(0.1)
    assert ended.is_set() and len(said) == told, "it is told while Spark starts, and no longer"
    assert {text.rsplit(" for ", 1)[0] for text in said} == {"Spark starts", "Spark is still starting,"}


def _lines(log: _Log) -> list[str]:
    return [line.rsplit(" (", 1)[0] for line in log.getvalue().splitlines()]


def test_a_long_step_is_told_of_again_while_it_goes_on(log: _Log) -> None:
    with progress("replaying") as say:
        say("writing 990 rows")
        assert log.enough.wait(20)
    assert set(_lines(log)) - {"still at: replaying"} == {"writing 990 rows", "still at: writing 990 rows"}


def test_what_it_is_at_has_the_latest_numbers_and_a_verb_without_steps_its_name(log: _Log) -> None:
    with progress("verifying") as say:
        assert log.enough.wait(20)
        say("1 of 3 checkpoints read")
        say("2 of 3 checkpoints read")
        log.seek(0)
        log.truncate()
        log.enough.clear()
        assert log.enough.wait(20)
    assert set(_lines(log)) == {"still at: 2 of 3 checkpoints read"}


@pytest.mark.parametrize("terminal", [False, True])
def test_where_logs_are_json_each_line_of_progress_is_one_of_them_on_a_terminal_too(
    log: _Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setenv("CRKAFKA_LOG_FORMAT", "json")
    monkeypatch.setattr(log, "isatty", lambda: terminal)
    with progress("replaying") as say:
        say("writing\n990 rows")
        assert log.enough.wait(20)
    said = [json.loads(line) for line in log.getvalue().splitlines()]
    early = {("INFO", "still at: replaying")}  # on a busy machine one comes before the step
    assert {(each["level"], each["message"].rsplit(" (", 1)[0]) for each in said} - early == {
        ("INFO", "writing\n990 rows"),
        ("INFO", "still at: writing\n990 rows"),
    }
    assert capsys.readouterr().out == ""


def test_lines_come_every_ten_seconds_of_the_first_minute_then_every_thirty() -> None:
    at, times = 0.0, list[float]()
    while at < 150:
        at += still.pause(at)
        times.append(at)
    assert times == [10, 20, 30, 40, 50, 60, 90, 120, 150]


def test_a_quiet_one_says_nothing_and_a_short_one_its_steps(log: _Log, monkeypatch: pytest.MonkeyPatch) -> None:
    with progress("replaying", quiet=True) as say:
        say("writing")
        assert not log.enough.wait(0.1)
    assert log.getvalue() == ""
    monkeypatch.setattr(still, "FIRST", 10.0)
    with progress("replaying") as say:
        say("writing")
    assert _lines(log) == ["writing"]


def test_a_region_is_started_once_its_hosts_spark_is_there_and_before_members_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Started before Spark, the region would wait for members, and raise the alarm that nothing is merged."""
    told: list[str] = []

    class Host:
        def begin(self) -> None:
            told.append("members")

        def end(self) -> None: ...

    def opened(*_: object) -> Host:
        told.append("spark")
        return Host()

    monkeypatch.setattr(region_host, "open_host", opened)
    monkeypatch.setattr(region_host, "feeding", lambda *_, **__: nullcontext())
    with region_host.hosting(SimpleNamespace(), ready=lambda: told.append("start")):  # type: ignore[arg-type]
        assert told == ["spark", "start", "members"]
