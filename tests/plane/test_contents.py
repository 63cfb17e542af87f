"""What lies in a table, by the line of descent: checkpoints, rows, offsets (SPEC S2, T2, X4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, ErasedRecords, Initial
from crkafka_core.plane import contents, erasure, permits, retire, tables
from tests.plane.bronze import allowed, fence, finish, landed, table
from tests.rigs.landing import Landing


def test_T2_rows_of_forgotten_checkpoints_belong_into_a_table_and_those_of_superseded_ones_do_not(
    landing: Landing,
) -> None:
    landing.land(10, times=3)
    finish(landing, allowed(landing))
    landing.rewind(2)
    fence(landing)
    landing.land(10, times=3)
    finish(landing, allowed(landing, "b"))
    landing.retire(1, 2, 3, 4, 5, history=1)

    def belongs(checkpoint: int) -> bool:
        return landing.read(lambda r, region: contents.belonging(r, region, tables.of(r, "bronze"))(checkpoint))

    assert landing.read(lambda r, region: r.line(region.head)) == [5, 6]  # 1, 2, 4 are gone
    assert [i for i in range(1, 9) if belongs(i)] == [1, 2, 4, 5, 6]
    counting = landing.read(lambda r, region: contents.counting(r, region, tables.of(r, "bronze")))
    assert counting == {1: 1, 2: 1, 4: 3, 5: 3, 6: 3}


def test_C8_a_dead_number_belongs_in_no_table_also_once_its_checkpoint_is_forgotten(landing: Landing) -> None:
    landing.land(5, times=3)
    finish(landing, allowed(landing))
    landing.rewind(1)
    fence(landing)
    landing.land(5, times=8)
    finish(landing, allowed(landing, "b"))
    plane = landing.region.plane
    landing.retire(*range(1, 11), history=2)
    plane.do(retire.clean_up)
    forgotten = ("status", "=", CheckpointStatus.SUPERSEDED)
    assert plane.read(lambda reader, _: reader.count(Checkpoint, forgotten)) == 0
    belongs = plane.read(lambda reader, row: contents.belonging(reader, row, tables.of(reader, "bronze")))
    assert [number for number in range(1, 13) if belongs(number)] == [1, *range(4, 12)]


def test_s2_what_every_table_has_acknowledged_is_known_per_partition(landing: Landing) -> None:
    """For the commits in Kafka: should SQL be lost, a region that adopts starts there."""
    tp = landing.tps[0]
    assert landed(landing) == {}, "nothing is merged"
    landing.land(10), landing.land(20), landing.land(30)
    assert landed(landing)[tp] == 0
    finish(landing, allowed(landing, upto=2))
    assert landed(landing)[tp] == 30
    finish(landing, allowed(landing))
    assert landed(landing) == {}, "at the head"
    landing.do(lambda tx: tables.declare(tx, "late", "delta", "lake.shop.late"))
    assert landed(landing)[tp] == 0, "the slowest of them counts"
    landing.do(lambda tx: tables.undeclare(tx, "late"))
    assert landed(landing) == {}


def test_s2_of_a_partition_that_came_later_the_tables_have_nothing(landing: Landing) -> None:
    """Neither of one that SQL does not know: the commit in Kafka says nothing of it, and the others are not kept from it."""
    landing.land(10)
    plane, tp = landing.region.plane, landing.tps[0]
    later = TP(tp.topic, 7)
    asked = {tp, later, TP("unknown", 0)}
    assert plane.read(lambda reader, row: contents.landed(reader, row, asked)) == {tp: 0}
    plane.do(lambda tx: tx.add(replace(tx.select(Initial)[0], partition=later.partition, offset=40)))
    assert plane.read(lambda reader, row: contents.landed(reader, row, asked)) == {tp: 0, later: 40}


def test_x4_an_audit_counts_the_rows_that_are_live_and_not_those_left_behind(landing: Landing) -> None:
    for rows in (10, 20, 30):
        landing.land(rows)
    finish(landing, allowed(landing))
    landing.rewind(1)
    fence(landing)
    landing.land(40)
    finish(landing, allowed(landing, "b"))
    assert landing.read(lambda r, row: contents.of_topics(r, row, [1, 4], ["orders"])) == {1: 20, 4: 80}
    assert landing.read(lambda r, row: contents.of_topics(r, row, [1, 4], ["other"])) == {1: 0, 4: 0}


def test_t2_what_lies_in_a_table_is_told_of_kept_and_of_archived_checkpoints(landing: Landing) -> None:
    """A kept one by its segments, an archived one as a whole; of those that nobody asked for, nothing."""
    landing.land(10, times=5)
    finish(landing, allowed(landing))
    landing.retire(1, 2, 3)

    def found(*ids: int) -> list[tuple[int, int, bool, list[int]]]:
        pieces = landing.read(lambda reader, row: contents.pieces(reader, row, ids))
        return sorted((p.checkpoint, p.rows, p.segment is not None, [r.start for r in p.ranges]) for p in pieces)

    archived, kept = [(1, 20, False, [0, 0]), (3, 20, False, [20, 20])], [(5, 10, True, [40]), (5, 10, True, [40])]
    assert found(1, 3, 5) == archived + kept
    assert found(5) == kept
    assert found() == []


def test_k6_of_a_range_that_begins_with_an_erased_record_the_rest_is_told(landing: Landing) -> None:
    landing.land(10)
    tp = landing.tps[0]
    landing.do(lambda tx: erasure.record(tx, 1, {tp: [0, 1, 9]}, by="me"))
    pieces = landing.read(lambda reader, row: contents.pieces(reader, row, [1]))
    of = [(p.erased, r.start, r.stop, r.rows) for p in pieces for r in p.ranges if r.tp == tp]
    assert sorted(of) == [(False, 2, 9, 7), (True, 0, 1, 0), (True, 1, 2, 0), (True, 9, 10, 0)]


def test_k6_erased_records_that_kafka_lets_go_after_a_rewind_are_waited_for_no_more(landing: Landing) -> None:
    """They cost each read a query for ever."""
    landing.land(10, times=2)
    tp = landing.tps[0]
    landing.do(lambda tx: erasure.record(tx, 2, {tp: [12]}, by="me"))
    landing.rewind(1)

    def passed_by() -> list[int]:
        landing.do(lambda tx: retire.retire(tx, []))
        return landing.read(lambda reader, _: reader.column(ErasedRecords, "checkpoint"))

    assert passed_by() == [2], "they may still come"
    landing.offsets[1] = dict.fromkeys(landing.tps, 12)
    landing.land(1, quiet=[tp.partition])
    assert passed_by() == [2]
    landing.offsets[3][tp] = 15  # Kafka has let go what is before
    landing.land(1)
    assert landing.read(lambda reader, _: erasure.come_again(reader)) == {}
    assert passed_by() == [4]
    landing.rewind(3)
    landing.offsets[3][tp] = 12
    landing.land(5)
    assert landing.read(lambda reader, _: erasure.come_again(reader)) == {5: {tp: [12]}}, "it had not"
    assert passed_by() == [4], "noted first"


def test_k6_a_checkpoint_that_history_forgot_meanwhile_is_no_failure_of_ours(landing: Landing) -> None:
    landing.land(10)
    with pytest.raises(Refused, match=r"Checkpoint 9 was forgotten meanwhile"):
        landing.do(lambda tx: erasure.record(tx, 9, {landing.tps[0]: [1]}, by="me"))


def test_t2_whether_the_beginning_of_the_line_is_forgotten(landing: Landing) -> None:
    plane = landing.region.plane
    assert plane.read(contents.before_line) == 0, "nothing is merged"
    landing.land(10, times=2)
    assert plane.read(contents.before_line) == 0
    plane.do(lambda tx: tx.delete(Checkpoint, ("id", "=", 1)))
    assert plane.read(contents.before_line) > 0


def test_a7_of_a_table_of_a_shape_its_own_rows_are_told_where_a_commit_has_counted_them(landing: Landing) -> None:
    """A table of dead letters said that it had every record of its checkpoints."""

    def rows() -> dict[int, int]:
        return landing.read(lambda reader, _: tables.rows_in(reader, table(landing), range(1, 6)))

    def written(rows: int, **told: dict[int, int]) -> None:
        made = allowed(landing)
        landing.do(lambda tx: permits.finish_commit(tx, made, version="v", rows=rows, **told))

    landing.land(10, times=4)
    assert rows() == dict.fromkeys(range(1, 5), 20)
    landing.do(lambda tx: tx.put(replace(table(landing), shape="shop:good")))
    assert rows() == {}
    written(70, counts={1: 19, 2: 18, 3: 17, 4: 16})
    landing.land(10)
    written(5)
    assert rows() == {1: 19, 2: 18, 3: 17, 4: 16, 5: 5}, "a commit of a single checkpoint tells by itself"
    made = allowed(landing, ids=(2, 3))
    landing.do(lambda tx: permits.finish_commit(tx, made, version="v", rows=30))
    assert rows() == {1: 19, 4: 16, 5: 5}, "what was written again, and not counted apart"
