"""What landed is compared with Kafka as it is by now: records that expired or were cleaned away are noted, all others compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from crkafka_core.model.errors import DataLoss
from crkafka_core.model.offsets import TP
from crkafka_core.verify import compare
from crkafka_core.verify import verify as verifying
from crkafka_core.verify.compare import KafkaTruth, LedgerTruth, Stretch
from crkafka_core.verify.ledger import Ledger, value_of
from crkafka_core.verify.verdict import Findings, Verdict
from crkafka_core.verify.verify import verify
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore

P0 = TP("customers", 0)


class Log:
    """A partition in Kafka: of the ten records that were produced, those that are there yet."""

    def __init__(self, *offsets: int, begins: int = 0) -> None:
        self.offsets, self.begins = offsets, begins

    def read(self, tp: TP, start: int, stop: int) -> tuple[pa.Table, Mapping[int, Any]]:
        if start < self.begins:
            raise DataLoss(f"Kafka no longer holds offset {start} of {tp}.")
        remaining = [o for o in self.offsets if start <= o < stop]
        rows = landed(*remaining)
        headers = {i: [("n", b"%d" % o)] for i, o in enumerate(remaining) if o % 5 == 0}
        return rows.drop_columns(["headers"]), headers

    def close(self) -> None:
        """It holds nothing."""


def landed(*offsets: int) -> pa.Table:
    every = pa.Table.from_batches([records(P0, 0, 10).records])
    return every.filter(pc.is_in(every["offset"], pa.array(offsets, pa.int64()))) if offsets else every.slice(0, 0)


def judge(
    monkeypatch: pytest.MonkeyPatch, log: Log, *parts: tuple[int, int, pa.Table], compacted: Mapping[str, bool]
) -> tuple[Findings, int]:
    """Parts: from, to, what landed."""
    monkeypatch.setattr(compare, "KafkaAgain", lambda kafka: log)
    findings = Findings()
    truth = KafkaTruth({}, {"customers": "A"}, compacted=compacted, begins={P0: log.begins})
    rows = [
        truth.compare(Stretch(P0, start, stop, rows_landed, "I2", 1, "A"), findings)
        for start, stop, rows_landed in parts
    ]
    return findings, sum(rows)


def test_what_the_log_cleaner_took_is_a_note_and_the_rest_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    log, all_ = Log(3, 6, 8, 9), landed(*range(10))
    findings, rows = judge(monkeypatch, log, (0, 10, all_), compacted={"customers": True})
    assert (findings.kept, rows) == ([], 4)
    assert findings.notes == ["customers is compacted: what landed of it and was cleaned away since was not compared"]
    wrong = {
        "1 of 4 committed records did not land": landed(0, 1, 2, 3, 8, 9),
        "1 record landed more than once": pa.concat_tables([landed(0, 1, 3), landed(3, 6, 8, 9)]),
        "landed another value than Kafka has": all_.set_column(1, "value", pa.array([b"other"] * 10, pa.binary())),
    }
    for words, rows_landed in wrong.items():
        findings, _ = judge(monkeypatch, log, (0, 10, rows_landed), compacted={"customers": True})
        assert [words in each.text for each in findings.kept] == [True], findings.kept


def test_of_a_topic_that_is_not_compacted_what_nobody_committed_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    log, all_ = Log(*range(9)), landed(*range(10))
    findings, _ = judge(monkeypatch, log, (0, 10, all_), compacted={"customers": False})
    assert "1 record landed that nobody committed" in findings.kept[0].text and not findings.notes
    findings, _ = judge(monkeypatch, log, (0, 10, all_), compacted={})
    assert "1 record landed that nobody committed" in findings.kept[0].text
    assert "whether customers is compacted could not be asked" in findings.notes[0]


def test_one_expired_record_hides_nothing_that_is_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(*range(3, 10), begins=3)
    parts = (0, 2, landed(0, 1)), (2, 5, landed(2, 3, 4)), (5, 10, landed(5, 6, 8, 9))
    findings, rows = judge(monkeypatch, log, *parts, compacted={})
    assert [(each.offset, "1 of 5 committed records did not land" in each.text) for each in findings.kept] == [
        (7, True)
    ]
    assert findings.notes == ["customers[0] begins at offset 3 by now: what landed of it before was not compared"]
    assert rows == 6


def test_the_verdict_says_how_many_rows_were_compared(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = Landing(MemoryStore(), tmp_path, topics=["customers"], partitions=1, members=1)
    landing.land(4), landing.land(6)

    def verdict(log: Log) -> Verdict:
        monkeypatch.setattr(compare, "KafkaAgain", lambda kafka: log)
        truth = KafkaTruth({}, {"customers": "id-customers"}, compacted={}, begins={P0: log.begins})
        monkeypatch.setattr(verifying, "_of_kafka", lambda region: truth)
        monkeypatch.setattr(verifying, "commits", lambda *_, **__: None)
        monkeypatch.setattr(type(landing.region), "admin", lambda _: None, raising=False)
        return verify(landing.region, kafka=True)  # type: ignore[arg-type]

    assert "holds for 10 rows in 2 checkpoints and 2 segments, compared with Kafka." in str(verdict(Log(*range(10))))
    partly = verdict(Log(*range(3, 10), begins=3))
    assert (partly.ok, partly.rows, partly.compared) == (True, 10, 7)
    assert "10 rows in 2 checkpoints and 2 segments, 7 of them compared with Kafka." in str(partly)


def test_of_a_topic_made_anew_the_ledger_has_both_and_what_was_lost_is_not_due() -> None:
    ledger = Ledger("12345678")
    ledger.add(P0, [0, 1, 2], [0, 1, 2])
    ledger.delete("customers", "A")
    ledger.let_go(P0, 2, topic_id="A")
    ledger.add(P0, [0, 1], [3, 4])
    ledger.let_go(P0, 0, 1)
    assert ledger.rows() == 3
    truth, findings = LedgerTruth(ledger), Findings()
    for topic_id, seqs in (("A", [0, 1]), ("B", [3, 4])):
        values = [value_of("12345678", seq, "customers") for seq in seqs]
        rows = pa.table({"offset": pa.array([0, 1], pa.int64()), "value": pa.array(values)})
        assert truth.compare(Stretch(P0, 0, 2, rows.combine_chunks(), "I2", 1, topic_id), findings) == 2
    assert not findings.kept, findings.kept
    assert (truth.count(P0, "A", 0, 9), truth.count(P0, "B", 0, 9)) == (3, 2)
