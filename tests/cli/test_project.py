"""`crkafka new` writes a project that runs as it is: from nothing to rows in a table that a plain reader reads."""

from __future__ import annotations

import io
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from crkafka_core.config import RegionConfig
from crkafka_core.config.schema import text
from crkafka_core.dev import services
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.sample import orders, value_of
from tests.cli.conftest import Crkafka, python


def test_schema_prints_what_is_documented(crkafka: Crkafka) -> None:
    said = crkafka("check", "--schema")
    assert (said.code, said.out) == (0, text())
    assert "control_plane" in json.loads(said.out)["properties"]


def test_new_overwrites_nothing(crkafka: Crkafka, tmp_path: Path) -> None:
    assert crkafka("new", "shop").code == 0
    assert (tmp_path / "shop" / "region.schema.json").read_text() == text(), "its first line names it to editors"
    (tmp_path / "shop" / "produce.py").write_text("mine")
    again = crkafka("new", "shop")
    assert (again.code, "exists already" in again.err) == (2, True)
    assert (tmp_path / "shop" / "produce.py").read_text() == "mine"
    assert crkafka("new", "a name").code == 2


def test_a_table_that_is_not_there_yet_is_said_in_a_sentence(crkafka: Crkafka, tmp_path: Path) -> None:
    crkafka("new", "shop")
    (tmp_path / "shop" / "var" / "tables" / "orders_bronze" / "_delta_log").mkdir(parents=True)
    for _ in range(2):  # an empty log, as while the first commit is on its way; then no folder at all
        done = python("read.py", cwd=tmp_path / "shop")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert f"orders_bronze is no table in {tmp_path / 'shop' / 'var' / 'tables'}:" in done.stderr
        shutil.rmtree(tmp_path / "shop" / "var", ignore_errors=True)


def test_dev_up_offers_a_project_where_there_is_none(
    crkafka: Crkafka, region_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = services.status(Path("nowhere"))
    monkeypatch.setattr(services, "up", lambda *_, **__: state)
    assert "crkafka new" not in crkafka("dev", "up").err
    region_file.unlink()
    assert "`crkafka new .` writes a project here" in crkafka("dev", "up").err
    assert crkafka("new", ".").code == 0
    assert RegionConfig.load(region_file).region == region_file.parent.name


def test_a_producer_without_a_kafka_says_what_starts_one(crkafka: Crkafka, tmp_path: Path) -> None:
    crkafka("new", "shop")
    done = python("produce.py", cwd=tmp_path / "shop")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "`crkafka dev up` writes this one" in done.stderr


def test_its_region_is_called_like_its_folder(crkafka: Crkafka, tmp_path: Path) -> None:
    assert "next: cd shop; crkafka dev up --topic orders:4" in crkafka("new", "shop").out
    assert "next: cd 'my shops/one'; crkafka dev up" in crkafka("new", "my shops/one").out
    config = RegionConfig.load(tmp_path / "shop" / "region.yaml")
    assert (config.region, config.storage) == ("shop", str(tmp_path / "shop" / "var" / "segments"))


def test_its_producer_now_and_then_writes_what_its_schema_refuses(crkafka: Crkafka, tmp_path: Path) -> None:
    crkafka("new", "shop")
    values = [value_of(order, spoiled=100) for order in orders(1000)]
    needed = set(json.loads((tmp_path / "shop" / "order.schema.json").read_text())["required"])

    def is_order(value: bytes) -> bool:
        try:
            found = json.loads(value)
        except ValueError:
            return False
        return all(isinstance(found[key], int) for key in needed)

    assert [at for at, value in enumerate(values, 1) if not is_order(value)] == list(range(100, 1001, 100))
    config = RegionConfig.load(tmp_path / "shop" / "region.yaml")
    assert [t.name for t in config.tables] == ["orders_bronze", "orders_typed", "orders_typed_dead"]


def test_its_programs_say_no_1_records(crkafka: Crkafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crkafka("new", "shop")
    folder = tmp_path / "shop"
    (folder / "var" / "dev").mkdir(parents=True)
    (folder / "var" / "dev" / "bootstrap.servers").write_text("127.0.0.1:9\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("crkafka_core.dev.sample.produce_orders", lambda *_, **__: 1)

    def said(program: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        with redirect_stdout(io.StringIO()) as out:
            runpy.run_path(program, run_name="__main__")
        return out.getvalue()

    assert said("produce.py", "1") == "records written: 1, of them spoiled: 0\n"
    assert said("produce.py", "2000") == "records written: 2,000, of them spoiled: 20\n"
    for table, row in (("bronze", {"offset": 0}), ("typed", {"cents": 199}), ("typed_dead", {"reason": "no JSON"})):
        write_deltalake(folder / "var" / "tables" / f"orders_{table}", pa.Table.from_pylist([row]))
    lines = [" ".join(line.split()) for line in said("read.py").splitlines()]
    assert lines == [
        "orders_bronze records: 1",
        "orders_typed orders: 1, worth 1.99",
        "orders_typed_dead dead letters: 1",
        "1 x no JSON",
    ]


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_it_runs_as_it_is_without_java(kafka: KafkaCluster, tmp_path: Path, crkafka: Crkafka) -> None:
    crkafka("new", "shop")
    folder = tmp_path / "shop"
    (folder / "var" / "dev").mkdir(parents=True)
    (folder / "var" / "dev" / "bootstrap.servers").write_text(kafka.bootstrap + "\n")  # what `dev up` writes
    if "orders" in kafka.topics.names():  # of another test
        kafka.topics.delete("orders")
    kafka.topics.create("orders", 4)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PATH": str(tmp_path)}
    environment.pop("JAVA_HOME", None)

    def run(*command: str) -> str:
        done = python(*command, cwd=folder, env=environment, timeout=90)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def rows(table: str) -> int:
        path = str(folder / "var" / "tables" / table)
        return DeltaTable(path).to_pyarrow_table(columns=[]).num_rows if DeltaTable.is_deltatable(path) else 0

    expected = {"orders_bronze": 500, "orders_typed": 495, "orders_typed_dead": 5}
    entry = ("-m", "crkafka_core.cli.main")
    assert run("produce.py", "500") == "records written: 500, of them spoiled: 5\n"
    run(*entry, "init")
    assert "WRONG" not in run(*entry, "check")
    told = (tmp_path / "host.log").open("w+")
    command = [sys.executable, *entry, "host"]
    host = subprocess.Popen(command, cwd=folder, env=environment, stdout=told, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + 90
        while any(rows(table) < count for table, count in expected.items()):
            assert time.monotonic() < end, run(*entry, "show")
            time.sleep(0.3)
    finally:
        host.send_signal(signal.SIGINT)
        host.wait(60)
    told.seek(0)
    said = told.read()
    told.close()
    assert "merged checkpoint" in said
    assert not [line for line in said.splitlines() if "nothing new" in line or " INFO " in line], (
        "an idle host is quiet"
    )
    read = run("read.py")
    assert all(
        text in read for text in ("orders_bronze      records: 500\n", "orders: 495, worth", "dead letters: 5\n")
    )
    run(*entry, "report")
    assert "500</b><span>records landed" in (folder / "report-shop.html").read_text()
    run("-c", "from definitions import defs; assert list(defs.get_repository_def().get_all_jobs())")
