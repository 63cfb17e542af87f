"""`erase`: records leave every table for good; no mend, replay, rewind or later table brings them back (SPEC K6)."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace

import pyarrow.compute as pc
import pytest

from crkafka_core.lake import erase, erasing
from crkafka_core.model import limits
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, ErasedRecords
from crkafka_core.plane import checkpoints, permits
from crkafka_core.region import Region
from crkafka_core.segments.batch import Batch, Run
from tests.lake.rig import Crash, dies_at
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore
from tests.tables.conftest import Lake, Row, filled, upto


def erased(lake: Lake, *records: Row) -> erasing.Erased:
    given: dict[TP, set[int]] = {}
    for partition, offset in records:
        given.setdefault(TP("orders", partition), set()).add(offset)
    return erasing.erase(lake.region, given)


def without(end: int, *records: Row) -> list[Row]:
    return [row for row in upto(end) if row not in records]


PERSON = ((0, 3), (1, 0), (1, 19))


def test_a_persons_records_leave_and_nothing_brings_them_back(lake: Lake) -> None:
    filled(lake, 3, 10)
    assert erased(lake, *PERSON) == erasing.Erased({1: 2, 2: 1}, {})
    assert (lake.places(), lake.look().clean) == (without(30, *PERSON), True)
    lake.rewrite(1, 2, 3)
    assert (lake.places(), lake.look().clean) == (without(30, *PERSON), True)
    lake.write_again(4)
    assert not lake.look().clean
    lake.mend()
    assert (lake.places(), lake.look().clean) == (without(30, *PERSON), True)
    lake.landing.rewind(2)
    lake.fence()
    assert (lake.places(), lake.look().clean) == (without(20, *PERSON), True)
    filled(lake, 1, 10)
    assert (lake.places(), lake.look().clean) == (without(30, *PERSON), True)


def test_what_the_table_had_not_taken_yet_comes_without_them_also_a_whole_segment(lake: Lake) -> None:
    lake.land(10)
    lake.land(3)
    gone = (*PERSON[:2], *((p, o) for p in range(2) for o in range(10, 13)))
    erased(lake, *gone)
    filled(lake, 1, 10)
    assert (lake.places(), lake.look().clean) == (without(23, *gone), True)
    lake.landing.rewind(2)
    lake.fence()
    assert (lake.places(), lake.look().clean) == (without(13, *gone), True)


@pytest.mark.parametrize("packed", [False, True])
def test_of_retired_checkpoints_also_where_files_were_made_of_several(
    lake: Lake, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake, 4, 10)
    lake.landing.retire(1, 2)
    if packed:
        lake.maintain(128 * 2**20)

    def in_kafka(_: object, wanted: dict[TP, Collection[int]]) -> dict[TP, set[int]]:
        return {tp: set(offsets) for tp, offsets in wanted.items()}

    monkeypatch.setattr(erase, "_in_kafka", in_kafka)
    erased(lake, *PERSON, (0, 35))
    assert (lake.places(), lake.look().clean) == (without(40, *PERSON, (0, 35)), True)
    lake.maintain(128 * 2**20)
    lake.vacuum()
    assert (lake.places(), lake.look().clean) == (without(40, *PERSON, (0, 35)), True)


@pytest.mark.parametrize("retired", [False, True])
def test_what_a_rewind_lets_the_region_read_again_comes_without_them(lake: Lake, retired: bool) -> None:
    """Kafka still has them; at the same offsets, in other checkpoints."""
    filled(lake, 3, 10)
    erased(lake, *PERSON)
    lake.landing.rewind(0)
    lake.fence()
    if retired:  # what the rewind left behind is archived
        lake.landing.retire(1, 2, 3)
    filled(lake, 2, 15)
    assert (lake.places(), lake.look().clean) == (without(30, *PERSON), True)
    lake.landing.rewind(4)
    lake.fence()
    filled(lake, 1, 15)
    lake.rewrite(4, 6)
    assert (lake.places(), lake.look().clean) == (without(30, *PERSON), True)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Landing, Region]:
    """A region without tables, at checkpoint 1, of which records are erased; few checkpoints are kept, and few archived."""
    landing = Landing(MemoryStore(), tmp_path, partitions=2, retain=1, history=2)
    region = Region(landing.config, landing.region.plane)
    kafka = SimpleNamespace(committed=lambda group, tps: {}, close=lambda: None)
    monkeypatch.setattr(region, "admin", lambda: kafka)
    region.plane.do(lambda tx: tx.set_region(limits_json=limits.dump(region.config.limits())))
    landing.land(10)
    erasing.erase(region, {TP("orders", 0): {3, 4, 8}})
    return landing, region


def noted(region: Region) -> dict[int, dict[str, dict[int, list[int]]]]:
    """Checkpoint → its erased records, once a reader has asked."""
    erase.note_again(region)
    return {c.id: c.erased for c in region.plane.read(lambda reader, _: reader.select(Checkpoint)) if c.erased}


def outliving(region: Region) -> list[tuple[int, int, int]]:
    return [(e.first, e.next, e.checkpoint) for e in region.plane.read(lambda reader, _: reader.select(ErasedRecords))]


def test_what_is_read_again_and_retired_before_any_reader_asked_is_noted(alone: tuple[Landing, Region]) -> None:
    """Nothing looked at the checkpoints between the rewind and their retirement."""
    landing, region = alone
    landing.rewind(0)
    landing.land(10, times=3)
    landing.retire(1, 2, 3)
    kept = region.plane.read(lambda reader, _: checkpoints.ids_with(reader, CheckpointStatus.MERGED))
    assert kept == [2, 4], "one that was merged after the last look at it waits"
    assert region.retire().checkpoints == (2,)
    assert noted(region)[2] == {"orders": {0: [3, 4, 8]}}


@pytest.mark.parametrize("recreated", [False, True])
def test_a_rewind_once_the_history_has_forgotten_the_checkpoint_brings_them_back_no_more(
    alone: tuple[Landing, Region], recreated: bool
) -> None:
    """But other records at these offsets, of a topic that was made anew."""
    landing, region = alone
    landing.land(10, times=6)
    region.retire()
    assert noted(region) == {}, "its row is gone"
    landing.rewind(0)
    if recreated:
        landing.recreate_topics()
    landing.land(6)
    assert noted(region) == ({} if recreated else {8: {"orders": {0: [3, 4]}}})
    assert outliving(region) == ([(3, 5, 1), (8, 9, 1)] if recreated else [(3, 5, 8), (8, 9, 1)])
    landing.land(6)
    assert noted(region).get(9) == (None if recreated else {"orders": {0: [8]}})


def test_a_partition_that_stands_still_until_what_a_rewind_left_behind_is_dropped_comes_without_them(
    alone: tuple[Landing, Region],
) -> None:
    landing, region = alone
    landing.rewind(0)
    for _ in range(8):
        landing.land(10, quiet=[0])
        region.retire()
    assert region.plane.read(lambda reader, _: reader.get(Checkpoint, 1)) is None
    landing.land(10)
    assert noted(region) == {10: {"orders": {0: [3, 4, 8]}}}


def test_at_the_same_offsets_of_a_topic_made_anew_are_others_records(lake: Lake) -> None:
    filled(lake, 2, 10)
    erased(lake, *PERSON)
    lake.landing.rewind(0)
    lake.fence()
    lake.landing.recreate_topics()
    filled(lake, 2, 10)
    assert (lake.places(), lake.look().clean) == (upto(20), True)


def test_what_kafka_has_not_got_any_more_when_it_is_read_again_is_not_noted(lake: Lake) -> None:
    """A compaction of the topic took it: it would be counted as one that the table is without."""
    filled(lake, 2, 10)
    erased(lake, (0, 3), (0, 13))
    lake.landing.rewind(0)
    lake.fence()
    whole = lake.landing._batch_of

    def compacted(tp: TP, start: int, stop: int) -> Batch:
        batch = whole(tp, start, stop)
        kept = batch.records.filter(pc.field("offset") != 3) if tp.partition == 0 else batch.records
        return Batch(kept, (Run(tp, 0, kept.num_rows, start, stop),))

    lake.landing._batch_of = compacted
    filled(lake, 2, 10)
    assert (lake.places(), lake.look().clean) == (without(20, (0, 3), (0, 13)), True)
    assert noted(lake.region) == {1: {"orders": {0: [3]}}, 2: {"orders": {0: [13]}}, 4: {"orders": {0: [13]}}}
    assert outliving(lake.region) == [(3, 4, 3), (13, 14, 4)], "neither is looked for again"


def test_an_offset_without_a_record_is_refused_and_nothing_is_noted(lake: Lake) -> None:
    filled(lake, 2, 10)
    with pytest.raises(Refused, match=r"no such record .*: orders\[1\] offset 20\. Nothing"):
        erased(lake, (0, 3), (1, 20))
    assert (lake.places(), lake.look().clean) == (upto(20), True)


@pytest.mark.parametrize("step", ["before the commit", "after the commit"])
def test_a_process_that_dies_while_it_erases(lake: Lake, step: str) -> None:
    filled(lake, 2, 10)
    with pytest.MonkeyPatch.context() as patch:
        dies_at(step, lake, patch)
        with contextlib.suppress(Crash):
            erased(lake, *PERSON)
    lake.writer_dies()
    erased(lake, *PERSON)
    assert (lake.places(), lake.look().clean) == (without(20, *PERSON), True)
    filled(lake, 1, 10)
    assert (lake.places(), lake.look().clean) == (without(30, *PERSON), True)


def test_a_table_that_is_declared_anew_is_filled_without_them(lake: Lake) -> None:
    filled(lake, 2, 10)
    erased(lake, *PERSON)
    lake.undeclare()
    shutil.rmtree(lake.path)
    lake.declare()
    lake.advance()
    assert (lake.places(), lake.look().clean) == (without(20, *PERSON), True)


def test_another_writer_at_work_is_said_by_the_tables_name(lake: Lake) -> None:
    filled(lake, 1, 10)
    lake.region.plane.do(lambda tx: permits.take(tx, "bronze", holder="somebody", token="other"))
    done = erased(lake, (0, 3))
    assert list(done.left) == ["bronze"] and "somebody" in done.left["bronze"]
    lake.writer_dies()
    assert erased(lake, (0, 3)).left == {}
    assert (lake.places(), lake.look().clean) == (without(10, (0, 3)), True)
