"""A storage that does not answer holds up the table that is there, and nothing else (SPEC K6)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.lake import road
from crkafka_core.lake.handle import Handle
from crkafka_core.model.errors import Refused
from crkafka_core.plane import tables as plane
from crkafka_core.region import keeper
from crkafka_core.region.feeder import Feeder
from tests.rigs.until import until
from tests.tables.conftest import Lake, upto


class Hanging:
    """Commits to one table hang until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.name, self.begun, self.let_go = name, 0, threading.Event()
        self._advance = road.advance
        monkeypatch.setattr(road, "advance", self._hang)

    def _hang(self, region: Handle, name: str, **keys: Any) -> object:
        if name == self.name:
            self.begun += 1
            self.let_go.wait(30)
        return self._advance(region, name, **keys)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two tables; the one that comes first will hang."""
    made = Lake(tmp_path)
    made.region.plane.do(lambda tx: plane.declare(tx, "away", "delta", str(tmp_path / "tables" / "away")))
    return made


def acknowledged(lake: Lake, name: str) -> int:
    return lake.region.plane.read(lambda reader, row: plane.of(reader, name)).acknowledged


def test_a_commit_that_hangs_holds_up_no_other_table_and_is_told_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, reports = Hanging(monkeypatch, "away"), list[str]()
    monkeypatch.setattr(keeper, "_HANGS", 0.5)
    monkeypatch.setattr(keeper, "_TOGETHER", 0.2)
    running = Feeder(lake.region, tell=reports.append)
    for _ in range(4):
        lake.land(5)
        while lake.table().acknowledged < lake.region.plane.read(lambda _, row: row.head):
            running.turn(0.0)
    time.sleep(0.6)
    running.turn(0.0)
    running.turn(0.0)
    assert lake.places() == upto(20)
    assert (hanging.begun, acknowledged(lake, "away")) == (1, 0)
    assert [text for text in reports if "away" in text] == reports and len(reports) == 1, reports
    hanging.let_go.set()
    end = time.monotonic() + 10
    while acknowledged(lake, "away") < 4:
        assert time.monotonic() < end
        running.turn(0.05)


def test_the_end_does_not_wait_for_a_commit_that_hangs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, reports = Hanging(monkeypatch, "away"), list[str]()
    monkeypatch.setattr(keeper, "_TOGETHER", 0.2)
    monkeypatch.setattr(keeper, "LAST", 1.0)
    lake.land(5)
    running = Feeder(lake.region, tell=reports.append)
    running.begin()
    running.end()
    assert not running.is_alive()
    assert lake.places() == upto(5)
    assert reports == ["what is still being written is left to the next host: away"]
    hanging.let_go.set()


def test_at_the_end_a_table_that_fails_is_not_tried_again_and_again_beside_one_that_hangs(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, tries = Hanging(monkeypatch, "away"), list[str]()

    def advance(region: Handle, name: str, **keys: Any) -> object:
        if name == "away":
            return hanging._hang(region, name, **keys)
        tries.append(name)
        raise Refused("the lake is dry")

    monkeypatch.setattr(road, "advance", advance)
    monkeypatch.setattr(keeper, "_TOGETHER", 0.2)
    monkeypatch.setattr(keeper, "LAST", 1.5)
    lake.land(5)
    running = Feeder(lake.region)
    running.turn(0.0)
    running._over.set()
    assert not running.turn(0.0)
    assert tries == ["bronze", "bronze"]
    hanging.let_go.set()


@pytest.fixture
def black_hole() -> Iterator[str]:
    """An object store that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_an_object_store_that_takes_connections_and_says_nothing_stops_no_other_thread(
    tmp_path: Path, black_hole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta's library lets go of Python's lock while it waits: members' renewals, the driver and the other tables go on."""
    monkeypatch.setenv("BLACK_HOLE_KEY", "geheim")
    key = "${env:BLACK_HOLE_KEY}"
    options = {"endpoint": black_hole, "region": "us-east-1", "access_key": key, "secret_key": key}
    lake = Lake(tmp_path, storage_options=options)
    lake.region.plane.do(lambda tx: plane.declare(tx, "away", "delta", "s3://b/away"))
    running = Feeder(lake.region)
    try:
        for n in (1, 2):
            lake.land(5)
            if n == 1:
                running.begin()
            until(lambda n=n: lake.table().acknowledged >= n)  # type: ignore[misc]
    finally:
        running._over.set()
    assert not running._runtime.ended(running._writing["away"], 0.0), "it still waits"
