"""A port is given to one of this process alone, also before anything listens on it."""

from __future__ import annotations

import socket

import pytest

from crkafka_core.dev import ports
from tests.rigs import proxy


def test_a_port_is_given_once_and_not_while_something_listens_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a broker's own port can be that of another of its listeners, and it does not start."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = listening.getsockname()[1]
        first, second = ports.free_ports(2)
        drawn = iter((taken, first, first, second))
        monkeypatch.setattr(ports, "_given", set())
        monkeypatch.setattr(ports.random, "randint", lambda *_: next(drawn))
        assert ports.free_ports(1) + ports.free_ports(1) == [first, second]


def test_both_sides_of_a_proxy_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter((3, 7, 3, 7, 3, 8))
    monkeypatch.setattr(ports, "is_free", lambda *_: True)
    monkeypatch.setattr(ports, "_given", set())
    monkeypatch.setattr(proxy.random, "randint", lambda *_: next(drawn))
    assert (proxy._ports(1), proxy._ports(1)) == ("23{id}07", "23{id}08")
