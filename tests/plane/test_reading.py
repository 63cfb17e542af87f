"""Which checkpoints a read covers, where their rows are, and what holds them (SPEC K3, C5, T1)."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.control import Tx
from crkafka_core.model import limits
from crkafka_core.model.errors import ConfigError, DataLoss, NoSuchCheckpoint
from crkafka_core.model.limits import Limits
from crkafka_core.model.rows import Checkpoint, MergedOffset, Segment
from crkafka_core.model.selection import Selection
from crkafka_core.plane import checkpoints, erasure, events, leases, reading, resets, retire
from crkafka_core.plane.reading import ReadPlan
from tests.plane.conftest import P0, Clock, Kit
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore


@pytest.fixture
def landing(tmp_path: Path, clock: Clock) -> Landing:
    return Landing(MemoryStore(clock), tmp_path, partitions=2)


def plan(landing: Landing, **bounds: object) -> ReadPlan:
    return landing.read(lambda reader, region: reading.plan(reader, region, **bounds))  # type: ignore[arg-type]


def test_a_segment_ends_before_the_offset_that_is_named_as_its_end() -> None:
    spans = json.dumps([["orders", 0, 10, 20, 10]])
    segment = Segment("r", "p", 1, "m", "i", 1, 10, 100, "h", spans)
    touched = [o for o in (9, 10, 19, 20) if erasure.touches(Selection(erased=((1, "orders", 0, (o,)),)), segment)]
    assert touched == [10, 19]


def test_a_range_leaves_out_its_first_bound_and_follows_parents_not_numbers(landing: Landing) -> None:
    landing.land(10, times=3)
    landing.rewind(1)
    after = [landing.land(10) for _ in range(2)]
    assert after == [4, 5]
    assert plan(landing).checkpoints == (1, 4, 5)
    assert plan(landing, after=1, upto=4).checkpoints == (4,)
    assert plan(landing, after=1, upto=5).rows == 2 * 2 * 10
    assert plan(landing, ids=[5, 1]).checkpoints == (1, 5)
    assert {s.checkpoint for s in plan(landing, after=1).segments} == {4, 5}


def test_the_segments_of_a_member_come_in_the_order_in_which_it_wrote_them(tmp_path: Path) -> None:
    """Else a partition's offsets go back, for whoever reads file by file."""
    landing = Landing(MemoryStore(), tmp_path, members=1)
    landing.land(10)
    (whole,) = plan(landing).segments
    stem = whole.path.removesuffix(whole.path.rpartition("-")[2])

    def in_parts(tx: Tx) -> None:
        tx.delete(Segment)
        for number, rows in ((8, 2), (9, 3), (10, 5), (11, whole.rows - 10)):
            tx.put(replace(whole, path=f"{stem}{number}.parquet", rows=rows))

    landing.do(in_parts)
    assert [s.path.removeprefix(stem) for s in plan(landing).segments] == [f"{n}.parquet" for n in (8, 9, 10, 11)]


def test_segments_and_ranges_without_what_is_wanted_are_left_out(tmp_path: Path) -> None:
    landing = Landing(MemoryStore(), tmp_path, topics=["orders", "refunds"], partitions=2, members=4)
    landing.land(10, times=3)
    landing.retire(1)

    def what(**given: Any) -> tuple[set[tuple[int, str]], set[tuple[str, int]]]:
        found = plan(landing).selecting(Selection.of(**given))
        return {(s.checkpoint, s.member) for s in found.segments}, {(r.topic, r.partition) for r in found.ranges}

    everything = {("orders", 0), ("orders", 1), ("refunds", 0), ("refunds", 1)}
    assert what()[1] == everything and len(what()[0]) == 8
    assert what(topics=["refunds"], partitions=[1]) == ({(2, "orders/3"), (3, "orders/3")}, {("refunds", 1)})
    assert what(from_offset=20) == ({(3, f"orders/{m}") for m in range(4)}, set())
    assert what(to_offset=10) == (set(), everything)
    assert what(from_offset=9, to_offset=21, partitions=[7]) == (set(), set())
    assert what(from_time="2099-01-01") == what()  # SQL knows no times: they are filtered as rows are read


@pytest.mark.parametrize(
    ("given", "micros"),
    [
        (None, None),
        (5, 5_000),
        ("5", 5_000),
        ("-1", -1_000),
        ("123456789", 123456789_000),
        ("19700102", 86_400_000_000),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-01T01:00:00.000001+01:00", 1),
        (dt.datetime(1970, 1, 1, 0, 0, 1), 1_000_000),
        ("9999-12-31T23:59:59.999999Z", 253402300799999999),
    ],
)
def test_a_moment_without_a_zone_is_utc(given: Any, micros: int | None) -> None:
    assert Selection.of(from_time=given).times.start == micros


@pytest.mark.parametrize(
    "wrong",
    [
        {"from_time": "noon"},
        {"from_time": "--5"},
        {"from_time": 1.7e12},
        {"from_time": True},
        {"from_time": dt.date(2026, 1, 31)},
        {"topics": "orders"},
    ],
)
def test_a_selection_that_nobody_can_mean_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Selection.of(**wrong)


