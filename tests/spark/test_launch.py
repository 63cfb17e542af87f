"""A Spark session whose secrets nobody else can read (SPEC U2, docs/clients.md C-P9), and whose Java writes where it is told."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import psutil
import pytest
from pyspark.errors import PySparkRuntimeError

from crkafka_core import logs
from crkafka_core.config import RegionConfig
from crkafka_core.dev.errors import ServiceFailed
from crkafka_core.model.phase import Phase
from crkafka_core.spark import java_log, launch
from crkafka_core.spark import session as sessions
from crkafka_core.spark.host import SparkHost
from tests.rigs.configs import configured

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CANARIES = {"CANARY_KEY": "canary-key-7f3a", "CANARY_ENV": "canary env=\\ü 91", "CANARY_PLAIN": "canary-plain-55c1"}
PROGRAM = """
import sys
from pathlib import Path
from crkafka_core.config import RegionConfig
from crkafka_core.dev.errors import ServiceFailed
from crkafka_core.spark.session import open_session

folder = Path(sys.argv[1])
config = RegionConfig.of(
    base=folder, region="orders", control_plane="sqlite:///x.db", storage="s", topics=["t"],
    kafka={"bootstrap.servers": "localhost:1", "group.id": "g"},
    host={"spark": "local[1]", "conf": {
        "spark.hadoop.fs.s3a.secret.key": "${env:CANARY_KEY}",
        "spark.executorEnv.DB_PASSWORD": "${env:CANARY_ENV}",
        "spark.some.setting": "${env:CANARY_PLAIN}",
        "spark.driver.memory": "600m", "spark.ui.enabled": "true",
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": folder.as_uri(), "spark.eventLog.compress": "false",
    }},
)
spark = open_session(config, log=folder / "logs" / "spark.log")
conf = spark.sparkContext.getConf()
assert spark.range(10).count() == 10
got = [conf.get(k) for k in ("spark.hadoop.fs.s3a.secret.key", "spark.executorEnv.DB_PASSWORD", "spark.some.setting")]
hadoop = spark.sparkContext._jsc.hadoopConfiguration().get("fs.s3a.secret.key")
print(ascii([*got, hadoop, conf.get("spark.driver.memory")]), spark.sparkContext.uiWebUrl, flush=True)
sys.stdin.readline()

from pyspark import SparkContext
from crkafka_core.spark import launch
from crkafka_core.spark.host import SparkHost

region = type("Region", (), {"config": config, "plane": None})()
host = SparkHost(spark, region)
assert host.given_up() == ""
spark.sparkContext._jsc.sc().stop()  # as by a cluster that removes the application: Java lives on
print(host.given_up(), flush=True)
spark.stop()
assert not launch.gone()
SparkContext._gateway.proc.kill()
SparkContext._gateway.proc.wait()
try:
    spark.range(1).count()
except Exception as error:
    print(launch.explained(error), flush=True)
print(host.given_up(), flush=True)
"""


Opened = tuple[subprocess.Popen[str], Path, str]


def config(folder: Path, conf: dict[str, str], **more: Any) -> RegionConfig:
    return configured(folder, host={"spark": "local[1]", "conf": conf}, **more)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path, str]]:
    folder = tmp_path_factory.mktemp("launch")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        env={**os.environ, **CANARIES},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(folder / "stderr").open("w"),
    )
    try:
        assert process.stdout is not None
        output = process.stdout.readline()
        assert output, (folder / "stderr").read_text()
        yield process, folder, output
    finally:
        process.kill()
        process.wait()


def test_what_was_given_arrives(session: Opened) -> None:
    key, env, plain = CANARIES.values()
    assert session[2].startswith(ascii([key, env, plain, key, "600m"]))


def test_no_command_line_on_this_machine_has_a_secret(session: Opened) -> None:
    shown = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown.append(entry.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    assert [line for line in shown if "org.apache.spark.deploy.SparkSubmit" in line]
    assert not [line for line in shown if any(canary in line for canary in CANARIES.values())]


def test_a_local_session_listens_to_this_machine_alone(session: Opened) -> None:
    """Whoever reaches the pages ends members with them, without a login."""
    (java,) = [p for p in psutil.Process(session[0].pid).children(recursive=True) if p.name() == "java"]
    listens = {c.laddr.ip for c in java.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    assert listens and {ip.removeprefix("::ffff:") for ip in listens} == {"127.0.0.1"}


@pytest.mark.parametrize(("conf", "pages"), [({}, "false"), ({"spark.ui.enabled": "true"}, "true")])
def test_java_is_started_without_sparks_pages_unless_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], pages: str
) -> None:
    """By the settings that Java reads, of a session as a host opens it."""
    read: list[list[str]] = []

    def launch_gateway(**_: Any) -> Any:
        words = os.environ["PYSPARK_SUBMIT_ARGS"].split()
        lines = Path(words[words.index("--properties-file") + 1]).read_text().splitlines()
        read.append([line for line in lines if line.startswith("spark.ui.enabled=")])
        raise PySparkRuntimeError("no Java is started here")

    monkeypatch.setattr(launch, "launch_gateway", launch_gateway)
    monkeypatch.setattr(launch.SparkContext, "_gateway", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(ServiceFailed):
        sessions.open_session(config(tmp_path, conf))
    assert read == [[f"spark.ui.enabled={pages}"]]


def test_spark_shows_no_secret_on_its_pages_nor_in_its_logs(session: Opened) -> None:
    process, folder, output = session
    address = output.split()[-1]
    page = urlopen(f"{address}/environment/", timeout=30).read().decode()
    assert "spark.some.setting" in page
    (folder / "end").write_text(process.communicate("\n", timeout=60)[0])
    left = {path: path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}
    assert any("SparkListenerEnvironmentUpdate" in text for text in left.values())
    for canary in CANARIES.values():
        assert canary not in page
        assert not [path for path, text in left.items() if canary in text]


def test_a_session_that_its_cluster_has_stopped_and_a_java_that_has_died_are_the_end_of_the_host(
    session: Opened,
) -> None:
    """Each member's job would fail at once, again and again, under a host that holds its right for ever."""
    stopped, output = (session[1] / "end").read_text().split("\n", 1)
    assert stopped == "Spark's session was stopped; did its cluster or its server end it?"
    assert output.startswith("Spark: its Java process has ended. Was it killed, or out of memory?")
    assert output.endswith("Spark's Java process has ended; was it killed, or out of memory?\n")


