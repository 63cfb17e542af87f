"""The sensor that has the data checked: when there is something new, and daily where others can write."""

from __future__ import annotations

import dataclasses

import pytest

from dagster_project.sensors import check
from tests.dagster.conftest import LandedSeat

pytestmark = pytest.mark.dagster

BRONZE = [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]]


def before(cursor: str | None, seconds: float) -> str:
    """The cursor of a sensor that remembers the same from so much earlier."""
    asked = check.CheckCursor.parse(cursor)
    return str(dataclasses.replace(asked, at=asked.at - seconds))


def test_checks_of_the_data_run_by_themselves_when_there_is_something_new(landed: LandedSeat) -> None:
    assert landed.tick("check").skip_message == "there is no checkpoint yet"
    landed.landing.land(1)
    seen = landed.tick("check")
    first = landed.tick("check", cursor=before(seen.cursor, 3_601))
    assert len(first.run_requests) == 1
    assert landed.tick("check", cursor=first.cursor).skip_message == "nothing new since checkpoint 1"
    landed.landing.land(1)
    assert "next run in 60 min" in landed.tick("check", cursor=first.cursor).skip_message
    assert landed.tick("check", cursor=before(first.cursor, 3_601)).run_requests


@pytest.mark.parametrize("tables", BRONZE)
def test_the_first_check_of_the_data_does_not_come_while_the_region_only_starts(landed: LandedSeat) -> None:
    """It opens a Spark session of its own, beside the one that hosts."""
    landed.landing.land(1)
    seen = landed.tick("check")
    assert (seen.run_requests, seen.skip_message) == ([], "first run in 60 min")
    landed.landing.land(1)
    later = landed.tick("check", cursor=before(seen.cursor, 600))
    assert not later.run_requests and "first run in 50 min" in later.skip_message
    assert landed.tick("check", cursor=before(seen.cursor, 3_601)).run_requests
    another = dataclasses.replace(
        check.CheckCursor.parse(before(seen.cursor, 3_601)), uid="of a region before this one"
    )
    assert not landed.tick("check", cursor=str(another)).run_requests


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_that_others_can_write_is_looked_at_daily_also_when_nothing_is_new(landed: LandedSeat) -> None:
    landed.landing.land(1)
    seen = landed.tick("check").cursor
    asked = landed.tick("check", cursor=before(seen, 3_601)).cursor
    assert "next run in 24 h" in landed.tick("check", cursor=asked).skip_message
    assert landed.tick("check", cursor=before(asked, check.DAILY + 1)).run_requests
