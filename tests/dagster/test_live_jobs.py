"""The region's jobs, each launched in a real Dagster on a real Kafka; the tests follow one another on one stage (SPEC A1, A2, A3)."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Table
from crkafka_core.plane import tables as plane_tables
from crkafka_core.plane.checkpoints import LIVE
from dagster_project.names import key_of
from tests.dagster.live_stage import Live, live

pytestmark = [pytest.mark.dagster, pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

BRONZE = {"name": "bronze", "format": "delta", "path": "tables/bronze", "shape": "shop.rows:bronze"}
RUNS = "query R($f: RunsFilter!) { runsOrError(filter: $f, limit: 200) { ... on Runs { results { runId } } } }"
OBSERVED = """query O($k: AssetKeyInput!) { assetOrError(assetKey: $k) { ... on Asset {
  assetObservations(limit: 20) { metadataEntries { label ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text } } } } } }"""


@pytest.fixture(scope="module")
def stage(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Nobody hosts the members, and nobody wants them yet."""
    folder = tmp_path_factory.mktemp("jobs")
    with live(kafka, folder, begin=False, settle=False, rate=100.0, tables=[BRONZE], retain=2) as made:
        made.scenario.region.stop(wait=True)
        yield made


def table(stage: Live) -> Table:
    return stage.scenario.region.plane.read(lambda reader, row: plane_tables.of(reader, "bronze"))


def host_of(stage: Live) -> int:
    """Process id of the run that hosts the members: their parent."""

    def told() -> int:
        members = stage.scenario.region.status().members
        return next((int(m.metrics["pid"]) for m in members if m.status == "LIVE" and m.metrics.get("pid")), 0)

    pid = stage.scenario.until(told, "a member has told its process")
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_start_region_and_the_host_sensor_starts_members(stage: Live) -> None:
    stage.succeed("start_region")
    stage.scenario.settle(timeout=120)
    assert stage.scenario.region.status().region.members_wanted == 2


def test_observe_group_shows_lag_and_topics(stage: Live) -> None:
    stage.succeed("cut")
    stage.succeed("observe_group")
    for path in (["group"], ["topics", stage.scenario.topics[0]]):
        found = stage.dagster.ask(OBSERVED, k={"path": [stage.names.slug, *path]})["assetOrError"]["assetObservations"]
        labels = {e["label"] for o in found for e in o["metadataEntries"]}
        assert {"lag", "partitions", "progress"} <= labels, labels


def test_scale_region_out_and_in_costs_at_most_one_reset_each(stage: Live) -> None:
    for members in (3, 2):
        mark = stage.scenario.mark()
        stage.succeed("scale_region", scale={"members": members})
        stage.scenario.settle(members=members, timeout=90)
        assert len(stage.scenario.resets(mark)) <= 1
    stage.scenario.cut_soon()


def test_a_host_run_that_was_killed_is_replaced(stage: Live) -> None:
    """SPEC A2: its members live on without anybody to restart them; when one is gone too, another run hosts them."""
    old = host_of(stage)
    victim = next(m for m in stage.scenario.region.status().members if m.status == "LIVE" and m.metrics.get("pid"))
    os.kill(old, signal.SIGKILL)
    os.kill(int(victim.metrics["pid"]), signal.SIGKILL)
    number = int(victim.name.rpartition("/")[2])
    stage.scenario.await_new(number, victim.incarnation, timeout=180)
    stage.scenario.settle(timeout=120)
    assert host_of(stage) != old
    stage.scenario.cut_soon()
    stage.scenario.verify(quiet=True)


def test_the_table_keeps_up_and_retire_checkpoints_archives(stage: Live) -> None:
    for _ in range(4):
        stage.succeed("cut")
    head = stage.scenario.head
    stage.dagster.until(lambda: table(stage).acknowledged >= head, 240, "the table has all checkpoints")
    stage.succeed("retire_checkpoints")
    live_ones = [c for c in stage.checkpoints() if c.status in (CheckpointStatus.MERGED, CheckpointStatus.RETIRED)]
    assert [c.status for c in live_ones[-3:]] == [
        CheckpointStatus.RETIRED,
        CheckpointStatus.MERGED,
        CheckpointStatus.MERGED,
    ]
    assert not list(Path(stage.scenario.config.storage).rglob("*.tmp"))


