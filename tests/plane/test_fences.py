"""Fences: what was superseded leaves a table before the region goes on, and no older write comes after (SPEC X4)."""

from __future__ import annotations

import pytest

from crkafka_core.model.errors import LeaseLost, NotRunning, Refused, Stale
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import TableCommit
from crkafka_core.plane import contents, epochs, permits, restored, tables
from tests.plane.bronze import allowed, fence, finish, permit
from tests.rigs.landing import Landing


def test_after_a_rewind_only_a_fence_is_permitted_and_the_region_waits_for_it(landing: Landing) -> None:
    landing.land(10, times=3)
    finish(landing, allowed(landing))
    landing.rewind(1)
    assert landing.read(lambda _, region: region.phase) is Phase.REWINDING
    assert [t.name for t in landing.read(lambda r, region: epochs.unfenced(r))] == ["bronze"]
    with pytest.raises(NotRunning, match="fence first"):
        permit(landing, "b")
    assert fence(landing).acknowledged == 1
    assert landing.read(lambda _, region: region.phase) is Phase.RESETTING
    assert landing.do(lambda tx: permits.permit_fence(tx, "bronze", holder="x", token="x")) is None


def test_a_fence_takes_the_right_away_from_a_writer_in_the_middle(landing: Landing) -> None:
    landing.land(10, times=3)
    writer = allowed(landing, "writer")
    landing.rewind(1)
    with pytest.raises(LeaseLost):
        landing.do(lambda tx: permits.renew(tx, writer))
    with pytest.raises((LeaseLost, Stale)):
        finish(landing, writer)
    assert fence(landing).acknowledged == 0
    with pytest.raises(LeaseLost):
        finish(landing, writer)
    assert allowed(landing, "next").plan.checkpoints == (1,)


def test_who_makes_a_fence_is_not_whoever_writes(landing: Landing) -> None:
    landing.land(10, times=2)
    allowed(landing, "writer")

    def fencer() -> str:
        return landing.read(lambda reader, _: tables.fencer(reader, tables.of(reader, "bronze")))

    landing.rewind(1)
    assert fencer() == ""
    landing.do(lambda tx: permits.permit_fence(tx, "bronze", holder="host", token="f"))
    assert fencer() == "host"


def test_a_fence_finished_again_after_an_unknown_outcome_changes_nothing(landing: Landing) -> None:
    landing.land(10, times=2)
    allowed(landing)
    landing.rewind(1)
    made = landing.do(lambda tx: permits.permit_fence(tx, "bronze", holder="f", token="f"))
    assert made is not None
    once, again = (landing.do(lambda tx: permits.finish_fence(tx, made, version="w")) for _ in range(2))
    assert once == again


def test_g10_only_a_fence_after_a_restored_backup_looks_for_what_sql_does_not_know(landing: Landing) -> None:
    def newer() -> bool:
        return landing.read(lambda reader, _: restored.went_on(reader, after=tables.of(reader, "bronze").fenced_epoch))

    landing.land(10, times=2)
    allowed(landing)
    landing.rewind(1)
    assert not newer()
    fence(landing)
    landing.do(lambda tx: epochs.idle(tx, "test"))
    landing.do(lambda tx: restored.rewind(tx, restored.Seen(), by="ann"))
    assert newer()
    fence(landing, "g")
    assert not newer()


@pytest.mark.parametrize("initial", [False, True])
def test_g10_a_table_that_sql_never_permitted_a_write_is_fenced_after_a_restored_backup(
    landing: Landing, initial: bool
) -> None:
    """The newer state may have written it."""
    landing.land(10)
    landing.do(lambda tx: epochs.idle(tx, "test"))
    landing.do(lambda tx: restored.rewind(tx, restored.Seen(), by="ann", initial=initial))
    assert [t.name for t in landing.read(lambda r, _: epochs.unfenced(r))] == ["bronze"]


def test_x4_a_table_of_one_row_per_key_goes_back_to_the_version_that_held_the_line(landing: Landing) -> None:
    def state() -> tuple[int, str]:
        found = landing.read(lambda r, region: contents.state_at(r, region, tables.of(r, "bronze")))
        return found.checkpoint, found.version

    def write(version: str, **what: object) -> None:
        made = allowed(landing, version, **what)
        landing.do(lambda tx: permits.finish_commit(tx, made, version=version, rows=20))

    landing.land(10, times=4)
    write("one", upto=2), write("two", upto=3), write("again", ids=[3])
    assert state() == (3, "again"), "as it is, with what was replayed"
    landing.rewind(2)
    assert state() == (2, "one")
    landing.rewind(1)
    assert state() == (0, ""), "no version held the first checkpoint alone"
    landing.do(lambda tx: tx.delete(TableCommit, ("number", "=", 1)))
    with pytest.raises(Refused, match=r"bronze .* cannot go back to checkpoint 1: no commit.*undeclare bronze"):
        state()


def test_x4_a_table_of_one_row_per_key_is_not_emptied_by_a_rewind_into_a_commit_that_spans_the_historys_edge(
    landing: Landing,
) -> None:
    """What led to the edge cannot be written again: the table would stay without its rows for ever."""
    landing.land(10, times=5)
    made = allowed(landing, "one")
    landing.do(lambda tx: permits.finish_commit(tx, made, version="one", rows=100))
    landing.retire(1, 2, 3, history=1)
    landing.rewind(4)
    with pytest.raises(Refused, match="cannot go back to checkpoint 4"):
        landing.read(lambda r, region: contents.state_at(r, region, tables.of(r, "bronze")))
