"""Level and format of logs reach members; log files are bounded; a bad level is refused by a sentence."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from crkafka_core import logs
from crkafka_core.cli import following, hosting
from crkafka_core.config import RegionConfig
from crkafka_core.config.resolving import remember
from crkafka_core.hosts import processes
from crkafka_core.member.main import MemberProcess
from crkafka_core.model.errors import ConfigError, ServiceUnavailable
from crkafka_core.plane import life
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region import Region
from tests.cli.conftest import Crkafka, python
from tests.plane.conftest import Kit
from tests.rigs.configs import configured


def test_a_bad_level_or_format_gets_a_sentence(crkafka: Crkafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRKAFKA_LOG", "loud")
    answer = crkafka("show")
    assert answer.code == 2
    assert "CRKAFKA_LOG is 'LOUD'. It is one of DEBUG, INFO" in answer.err
    monkeypatch.setenv("CRKAFKA_LOG", "info")
    monkeypatch.setenv("CRKAFKA_LOG_FORMAT", "xml")
    assert "CRKAFKA_LOG_FORMAT is 'xml'. It is one of text, json." in crkafka("show").err


def test_level_and_format_reach_members(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CRKAFKA_LOG", "debug")
    monkeypatch.setenv("CRKAFKA_LOG_FORMAT", "json")

    class Hosted:
        plane: Any = None

    Hosted.config = configured(tmp_path)  # type: ignore[attr-defined]
    order = processes.open_host(Hosted(), None)._order  # type: ignore[arg-type]
    assert (order["log_level"], order["log_format"]) == ("DEBUG", "json")


def test_a_host_tells_what_it_meets_though_other_verbs_log_next_to_nothing(
    crkafka: Crkafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No other output names a refused driver."""
    root, ours = logging.getLogger(), logging.getLogger("crkafka_core")
    before = root.level, ours.level

    def met(*_: object, **__: object) -> None:
        logging.getLogger("crkafka_core.region.driver").warning("driver: no cuts by this process")

    monkeypatch.delenv("CRKAFKA_LOG", raising=False)
    monkeypatch.setattr("crkafka_core.cli.hosting.host", met)
    root.setLevel("CRITICAL")
    try:
        assert crkafka("host").code == 0
    finally:
        root.setLevel(before[0])
        ours.setLevel(before[1])
    assert [record.message for record in caplog.records] == ["driver: no cuts by this process"]


def test_a_member_logs_json_and_names_itself() -> None:
    order = {"config": "{}", "name": "orders/0", "log_level": "INFO", "log_format": "json"}
    done = python("-m", "crkafka_core.member.main", input=json.dumps(order) + "\n")
    said = json.loads(done.stderr.splitlines()[0])
    assert (said["level"], said["region"], said["member"]) == ("ERROR", "orders", "orders/0")
    assert "region: is missing" in said["message"]
    assert datetime.fromisoformat(said["time"]).utcoffset() is not None, "machines of one group have other zones"


def test_json_has_one_object_a_line_also_with_a_traceback() -> None:
    try:
        raise ValueError("half\nway")
    except ValueError:
        record = logging.LogRecord("a.b", logging.WARNING, "f", 1, "two\n%s", ("lines",), sys.exc_info())
    text = logs._Json("m/0").format(record)
    assert "\n" not in text
    said = json.loads(text)
    assert said["message"] == "two\nlines" and "ValueError: half" in said["exception"]


def test_what_python_itself_would_print_is_a_log_without_secrets() -> None:
    """A library's warning, and errors that no code catches: in a destructor, in a thread, of the process."""
    program = """
import threading, warnings
from crkafka_core import logs
from crkafka_core.config.resolving import remember

class Thing:
    def __del__(self):
        fail()

def fail():
    raise RuntimeError("no connection with canary-44")

remember("canary-44")
logs.begin("INFO", "json", who="orders/0")
warnings.warn("old, says canary-44")
Thing()
thread = threading.Thread(target=fail, name="renewer")
thread.start()
thread.join()
fail()
"""
    done = python("-c", program)
    assert "canary" not in done.stderr
    warned, *failed = map(json.loads, done.stderr.splitlines())
    assert (warned["level"], warned["logger"], warned["member"]) == ("WARNING", "py.warnings", "orders/0")
    assert "UserWarning: old, says ***" in warned["message"]
    assert [each["level"] for each in failed] == ["ERROR", "CRITICAL", "CRITICAL"]
    assert all("RuntimeError: no connection with ***" in each["exception"] for each in failed)
    assert "Thing.__del__" in failed[0]["message"] and failed[1]["message"] == "the thread renewer ends"


