"""Where members start: gaps that are accepted or skipped by hand, leader epochs, and whose word counts (SPEC S1, S3, S4, C3, X9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from crkafka_core.model.errors import DataLoss, Refused, Stale, Superseded
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Initial, Start
from crkafka_core.plane import life, resets, starts
from tests.plane.conftest import P0, P1, Kit


def test_s4_an_accepted_gap_holds_until_it_is_merged(kit: Kit) -> None:
    """Truncated to 30, so epoch e starts there; by the next attempt the log has grown past the head's 50 again, with other records."""
    kit.running()
    kit.at |= {P0: 0, P1: 0}
    kit.cut(50)
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    kit.at |= kit.resolve(0, {P0}, gaps={P0: starts.Gap(50, 30, "truncated")}).offsets
    assert kit.at[P0] == 30
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    kit.settle()
    assert kit.at == {P0: 30, P1: 50}
    second = kit.cut(5)
    assert kit.checkpoint(second).status == "MERGED"
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    kit.settle()
    assert kit.at == {P0: 35, P1: 55}, "the gap is behind the new head"


def test_s4_of_several_gaps_the_last_one_that_was_accepted_holds(kit: Kit) -> None:
    kit.running()
    kit.at |= {P0: 0, P1: 0}
    kit.cut(50)
    for wanted, available in ((50, 60), (60, 70)):
        kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
        kit.resolve(0, {P0}, gaps={P0: starts.Gap(wanted, available, "retention")})
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    assert kit.resolve(0, {P0}).offsets == {P0: 70}


def test_s4_a_gap_that_was_looked_for_at_another_offset_is_none(kit: Kit) -> None:
    """Another member has written the start meanwhile, behind the gap that it had found: the first writer wins (SPEC S1)."""
    kit.running()
    kit.at |= {P0: 0, P1: 0}
    kit.cut(50)
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    assert kit.resolve(0, {P0}, gaps={P0: starts.Gap(50, 60, "retention")}).offsets == {P0: 60}
    assert kit.resolve(1, {P0}, gaps={P0: starts.Gap(50, 55, "retention")}).offsets == {P0: 60}


def test_x9_a_person_passes_over_what_no_client_can_read_and_the_gap_is_recorded(kit: Kit) -> None:
    kit.running()
    kit.cut(10)
    for first, last in ((3, 9), (11, 12)):
        with pytest.raises(Refused, match="stands at offset 10"):
            kit.do(lambda tx, f=first, t=last: resets.skip(tx, P0, f, t, by="ann"))
    with pytest.raises(Refused, match="knows no partition"):
        kit.do(lambda tx: resets.skip(tx, TP("u", 0), 10, 10, by="ann"))
    assert kit.do(lambda tx: resets.skip(tx, P0, 10, 12, by="ann")) == 13
    kit.settle()
    assert kit.at == {P0: 13, P1: 10}
    assert kit.events("skip")[-1].by == "ann"
    checkpoint = kit.cut(5)
    assert kit.checkpoint(checkpoint).status == "MERGED"
    merged = kit.read(lambda reader, row: starts.merged(reader, checkpoint))
    assert (merged[P0].from_offset, merged[P0].to_offset) == (13, 18)


def test_x9_a_skip_of_unknown_outcome_is_asked_again_and_done_once(kit: Kit) -> None:
    kit.running()
    kit.cut(10)
    for _ in range(2):
        assert kit.do(lambda tx: resets.skip(tx, P0, 10, 12, by="ann", token="t")) == 13
    epoch = kit.row.epoch
    kit.settle()
    kit.cut(5)
    assert kit.do(lambda tx: resets.skip(tx, P0, 10, 12, by="ann", token="t")) == 13, (
        "also when a cut has come meanwhile"
    )
    assert kit.row.epoch == epoch
    assert len(kit.events("skip")) == 1
    with pytest.raises(Refused, match="behind already"):
        kit.do(lambda tx: resets.skip(tx, P0, 10, 12, by="ann", token="another"))


def test_s4_a_merged_offset_keeps_the_leader_epoch_of_its_last_record(kit: Kit) -> None:
    kit.running()
    first = kit.cut(10, epochs={P0: 3})
    assert merged_epochs(kit, first) == {P0: 3, P1: -1}
    second = kit.cut(0)
    assert merged_epochs(kit, second) == {P0: 3, P1: -1}, "where nothing came, the parent's holds"
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    found = kit.resolve(0, {P0, P1})
    assert found.leader_epochs == {P0: 3}, "the client is told of it with the seek"
    looked = kit.read(lambda reader, row: starts.lookup(reader, row, {P0: "id-t", P1: "id-t"}))
    assert looked.offsets[P0] == 10
    third_epoch = kit.row.epoch
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    assert kit.row.epoch > third_epoch
    fresh = kit.read(lambda reader, row: starts.lookup(reader, row, {P0: "id-t", P1: "id-t"}))
    assert fresh.leader_epochs == {P0: 3}, "what is unknown is not asked for"
    kit.settle()
    third = kit.cut(10)
    assert merged_epochs(kit, third) == {P0: -1, P1: -1}, "an epoch that is unknown is not the parent's"


