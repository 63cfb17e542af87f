"""Free ports on this machine, below the range that outgoing connections draw theirs from."""

from __future__ import annotations

import random
import socket
import time

# A port from the usual outgoing range (32768 and up) could be taken by any client while its server restarts.
_LOWEST, _HIGHEST = 20_000, 32_000
_given: set[int] = set()
"""In this process: nothing may listen on them yet, or not at the moment."""


def free_ports(count: int) -> list[int]:
    """Distinct ports that nothing listens on at the moment, chosen at random so that parallel runs rarely meet."""
    found: list[int] = []
    while len(found) < count:
        port = random.randint(_LOWEST, _HIGHEST)
        if take(port):
            found.append(port)
    return found


def take(port: int) -> bool:
    """Whether nothing listens on the port, and nobody of this process was given it; the caller is, then."""
    if port in _given or not is_free(port):
        return False
    _given.add(port)
    return True


def is_free(port: int, *, within: float = 0) -> bool:
    """Whether nothing listens on the port now, or soon: a process that was just killed may take a moment to let go."""
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
