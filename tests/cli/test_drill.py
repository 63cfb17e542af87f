"""The drill of backup and restore in docs/operations.md, line by line: no record is lost or doubled."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.postgres import Postgres, _binary
from crkafka_core.testing.generator import Generator
from crkafka_core.testing.pytest_services import unique
from tests.cli.conftest import Crkafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]
DOCS = Path(__file__).parents[2] / "docs" / "operations.md"


def drills() -> list[str]:
    section = DOCS.read_text().partition("### A drill of backup and restore\n")[2].partition("\n### ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def drill(
    crkafka: Crkafka, kafka: KafkaCluster, new_topic: Callable[..., str], region_file: Path
) -> Callable[[str, str, dict[str, str]], None]:
    def run(lines: str, control_plane: str, environment: dict[str, str]) -> None:
        topic = new_topic(partitions=2)
        region_file.write_text(
            f"""
region: orders
control_plane: {control_plane}
storage: var/segments
kafka: {{bootstrap.servers: "{kafka.bootstrap}", group.id: "{topic}", session.timeout.ms: 6000}}
topics: [{topic}]
members: 1
start_grace: 5s
trigger: {{manual: true}}
tables: [{{name: bronze, format: delta, path: var/bronze}}]
"""
        )
        generator, sent = Generator(kafka.bootstrap), 0
        for line in (line for line in lines.splitlines() if not line.startswith("#")):
            if line.startswith("crkafka consume"):
                generator.send(topic, 100, partitions=2)
                sent += 100
            command, _, note = line.partition("#")
            if command.startswith("crkafka "):
                answer = crkafka(*shlex.split(command)[1:])
                assert answer.code == (1 if "exit code 1" in note else 0), (line, answer)
                assert "exit code 1" not in note or note.rpartition(": it ")[2] in answer.err
            else:
                subprocess.run(command, shell=True, check=True, env={**os.environ, **environment})
        assert crkafka("tables", "advance").code == 0
        rows = DeltaTable("var/bronze").to_pyarrow_table(columns=["partition", "offset"]).to_pylist()
        assert len(rows) == len({(row["partition"], row["offset"]) for row in rows}) == sent == 300

    return run


def test_with_sqlite(drill: Callable[..., None]) -> None:
    here = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    drill(drills()[0], "sqlite:///var/crkafka.db", here)


@pytest.mark.postgres
def test_with_postgresql(drill: Callable[..., None], postgres: Postgres) -> None:
    url = postgres.url(unique("drill").replace("-", "_"))
    here = {
        "PATH": f"{_binary('pg_dump').parent}{os.pathsep}{os.environ['PATH']}",
        "DATABASE": url.replace("+psycopg", ""),
    }
    drill(drills()[1], url, here)
