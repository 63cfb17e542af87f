"""A commit goes directly behind our own last one as long as nobody has committed since, and takes as long however much is in the table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from crkafka_core.model.errors import Refused
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.segments.local import LocalStorage
from crkafka_core.tables import adopt, audit, log_end
from crkafka_core.tables.delta_log import DeltaLog
from tests.tables.conftest import Lake, upto


def made_by(lake: Lake) -> list[str]:
    """Who wrote the commits of the log, oldest first."""
    files = sorted((lake.path / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [line["commitInfo"]["engineInfo"].partition(":")[0] for line in lines if "commitInfo" in line]


def advance(lake: Lake, rows: int = 1) -> None:
    lake.landing.land(rows)
    adopt.advance(lake.region, "bronze")


def test_only_the_first_and_each_hundredth_commit_load_the_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    usual = DeltaLog._open
    monkeypatch.setattr(DeltaLog, "_open", lambda log, version=None: (opened.append(1), usual(log, version))[1])
    for _ in range(105):
        advance(lake)
    monkeypatch.undo()
    assert made_by(lake) == ["delta-rs", "delta-rs"] + ["crkafka"] * 97 + ["delta-rs"] + ["crkafka"] * 6
    assert len(opened) <= 4
    checkpoints = [file.name for file in (lake.path / "_delta_log").glob("*.checkpoint.parquet")]
    assert checkpoints == [f"{99:020d}.checkpoint.parquet"]
    assert lake.rows() == upto(105)
    assert audit.look(lake.region, "bronze").clean
    delta = lake.delta()
    assert delta.transaction_version(f"crkafka/{lake.landing.uid}/bronze") == 105
    told = json.loads(delta.history(1)[0]["userMetadata"])
    assert (told["crkafka"]["number"], told["upto"], told["rows"]) == (105, 105, 2)


def test_after_a_commit_of_somebody_else_the_table_is_looked_at_anew(lake: Lake) -> None:
    for _ in range(4):
        advance(lake, 5)
    lake.delta().optimize.compact()
    advance(lake, 5)
    assert made_by(lake)[-2:] == ["delta-rs", "delta-rs"], "theirs, and ours after a look at it"
    advance(lake, 5)
    assert made_by(lake)[-1] == "crkafka"
    assert lake.rows() == upto(30)
    assert audit.look(lake.region, "bronze").clean


def test_who_comes_between_the_look_and_the_commit_is_seen(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        advance(lake, 5)
    usual, made = log_end.append, list[bool]()

    def slow(*given: Any) -> bool:
        if not made:
            lake.delta().optimize.compact()
        made.append(usual(*given))
        return made[-1]

    monkeypatch.setattr(log_end, "append", slow)
    advance(lake, 5)
    assert made[0] is False
    assert lake.rows() == upto(20)


def test_an_older_copy_that_is_put_back_and_a_table_made_anew_are_no_end_that_is_known(
    lake: Lake, tmp_path: Path
) -> None:
    for _ in range(2):
        advance(lake, 5)
    shutil.copytree(lake.path, tmp_path / "older")
    advance(lake, 5)
    shutil.rmtree(lake.path)
    shutil.copytree(tmp_path / "older", lake.path)
    lake.landing.land(5)
    with pytest.raises(Refused, match="is at version 2, and version 3 of it was acknowledged"):
        adopt.advance(lake.region, "bronze")
    shutil.rmtree(lake.path)
    empty = pa.table({field.name: pa.array([], field.type) for field in SCHEMA}, schema=SCHEMA)
    for _ in range(5):  # as many commits and more
        write_deltalake(str(lake.path), empty, mode="append")
    with pytest.raises(Refused, match="older copy of it was put back, or another table is there"):
        adopt.advance(lake.region, "bronze")


def test_a_table_of_a_newer_protocol_is_written_by_deltalake(lake: Lake) -> None:
    advance(lake, 5)
    lake.delta().alter.add_constraint({"numbered": "offset >= 0"})
    for _ in range(3):
        advance(lake, 5)
    assert set(made_by(lake)) == {"delta-rs"}
    assert lake.rows() == upto(20)


def test_a_file_system_without_links_takes_commits_of_deltalake(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(storage: LocalStorage, path: str, data: bytes) -> bool:
        with storage._beside(path, data):
            raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(LocalStorage, "put_new", no_links)
    for _ in range(3):
        advance(lake, 5)
    assert set(made_by(lake)) == {"delta-rs"}
    assert lake.rows() == upto(15)
    assert not list((lake.path / "_delta_log").glob(".*")), "what could not be put is removed"


def test_only_one_of_two_writes_a_small_file_that_is_new(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    assert storage.put_new("log/1.json", b"first")
    assert not storage.put_new("log/1.json", b"second")
    assert [(file.name, file.read_bytes()) for file in (tmp_path / "log").iterdir()] == [("1.json", b"first")]
