"""Whoever hosts a region keeps tables fresh that only Spark writes: in its session, or by a process of its own (SPEC K6, A7)."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from checkpoints_db import initialise, open_store
from crkafka_core import still
from crkafka_core.config.resolving import remember
from crkafka_core.holder import holder
from crkafka_core.model.rows import Table
from crkafka_core.plane import leases
from crkafka_core.plane import tables as plane
from crkafka_core.region import feeder_process, keeper
from crkafka_core.region.feeder_process import FeederProcess
from crkafka_core.region.keeper import Keeper
from crkafka_core.region.lease import DriverLease
from crkafka_core.spark import feeder, tables
from crkafka_core.spark.feeder import BySpark
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore
from tests.rigs.until import until

pytestmark = pytest.mark.spark


def as_merged(rows: DataFrame) -> DataFrame:
    """A shape, which needs Spark."""
    return rows


bronze = hangs = mine = typed = as_merged
"""Of tables with these names."""


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(MemoryStore(), tmp_path, partitions=1, members=1, tables=declared(tmp_path, "typed"))


@pytest.fixture(autouse=True)
def without_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of these tests have no jobs to tag, and none is cancelled that a busy machine is still in."""
    for name in ("tag_jobs", "cancel_jobs"):
        monkeypatch.setattr(feeder.location, name, lambda *_: None)


def a_session() -> Any:
    """One that nobody has stopped, and that does nothing."""
    return SimpleNamespace(is_stopped=False)


def kept(landing: Landing, session: Any, *, tell: Any = lambda _: None, news: Any = None, **more: Any) -> Keeper:
    return Keeper(landing.region, BySpark(landing.region, session, news=news or tell, **more), tell=tell)


def table_of(landing: Landing, name: str) -> Table:
    return landing.region.plane.read(lambda reader, row: plane.of(reader, name))


def test_a_start_that_takes_long_is_told_of_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(still, "FIRST", 0.01)
    reports: list[str] = []
    enough = threading.Event()

    def tell(text: str) -> None:
        reports.append(text)
        if len(reports) == 3:
            enough.set()

    def start() -> Any:
        assert enough.wait(20)

    still.starting(tell, start)
    assert reports[0].startswith("Spark starts")
    assert {text.rsplit(" for ", 1)[0] for text in reports[1:-1]} == {"Spark is still starting,"}
    assert reports[-1].startswith("Spark has started")


