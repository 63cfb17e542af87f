"""The run that hosts members tells news as news, and trouble as a warning."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pytest

from crkafka_core.model.errors import LeaseLost
from crkafka_core.region.feeder_process import Tell
from crkafka_core.region.lease import DriverLease
from dagster_project.ops import host
from tests.dagster.conftest import Seat


class _Idle:
    """A host whose members have left already."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def join(self, timeout: float | None = None) -> bool:
        return True

    def given_up(self) -> str:
        return ""


class _TakenOver(_Idle):
    """A host that slept, and hears that another has its members now."""

    def join(self, timeout: float | None = None) -> bool:
        right = _Right.made._hold
        assert right is not None
        right.lost = LeaseLost("The members are hosted by another.")
        return False


class _Right(DriverLease):
    """Remembered, for `_TakenOver`."""

    made: DriverLease

    def __enter__(self) -> DriverLease:
        type(self).made = self
        return super().__enter__()


@contextmanager
def _feeding(region: object, *, tell: Tell, news: Tell, warm: object) -> Iterator[None]:
    news("Spark starts; jars that are not here yet are fetched first")
    tell("table typed: its storage is away")
    yield


def test_that_spark_starts_is_no_warning(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crkafka_core.region.host.feeding", _feeding)
    monkeypatch.setattr(host, "_opened", lambda *_: _Idle())
    result = seat.run("host_members")
    assert result.success
    told: dict[str, Any] = {entry.user_message: entry.level for entry in seat.instance.all_logs(result.run_id)}
    assert told["Spark starts; jars that are not here yet are fetched first"] == logging.INFO
    assert told["table typed: its storage is away"] == logging.WARNING


def test_a_run_whose_members_another_host_has_taken_over_ends(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own members may all live: two hosts that start members again would go on beside each other."""
    monkeypatch.setattr("crkafka_core.region.host.feeding", _feeding)
    monkeypatch.setattr(host, "_opened", lambda *_: _TakenOver())
    monkeypatch.setattr(host, "DriverLease", _Right)
    with pytest.raises(dg.Failure, match="hosted by another"):
        seat.run("host_members")
