"""A cut that falls due by itself and finds nothing new makes no checkpoint: an idle region keeps its history (SPEC V1, C6)."""

from __future__ import annotations

import pytest

from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, ContributedOffset, Contribution, Filler, MergedOffset
from crkafka_core.plane import cuts, life, retire
from tests.plane.conftest import Kit
from tests.rigs.merging import merge_cut


def periodic(kit: Kit, rows: int = 0) -> Checkpoint:
    """A cut as the driver opens it."""
    number = kit.do(lambda tx: cuts.open_cut(tx, token=f"due {kit.row.filling}", cause="due", if_new=True)).id
    for member in (0, 1):
        kit.contribute(number, member, rows)
    for tp in kit.at:
        kit.at[tp] += rows
    done = kit.do(lambda tx: merge_cut(tx, number))
    kit.now += 60.0
    return done


def test_v1_an_idle_day_makes_no_checkpoint_and_pushes_out_no_history(make_kit: type[Kit]) -> None:
    kit = make_kit(retain=2).running()
    made = [kit.cut(), kit.cut()]
    events_before = kit.row.next_event
    for _ in range(100):
        done = periodic(kit)
        assert (done.status, kit.row.head, kit.row.phase) == (CheckpointStatus.EMPTY, made[-1], Phase.RUNNING)
        assert kit.row.last_cut_at == kit.now - 60.0, "the next one is due a period later"
    assert kit.read(retire.plan).retire == () and kit.row.next_event == events_before
    with kit.plane.store.read("orders") as reader:
        assert [c.id for c in reader.select(Checkpoint)] == [*made, done.id], (
            "the last one is remembered, for its driver"
        )
        for part in (Filler, Contribution, ContributedOffset, MergedOffset):
            assert not reader.count(part, ("checkpoint", "=", done.id))
    assert kit.do(lambda tx: merge_cut(tx, done.id)) == done, "asked again, it is the same"


def test_v1_the_first_checkpoint_is_made_in_any_case_and_so_is_one_that_a_person_wants(kit: Kit) -> None:
    """It says where every partition began."""
    kit.running()
    first = periodic(kit)
    assert first.status is CheckpointStatus.MERGED
    assert kit.row.head == first.id
    by_hand = kit.cut(rows=0)
    assert kit.row.head == by_hand


@pytest.mark.parametrize("stopping", [True, False])
def test_v1_a_stop_while_an_empty_cut_is_open_is_not_lost(kit: Kit, stopping: bool) -> None:
    kit.running()
    kit.cut()
    number = kit.do(lambda tx: cuts.open_cut(tx, token="due", cause="due", if_new=True)).id
    if stopping:
        kit.do(lambda tx: life.stop(tx, token="s", by="me"))
    for member in (0, 1):
        kit.contribute(number, member)
    kit.do(lambda tx: merge_cut(tx, number))
    assert kit.row.phase is (Phase.IDLE if stopping else Phase.RUNNING)
