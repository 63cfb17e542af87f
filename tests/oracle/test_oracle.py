"""The oracle finds what it is there to find: each invariant is broken on purpose, in rows or files, and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    ContributedOffset,
    Contribution,
    Event,
    Filler,
    Initial,
    MergedOffset,
    ResetCause,
    Segment,
    Start,
)
from crkafka_core.plane import events, reading, resets, retire
from crkafka_core.protocol.commit_metadata import CommitMetadata
from crkafka_core.segments.batch import SCHEMA, Batch
from crkafka_core.segments.scan import hash_of, read_with_topics
from crkafka_core.segments.writer import SegmentWriter
from crkafka_core.verify import verify as verifying
from crkafka_core.verify.committed import commits
from crkafka_core.verify.history import History
from crkafka_core.verify.ledger import Ledger
from crkafka_core.verify.verdict import Findings, Verdict
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore
from tests.rigs.seen import Remembered, verified

P0 = TP("orders", 0)


class Landed:
    """Three checkpoints of two members and four partitions, whole in every row, and what was produced."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        self.landing = Landing(self.store, folder, members=2, partitions=4)
        self.plane = self.landing.region.plane
        self.ledger = Ledger("test0001")
        self.seen = Remembered()
        for _ in range(3):
            self.land()

    def land(self, rows: int = 50) -> int:
        return self.landing.land(rows)

    @property
    def region(self) -> Any:
        return self.landing.region

    def verify(self, **keys: Any) -> Verdict:
        return verified(self.region, self.seen, kafka=False, **keys)

    def change(self, kind: type, where: dict[str, Any], **changes: Any) -> None:
        """Doctor the first row that is found."""

        def work(tx: Any) -> None:
            rows = tx.select(kind, *((k, "=", v) for k, v in where.items()))
            assert rows, f"no {kind.__name__} with {where}"
            tx.delete(kind, *((k, "=", getattr(rows[0], k)) for k in kind.KEY))
            tx.put(replace(rows[0], **changes))

        self.plane.do(work)

    def remove(self, kind: type, **where: Any) -> None:
        self.plane.do(lambda tx: tx.delete(kind, *((k, "=", v) for k, v in where.items())))

    def segment(self, checkpoint: int, member: int = 0) -> Segment:
        where = ("checkpoint", "=", checkpoint), ("incarnation", "=", f"m{member}")
        return self.plane.read(lambda reader, _: reader.select(Segment, *where))[0]

    def rewrite(self, checkpoint: int, change: Callable[[pa.Table], pa.Table], *, honest: bool = True) -> None:
        """Another file in place of a segment; `honest`: with its row made to fit, so that only the content is wrong."""
        segment = self.segment(checkpoint)
        table = change(read_with_topics(self.landing.storage, segment.path, SCHEMA.names)[0]).combine_chunks()
        self.landing.storage.delete(segment.path)
        writer = SegmentWriter(self.landing.storage, segment.path)
        whole = records(P0, 0, 1)
        batch = table.to_batches()[0]
        writer.write(Batch(batch, tuple(replace(run, start=0, stop=batch.num_rows) for run in whole.runs)))
        writer.close()
        if honest:
            crc, size = hash_of(self.landing.storage, segment.path)
            self.change(Segment, {"path": segment.path}, hash=crc, bytes=size)


@pytest.fixture
def landed(tmp_path: Path) -> Landed:
    return Landed(tmp_path)


def _broken(verdict: Verdict, invariant: str, words: str = "") -> None:
    assert invariant in verdict.broken, str(verdict)
    first = next(f for f in verdict.findings if f.invariant == invariant)
    assert words in str(first), str(first)


def test_nothing_is_found_in_a_region_that_is_whole(landed: Landed) -> None:
    verdict = landed.verify()
    assert verdict.ok, str(verdict)
    assert (verdict.rows, verdict.checkpoints, verdict.segments, verdict.partitions) == (600, 3, 6, 4)
    landed.landing.rewind(1)
    landed.land()
    verdict = landed.verify()
    assert verdict.ok, str(verdict)
    assert (verdict.rows, verdict.checkpoints, verdict.superseded) == (400, 2, 2)


