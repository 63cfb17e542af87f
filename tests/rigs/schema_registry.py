"""A schema registry in this process, for tests: it answers as it is told."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class FakeRegistry:
    """`answers`: (status, body) by path, one after the other, the last for ever; `asked`: with what it was asked.

    The body of a redirect is the address that it names.
    """

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, Any]]] = {}
        self.asked: list[tuple[str, str | None]] = []
        fake = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.asked.append((self.path, self.headers.get("Authorization")))
                path = self.path.replace(
                    "?deleted=true", ""
                )  # one that is there is there also for who asks for deleted ones
                waiting = fake.answers.get(self.path) or fake.answers.get(path, [(404, {"error_code": 40403})])
                status, body = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                self.send_response(status)
                if status in (301, 302, 303, 307, 308):
                    self.send_header("Location", body)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = HTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