def test_a_terminal_that_is_closed_asks_for_the_last_cut_and_is_no_second_interrupt() -> None:
    """Both bash and the kernel send SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may themselves run under `nohup`
    try:
        with hosting._interrupts() as stop:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGHUP)
            assert stop.wait(5)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with hosting._interrupts() as stop:  # `nohup crkafka host`
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.wait(0.05)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_host_whose_reader_is_gone_makes_its_last_cut() -> None:
    """Such as `crkafka host | head`, or on a closed terminal: it ends with a last cut, and prints nothing more."""
    program = (
        "import sys, threading; from crkafka_core.cli import hosting; stop = threading.Event(); hosting._print(stop, 'one');"
        "assert stop.is_set(); hosting._print(stop, 'two'); from crkafka_core.cli.output import note; note('three')"
    )
    gone, output = os.pipe()
    os.close(gone)
    try:
        done = subprocess.run([sys.executable, "-c", program], stdout=output, stderr=output, timeout=60, check=False)
    finally:
        os.close(output)
    assert done.returncode == 0


def test_a_folder_of_logs_is_for_this_user_alone(tmp_path: Path) -> None:
    process = processes.LeashedProcess({"name": "orders/0"}, tmp_path / "logs" / "orders-0.log")
    process.kill()
    process.wait(30)
    process.terminate()
    hosting.folder_of_logs(tmp_path / "of_the_host")
    for made in ("logs", "of_the_host"):
        assert (tmp_path / made).stat().st_mode & 0o777 == 0o700, made


def test_a_log_file_that_is_long_is_begun_anew_under_its_writer(tmp_path: Path) -> None:
    file = tmp_path / "orders-0.log"
    writer = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(writer, b"a" * 100)
        logs.cap(file, most=100)
        assert file.stat().st_size == 100
        os.write(writer, b"b")
        logs.cap(file, most=100)
        os.write(writer, b"c")
        assert file.read_bytes() == b"c"
        old = tmp_path / "orders-0.log.1"
        assert old.read_bytes() == b"a" * 100 + b"b" and old.stat().st_mode & 0o777 == 0o600
    finally:
        os.close(writer)
    logs.cap(tmp_path / "none.log")
    with pytest.raises(ConfigError):
        logs.level("INFO", {"CRKAFKA_LOG": "x"})


def test_whoever_reads_json_meets_no_other_lines(crkafka: Crkafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the events that a host prints, and the error that ends it."""
    monkeypatch.setenv("CRKAFKA_LOG_FORMAT", "json")
    said = crkafka("host")
    (line,) = said.err.splitlines()
    assert (json.loads(line)["level"], said.code) == ("ERROR", 2), said
    assert "crkafka init" in json.loads(line)["message"]
    hosting._print(threading.Event(), "two\nlines")
    assert json.loads(logs.log_line("two\nlines"))["message"] == "two\nlines"
    remember("canary-told")
    assert "canary" not in logs.log_line("refused: canary-told")
    monkeypatch.setenv("CRKAFKA_LOG_FORMAT", "text")
    assert logs.log_line("as \x1bit is") == r"as \x1bit is"
    assert logs.log_line("refused: canary-told") == "refused: ***"


def test_a_host_tells_once_for_what_its_region_has_waited() -> None:
    """Such as with a Kafka that is away from the start: no member can register, and the event log is empty."""
    kit = Kit()
    kit.do(lambda tx: life.start(tx, by="me"))
    assert kit.plane.read(following.waits) == (0.0, ""), "nothing to tell yet"
    kit.now += following.WAITED

    class Hosted:
        config = SimpleNamespace(region="orders", host=SimpleNamespace(spark=None))
        plane = SimpleNamespace(read=kit.plane.read, wait=lambda version, seconds: version)

    told = list[str]()
    follower = following.Follower(Hosted(), told.append, logs=Path("l"), why=lambda: "")  # type: ignore[arg-type]
    for _ in range(4):
        follower.turn(threading.Event())
    assert [text for text in told if "waiting" in text] == [
        f"waiting for {following.WAITED:.0f} s: no member is there; members log to l"
    ]
    kit = Kit()
    kit.running()
    kit.now += 100
    assert kit.plane.read(following.waits) == (0.0, "")


def test_what_modules_log_has_the_voice_of_a_hosts_other_lines() -> None:
    program = (
        "import logging; from crkafka_core import logs; logs.begin('WARNING', 'text'); logs.in_one_voice();"
        "logging.getLogger('crkafka_core.region.driver').warning('driver: no cuts by this process')"
    )
    assert python("-c", program).stderr == "warning: driver: no cuts by this process\n"


def test_a_host_says_once_and_soon_that_kafka_is_away(
    crkafka: Crkafka, region_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its members printed it as a log line, every ten seconds."""
    began, said = time.monotonic(), ""

    @contextmanager
    def members(
        region: Region, folder: Path | None, tell: following.Tell, ready: Callable[[], None]
    ) -> Iterator[SimpleNamespace]:
        ready()
        assert time.monotonic() - began < 10 and "127.0.0.1:9" in said
        stop.set()
        yield SimpleNamespace(given_up=lambda: "")

    def tell(text: str) -> None:
        nonlocal said
        said += text

    assert crkafka("init").code == 0
    stop, config = threading.Event(), RegionConfig.load(region_file)
    monkeypatch.setattr(hosting, "members", members)
    hosting.host(config, stop=stop, drive=False, leave_running=True, tell=tell)
    assert said.count("Kafka does not answer (") == 1 and said.endswith(" Members wait for it."), said
    told: set[str] = set()
    assert hosting.kafka_away(config, told) and not hosting.kafka_away(config, told)


def test_a_member_that_waits_for_a_service_leaves_telling_it_to_its_host(
    region_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if it is asked to end meanwhile."""
    stop = threading.Event()

    def away(*_: object) -> NoReturn:
        stop.set()
        raise ServiceUnavailable("Kafka does not answer.")

    monkeypatch.setattr("crkafka_core.member.main.MemberPlane", away)
    with caplog.at_level(logging.WARNING):
        assert MemberProcess(RegionConfig.load(region_file), Kit().plane, "orders/0", "h").run(stop) == 0
    assert not caplog.records


def test_a_host_that_is_ended_says_that_the_last_cut_was_made(
    plane: ControlPlane, region_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, said = threading.Event(), list[str]()
    stop.set()
    monkeypatch.setattr(hosting, "members", lambda *_: nullcontext(SimpleNamespace(given_up=lambda: "")))
    monkeypatch.setattr(hosting, "kafka_away", lambda *_: "")
    monkeypatch.setattr(Region, "stop", lambda self, by: plane.read(lambda _, row: row))
    hosting.host(RegionConfig.load(region_file), stop=stop, start=False, drive=False, tell=said.append)
    assert said == ["stopping: a last cut, then members leave", "stopped after a last cut; the head is checkpoint 2"]
