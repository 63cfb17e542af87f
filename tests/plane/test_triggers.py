"""When a cut is due: by period, by an operator's count, as a person says (SPEC V1, V2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crkafka_core.model.errors import CrkafkaError, Stale
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region
from crkafka_core.plane import cuts
from tests.plane.conftest import Kit

RUNNING = Region("r", "u", 0, epoch=4, head=3, phase=Phase.RUNNING, last_cut_at=100.0, resumed_at=50.0)


def test_v1_a_cut_is_due_a_period_after_the_last_and_only_while_it_runs() -> None:
    assert cuts.due_at(RUNNING, period=60.0, counted=False) == 160.0
    assert cuts.due_at(RUNNING, period=None, counted=False) is None
    for phase in set(Phase) - {Phase.RUNNING}:
        assert cuts.due_at(replace(RUNNING, phase=phase), period=60.0, counted=True) is None


@pytest.mark.parametrize(
    ("resumed", "due"), [(50.0, 160.0), (100.0, 160.0), (158.0, 160.0), (159.0, 160.0), (159.5, 160.5), (300.0, 301.0)]
)
def test_v1_overdue_after_a_reset_it_is_due_a_second_after_the_resume(resumed: float, due: float) -> None:
    assert cuts.due_at(replace(RUNNING, resumed_at=resumed), period=60.0, counted=False) == due


def test_v1_a_first_resume_at_the_moment_of_the_last_cut_makes_it_no_later() -> None:
    """`last_cut_at` is the first resume's until there was a cut."""
    assert cuts.due_at(replace(RUNNING, resumed_at=100.0), period=0.5, counted=False) == 100.5


def test_v2_an_ask_counts_in_its_epoch_and_from_its_head_and_only_where_cuts_come_by_count() -> None:
    asked = replace(RUNNING, asked_epoch=4, asked_head=3, asked_by="r/1")
    assert cuts.due_at(asked, period=60.0, counted=True) == 0.0
    assert cuts.due_at(asked, period=None, counted=False) is None
    assert cuts.due_at(replace(asked, epoch=5), period=60.0, counted=True) == 160.0
    assert cuts.due_at(replace(asked, head=2), period=60.0, counted=True) == 160.0


def test_v2_a_member_asks_once_and_a_late_or_old_one_in_vain(kit: Kit) -> None:
    kit.running()
    name, epoch, head = "orders/1", kit.row.epoch, kit.row.head

    def ask(incarnation: str = kit.live[name], epoch: int = epoch, head: int = head) -> None:
        kit.do(lambda tx: cuts.ask(tx, member=name, incarnation=incarnation, epoch=epoch, head=head))

    def cause(period: float | None, counted: bool = True) -> str:
        return kit.read(lambda reader, row: cuts.why_due(reader, row, period=period, counted=counted))

    with pytest.raises(CrkafkaError):
        ask(incarnation="another")
    for late in ({"epoch": epoch - 1}, {"head": head + 1}):
        with pytest.raises(Stale):
            ask(**late)
    assert cause(None) == "" and not kit.events("cut asked")
    ask()
    ask()
    assert [e.member for e in kit.events("cut asked")] == [name]
    assert cause(None) == f"asked by {name}" and cause(None, counted=False) == ""
    due = kit.row.last_cut_at + 60.0
    kit.now = due - 0.1
    assert cause(60.0, counted=False) == ""
    kit.now = due
    assert cause(60.0, counted=False) == "every 60 s"
