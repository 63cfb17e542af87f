"""OpenLineage: what a server gets of each acknowledged commit, by the official client."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import jsonschema
import pytest

from crkafka_core.lake import lineage, writing
from crkafka_core.lake.writing import Written
from crkafka_core.model.rows import Table
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

URI, UUID, TIME, TEXT = ({"type": "string", "format": f} for f in ("uri", "uuid", "date-time", "text"))


def fields(*, more: bool = True, **required: Any) -> dict[str, Any]:
    """An object that has all of these."""
    return {"type": "object", "properties": required, "required": [*required], "additionalProperties": more}


FACETS = {"type": "object", "additionalProperties": fields(_producer=URI, _schemaURL=URI)}
DATASETS = {
    "type": "array",
    "items": {
        **fields(namespace=TEXT, name=TEXT),
        "properties": {"facets": FACETS, "inputFacets": FACETS, "outputFacets": FACETS},
    },
}
RUN_EVENT = fields(
    eventType={"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
    eventTime=TIME,
    producer=URI,
    schemaURL=URI,
    run=fields(runId=UUID),
    job=fields(namespace=TEXT, name=TEXT),
    inputs=DATASETS,
    outputs=DATASETS,
)
"""What OpenLineage's specification, version 2, asks of an event of a run."""


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue[dict[str, Any]]]:
    """Events that a server of lineage has got."""
    events: Queue[dict[str, Any]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            events.put({"path": self.path, "key": self.headers.get("authorization"), **body})
            self.send_response(201)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "the key")
    yield events
    server.shutdown()
    server.server_close()


def written(folder: Path) -> Landing:
    """Two checkpoints, brought into a table by one commit."""
    table = {"name": "bronze", "format": "delta", "path": str(folder / "bronze")}
    landing = Landing(MemoryStore(), folder, partitions=2, tables=[table])
    landing.land(3), landing.land(2)
    ask = writing.asking(["bronze"])
    assert writing.commit(landing.region, ask, lambda *_: [("bronze", Written("7", 10))]).required()
    return landing


def test_a_commit_is_told_with_its_offsets_and_its_version(tmp_path: Path, received: Queue[dict[str, Any]]) -> None:
    landing = written(tmp_path)
    event = received.get(timeout=30)
    assert (event.pop("path"), event.pop("key")) == ("/api/v1/lineage", "Bearer the key")
    jsonschema.validate(event, RUN_EVENT, format_checker=jsonschema.FormatChecker())
    kafka = f"kafka://{landing.config.kafka['bootstrap.servers']}"
    assert event["job"]["name"] == landing.config.region and event["eventType"] == "COMPLETE"
    (topic,) = event["inputs"]
    assert (topic["namespace"], topic["name"]) == (kafka, "orders")
    assert topic["inputFacets"][lineage.OFFSETS]["partitions"] == {"0": [0, 5], "1": [0, 5]}
    (table,) = event["outputs"]
    assert (table["namespace"], table["name"]) == ("file", str(tmp_path / "bronze"))
    assert table["facets"]["version"]["datasetVersion"] == "7"
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 10


def test_without_a_url_nothing_is_told(
    tmp_path: Path, received: Queue[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENLINEAGE_URL")
    monkeypatch.setattr(lineage, "event", lambda *_: pytest.fail("an event is made"))
    written(tmp_path)
    assert received.empty()


def test_a_commit_is_acknowledged_though_no_event_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "nonsense://")
    landing = written(tmp_path)
    (table,) = landing.region.plane.read(lambda reader, _: reader.select(Table))
    assert table.acknowledged == 2
    assert "commit 1 to table bronze: no OpenLineage event" in caplog.text


@pytest.mark.parametrize(
    ("format", "path", "named"),
    [
        ("delta", "s3://lake/bronze/orders", ("s3://lake", "bronze/orders")),
        ("delta", "/var/tables/orders", ("file", "/var/tables/orders")),
        ("iceberg", "main.bronze.orders", ("catalog://main", "bronze.orders")),
    ],
)
def test_tables_are_named_as_openlineage_names_them(format: str, path: str, named: tuple[str, str]) -> None:
    assert lineage.dataset(Table("orders", "t", format, path)) == named
