"""Going back while something else goes wrong, and members that flap (faults 53, 57)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from crkafka_core.config import RegionConfig
from crkafka_core.model.phase import Phase
from crkafka_core.plane import permits
from tests.rigs.scenario import Scenario

Make = Callable[..., Scenario]


def test_53_rewind_with_a_slow_table_and_a_crash_keeps_its_target(
    scenario: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RegionConfig, "check_place", lambda *_: None)
    bronze = {"name": "bronze", "format": "iceberg", "path": "lake.raw.bronze"}  # of a catalog: the test writes for it
    s = scenario(session=8.0, tables=[bronze])
    first = s.cut_soon()
    s.cut_soon()
    s.cut_soon()
    write = s.region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="test", token="write"))
    assert write is not None, "it may come late: the table has to be fenced"
    s.region.reset(first.id)
    assert s.phase is Phase.REWINDING
    was = s.incarnation(0)
    s.kill(0)
    s.await_new(0, was)
    time.sleep(1.0)
    assert s.phase is Phase.REWINDING
    assert s.head == first.id
    permit = s.region.plane.do(lambda tx: permits.permit_fence(tx, "bronze", holder="test", token="fence"))
    assert permit is not None
    s.region.plane.do(lambda tx: permits.finish_fence(tx, permit, version="1"))
    s.settle()
    assert s.cut_soon().parent == first.id
    s.finish_and_verify()


def test_57_member_that_dies_again_and_again_stops_the_region_with_its_name(scenario: Make) -> None:
    s = scenario(session=8.0, forced_without_cut=3, rate=200)
    for _ in range(3):
        was = s.incarnation(1)
        s.kill(1)
        s.await_new(1, was)
        s.until(lambda: s.phase is not Phase.CUTTING, "the handover is over")
        if s.phase is Phase.STOPPED:
            break
        s.settle()
    status = s.region.status().region
    assert status.phase is Phase.STOPPED
    assert s.member(1) in status.stop_reason
    s.region.start()
    s.settle()
    s.cut_soon()
    s.finish_and_verify()