def test_s4_the_first_leader_epoch_of_a_log_is_looked_at_as_any(kit: Kit) -> None:
    kit.running()
    kit.cut(10, epochs={P0: 0})
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    looked = kit.read(lambda reader, row: starts.lookup(reader, row, {P0: "id-t", P1: "id-t"}))
    assert looked.leader_epochs == {P0: 0}


def merged_epochs(kit: Kit, checkpoint: int) -> dict[TP, int]:
    rows = kit.read(lambda reader, row: starts.merged(reader, checkpoint))
    return {tp: m.leader_epoch for tp, m in rows.items()}


def test_c3_a_gap_of_a_topic_that_is_no_longer_read_or_was_made_anew_is_no_place_to_begin(kit: Kit) -> None:
    kit.running()
    head = kit.cut(50)
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    kit.resolve(0, {P0}, gaps={P0: starts.Gap(50, 70, "retention")})

    def begins(first: dict[TP, Initial]) -> dict[TP, int]:
        return kit.read(
            lambda reader, row: starts.line_offsets(reader, row.epoch, head, first, starts.merged(reader, head))
        )

    known = kit.read(lambda reader, _: starts.known(reader))
    assert begins(known) == {P0: 70, P1: 50}
    assert begins({P1: known[P1]}) == {P1: 50}
    assert begins({P0: replace(known[P0], topic_id="new", offset=3)}) == {P0: 3}


def test_s4_records_that_kafka_no_longer_holds_stop_the_region_unless_gaps_are_accepted(kit: Kit) -> None:
    kit.running()
    kit.cut(50)
    kit.do(lambda tx: resets.request(tx, cause="c", by="me"))
    with pytest.raises(DataLoss, match="Data loss in region orders"):
        _resolve(kit, gaps={tp: starts.Gap(50, 70, "retention passed") for tp in (P0, P1)})
    assert kit.row.phase is Phase.STOPPED
    assert kit.row.stop_reason.startswith(
        "Data loss in region orders: t[0]: retention passed: wanted offset 50, available from 70; "
        "t[1]: retention passed: wanted offset 50, available from 70. Set `data_loss: gap`"
    )


def test_s4_a_topic_that_was_made_anew_is_told_once_for_all_its_partitions(kit: Kit) -> None:
    kit.running()
    with pytest.raises(DataLoss):
        _resolve(kit, ids="id-new")
    assert kit.row.stop_reason.startswith(
        "Data loss in region orders: topic t was made anew: the region knows it with the id id-t, and it has the id id-new now."
    )


@pytest.mark.parametrize("past", [{"epoch": -1}, {"base": 1}])
def test_s1_starts_asked_for_before_a_reset_or_from_another_head_are_not_written(
    kit: Kit, past: dict[str, int]
) -> None:
    kit.running()
    before = kit.read(lambda reader, _: reader.select(Start))
    with pytest.raises(Stale, match="Starts were asked for epoch"):
        _resolve(kit, **past)
    assert kit.read(lambda reader, _: reader.select(Start)) == before


def test_s1_a_replaced_process_writes_no_starts(kit: Kit) -> None:
    kit.running()
    older = kit.live["orders/0"]
    kit.register(0)
    with pytest.raises(Superseded):
        _resolve(kit, incarnation=older)


def test_s3_who_holds_nothing_and_found_nothing_is_not_the_birth_of_a_region(kit: Kit) -> None:
    """Of partitions that are found before the birth the configuration says where they start; later ones start at their beginning."""
    kit.do(lambda tx: life.start(tx, by="test"))
    kit.register(0)
    assert not _resolve(kit, held=()).born and not kit.row.born
    kit.resolve(0, {P0})
    assert kit.row.born


def _resolve(
    kit: Kit,
    *,
    gaps: dict[TP, starts.Gap] | None = None,
    ids: str = "id-t",
    epoch: int = 0,
    base: int = 0,
    incarnation: str = "",
    held: Sequence[TP] = (P0, P1),
) -> starts.Resolved:
    """Member 0 asks for what it holds and accepts no gap; `epoch` and `base` as seen from what is so."""
    row, who = kit.row, incarnation or kit.live["orders/0"]
    return kit.do(
        lambda tx: starts.resolve(
            tx,
            member="orders/0",
            incarnation=who,
            epoch=row.epoch + epoch,
            base=row.head + base,
            topic_ids=dict.fromkeys(held, ids),
            proposals={},
            gaps=gaps,
        )
    )