def test_of_a_region_without_a_row_nothing_is_said_to_be_compared(landed: Landed) -> None:
    empty = replace(landed.verify(), rows=0, checkpoints=0, segments=0)
    assert str(empty).endswith("every invariant holds for 0 rows in 0 checkpoints and 0 segments.")


def test_I1_hole_between_two_checkpoints(landed: Landed) -> None:
    landed.change(MergedOffset, {"checkpoint": 2, "partition": 1}, from_offset=53)
    _broken(landed.verify(), "I1", "orders[1] begins at 53 and leaves out records before what its parent 1 left at 50")


def test_I1_partition_that_vanishes_from_the_line(landed: Landed) -> None:
    landed.remove(MergedOffset, checkpoint=3, partition=2)
    _broken(landed.verify(), "I1", "orders[2] is on the line before it, and missing from it")


def test_I1_span_with_a_hole(landed: Landed) -> None:
    spans = json.loads(landed.segment(2).spans_json)
    spans[0][3] -= 1
    landed.change(Segment, {"path": landed.segment(2).path}, spans_json=json.dumps(spans))
    _broken(landed.verify(), "I1", "the segments do not chain")


def test_I2_record_that_did_not_land(landed: Landed) -> None:
    _commit(landed)
    landed.ledger.add(P0, [150], [999])
    assert landed.verify(ledger=landed.ledger).ok, "past the head it is not due yet"
    landed.change(MergedOffset, {"checkpoint": 3, "partition": 0}, to_offset=151)
    _broken(landed.verify(ledger=landed.ledger), "I2", "1 of 151 committed records did not land")


def test_I2_record_that_nobody_committed_and_one_twice(landed: Landed) -> None:
    _commit(landed, without=P0, offset=7)
    _broken(landed.verify(ledger=landed.ledger), "I2", "1 record landed that nobody committed")
    landed.rewrite(2, lambda t: pa.concat_tables([t.slice(0, 1), t.slice(0, t.num_rows - 1)]))
    verdict = landed.verify(ledger=landed.ledger)
    _broken(verdict, "I2")
    assert any("more than once" in str(f) for f in verdict.findings), str(verdict)


def test_I2_record_with_another_number(landed: Landed) -> None:
    _commit(landed)
    values = landed.ledger.of(P0)[1]
    values[3] += 1_000
    changed = Ledger("test0001")
    for tp in landed.ledger.tps:
        offsets, seqs = landed.ledger.of(tp)
        changed.add(tp, offsets, values if tp == P0 else seqs)
    verdict = landed.verify(ledger=changed)
    _broken(verdict, "I2", "landed record number 3 where number 1003 was produced")
    assert (verdict.findings[0].tp, verdict.findings[0].offset) == (P0, 3)


def test_I3_offsets_that_go_back(landed: Landed) -> None:
    landed.rewrite(1, lambda t: t.take([1, 0, *range(2, t.num_rows)]))
    _broken(landed.verify(), "I3", "offset 0 comes after 1")


def test_I4_member_that_is_missing_from_a_merge(landed: Landed) -> None:
    landed.remove(Contribution, checkpoint=2, member="orders/1")
    _broken(landed.verify(), "I4", "orders/1 (m1) was expected and did not contribute")


def test_I4_partition_that_two_members_claim(landed: Landed) -> None:
    landed.plane.do(lambda tx: tx.put(ContributedOffset("orders", 2, "orders/1", "orders", 0, 50, 100, 50)))
    _broken(landed.verify(), "I4", "orders[0] is claimed by orders/0 and by orders/1")


def test_I4_partition_that_nobody_contributed(landed: Landed) -> None:
    landed.remove(ContributedOffset, checkpoint=2, partition=3)
    verdict = landed.verify()
    _broken(verdict, "I4", "orders[3] was fixed for the cut, and nobody contributed it")
    assert any("orders[3] is merged, and nobody contributed it" in str(f) for f in verdict.findings)


def test_I5_merge_that_changed(landed: Landed) -> None:
    assert landed.verify().ok
    landed.change(MergedOffset, {"checkpoint": 3, "partition": 0}, to_offset=149)
    _broken(landed.verify(), "I5", "hash")
    assert any("orders[0] was 150 and is 149" in str(f) for f in landed.verify().findings)


