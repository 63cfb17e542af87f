"""What all sensors and schedules have in common: they ask neither Kafka nor Dagster in vain, and tell what is missing (SPEC A2)."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from confluent_kafka.admin import AdminClient

from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.region import Region
from crkafka_core.region.feeder import Feeder
from dagster_project import RegionResource, consistent_region
from dagster_project.sensors.shared import attempt
from tests.dagster.conftest import LandedSeat, Seat, failure
from tests.rigs.configs import configured

pytestmark = pytest.mark.dagster

BRONZE = [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]]


def test_an_attempt_counts_on_while_something_stays_due() -> None:
    assert [attempt(1000.0 + s, 1000.0) for s in (0, 59, 61, 121)] == [0, 0, 1, 2]


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]])
@pytest.mark.parametrize("keys", [{"trigger": {"manual": True}}])
def test_a_quiet_tick_does_not_open_dagsters_instance(landed: LandedSeat, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would cost ten times the rest: Dagster opens its storage, and compares all its migrations, for each tick that asks for it."""
    feeder = Feeder(landed.region)
    feeder.turn(0.0)
    landed.landing.land(1)
    feeder.turn(0.0)
    landed.publish()
    cursors = {"publish": landed.cursor}
    for sensor in ("trigger", "watch", "observe", "host", "check"):
        cursors[sensor] = landed.tick(sensor).cursor
    opened_by: list[str] = []
    kept = dg.DagsterInstance.from_ref

    def counted(ref: Any) -> dg.DagsterInstance:
        opened_by.append(sensor)
        return kept(ref)

    monkeypatch.setattr(dg.DagsterInstance, "from_ref", counted)
    for sensor, cursor in cursors.items():
        landed.tick(sensor, cursor=cursor)
    assert opened_by == []


def test_a_control_plane_without_tables_is_named_with_the_command_and_made_by_start(seat: Seat, tmp_path: Path) -> None:
    """SPEC A2, G9: sensors tell; what starts a region makes what is missing."""
    url = f"sqlite:///{tmp_path}/new/crkafka.db"
    config = RegionConfig.from_json(json.dumps({**json.loads(seat.config.to_json()), "control_plane": url}))
    other = Seat(config, consistent_region(config), seat.instance, seat.region)
    for sensor in ("trigger", "watch", "publish", "observe", "host"):
        assert "There is no control plane" in (said := other.tick(sensor).skip_message) and "crkafka init" in said
    said = failure(other.run("cut", raise_on_error=False))
    assert "Run `crkafka init`, or in Dagster the job start_region." in said
    assert other.run("start_region").success
    assert other.tick("watch").skip_message == "BIRTH, epoch 2, 0 members"


@pytest.mark.parametrize("schedule", ["look", "retire", "maintain"])
def test_before_a_region_is_made_its_schedules_start_no_run_that_would_fail(
    tmp_path: Path, instance: dg.DagsterInstance, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC A2: on a shared instance somebody is alerted of each failure. Once it is made they do, also while SQL is away."""
    config = configured(tmp_path)
    defs = consistent_region(config)

    def evaluate() -> Any:
        with dg.build_schedule_context(instance=instance) as context:
            return defs.resolve_schedule_def(f"orders_{schedule}").evaluate_tick(context)

    assert "There is no control plane" in str(evaluate().skip_message)
    initialise(config.control_plane)
    assert "crkafka init" in str(evaluate().skip_message)
    with Region.open(config) as region:
        region.init()
    assert len(evaluate().run_requests or ()) == 1

    def away(*_: object) -> None:
        raise ServiceUnavailable("The database does not answer.")

    monkeypatch.setattr(RegionResource, "read", away)
    assert len(evaluate().run_requests or ()) == 1


@pytest.mark.parametrize(("schedule", "job"), [("look", "observe_group"), ("consume", "consume_until_caught_up")])
def test_a_schedule_starts_no_run_while_the_last_one_waits_for_its_turn(seat: Seat, schedule: str, job: str) -> None:
    """A queue that was full for a night began with a hundred looks at Kafka."""
    made = seat.defs.resolve_job_def(f"orders_{job}")
    run = seat.instance.create_run_for_job(made, tags=dict(made.tags))

    def evaluate() -> Any:
        with dg.build_schedule_context(instance=seat.instance) as context:
            return seat.defs.resolve_schedule_def(f"orders_{schedule}").evaluate_tick(context)

    assert evaluate().skip_message == "the previous run has not started yet"
    seat.instance.delete_run(run.run_id)
    assert len(evaluate().run_requests or ()) == 1


@pytest.mark.parametrize("tables", BRONZE)
def test_sensors_never_read_kafka(landed: LandedSeat) -> None:
    """A broker that accepts connections and counts them; what does ask Kafka is counted."""
    landed.landing.land(1)
    with socket.create_server(("127.0.0.1", 0)) as broker:
        accepted: list[object] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted.append(broker.accept()[1])

        threading.Thread(target=accept, daemon=True).start()
        keys = json.loads(landed.config.to_json())
        keys["kafka"]["bootstrap.servers"] = f"127.0.0.1:{broker.getsockname()[1]}"
        config = RegionConfig.from_json(json.dumps(keys))
        seat = Seat(config, consistent_region(config), landed.instance, landed.region)
        sensors = [s.name.removeprefix("orders_") for s in seat.defs.get_repository_def().sensor_defs]
        assert {"trigger", "watch", "publish", "observe", "host", "check"} == set(sensors)
        for sensor in sensors:
            seat.tick(sensor)
        assert accepted == []
        admin = AdminClient({"bootstrap.servers": config.kafka["bootstrap.servers"]})
        end = time.monotonic() + 30
        while not accepted and time.monotonic() < end:
            admin.poll(0.1)
        assert accepted, "the counter counts"