def test_a_write_that_takes_long_is_told_of_while_it_does_and_is_no_trouble(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(still, "FIRST", 0.01)
    reports: list[str] = []
    trouble: list[str] = []
    monkeypatch.setattr(feeder.tables, "advance", lambda *_, **__: until(lambda: len(reports) > 1))
    way = BySpark(landing.region, a_session, news=reports.append)
    way.open()
    Keeper(landing.region, way, tell=trouble.append)._write("typed", way.advance)
    assert {text.rsplit(" for ", 1)[0] for text in reports} == {"table typed: Spark is still writing,"} and not trouble


def test_what_is_due_when_a_write_ends_is_begun_at_once(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "_PATIENCE", 20.0)
    monkeypatch.setattr(keeper, "LAST", 0.1)
    writes: list[None] = []

    def write(*_: object, **__: object) -> None:
        time.sleep(0.2)
        writes.append(None)

    monkeypatch.setattr(feeder.tables, "advance", write)
    running = kept(landing, a_session)
    landing.land(5)
    running.begin()
    until(lambda: len(writes) > 2, seconds=10)
    running.end()


def test_an_end_that_does_not_wait_for_a_write_is_told(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setattr(keeper, "LAST", 0.1)
    monkeypatch.setattr(feeder.location, "cancel_jobs", lambda *_: free.set())
    monkeypatch.setattr(feeder.tables, "advance", lambda *_, **__: free.wait(20))
    trouble: list[str] = []
    running = kept(landing, a_session, tell=trouble.append, news=lambda _: None)
    landing.land(5)
    running.begin()
    until(lambda: running._running())
    running.end()
    assert trouble == ["what is still being written is left to the next host: typed"]


def test_what_goes_well_in_the_process_is_news_and_what_does_not_is_trouble(
    landing: Landing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "says.py").write_text("print('[\"Spark starts\", true]')\nprint('[\"table typed: away\", false]')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(feeder_process, "MODULE", "says")
    trouble: list[str] = []
    news: list[str] = []
    FeederProcess(landing.region, tell=trouble.append, news=news.append)._once("t")
    assert (news, trouble) == (["Spark starts"], ["table typed: away"])
    FeederProcess(landing.region, tell=trouble.append)._once("t")
    assert trouble[1:] == ["Spark starts", "table typed: away"], "who makes no difference hears both"


def test_a_process_that_cannot_be_started_is_told_and_tried_again(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without memory for a moment ended the thread, and no table was fed until the host was started anew."""

    def no_memory(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(feeder_process.subprocess, "Popen", no_memory)
    reports: list[str] = []
    running = FeederProcess(landing.region, tell=reports.append)
    running.begin()
    until(lambda: bool(reports))
    assert reports[0].endswith("with Spark could not be started: Cannot allocate memory; it is started again")
    assert running._thread.is_alive() and not fed_by(landing, "typed"), "and meanwhile another may feed it"
    running.end()


def fed_by(landing: Landing, name: str) -> str:
    return landing.region.plane.read(lambda r, row: plane.feeder_of(r, plane.of(r, name)))


def test_A7_who_feeds_is_seen_while_spark_still_starts_and_no_longer_once_that_is_abandoned(landing: Landing) -> None:
    """Dagster would start a Spark of its own meanwhile, and both would want to write."""
    starts, free = threading.Event(), threading.Event()

    def session() -> Any:
        starts.set()
        free.wait(60)

    running = kept(landing, session)
    running.begin()
    try:
        assert starts.wait(20)
        assert fed_by(landing, "typed") == holder()
        running.abandon()
        assert not fed_by(landing, "typed")
    finally:
        free.set()


def test_A7_the_process_that_feeds_is_seen_before_it_has_come_so_far_and_goes_on_with_that_lease(
    landing: Landing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "idles.py").write_text(
        "import json, sys\nsys.stdin.readline()\nprint(json.dumps([sys.stdin.readline().strip(), True]), flush=True)\nsys.stdin.read()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(feeder_process, "MODULE", "idles")
    tokens: list[str] = []
    running = FeederProcess(landing.region, news=tokens.append)
    running.begin()
    try:
        until(lambda: tokens, seconds=60)
        assert fed_by(landing, "typed")
        with DriverLease(landing.region.plane, plane.SPARK_FEEDER, "the process", token=tokens[0]):
            assert fed_by(landing, "typed") == "the process"
    finally:
        running.end()
    assert not fed_by(landing, "typed")


def test_nothing_is_told_of_a_write_that_its_host_has_cancelled(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled, reports = threading.Event(), list[str]()
    monkeypatch.setattr(still, "FIRST", 0.01)
    monkeypatch.setattr(keeper, "LAST", 0.1)
    monkeypatch.setattr(feeder.location, "cancel_jobs", lambda *_: cancelled.set())

    def hangs(*_: Any, **__: Any) -> None:
        assert cancelled.wait(20)
        before_end = len(reports)
        time.sleep(0.2)
        assert len(reports) <= before_end + 1, "one may have been on its way"
        raise RuntimeError("the job was cancelled")

    monkeypatch.setattr(feeder.tables, "advance", hangs)
    landing.land(1)
    running = kept(landing, a_session, tell=reports.append)
    running.begin()
    until(lambda: running._running(), seconds=20)
    running.end()
    assert cancelled.is_set() and not running._running()
    assert {text.rsplit(" for ", 1)[0] for text in reports if "next host" not in text} == {
        "table typed: Spark is still writing,"
    }


def declared(folder: Path, *names: str, **more: Any) -> list[dict[str, Any]]:
    shaped = ({"name": name, "path": str(folder / name), "shape": f"{__name__}:{name}"} for name in names)
    return [{**table, **more.get(table["name"], {})} for table in shaped]


def test_what_it_tells_its_host_has_no_secret_of_its_own_process(landing: Landing) -> None:
    reports: list[str] = []
    remember("canary-of-a-table")
    kept(landing, a_session, tell=reports.append)._fail("typed", "OSError: no canary-of-a-table")
    assert reports == ["table typed: OSError: no ***"]


def test_K6_a_table_that_hangs_keeps_no_other_back_and_who_feeds_is_seen(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"mine": {"kept_fresh": False}}
    names = declared(tmp_path, "bronze", "hangs", "mine", **kinds)
    landing = Landing(MemoryStore(), tmp_path, partitions=1, members=1, tables=names)
    free, advance = threading.Event(), tables.advance

    def hanging(session: SparkSession, region: Any, name: str, **more: Any) -> Any:
        if name == "hangs":
            free.wait(100)
        return advance(session, region, name, **more)

    monkeypatch.setattr(tables, "advance", hanging)
    running = kept(landing, lambda: spark)
    running.begin()
    try:
        for number in (1, 2):
            landing.land(5)
            until(lambda n=number: table_of(landing, "bronze").acknowledged == n)  # type: ignore[misc]

        assert fed_by(landing, "bronze") == fed_by(landing, "hangs") == holder() and not fed_by(landing, "mine")
        free.set()
        until(lambda: table_of(landing, "hangs").acknowledged == 2)
        landing.rewind(1)
        until(lambda: all(table_of(landing, n).fenced_epoch for n in ("bronze", "hangs")))
    finally:
        free.set()
        running.end()
    assert tables.read_table(spark, landing.region, "bronze").count() == 5
    assert table_of(landing, "mine").acknowledged == 0
    assert not fed_by(landing, "bronze") and not running._running()


def test_K6_without_a_free_slot_tables_are_left_to_others(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    writes: list[str] = []
    why = ["no core is left"]
    monkeypatch.setattr(keeper, "LAST", 0.1)
    monkeypatch.setattr(tables, "advance", lambda _, region, name, **more: writes.append(name))
    running = kept(landing, a_session, tell=messages.append, why_not=lambda: why[0])
    monkeypatch.setattr(running._over, "wait", lambda _: time.sleep(0.02))
    running.begin()
    try:
        landing.land(5)
        until(lambda: messages == ["no core is left"])
        assert not writes
        why[0] = ""
        until(lambda: writes)
        why[0] = "members take every core"  # as since `scale`
        until(lambda: messages[-1] == "members take every core")
        until(lambda: not landing.region.plane.read(lambda reader, _: leases.held(reader, plane.SPARK_FEEDER)))
        writes.clear()
        why[0] = ""
        until(lambda: writes)
    finally:
        running.end()


@pytest.mark.soak
def test_K6_a_host_without_spark_feeds_by_a_process_that_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder_process, "PATIENCE", 150.0)  # a busy machine takes longer than a host waits
    url = f"sqlite:///{tmp_path}/crkafka.db"
    initialise(url)
    tables_ = declared(tmp_path, "bronze")
    landing = Landing(
        open_store(url), tmp_path, partitions=1, members=1, control_plane=url, tables=tables_, host="processes"
    )
    reports: list[str] = []

    def telling() -> list[str]:
        """Without how long it takes, of which a slow machine says more."""
        return [re.split("[,;]", text)[0] for text in reports if "still" not in text]

    running = FeederProcess(landing.region, tell=reports.append)
    running.begin()
    until(lambda: running.pid)
    pid = running.pid
    assert pid is not None
    landing.land(5)
    until(lambda: table_of(landing, "bronze").acknowledged == 1 or len(telling()) > 2)
    landing.land(5)
    running.end()
    assert table_of(landing, "bronze").acknowledged == 2
    assert telling() == ["Spark starts", "Spark has started"], "whoever waits knows for what"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_K6_a_process_that_ends_by_itself_is_told_and_started_again(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[str] = []
    monkeypatch.setattr(feeder_process, "MODULE", "crkafka_core.model.errors")  # ends at once
    running = FeederProcess(landing.region, tell=reports.append)
    monkeypatch.setattr(running._over, "wait", lambda _: None)
    running.begin()
    until(lambda: len(reports) >= 2)
    running.end()
    assert "ended with code 0; it is started again" in reports[0]