def test_I5_initial_offset_that_changed(landed: Landed) -> None:
    assert landed.verify().ok
    landed.change(Initial, {"partition": 1}, offset=4)
    _broken(landed.verify(), "I5", "the initial offset of orders[1] was 0 and is 4")


def test_I6_epoch_that_went_back(landed: Landed) -> None:
    landed.plane.do(lambda tx: resets.begin(tx, ResetCause.PERSON, "test", by="me"))
    landed.plane.do(lambda tx: events.log(tx, "resumed", "test"))
    assert landed.verify().ok
    landed.plane.do(lambda tx: tx.set_region(epoch=1))
    _broken(landed.verify(), "I6", "epoch was 2 and is 1")


def test_I6_head_that_went_back_without_a_record(landed: Landed) -> None:
    landed.plane.do(lambda tx: tx.set_region(head=2))
    _broken(landed.verify(), "I6", "the head is 2; the last that is recorded is 3")


def test_I6_rewind_that_did_not_raise_the_epoch(landed: Landed) -> None:
    landed.change(Checkpoint, {"id": 3}, parent=1)
    _broken(landed.verify(), "I6", "its parent is 1, and the head was 2: no reset says how it went back")


def test_I6_head_that_is_not_where_the_last_reset_left_it(landed: Landed) -> None:
    landed.landing.rewind(1)
    assert landed.verify().ok
    landed.plane.do(lambda tx: tx.set_region(head=2))
    _broken(landed.verify(), "I6", "the head is 2; the last that is recorded is 1")


def test_I6_checkpoint_of_an_older_epoch_than_the_one_before_it(landed: Landed) -> None:
    landed.change(Checkpoint, {"id": 2}, epoch=7)
    _broken(landed.verify(), "I6", "it is of epoch 1, and checkpoint 2 of 7")


def test_events_are_for_people_and_prove_nothing(landed: Landed) -> None:
    landed.landing.rewind(1)
    landed.land()
    landed.remove(Event)
    assert landed.verify().ok


def test_I7_start_that_is_not_where_the_head_ends(landed: Landed) -> None:
    landed.plane.do(lambda tx: tx.put(Start("orders", 9, 2, "orders", 1, "id-orders", 90, "head", "orders/1")))  # type: ignore[arg-type]
    _broken(landed.verify(), "I7", "epoch 9 starts orders[1] at 90 as the head's, which has 100")


def test_I7_line_left_behind_that_began_elsewhere(landed: Landed) -> None:
    landed.landing.rewind(1)
    landed.change(MergedOffset, {"checkpoint": 2, "partition": 0}, from_offset=40)
    _broken(landed.verify(), "I7", "orders[0] began at 40 after a reset to 1, which left it at 50")


def test_I8_contribution_of_an_incarnation_that_was_not_expected(landed: Landed) -> None:
    landed.change(Contribution, {"checkpoint": 3, "member": "orders/0"}, incarnation="zombie")
    _broken(landed.verify(), "I8", "orders/0 (zombie) contributed, and was not expected")


def test_I8_segment_of_an_older_epoch(landed: Landed) -> None:
    segment = landed.segment(3)
    landed.change(Segment, {"path": segment.path}, epoch=0)
    _broken(landed.verify(), "I8", "epoch 0) wrote a segment of it and did not contribute")


def test_I8_contribution_of_another_generation(landed: Landed) -> None:
    landed.change(Contribution, {"checkpoint": 3, "member": "orders/0"}, generation=12)
    _broken(
        landed.verify(), "I8", "orders/0 contributed from epoch 1, head 2 and generation 12; the cut is of 1, 2 and"
    )


def test_I8_cut_that_the_region_does_not_have_open(landed: Landed) -> None:
    last = landed.plane.read(lambda reader, _: reader.get(Checkpoint, 3))
    landed.plane.do(lambda tx: tx.put(replace(last, id=4, status=CheckpointStatus.OPEN)))
    _broken(landed.verify(), "I8", "it is open, and the region has 0 open")