def test_java_writes_to_the_log_and_not_to_the_terminal(session: Opened) -> None:
    folder = session[1]
    assert "Spark" in (folder / "logs" / "spark.log").read_text()
    assert (folder / "logs" / "spark.log").stat().st_mode & 0o077 == 0
    assert (folder / "stderr").read_text() == ""


def test_a_cut_connection_to_java_is_no_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """py4j logs one where the cut is met while it reads, and none where it sends."""
    monkeypatch.setattr(logging.getLogger(), "filters", [launch._is_not_py4js])
    logging.error("Exception while sending command.")
    logging.error("something else")
    assert caplog.messages == ["something else"]


def test_the_log_of_a_java_that_runs_for_months_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "spark.log"
    log.touch()
    os.truncate(log, logs.MOST + 1)
    monkeypatch.setattr(launch, "_log", log)
    made: Any = SimpleNamespace(to_json=lambda: "{}")
    region: Any = SimpleNamespace(config=made, plane=None, phase=Phase.RUNNING)
    SparkHost(None, region).also(region)  # type: ignore[arg-type]
    assert log.stat().st_size == 0


def test_a_java_that_cannot_start_is_a_sentence_with_its_log(tmp_path: Path) -> None:
    caught = "except ServiceFailed as error: sys.exit(str(error))\nconf = spark.sparkContext"
    program = PROGRAM.replace('"600m"', '"1k"').replace("spark = open_session", "try: spark = open_session")
    program = program.replace("conf = spark.sparkContext", caught)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env={**os.environ, **CANARIES}, capture_output=True, text=True
    )
    assert "Spark: did not start" in done.stderr
    assert f"Its log: {tmp_path / 'logs' / 'spark.log'} which ends:" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_killed_start_has_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings, with secrets, after an hour; the logs of processes that have ended after a week."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(java_log, "_folder", [])
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    ages = {"week": 8 * 86_400, "hours": 7_200, "fresh": 0}
    folders = {name: tmp_path / f"{java_log.PREFIX}{int(gone.stdout)}-{name}" for name in ages}
    alive = tmp_path / f"{java_log.PREFIX}{os.getpid()}-alive"
    for folder, age in [(alive, ages["week"]), *((folders[name], age) for name, age in ages.items())]:
        folder.mkdir()
        for file in (folder / "spark.log", folder / f"x{java_log.SETTINGS}", folder):
            file.is_dir() or file.write_text("secret")
            os.utime(file, (time.time() - age,) * 2)
    with launch._properties({"spark.a": "1"}) as mine:
        assert mine.stat().st_mode & 0o777 == 0o600 and mine.read_text() == "spark.a=1\n"
        assert {*tmp_path.iterdir()} == {alive, folders["hours"], folders["fresh"], mine.parent}
    assert [*tmp_path.rglob("*" + java_log.SETTINGS)] == [folders["fresh"] / "x.conf"], "a start may be under way"


def test_spark_has_its_jars_in_the_cache_of_ours_and_says_only_of_new_ones_that_it_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also Dagster's sessions: `~/.ivy2` would be another place to clean up, and on a fresh machine another fetch."""
    monkeypatch.setenv("CRKAFKA_CACHE", str(tmp_path))
    given: dict[str, str] = {}
    monkeypatch.setattr(sessions.launch, "start", lambda settings, **_: given.update(settings))
    by_delta = config(tmp_path, {}, tables=[{"name": "bronze", "format": "delta", "path": "t"}])
    assert sessions.fetches(by_delta) == ["delta"]
    sessions.open_session(by_delta)
    assert given["spark.jars.ivy"] == str(tmp_path / "ivy") and "io.delta" in given["spark.jars.packages"]
    organisation, name, version = given["spark.jars.packages"].split(":")
    (tmp_path / "ivy" / "jars").mkdir(parents=True)
    (tmp_path / "ivy" / "jars" / f"{organisation}_{name}-{version}.jar").touch()
    assert sessions.fetches(by_delta) == []
