"""Commits that a table itself shows are acknowledged: their writer died before it could say so (SPEC K6, X4)."""

from __future__ import annotations

import pytest

from crkafka_core.model.errors import Stale
from crkafka_core.plane import events, permits, tables
from tests.plane.bronze import allowed, fence, finish, landed, table
from tests.plane.conftest import Clock
from tests.rigs.landing import Landing


def _acknowledge(landing: Landing, number: int, holds: int) -> bool:
    """What the table itself shows."""
    return landing.do(lambda tx: permits.acknowledge(tx, "bronze", number, holds=holds, version="found"))


def test_a_commit_that_the_table_shows_is_acknowledged_once_and_by_its_last_number_alone(
    landing: Landing, clock: Clock
) -> None:
    landing.land(10, times=2)
    allowed(landing, limit=1)
    assert not _acknowledge(landing, 9, 1), "nobody permitted it"
    assert _acknowledge(landing, 1, 1)
    assert (table(landing).acknowledged, table(landing).version) == (1, "found")
    assert table(landing).rewind_epoch == 0, "all that it shows is live: it owes no fence"
    (told,) = landing.read(lambda reader, _: events.last(reader, 1))
    assert told.text == "bronze: commit 1 was in the table, and not acknowledged yet"
    assert not _acknowledge(landing, 1, 1)
    clock.now += 100
    allowed(landing, "slow")
    clock.now += 100
    finish(landing, allowed(landing, "quick"))
    assert not _acknowledge(landing, 2, 2), "a later one is the table's last"
    assert table(landing).version == "v"


def test_x4_a_commit_that_the_table_shows_of_superseded_checkpoints_owes_a_fence(landing: Landing) -> None:
    landing.land(10, times=2)
    allowed(landing)
    landing.do(lambda tx: tables.undeclare(tx, "bronze"))
    landing.rewind(1)
    landing.do(lambda tx: tables.declare(tx, "bronze", "delta", "lake.shop.bronze"))
    assert _acknowledge(landing, 1, 2)
    assert landed(landing) == {}, (
        "what stays in it is all that is merged; a member asks for this in a cut, before the fence"
    )
    assert fence(landing).acknowledged == 1


def test_a_rewrite_that_the_table_shows_leaves_what_it_had_acknowledged(landing: Landing) -> None:
    landing.land(10, times=2)
    finish(landing, allowed(landing))
    allowed(landing, "b", ids=[1])
    assert _acknowledge(landing, 2, 1)
    assert table(landing).acknowledged == 2


def test_rows_that_a_dead_writer_had_brought_in_are_not_counted_a_second_time(landing: Landing, clock: Clock) -> None:
    """The table shows the dead one's commit only after the next writer has been permitted to write the same."""
    landing.land(10)
    allowed(landing, "dead")
    clock.now += 100
    later = allowed(landing, "later")
    assert _acknowledge(landing, 1, 1)
    with pytest.raises(Stale, match="was advanced to 1 while commit 2 went on from 0"):
        finish(landing, later)
