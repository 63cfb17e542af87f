"""`make demo`: two minutes, each step explained as it happens; ends with the oracle's word."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from checkpoints_db import initialise
from crkafka_core.cli.history import read_report
from crkafka_core.cli.report_page import page
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.model.errors import CrkafkaError, NotSettled
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Table
from crkafka_core.region import Region, caught_up, waiting
from crkafka_core.verify.ledger import Ledger
from crkafka_core.verify.verify import verify
from dagster_project.testing.live import LiveDagster
from examples.demo import project
from examples.demo.narrator import Narrator
from examples.demo.orders import Orders

FOLDER = Path("var/demo")
REPORT = FOLDER / "report.html"
PER_SECOND, PER_SECOND_UI = 2_000.0, 200.0
RUN_BEFORE, RUN_AFTER = 15.0, 15.0
PLACE = ("topic", "partition", "offset")
PATIENCE = 45.0
"""Seconds that the region, and then the runs, have for a clean end."""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--ui", action="store_true", help="leave Dagster open at the end")
    ui = arguments.parse_args().ui
    signal.signal(signal.SIGTERM, _interrupt)
    narrator = Narrator()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    leash = Leash(FOLDER.absolute() / "kafka")
    kafka = KafkaCluster(FOLDER.absolute() / "kafka", nodes=1, leash=leash)
    region: Region | None = None
    dagster: LiveDagster | None = None
    try:
        narrator.step("A real Apache Kafka, as a local process")
        kafka.start()
        kafka.topics.create("orders", partitions=8)
        narrator.say(f"serving at {kafka.bootstrap}; topic orders has 8 partitions")
        config = RegionConfig.load(project.make(FOLDER.absolute(), kafka.bootstrap))
        initialise(config.resolved_control_plane())
        region = Region.open(config)
        region.init()
        dagster = LiveDagster(
            FOLDER.absolute() / "dagster",
            "definitions",
            location="demo",
            working_directory=FOLDER.absolute() / "project",
        )
        with Orders(kafka.bootstrap, properties={"log_level": 0}).stream(
            "orders", per_second=PER_SECOND, partitions=8
        ) as ledger:
            _run(narrator, region, dagster)
        verdict = _finish(narrator, region, ledger)
        if ui:
            _leave_open(narrator, region, dagster, kafka.bootstrap)
        return 0 if verdict else 1
    except (CrkafkaError, RuntimeError, TimeoutError, KeyboardInterrupt) as error:
        narrator.console.print(
            f"\n[red]{str(error) or 'interrupted'}[/]\nLogs: {FOLDER}/dagster/dagster.log, {FOLDER}/kafka"
        )
        return 1
    finally:
        narrator.end()
        try:
            if region is not None and dagster is not None:
                _close(region, dagster)
        finally:
            leash.release()


def _interrupt(*_: object) -> None:
    """SIGTERM ends it as Ctrl-C does."""
    raise KeyboardInterrupt


def _close(region: Region, dagster: LiveDagster) -> None:
    """The region stops, so that members leave and the run that hosts them ends; then Dagster; Kafka is the last."""
    try:
        with contextlib.suppress(CrkafkaError):
            region.stop(wait=False)
            waiting.until(region.plane, lambda _, row: row.phase is Phase.IDLE or "not idle", timeout=PATIENCE)
        with contextlib.suppress(RuntimeError, TimeoutError, OSError):
            dagster.end_runs(PATIENCE)
    except KeyboardInterrupt:
        pass  # a second one: what still runs is not waited for
    finally:
        for late in (signal.SIGINT, signal.SIGTERM):  # it takes 25 s at most
            signal.signal(late, signal.SIG_IGN)
        dagster.stop()


def _run(narrator: Narrator, region: Region, dagster: LiveDagster) -> None:
    narrator.step("Dagster: sensors that drive the region, read SQL only")
    narrator.say(f"orders are being produced, {PER_SECOND:.0f} a second; the region is wanted; Dagster starts")
    region.start()
    dagster.start()
    narrator.say(f"ready at {dagster.url}")
    narrator.step("A region is wanted and has no members: Dagster starts a run that hosts two of them in Spark")
    narrator.follow(region)
    region.await_running(timeout=240)
    narrator.step(
        "Cuts, driven by Dagster every 5 seconds: drain, checkpoint, merge; the raw table adopts their files, the typed one is written"
    )
    time.sleep(RUN_BEFORE)
    narrator.step("kill -9 of a member")
    _kill(narrator, region)
    time.sleep(RUN_AFTER)


def _kill(narrator: Narrator, region: Region) -> None:
    victim = next(m for m in region.status().members if m.status == "LIVE" and m.metrics.get("pid"))
    epoch = region.status().region.epoch
    began = time.monotonic()
    os.kill(int(victim.metrics["pid"]), signal.SIGKILL)
    narrator.say(
        f"[red]killed[/] {victim.name}, process {victim.metrics['pid']}; what it wrote since the last checkpoint will never be named"
    )
    waiting.until_running(region.plane, epoch + 1, lambda _: None, timeout=90)
    narrator.say(f"running again {time.monotonic() - began:.1f} s after the kill; Spark restarted that task alone")


def _finish(narrator: Narrator, region: Region, ledger: Ledger) -> bool:
    narrator.step("No more orders: consume to the end, let the tables catch up, cut a last time")
    last = caught_up.consume(region, progress=narrator.say).checkpoint.id
    try:
        waiting.until(region.plane, lambda reader, _: _acknowledged(reader) >= last or "tables", timeout=400)
    except NotSettled:
        raise CrkafkaError(
            f"A table did not take checkpoint {last} within 400 s.", hint=f"See {dagster_log()}."
        ) from None
    region.stop()
    narrator.step(
        "The oracle reads back what landed, from segments and Kafka, and compares with every order that was produced"
    )
    verdict = verify(region, ledger=ledger)
    narrator.say(str(verdict))
    well = bool(verdict.ok) and _compare(narrator, region, ledger)
    narrator.console.print(
        f"\n[bold green]No row is lost, none is doubled: {plural(ledger.rows(), 'order')} produced, as many in the tables.[/]"
        if well
        else f"\n[bold red]{plural(ledger.rows(), 'order was', 'orders were')} produced; the oracle or a table says otherwise, above.[/]"
    )
    REPORT.write_text(page(read_report(region.config)), encoding="utf-8")
    narrator.say(f"what happened, as a page for a browser: {REPORT}")
    return well


def _compare(narrator: Narrator, region: Region, ledger: Ledger) -> bool:
    """Whether the raw table has every record once, and so have the typed one and its dead letters together."""
    raw = _records(region, "orders_bronze")
    typed = _records(region, "orders_typed", "kafka_")
    dead = _records(region, "orders_typed_dead")
    narrator.say(
        f"orders_bronze, read by a plain Delta reader: {plural(raw.num_rows, 'row')}, {plural(_distinct(raw), 'different record')}"
    )
    narrator.say(
        f"orders_typed: {plural(typed.num_rows, 'order')}; orders_typed_dead: {plural(dead.num_rows, 'record')} of another shape"
    )
    spoiled = sum(Orders.spoiled(int(seq)) for tp in ledger.tps for seq in ledger.of(tp)[1])
    both = pa.concat_tables([typed, dead])
    return (
        raw.num_rows == _distinct(raw) == both.num_rows == _distinct(both) == ledger.rows() and dead.num_rows == spoiled
    )


def _records(region: Region, name: str, prefix: str = "") -> pa.Table:
    """Topic, partition and offset of a table's rows."""
    columns = ", ".join(f'"{prefix}{column}"' for column in PLACE)
    (path,) = region.plane.read(lambda reader, _: [t.path for t in reader.select(Table) if t.name == name])
    rows = QueryBuilder().register("records", DeltaTable(path)).execute(f"SELECT {columns} FROM records").read_all()
    return pa.table(rows).rename_columns(list(PLACE))


def _distinct(records: pa.Table) -> int:
    rows: int = records.group_by(list(PLACE)).aggregate([]).num_rows
    return rows


def _acknowledged(reader: Reader) -> int:
    return min(t.acknowledged for t in reader.select(Table))


def dagster_log() -> Path:
    return FOLDER.absolute() / "dagster" / "dagster.log"


def _leave_open(narrator: Narrator, region: Region, dagster: LiveDagster, bootstrap: str) -> None:
    """Orders come again, fewer, until somebody has seen enough."""
    narrator.step(f"Dagster stays open at {dagster.url}")
    narrator.say(f"orders come again, {PER_SECOND_UI:.0f} a second; end with Ctrl-C")
    try:
        with Orders(bootstrap, properties={"log_level": 0}).stream("orders", per_second=PER_SECOND_UI, partitions=8):
            region.start()
            dagster.wait()
    except KeyboardInterrupt:
        narrator.say("ending all that was started")


if __name__ == "__main__":
    sys.exit(main())