@pytest.mark.parametrize(
    "bounds", [{"after": 2}, {"upto": 3}, {"ids": [1, 3]}, {"after": 2, "upto": 2}, {"after": 2, "upto": 5}]
)
def test_a_superseded_bound_is_refused_with_what_is_there(landing: Landing, bounds: dict[str, object]) -> None:
    landing.land(10, times=3)
    landing.rewind(1)
    landing.land(10, times=2)
    said = r"superseded \(back to checkpoint 1, as asked by test: test\)\. What can be read: 1, 4, 5 \(3 on the line"
    with pytest.raises(NoSuchCheckpoint, match=said):
        plan(landing, **bounds)


@pytest.mark.parametrize("bounds", [{"upto": 9}, {"ids": [9]}, {"after": 9, "upto": 10}])
def test_a_read_beyond_the_last_merge_is_refused(landing: Landing, bounds: dict[str, object]) -> None:
    landing.land(10)
    with pytest.raises(NoSuchCheckpoint, match=r"its last merge is 1\..*can be read: 1 \(1 on the line"):
        plan(landing, **bounds)


def test_a_range_that_runs_backwards_is_refused(landing: Landing) -> None:
    landing.land(10, times=2)
    with pytest.raises(NoSuchCheckpoint, match="no range"):
        plan(landing, after=2, upto=1)


def test_an_archived_checkpoint_becomes_ranges_with_counts(landing: Landing) -> None:
    landing.land(10, times=3)
    landing.retire(1, 2)
    found = plan(landing)
    assert [(r.checkpoint, r.partition, r.start, r.stop, r.rows) for r in found.ranges] == [
        (1, 0, 0, 10, 10),
        (1, 1, 0, 10, 10),
        (2, 0, 10, 20, 10),
        (2, 1, 10, 20, 10),
    ]
    assert {r.topic_id for r in found.ranges} == {"id-orders"}, (
        "an offset alone is no identity: the topic may be made anew"
    )
    assert {s.checkpoint for s in found.segments} == {3}


def test_history_that_is_no_longer_archived_is_refused_with_what_is_left(landing: Landing) -> None:
    landing.land(10, times=3)
    landing.do(lambda tx: tx.delete(Checkpoint, ("id", "=", 1)))
    with pytest.raises(NoSuchCheckpoint, match="goes back to checkpoint 2"):
        plan(landing)
    assert plan(landing, after=1).checkpoints == (2, 3)


def test_a_lost_segment_row_is_data_loss_and_not_a_shorter_answer(landing: Landing) -> None:
    landing.land(10)
    landing.do(lambda tx: tx.delete(Segment, ("member", "=", "orders/1")))
    with pytest.raises(DataLoss, match="merged 20 rows, its segments name 10"):
        plan(landing)


def test_retirement_stops_before_what_a_reader_holds_until_the_lease_is_over(landing: Landing, clock: Clock) -> None:
    landing.land(10, times=4)
    control = landing.region.plane
    control.do(lambda tx: tx.set_region(limits_json='{"retain": 1}'))
    taken = control.do(lambda tx: reading.take(tx, holder="me", token="t", length=30, after=1, upto=3))
    assert control.read(retire.plan).retire == (1,)
    assert "me reads" in control.read(retire.plan).held[0]
    clock.now += 20
    control.do(lambda tx: leases.renew(tx, taken.lease, 30))
    clock.now += 20
    assert control.read(retire.plan).retire == (1,)
    clock.now += 20
    assert control.read(retire.plan).retire == (1, 2, 3)
    control.do(lambda tx: reading.take(tx, holder="me", token="u", length=30, after=1, upto=3))
    control.do(lambda tx: leases.release(tx, replace(taken.lease, slot="u", token="u")))
    assert control.read(retire.plan).retire == (1, 2, 3)


def test_a_read_of_archived_checkpoints_holds_nothing_back(landing: Landing) -> None:
    landing.land(10, times=4)
    landing.retire(1)
    landing.do(lambda tx: reading.take(tx, holder="me", token="t", length=30, ids=[1]))
    assert landing.read(retire.plan).retire == (2, 3)


def test_a_stream_lets_go_of_what_it_has_behind_it(landing: Landing) -> None:
    landing.land(10, times=4)
    control = landing.region.plane
    control.do(lambda tx: tx.set_region(limits_json='{"retain": 1}'))
    control.do(lambda tx: reading.follow(tx, stream="s", holder="me", after=0, length=30))
    assert control.read(retire.plan).retire == ()
    control.do(lambda tx: reading.follow(tx, stream="s", holder="me", after=2, length=30))
    assert control.read(retire.plan).retire == (1, 2)


