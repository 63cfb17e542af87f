"""Free ports on this machine, below the range of outgoing connections."""

from __future__ import annotations

import random
import socket
import time

# A port from the range of outgoing connections (32768 and up) could be taken by any client while its server restarts.
_LOWEST, _HIGHEST = 20_000, 32_000
_given: set[int] = set()
"""Ports given out by this process, on which no server may listen yet, or not at the moment."""


def free_ports(count: int) -> list[int]:
    """Distinct free ports, chosen at random so that parallel runs rarely collide."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randint(_LOWEST, _HIGHEST)
        if take(port):
            ports.append(port)
    return ports


def take(port: int) -> bool:
    """Reserve a port for the caller; False if it is in use, or reserved by this process."""
    if port in _given or not is_free(port):
        return False
    _given.add(port)
    return True


def is_free(port: int, *, within: float = 0) -> bool:
    """Whether the port is free now, or within so many seconds: a killed process may take a moment to release it."""
    deadline = time.monotonic() + within
    while not _can_bind(port):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
