"""A server of Iceberg's REST protocol for tests, before a SQL catalog: as much of it as commits take."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from pydantic import TypeAdapter
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import TableRequirement, TableUpdate

_REQUIREMENTS: TypeAdapter[Any] = TypeAdapter(tuple[TableRequirement, ...])
_UPDATES: TypeAdapter[Any] = TypeAdapter(tuple[TableUpdate, ...])
_STATUS = {
    exceptions.NoSuchTableError: 404,
    exceptions.NoSuchNamespaceError: 404,
    exceptions.TableAlreadyExistsError: 409,
    exceptions.NamespaceAlreadyExistsError: 409,
    exceptions.CommitFailedException: 409,
}


class _Handler(BaseHTTPRequestHandler):
    catalog: ClassVar[Catalog]

    def _answer(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        try:
            status, found = 200, self._done(self.path.split("?")[0].split("/")[2:], body)
        except tuple(_STATUS) as error:
            status = _STATUS[type(error)]
            found = {"error": {"message": str(error), "type": type(error).__name__, "code": status}}
        text = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = _answer

    def _done(self, path: list[str], body: dict[str, Any]) -> Any:
        match self.command, path:
            case "GET", ["config"]:
                return {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                self.catalog.create_namespace(tuple(body["namespace"]))
                return {"namespace": body["namespace"], "properties": {}}
            case "POST", ["namespaces", schema, "tables"]:
                given = Schema.model_validate(body["schema"]), PartitionSpec.model_validate(body["partition-spec"])
                name, about = f"{schema}.{body['name']}", body.get("properties") or {}
                return _loaded(self.catalog.create_table(name, given[0], partition_spec=given[1], properties=about))
            case "GET", ["namespaces", schema, "tables", name]:
                return _loaded(self.catalog.load_table(f"{schema}.{name}"))
            case "POST", ["namespaces", schema, "tables", name]:
                table = self.catalog.load_table(f"{schema}.{name}")
                requirements = _REQUIREMENTS.validate_python(body["requirements"])
                self.catalog.commit_table(table, requirements, _UPDATES.validate_python(body["updates"]))
                return _loaded(self.catalog.load_table(f"{schema}.{name}"))
            case "DELETE", ["namespaces", schema, "tables", name]:
                self.catalog.drop_table(f"{schema}.{name}")
                return {}
        raise NotImplementedError(f"{self.command} {self.path}")

    def log_message(self, *_: Any) -> None:
        """Nothing is written."""


def _loaded(table: Any) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": table.metadata.model_dump(mode="json"),
        "config": {},
    }


@contextmanager
def served(catalog: Catalog) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"catalog": catalog}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
