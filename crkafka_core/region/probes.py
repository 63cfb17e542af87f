"""Endpoints of a host for supervisors and Prometheus: `/metrics`, `/livez`, `/readyz`, over HTTP, from SQL only (SPEC X8)."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST

from crkafka_core.config import redact
from crkafka_core.model.errors import ConfigError, CrkafkaError, ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.plane.status import Status
from crkafka_core.region.metrics import Timings, exposed
from crkafka_core.region.region import Region

_log = logging.getLogger(__name__)
SILENT = 60.0
"""Seconds without a sign of life of the host's own loop after which it is not alive."""
ANSWER_WITHIN = 4.0
"""Seconds that a probe waits for the control plane. A scrape of Prometheus ends after 10 s, and its alert needs the metric that the
control plane is away; a store retries for 10 s, or longer if packets are lost."""


class Pulse:
    """Sign of life of a host's loop, which calls `beat` in each turn. Before its first turn, while Spark starts, and after its last, during
    the last cut, silence is no trouble."""

    def __init__(self) -> None:
        self._at: float | None = None

    def beat(self) -> None:
        self._at = time.monotonic()

    def end(self) -> None:
        self._at = None

    def trouble(self) -> str:
        if (at := self._at) is None:
            return ""
        silent = time.monotonic() - at
        return f"the host has done nothing for {silent:.0f} s" if silent > SILENT else ""


class _Question:
    """Reads the region's status on a thread of its own, so that no probe waits longer than `ANSWER_WITHIN`; one read at a time."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._making = threading.Lock()
        self._open: Future[Status] | None = None

    def status(self) -> Status:
        with self._making:
            asked = self._open
            if asked is None or asked.done():
                asked = self._open = Future()
                threading.Thread(target=self._ask, args=(asked,), name="probe", daemon=True).start()
        try:
            return asked.result(ANSWER_WITHIN)
        except TimeoutError:
            text = f"The control plane has not answered within {ANSWER_WITHIN:.0f} s."
            raise ServiceUnavailable(text, hint="Is the database up, and the network between?") from None

    def _ask(self, asked: Future[Status]) -> None:
        try:
            asked.set_result(self._timings.status())
        except BaseException as error:
            asked.set_exception(error)


def ready(status: Status) -> str:
    """Why records do not flow into checkpoints; empty if they do."""
    if status.region.phase not in (Phase.RUNNING, Phase.CUTTING):
        return status.alarm or status.waits_for or f"the region is {status.region.phase}"
    return status.alarm


@contextmanager
def serving(region: Region, address: str, pulse: Pulse) -> Iterator[str]:
    """Answer at `HOST:PORT` during the block; yields the URL. Port 0: any free one."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        hint = "Write HOST:PORT, as 127.0.0.1:9400."
        raise ConfigError(f"{address!r} is not an address to serve metrics at.", hint=hint)
    host = host.strip("[]")
    timings = Timings(region)
    question = _Question(timings)

    def answer(path: str) -> tuple[int, str]:
        if path == "/metrics":
            return 200, exposed(region.config.region, question.status, timings)
        if path == "/livez":
            trouble = pulse.trouble()
        elif path == "/readyz":
            trouble = ready(question.status())
        else:
            return 404, "There are: /metrics, /livez, /readyz.\n"
        return (503, f"{trouble}\n") if trouble else (200, "ok\n")

    try:
        server = _Server((host, int(port)), _handler(answer))
    except OSError as error:
        text = f"Metrics cannot be served at {address}: {error.strerror or error}."
        raise ConfigError(text, hint="Choose another address.") from error
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="metrics", daemon=True).start()
    try:
        yield f"http://{host or '127.0.0.1'}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Log a failed answer by our logging, which has no secrets and may be JSON. Not for a client that closed its connection."""
        if not isinstance(sys.exception(), OSError):
            _log.exception("a probe was not answered")


def _handler(answer: Callable[[str], tuple[int, str]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            try:
                code, text = answer(self.path.partition("?")[0])
            except CrkafkaError as error:
                code, text = 503, f"{redact(str(error))}\n"
            body, of_metrics = text.encode(), self.path == "/metrics"
            self.send_response(code)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST if of_metrics else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """No line for each scrape."""

    return Handler
