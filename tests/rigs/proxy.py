"""Stands between clients and one Kafka node, and cuts off whom a test names: fault 44, a member without Kafka but with SQL."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.dev.ports import take

_HEADER = struct.Struct(">ihhih")
"""Of each request: size, kind, version, correlation, length of the client's name, which follows."""


class KafkaProxy:
    """One thread per direction of a connection. Who is at the other end says its first request, by the client's name."""

    def __init__(self, targets: Mapping[int, int], *, delay: float = 0.0) -> None:
        """Listens on the ports, and passes on to their targets. `delay`: seconds that each way takes, as to a far broker."""
        self._delay = delay
        self._cut = ""
        self._open: dict[socket.socket, str] = {}
        self._lock = threading.Lock()
        self._listeners = {socket.create_server(("127.0.0.1", port)): target for port, target in targets.items()}
        for listener, target in self._listeners.items():
            threading.Thread(target=self._accept, args=(listener, target), name="proxy", daemon=True).start()

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
        for end in self._listeners:
            _close(end)
        for connection in list(self._open):
            _close(connection)

    def _accept(self, listener: socket.socket, target: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(connection, target), name="proxy", daemon=True).start()

    def _serve(self, near: socket.socket, target: int) -> None:
        with contextlib.suppress(OSError), near:
            first = _exactly(near, _HEADER.size)
            name = _exactly(near, max(0, _HEADER.unpack(first)[-1]))
            with self._lock:
                if self._cut and self._cut in name.decode():
                    return
                self._open[near] = name.decode()
            try:
                with socket.create_connection(("127.0.0.1", target)) as far:
                    far.sendall(first + name)
                    threading.Thread(target=_pump, args=(far, near, self._delay), name="proxy", daemon=True).start()
                    _pump(near, far, self._delay)
            finally:
                with self._lock:
                    del self._open[near]


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise ConnectionError("the client went away")
        data += more
    return data


def _pump(source: socket.socket, sink: socket.socket, delay: float) -> None:
    """Until one end closes; then the other is closed too."""
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            if delay:
                time.sleep(delay)
            sink.sendall(data)
    _close(source)
    _close(sink)


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        end.close()


@contextmanager
def kafka_behind_proxy(
    folder: Path, *, nodes: int = 1, delay: float = 0.0
) -> Iterator[tuple[KafkaCluster, KafkaProxy, str]]:
    """A Kafka whose nodes have a second address each, at which a proxy listens; the cluster, the proxy, those addresses."""
    listens, proxied = _ports(nodes), _ports(nodes)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{{port}},PROXIED://127.0.0.1:{listens},CONTROLLER://127.0.0.1:{{controller_port}}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{{port}},PROXIED://127.0.0.1:{proxied}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    leash = Leash(folder, remove=True)
    cluster = KafkaCluster(folder, nodes, leash=leash, settings=settings)
    ids = range(1, nodes + 1)
    proxy = KafkaProxy({_of(proxied, node): _of(listens, node) for node in ids}, delay=delay)
    try:
        cluster.start()
        yield cluster, proxy, ",".join(f"127.0.0.1:{_of(proxied, node)}" for node in ids)
    finally:
        proxy.close()
        leash.release()


def _ports(nodes: int) -> str:
    """A port for each node that nothing listens on, as one text with the node's id in it."""
    while True:
        ports = f"2{random.randint(0, 9)}{{id}}{random.randint(0, 99):02}"
        if all(take(_of(ports, node)) for node in range(1, nodes + 1)):
            return ports


def _of(ports: str, node: int) -> int:
    return int(ports.replace("{id}", str(node)))