def test_an_open_cut_cannot_be_read_and_is_called_so(kit: Kit) -> None:
    kit.running(), kit.cut()
    opened = kit.open()
    with pytest.raises(NoSuchCheckpoint, match=f"Checkpoint {opened} of region orders is open\\."):
        kit.read(lambda reader, row: reading.plan(reader, row, ids=[opened]))


def test_t2_an_archive_that_lost_rows_is_data_loss_and_not_a_shorter_answer(landing: Landing) -> None:
    landing.land(10, times=2)
    landing.retire(1)

    def lose(tx: Tx) -> None:
        row = tx.get(Checkpoint, 1)
        assert row is not None
        tx.put(replace(row, archive_json='{"orders": {"0": [0, 10, 10]}}'))

    landing.do(lose)
    with pytest.raises(DataLoss, match="archive of checkpoint 1 of region orders does not hold its 20 rows"):
        plan(landing)


def test_t2_an_archive_keeps_the_first_leader_epoch_and_offsets_that_had_no_rows(kit: Kit) -> None:
    """Leader epoch 0 is one as any; markers of transactions take offsets without a row."""
    kit.running()
    first = kit.cut(10, epochs={P0: 0})

    def markers(tx: Tx) -> None:
        (row,) = tx.select(MergedOffset, ("checkpoint", "=", first), ("partition", "=", 1))
        tx.put(replace(row, rows=0))
        tx.set_region(limits_json=limits.dump(Limits(retain=1)))

    kit.do(markers)
    kit.cut(10)
    kit.do(lambda tx: retire.retire(tx, [first]))
    assert json.loads(kit.checkpoint(first).archive_json) == {"t": {"0": [0, 10, 10, 0], "1": [0, 10, 0]}}


def test_t2_as_many_archived_checkpoints_are_kept_as_history_says(landing: Landing) -> None:
    landing.land(10, times=4)
    landing.retire(1, 2, history=2)
    assert plan(landing).checkpoints == (1, 2, 3, 4)
    landing.retire(3, history=2)
    assert plan(landing, after=1).checkpoints == (2, 3, 4)
    told = landing.read(lambda reader, _: [e for e in events.since(reader, 0) if e.kind == "retired"])
    assert [(e.text, e.checkpoint) for e in told] == [("2 checkpoints, 4 segments", 3), ("1 checkpoint, 2 segments", 3)]


def test_t1_a_superseded_checkpoint_that_a_reader_is_past_may_go(kit: Kit) -> None:
    kit.running()
    first, second, third = kit.cut(), kit.cut(), kit.cut()
    kit.do(lambda tx: reading.follow(tx, stream="s", holder="me", after=second, length=30))
    kit.do(lambda tx: resets.request(tx, cause="c", by="me", target=first))
    assert kit.read(retire.plan).retire == (second,), f"{third} is held"


def test_t1_what_a_reader_reads_stays_also_when_a_rewind_left_it_behind(kit: Kit) -> None:
    kit.running()
    first, second, third = kit.cut(), kit.cut(), kit.cut()
    taken = kit.do(lambda tx: reading.take(tx, holder="me", token="r", length=30, after=first))
    kit.do(lambda tx: resets.request(tx, cause="c", by="me", target=first))
    assert kit.do(lambda tx: retire.retire(tx, (second, third))) == []
    plan = kit.read(retire.plan)
    assert plan.retire == ()
    assert any("me reads" in why for why in plan.held)
    kit.do(lambda tx: leases.release(tx, taken.lease))
    assert kit.read(retire.plan).retire == (second, third)
    kit.do(lambda tx: reading.follow(tx, stream="s", holder="a stream", after=third, length=30.0))
    plan = kit.read(retire.plan)
    assert (plan.retire, plan.held) == ((second, third), ()), "who has it behind it does not hold it"


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({}, [1, 3, 4]),
        ({"oldest": 2}, [1, 3]),
        ({"latest": 2}, [3, 4]),
        ({"above": 1}, [3, 4]),
        ({"upto": 3}, [1, 3]),
        ({"merged": (1_000.0, 1_030.0)}, [1, 3]),
        ({"merged": (1_001.0, 1_031.0)}, [3, 4]),
    ],
)
def test_which_checkpoints_have_rows(kit: Kit, asked: dict[str, Any], ids: list[int]) -> None:
    """Cuts at 1000, 1010, 1020, 1030; nothing came before the second."""
    kit.running()
    for rows in (5, 0, 5, 5):
        kit.cut(rows)
        kit.now += 10.0
    assert kit.read(lambda reader, _: checkpoints.filled(reader, **asked)) == ids
    assert kit.read(lambda reader, _: checkpoints.rows_of(reader, [1, 3])) == {1: 10, 3: 10}
    merged = kit.read(lambda reader, _: checkpoints.offsets(reader, 1, 3))
    assert sorted((m.checkpoint, m.partition, m.from_offset, m.to_offset) for m in merged) == [
        (1, 0, 0, 5),
        (1, 1, 0, 5),
        (3, 0, 5, 10),
        (3, 1, 5, 10),
    ], "of the second there is nothing"