def test_after_an_outage_of_two_hundred_checkpoints_all_appear_in_order_and_the_table_takes_few_runs(
    stage: Live,
) -> None:
    stage.dagster.until(lambda: table(stage).acknowledged >= stage.scenario.head, 240, "the table has all checkpoints")
    before = stage.dagster.ask(
        RUNS, f={"tags": [{"key": "crkafka/table", "value": f"{stage.scenario.config.region}/bronze"}]}
    )
    stage.dagster.kill("daemon")
    for _ in range(200):
        stage.scenario.cut()
    stage.dagster.begin("daemon")
    head = stage.scenario.head
    began = time.monotonic()
    stage.await_published(180)
    print(f"200 checkpoints were published within {time.monotonic() - began:.1f} s")
    stage.dagster.until(lambda: table(stage).acknowledged >= head, 600, "the table has all checkpoints")
    print(f"the table had them after {time.monotonic() - began:.1f} s")
    after = stage.dagster.ask(
        RUNS, f={"tags": [{"key": "crkafka/table", "value": f"{stage.scenario.config.region}/bronze"}]}
    )
    assert len(after["runsOrError"]["results"]) - len(before["runsOrError"]["results"]) <= 3


def filled(stage: Live, status: CheckpointStatus) -> list[Checkpoint]:
    return [c for c in stage.checkpoints() if c.status is status and c.rows]


def counts(stage: Live) -> dict[int, int]:
    from crkafka_core.spark.schema import CHECKPOINT
    from crkafka_core.spark.tables import read_table
    from dagster_project import RegionResource, SparkSessionResource

    config = stage.scenario.config
    spark = SparkSessionResource(definition=RegionResource.of(config).definition).session()
    rows = read_table(spark, RegionResource.of(config).handle, "bronze").groupBy(CHECKPOINT).count().collect()
    return {r[0]: r[1] for r in rows}


def test_a_retired_range_is_replayed_from_kafka(stage: Live) -> None:
    retired = filled(stage, CheckpointStatus.RETIRED)
    assert len(retired) >= 2
    before = counts(stage)
    run = stage.succeed("replay", rewrite={"after": retired[0].parent, "upto": retired[-1].id}, patience=240)
    assert counts(stage) == before
    assert {c.id: c.rows for c in retired}.items() <= before.items()
    assert stage.dagster.failures(run) == {}


def test_a_range_that_is_gone_from_kafka_fails_that_run_alone(stage: Live) -> None:
    retired = filled(stage, CheckpointStatus.RETIRED)
    archive: dict[str, Any] = json.loads(retired[0].archive_json)
    gone = {
        (topic, int(p)): stop for topic, parts in archive.items() for p, (_, stop, rows, *_) in parts.items() if rows
    }
    stage.scenario.kafka.topics.delete_records(gone)
    before = counts(stage)
    run = stage.launch("replay", rewrite={"after": retired[0].parent, "upto": retired[0].id})
    assert stage.dagster.finished(run, 180) == "FAILURE"
    said = stage.dagster.failures(run)["rewrite"]
    tp = TP(*min(gone))
    assert f"{tp}" in said and str(gone[min(gone)]) in said, said
    assert counts(stage) == before
    stage.succeed("replay", rewrite={"after": retired[-2].id, "upto": retired[-1].id}, patience=240)
    stage.succeed("cut")
    assert counts(stage).items() >= before.items()


def test_every_checkpoint_with_rows_is_a_partition(stage: Live) -> None:
    stage.await_published()
    assert any(c.status is CheckpointStatus.RETIRED for c in stage.checkpoints() if key_of(c.id) in stage.partitions())


def test_stop_region_cuts_and_members_leave(stage: Live) -> None:
    head = stage.scenario.head
    stage.succeed("stop_region")
    status = stage.scenario.region.status().region
    assert status.phase is Phase.IDLE and status.head > head
    stage.dagster.until(
        lambda: not [m for m in stage.scenario.region.status().members if m.status == "LIVE"],
        60,
        "all members have left",
    )


def test_consume_until_caught_up_starts_consumes_cuts_and_stops(stage: Live) -> None:
    head = stage.scenario.head
    stage.succeed("consume_until_caught_up", patience=180)
    status = stage.scenario.region.status().region
    assert status.phase is Phase.IDLE and status.head > head


def test_a_bounded_run_that_was_killed_is_retried_and_stops_what_it_started(stage: Live) -> None:
    """SPEC A6: members of the killed run are not taken for those of somebody else."""
    stage.hold("open_cut", "before")
    stage.hold("await_running", "after")
    run = stage.launch("consume_until_caught_up")
    stage.kill_in("await_running", run)
    stage.release("open_cut")
    retried = stage.dagster.retry(run)
    assert stage.dagster.finished(retried, 240) == "SUCCESS", stage.dagster.failures(retried)
    assert stage.scenario.region.status().region.phase is Phase.IDLE
    stage.scenario.quieten()
    stage.succeed("consume_until_caught_up", patience=180)
    stage.scenario.verify(quiet=True)
    assert sum(c.rows for c in stage.checkpoints() if c.status in LIVE) == stage.scenario.ledger.rows()