def test_I9_aborted_cut_of_which_something_is_left(landed: Landed) -> None:
    last = landed.plane.read(lambda reader, _: reader.get(Checkpoint, 3))
    landed.plane.do(lambda tx: tx.put(replace(last, id=4, status=CheckpointStatus.ABORTED)))
    landed.plane.do(lambda tx: tx.put(Filler("orders", 4, "orders/0", "m0", "{}")))
    _broken(landed.verify(), "I9", "it is aborted, and its fillers are left")


def test_I4_contribution_whose_segments_hold_other_rows(landed: Landed) -> None:
    landed.change(Contribution, {"checkpoint": 3, "member": "orders/0"}, rows=7)
    _broken(landed.verify(), "I4", "orders/0 contributed 7 rows, its segments 100")


def test_I9_retired_checkpoint_of_which_something_is_left(landed: Landed) -> None:
    kept = landed.plane.read(lambda reader, _: reader.select(MergedOffset, ("checkpoint", "=", 1)))
    path = landed.segment(1).path
    file = Path(landed.landing.storage.root) / path  # type: ignore[attr-defined]
    content = file.read_bytes()
    landed.landing.retire(1, 2)
    assert landed.verify().ok and not landed.verify().orphans
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    assert landed.verify().orphans == 1
    landed.plane.do(lambda tx: tx.put(kept[0]))
    _broken(landed.verify(), "I9", "it is retired, and its merged offsets are left")


