"""OpenLineage: what a server gets of each acknowledged commit, by the official client."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from enum import Enum
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import attr
import pytest
from openlineage.client import facet_v2  # noqa: F401 (loads each facet)
from openlineage.client.event_v2 import RunEvent
from openlineage.client.generated.base import BaseFacet
from openlineage.client.serde import Serde

from crkafka_core.lake import lineage, writing
from crkafka_core.lake.writing import Written
from crkafka_core.model.rows import Table
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore


def facets(kind: type[BaseFacet] = BaseFacet) -> dict[str, type[BaseFacet]]:
    """Address of its schema → each facet of the client."""
    below = {url: each for sub in kind.__subclasses__() for url, each in facets(sub).items()}
    return below | {kind._get_schema(): kind}  # the client makes subclasses of its own as it sends


def as_the_client_has_it(kind: Any, value: Any) -> Any:
    """A value of JSON as the official client's type for it, which that project generates from its JSON schema and whose validators run.

    Refused: a field that the type lacks, misses, or has of another type or schema. Only facets of our own may have more.
    """
    if get_origin(kind) is UnionType:
        return None if value is None else as_the_client_has_it(get_args(kind)[0], value)
    if get_origin(kind) is list:
        assert isinstance(value, list)
        return [as_the_client_has_it(get_args(kind)[0], each) for each in value]
    if get_origin(kind) is dict:
        return {key: as_the_client_has_it(get_args(kind)[1], each) for key, each in value.items()}
    if not attr.has(kind):
        assert issubclass(kind, Enum) or type(value) is kind, f"{value!r} is no {kind.__name__}"
        return kind(value)
    own = issubclass(kind, BaseFacet) and value["_schemaURL"] == kind._get_schema()
    if issubclass(kind, BaseFacet):
        kind = facets(kind)[value["_schemaURL"]]
    fields, types = attr.fields_dict(kind), get_type_hints(kind)
    read = {name: as_the_client_has_it(types[name], each) for name, each in value.items() if name in fields}
    made = kind(**{fields[name].alias: each for name, each in read.items() if fields[name].init})
    assert {name: getattr(made, name) for name in read} == read
    more = {name: each for name, each in value.items() if name not in fields}
    assert own or not more, f"{kind.__name__} has no {[*more]}"
    return made.with_additional_properties(**more) if more else made


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
    while event["outputs"][0]["name"] != str(tmp_path / "bronze"):  # of a test before
        event = received.get(timeout=30)
    assert (event.pop("path"), event.pop("key")) == ("/api/v1/lineage", "Bearer the key")
    assert json.loads(Serde.to_json(as_the_client_has_it(RunEvent, event))) == event
    kafka = f"kafka://{landing.config.kafka['bootstrap.servers']}"
    assert event["job"]["name"] == landing.config.region and event["eventType"] == "COMPLETE"
    (topic,) = event["inputs"]
    assert (topic["namespace"], topic["name"]) == (kafka, "orders")
    assert topic["inputFacets"][lineage.OFFSETS]["partitions"] == {"0": [0, 5], "1": [0, 5]}
    (table,) = event["outputs"]
    assert (table["namespace"], table["name"]) == ("file", str(tmp_path / "bronze"))
    assert table["facets"]["version"]["datasetVersion"] == "7"
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 10


SPOILT: tuple[Callable[[dict[str, Any]], object], ...] = (
    lambda event: event.pop("run"),
    lambda event: event["run"].update(runId="7"),
    lambda event: event.update(eventType="DONE"),
    lambda event: event.update(eventTime="today"),
    lambda event: event.update(offsets=[]),
    lambda event: event.update(schemaURL="https://openlineage.io/spec/1-0-0/OpenLineage.json#/$defs/RunEvent"),
    lambda event: event["outputs"][0].update(rows=10),
    lambda event: event["outputs"][0]["outputFacets"]["outputStatistics"].update(rowCount="10"),
    lambda event: event["outputs"][0]["outputFacets"]["outputStatistics"].update(rows=10),
    lambda event: event["outputs"][0]["facets"]["version"].pop("datasetVersion"),
    lambda event: event["inputs"][0]["inputFacets"][lineage.OFFSETS].update(_schemaURL="https://elsewhere"),
    lambda event: event["inputs"][0].update(facets=event["inputs"][0]["inputFacets"]),
)


def test_the_judge_of_events_condemns_each_that_is_spoilt(tmp_path: Path, received: Queue[dict[str, Any]]) -> None:
    written(tmp_path)
    event = {key: each for key, each in received.get(timeout=30).items() if key not in ("path", "key")}
    as_the_client_has_it(RunEvent, event)
    for spoil in SPOILT:
        spoil(spoilt := deepcopy(event))
        with pytest.raises((AssertionError, KeyError, TypeError, ValueError)):
            as_the_client_has_it(RunEvent, spoilt)


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
