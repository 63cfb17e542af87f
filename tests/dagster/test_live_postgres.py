"""PostgreSQL as Dagster's storage and as the control plane, end to end (docs/clients.md C-D8)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.postgres import Postgres
from crkafka_core.model.rows import CheckpointStatus
from crkafka_core.testing.pytest_services import unique
from dagster_project.names import key_of
from tests.dagster.live_stage import live

pytestmark = [pytest.mark.dagster, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.soak, pytest.mark.timeout(600)]


def test_a_region_and_dagster_on_postgresql(
    kafka: KafkaCluster, postgres: Postgres, postgres_url: str, tmp_path: Path
) -> None:
    """Cuts that are due, a killed member, a killed run, a reset to an older checkpoint; partitions follow; the oracle at the end."""
    database = unique("dagster").replace("-", "_")
    url = postgres.url(database).replace("postgresql+psycopg://", "postgresql+psycopg2://")
    storage = f"\nstorage:\n  postgres:\n    postgres_url: {url!r}\n"
    with live(kafka, tmp_path, instance=storage, url=postgres_url, rate=200.0, trigger={"period": 2}) as stage:
        stage.scenario.wait_head(3, timeout=120)
        stage.scenario.kill(0)
        stage.scenario.settle()
        stage.hold("await_drained")
        os.kill(stage.held("await_drained"), signal.SIGKILL)
        stage.release("await_drained")
        head = stage.scenario.head
        stage.scenario.wait_head(head + 2, timeout=120)
        stage.succeed("reset_region", reset={"to": str(head), "cause": "a test"})
        gone = {key_of(c.id) for c in stage.checkpoints() if c.status is CheckpointStatus.SUPERSEDED}
        assert gone
        stage.scenario.wait_head(max(map(int, gone)) + 1, timeout=120)
        stage.await_published()
        assert not gone & set(stage.partitions())
        assert "Traceback" not in stage.dagster.log.read_text()
        stage.dagster.kill("daemon")
        stage.scenario.finish_and_verify()
    postgres.drop(database)