def test_what_a_rewind_left_behind_is_not_retired_while_it_is_looked_at(
    landed: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segments were gone before they were read: a region that was whole was told to be broken."""
    landed.plane.do(lambda tx: resets.request(tx, by="me", target=0))
    landed.land()

    def may_be_retired() -> tuple[int, ...]:
        return landed.plane.read(retire.plan).retire

    meanwhile: list[tuple[int, ...]] = []
    assert may_be_retired() == (1, 2, 3)
    monkeypatch.setattr(verifying.in_tables, "look", lambda *_: (meanwhile.append(may_be_retired()), ())[1])
    verdict = landed.verify()
    assert verdict.ok and verdict.superseded == 3, str(verdict)
    assert set(meanwhile) == {()} and may_be_retired() == (1, 2, 3)


def test_who_may_only_read_looks_all_the_same_and_says_what_that_means(
    landed: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **more: Any) -> Any:
        raise ServiceUnavailable("permission denied for table lease")

    monkeypatch.setattr(reading, "follow", refuses)
    verdict = landed.verify()
    assert verdict.ok and any("nothing could be held: permission denied" in note for note in verdict.notes)


def test_I9_archive_that_lost_rows(landed: Landed) -> None:
    landed.landing.retire(1, 2)
    landed.change(Checkpoint, {"id": 1}, archive_json='{"orders": {"0": [0, 50, 50]}}')
    _broken(landed.verify(), "I9", "its archive has 50 rows, it merged 200")


def test_I13_segment_that_is_gone_or_harmed(landed: Landed) -> None:
    file = Path(landed.landing.storage.root) / landed.segment(2).path  # type: ignore[attr-defined]
    content = file.read_bytes()
    file.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    _broken(landed.verify(), "I13", "the file has hash")
    for harmed in (content[:-60] + b"\xff" * 40 + content[-20:], content[:-10]):
        file.write_bytes(harmed)
        verdict = landed.verify()
        _broken(verdict, "I13", "the file has hash")
        assert any("a named segment cannot be read" in f.text for f in verdict.findings)
    file.unlink()
    _broken(landed.verify(), "I13", "a named segment is not there")


def test_I13_segment_of_an_aborted_cut_that_is_still_named(landed: Landed) -> None:
    landed.plane.do(lambda tx: tx.put(replace(landed.segment(3), path="x/00000001/m0-9-9.parquet", checkpoint=77)))
    _broken(landed.verify(), "I13", "segments are named of a checkpoint that is unknown")


def test_a_history_whose_beginning_is_forgotten_is_no_finding(landed: Landed) -> None:
    """Retired checkpoints and resets of long ago leave one after the other (SPEC T2); what is left still holds."""
    landed.landing.rewind(2)
    for _ in range(4):
        landed.land()
    landed.landing.retire(1, 2, 4, 5, history=1)
    kept = landed.plane.read(lambda reader, _: [c.id for c in reader.select(Checkpoint, order=("id",))])
    assert 4 not in kept and 5 in kept, "the first that is kept goes on from one that is forgotten"
    assert landed.verify().ok, str(landed.verify())


def test_a_gap_that_an_archive_does_not_tell_of_is_no_finding(landed: Landed) -> None:
    """Where nothing landed before the gap, nor in the checkpoint after it, the archive leaves the partition out (SPEC S4, T2)."""
    landed.change(MergedOffset, {"checkpoint": 1, "partition": 3}, from_offset=50, rows=0)
    landed.plane.do(lambda tx: tx.put(Start("orders", 1, 0, "orders", 3, "id-orders", 50, "gap", "orders/1")))  # type: ignore[arg-type]
    without = '{"orders": {"0": [0, 50, 50], "1": [0, 50, 50], "2": [0, 50, 50]}}'
    landed.landing.retire(1)
    landed.change(Checkpoint, {"id": 1}, archive_json=without, rows=150)
    assert landed.verify().ok, str(landed.verify())
    landed.remove(Start)
    _broken(landed.verify(), "I1", "orders[3] begins at 50 and leaves out records before what its parent 1 left at 0")


def test_a_topic_that_was_forgotten_before_its_first_merge_is_no_finding(landed: Landed) -> None:
    landed.plane.do(lambda tx: tx.put(Initial("orders", "id-gone", 9, "orders", 0, "beginning", 1.0, forgotten=True)))
    assert landed.verify().ok, str(landed.verify())


def _committed(landed: Landed, metadata: str, offset: int = 150) -> Findings:
    """What is found where the group has committed this for each partition."""
    admin = SimpleNamespace(
        committed=lambda group, tps: {tp: SimpleNamespace(offset=offset, metadata=metadata) for tp in tps},
        watermarks=lambda tps, level: dict.fromkeys(tps, (0, 1_000)),
    )
    findings, history = Findings(), landed.plane.read(History)
    commits(history, admin, "orders", findings, quiet=False, again=lambda: history)  # type: ignore[arg-type]
    return findings


def test_I12_commits_of_others_and_past_what_was_merged(landed: Landed) -> None:
    def mine(merged: int) -> str:
        return CommitMetadata(landed.landing.uid, 3, merged).text()

    assert not _committed(landed, mine(150)).kept
    assert "the commit names 151 as merged; nothing past 150 was" in str(_committed(landed, mine(151)).kept[0])
    assert "committed by somebody else" in str(_committed(landed, "").kept[0])
    landed.landing.rewind(1)
    landed.landing.retire(1, 2, 3)
    landed.remove(MergedOffset)
    assert not _committed(landed, mine(150)).kept, "what was merged and retired since is in the archives"
    landed.landing.rewind(0)
    assert not _committed(landed, "").kept, "before its first cut the commits are of who read there before"


def test_findings_are_counted_beyond_those_that_are_kept(landed: Landed) -> None:
    landed.remove(Contribution)
    verdict = landed.verify()
    assert verdict.broken["I4"] > 5
    assert sum(f.invariant == "I4" for f in verdict.findings) == 5
    assert "broken: I" in str(verdict)


def test_a_million_records_take_seconds(tmp_path: Path) -> None:
    import time

    landed = Landed(tmp_path)
    landed.land(rows=250_000)
    began = time.monotonic()
    assert landed.verify().ok
    assert time.monotonic() - began < 20


def _commit(landed: Landed, without: TP | None = None, offset: int = -1) -> None:
    """A ledger of what the landing made up: its values have no numbers, so only offsets are compared."""
    for tp in landed.landing.tps:
        offsets = [o for o in range(150) if (tp, o) != (without, offset)]
        landed.ledger.add(tp, offsets, offsets)


@pytest.fixture(autouse=True)
def _numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of a landing are `topic:partition:offset`: their number is the offset."""

    def numbers(values: Any) -> Any:
        import numpy as np

        return np.array([int(v.as_py().rsplit(b":", 1)[1]) for v in values])

    monkeypatch.setattr("crkafka_core.verify.compare.sequences", numbers)
