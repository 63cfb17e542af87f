"""Stands between clients and one Kafka node, and cuts off whom a test names: fault 44, a member without Kafka but with SQL."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.dev.ports import free_ports

_HEADER = struct.Struct(">ihhih")
"""Of each request: size, kind, version, correlation, length of the client's name, which follows."""


class KafkaProxy:
    """One thread per direction of a connection. Who is at the other end says its first request, by the client's name."""

    def __init__(self, port: int, target: int) -> None:
        """Listens on `port`, and passes on to `target`; both on this machine."""
        self._target = target
        self._cut = ""
        self._open: dict[socket.socket, str] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def cut(self, name: str) -> None:
        """End the connections of clients with `name` in theirs, and refuse new ones, until `mend`."""
        with self._lock:
            self._cut = name
            gone = [connection for connection, client in self._open.items() if name in client]
        for connection in gone:
            _close(connection)

    def mend(self) -> None:
        with self._lock:
            self._cut = ""

    def close(self) -> None:
        _close(self._listener)
        for connection in list(self._open):
            _close(connection)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), name="proxy", daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near:
            first = _exactly(near, _HEADER.size)
            name = _exactly(near, max(0, _HEADER.unpack(first)[-1]))
            with self._lock:
                if self._cut and self._cut in name.decode():
                    return
                self._open[near] = name.decode()
            try:
                with socket.create_connection(("127.0.0.1", self._target)) as far:
                    far.sendall(first + name)
                    threading.Thread(target=_pump, args=(far, near), name="proxy", daemon=True).start()
                    _pump(near, far)
            finally:
                with self._lock:
                    del self._open[near]


def _exactly(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = source.recv(count - len(found))
        if not more:
            raise ConnectionError("the client went away")
        found += more
    return found


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Until one end closes; then the other is closed too."""
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    _close(source)
    _close(sink)


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        end.close()


@contextmanager
def kafka_behind_proxy(folder: Path) -> Iterator[tuple[KafkaCluster, KafkaProxy, str]]:
    """A Kafka of one node with a second address, at which a proxy listens; the cluster, the proxy, that address."""
    listens, proxied = free_ports(2)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{{port}},PROXIED://127.0.0.1:{listens},CONTROLLER://127.0.0.1:{{controller_port}}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{{port}},PROXIED://127.0.0.1:{proxied}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    leash = Leash(folder, remove=True)
    cluster = KafkaCluster(folder, leash=leash, settings=settings)
    proxy = KafkaProxy(proxied, listens)
    try:
        cluster.start()
        yield cluster, proxy, f"127.0.0.1:{proxied}"
    finally:
        proxy.close()
        leash.release()
