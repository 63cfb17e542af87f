"""What `verify` reads Kafka by shares no conversion with the native edge, and finds any part that landed otherwise (SPEC I2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.range_reader import RangeReader
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import SCHEMA
from crkafka_core.verify.compare import KafkaTruth, Stretch
from crkafka_core.verify.verdict import Findings
from tests.kafka.raw_producer import Record, produce

pytestmark = pytest.mark.kafka
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
RECORDS = (
    Record(b"a", key=b"k", timestamp=5, headers=((b"n", b"v"), (b"n", None), (b"cut\0here", b""))),
    Record(None, key=b"", timestamp=-1),
    Record(b"", timestamp=10**16),
    Record(b"d", headers=((b"\xff", b"v"),)),
    Record(b"e", headers=()),
)


@pytest.fixture
def landed(kafka: KafkaCluster, new_topic: Callable[..., str]) -> pa.Table:
    topic = new_topic(1, config=ANY_TIME)
    produce(kafka.bootstrap, topic, [[record] for record in RECORDS])
    with RangeReader({"bootstrap.servers": kafka.bootstrap}) as reader:
        pieces = [piece for batch in reader.read(TP(topic, 0), 0, len(RECORDS)) for piece in batch.pieces()]
    return pa.Table.from_batches(pieces, SCHEMA)


def judge(
    kafka: KafkaCluster, landed: pa.Table, *, stop: int = len(RECORDS), meanwhile: Callable[[], Any] = lambda: None
) -> Findings:
    """`meanwhile`: what happens before it is read."""
    found, topic = Findings(), landed.column("topic")[0].as_py()
    properties = {"bootstrap.servers": kafka.bootstrap}
    admin = KafkaAdmin(properties)
    begins = {tp: earliest for tp, (earliest, _) in admin.watermarks([TP(topic, 0)]).items()}
    truth = KafkaTruth(properties, {topic: ""}, compacted=admin.compacted([topic]), begins=begins)
    meanwhile()
    try:
        truth.compare(Stretch(TP(topic, 0), 0, stop, landed, "I2", 1), found)
    finally:
        truth.close()
        admin.close()
    return found


def test_odd_records_are_the_same_both_ways(kafka: KafkaCluster, landed: pa.Table) -> None:
    found = judge(kafka, landed)
    topic = landed.column("topic")[0].as_py()
    note = f"{topic}[0]: the headers of 1 record cannot be read, and were not compared"
    assert (found.kept, found.notes) == ([], [note])


OTHER: dict[str, Any] = {
    "key": b"other",
    "value": b"other",
    "timestamp": 7,
    "timestampType": 1,
    "headers": [{"key": "n", "value": b"v"}],
}


@pytest.mark.parametrize("row", [0, 1, 4])
@pytest.mark.parametrize("name", OTHER)
def test_a_part_of_a_record_that_landed_otherwise_is_found_by_its_offset(
    kafka: KafkaCluster, landed: pa.Table, name: str, row: int
) -> None:
    values = landed.column(name).to_pylist()
    values[row] = OTHER[name]
    at = SCHEMA.get_field_index(name)
    found = judge(kafka, landed.set_column(at, SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type)))
    (finding,) = found.kept
    assert (finding.offset, finding.text.split(" landed ")[1]) == (row, f"another {name} than Kafka has")


def test_what_did_not_land_landed_twice_or_came_from_nowhere_is_found(kafka: KafkaCluster, landed: pa.Table) -> None:
    assert "1 of 5 committed records did not land" in judge(kafka, landed.slice(1)).kept[0].text
    twice = pa.concat_tables([landed.slice(0, 1), landed])
    assert "landed more than once" in judge(kafka, twice).kept[0].text
    assert "that nobody committed" in judge(kafka, landed, stop=4).kept[0].text


def test_a_range_that_kafka_does_not_hold_is_said_and_no_finding(kafka: KafkaCluster, landed: pa.Table) -> None:
    topic = landed.column("topic")[0].as_py()
    found = judge(kafka, landed, meanwhile=lambda: kafka.topics.delete_records({(topic, 0): 3}))
    assert found.kept == []
    assert "could not be compared: Kafka no longer holds offset 0" in found.notes[0]


def test_what_kafka_has_let_go_of_hides_nothing_that_is_there_yet(kafka: KafkaCluster, landed: pa.Table) -> None:
    """Retention and `DeleteRecords` move the beginning of a log."""
    topic = landed.column("topic")[0].as_py()
    kafka.topics.delete_records({(topic, 0): 2})
    whole = judge(kafka, landed)
    note = f"{topic}[0] begins at offset 2 by now: what landed of it before was not compared"
    assert (whole.kept, whole.notes[0]) == ([], note)
    lost = judge(kafka, landed.slice(0, 3))
    assert "2 of 3 committed records did not land" in lost.kept[0].text and lost.kept[0].offset == 3


def test_of_a_topic_kafka_says_whether_it_is_compacted(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    policies = {"delete": False, "compact": True, "compact,delete": True}
    topics = {new_topic(1, config={"cleanup.policy": policy}): compacted for policy, compacted in policies.items()}
    admin = KafkaAdmin({"bootstrap.servers": kafka.bootstrap})
    try:
        assert admin.compacted([*topics, "none-of-these"]) == topics
    finally:
        admin.close()
