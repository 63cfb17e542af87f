"""Whoever hosts a region keeps its tables fresh, as soon as a checkpoint is merged (SPEC K6)."""

from __future__ import annotations

import logging
import socket
import subprocess
from types import SimpleNamespace

import pytest

from crkafka_core.control import Reader
from crkafka_core.holder import machine
from crkafka_core.lake import road
from crkafka_core.loop import THREADS
from crkafka_core.model.errors import LeaseHeld, Refused
from crkafka_core.model.rows import Region
from crkafka_core.plane import leases
from crkafka_core.plane import tables as plane
from crkafka_core.region import feeder
from crkafka_core.region.feeder import Feeder
from crkafka_core.region.lease import DriverLease
from tests.rigs.until import until
from tests.tables.conftest import Lake, upto


def test_a_merged_checkpoint_is_in_the_table_at_once_without_anybody_asking(lake: Lake) -> None:
    running = Feeder(lake.region)
    running.start()
    try:
        for n in range(1, 4):
            lake.land(5)
            until(lambda n=n: lake.table().acknowledged >= n)  # type: ignore[misc]
        assert lake.places() == upto(15)
        lake.landing.rewind(1)
        until(lambda: (table := lake.table()).fenced_epoch >= table.rewind_epoch)
        assert lake.places() == upto(5)
        lake.land(5)
        until(lambda: lake.table().acknowledged >= 4)
    finally:
        running.end()
    assert lake.places() == upto(10)


def test_what_is_merged_last_is_adopted_before_it_ends(lake: Lake) -> None:
    running = Feeder(lake.region)
    assert running.turn(0.0)
    for _ in range(3):
        lake.land(5)
    running._over.set()
    assert not running.turn()
    assert lake.places() == upto(15)
    assert lake.region.plane.read(lambda r, row: leases.held(r, plane.FEEDER)) == []


def test_many_checkpoints_wait_and_few_commits_take_them(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(7):
        lake.land(1)
    advance = road.advance
    monkeypatch.setattr(road, "advance", lambda region, name, **keys: advance(region, name, limit=5, **keys))
    running = Feeder(lake.region)
    assert running.turn() and running.turn()
    assert (lake.table().acknowledged, lake.table().commits) == (7, 2)


def test_a_second_feeder_waits_and_who_feeds_is_seen(lake: Lake) -> None:
    def who(reader: Reader, row: Region) -> str:
        return plane.feeder_of(reader, plane.of(reader, "bronze"))

    assert lake.region.plane.read(who) == ""
    first, second = Feeder(lake.region), Feeder(lake.region)
    first.turn(0.0)
    lake.land(5)
    second._over.set()
    assert not second.turn(0.0)
    assert lake.table().acknowledged == 0
    assert lake.region.plane.read(who) != ""
    with pytest.raises(LeaseHeld), DriverLease(lake.region.plane, plane.FEEDER, "another"):
        pass
    assert first.turn(0.0)
    assert lake.places() == upto(5)


def test_a_table_that_fails_is_told_once_and_tried_again_later(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[str] = []

    def refused(_: object, name: str, **keys: object) -> None:
        tries.append(name)
        raise Refused("the lake is dry")

    lake.land(5)
    reports: list[str] = []
    running = Feeder(lake.region, tell=reports.append)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(road, "advance", refused)
        for _ in range(5):
            running.turn(0.0)
    assert (tries, reports) == (["bronze"], ["table bronze: the lake is dry"])
    running._failed.clear()
    running.turn(0.0)
    assert lake.places() == upto(5)


def test_tables_whose_rows_spark_makes_are_left_to_it(lake: Lake) -> None:
    lake.region.plane.do(
        lambda tx: plane.declare(
            tx, "shaped", "delta", str(lake.path.parent / "shaped"), shape="shop.rows:all", here=True
        )
    )
    lake.land(5)
    Feeder(lake.region).turn(0.0)
    assert lake.places() == upto(5)
    assert lake.region.plane.read(lambda reader, _: plane.of(reader, "shaped")).commits == 0


def test_what_a_killed_host_held_does_not_hold_its_successor_up(lake: Lake) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    dead = f"{machine()}:{ended.pid}"
    lake.land(5)
    for kind in (plane.FEEDER, "writer:bronze"):
        lake.region.plane.do(lambda tx, k=kind: leases.take(tx, k, holder=dead, token="dead", length=3_600))
    running = Feeder(lake.region)
    assert running.turn(0.0) and running.turn(0.0)
    assert lake.places() == upto(5)


def test_process_of_another_container_of_the_same_name_is_not_taken_for_dead(lake: Lake) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    elsewhere = f"{socket.gethostname()}/1:{ended.pid}"
    lake.land(5)
    lake.region.plane.do(lambda tx: leases.take(tx, "writer:bronze", holder=elsewhere, token="t", length=3_600))
    assert Feeder(lake.region).turn(0.0)
    assert lake.region.plane.read(lambda r, row: plane.writer(r, "bronze")) == elsewhere


def test_a_host_that_ends_says_which_table_is_left_behind_and_that_it_goes_on(lake: Lake) -> None:
    class Warm:
        def begin(self) -> None: ...
        def end(self) -> None: ...

    reports: list[str] = []
    news: list[str] = []
    left = lake.region.config.tables[0].model_copy(
        update={"name": "typed", "format": "delta", "path": "lake.shop.typed"}
    )
    config = lake.region.config.model_copy(update={"tables": [left]})
    region = SimpleNamespace(config=config, plane=lake.region.plane, runtime=THREADS)
    with feeder.feeding(region, tell=reports.append, news=news.append, warm=lambda *_: Warm()):  # type: ignore[arg-type]
        lake.land(5)
    assert news == ["10 records still come into bronze; that takes at most a minute"]
    assert reports == ["table bronze is left at checkpoint 0: its next host goes on from there"]
