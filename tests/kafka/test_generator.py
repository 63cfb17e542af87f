"""The generator's ledger is what a reader of committed records finds, no more and no less."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.model.offsets import TP
from crkafka_core.testing.generator import Generator, GeneratorFailed
from crkafka_core.verify.ledger import Ledger, sequences, value_of
from tests.kafka.conftest import MakeProbe, Probe

pytestmark = pytest.mark.kafka
NewTopic = Callable[..., str]


def landed(member: Probe) -> dict[TP, list[tuple[int, int]]]:
    """Offset and number of all records that came."""
    found: dict[TP, list[tuple[int, int]]] = {}
    for polled in member.polled:
        if polled.batch is None:
            continue
        for run in polled.batch.runs:
            part = polled.batch.records.slice(run.start, run.rows)
            pairs = zip(part.column("offset").to_pylist(), sequences(part.column("value")).tolist(), strict=True)
            found.setdefault(run.tp, []).extend(pairs)
    return found


def truth(ledger: Ledger) -> dict[TP, list[tuple[int, int]]]:
    return {tp: list(zip(*(column.tolist() for column in ledger.of(tp)), strict=True)) for tp in ledger.tps}


def read_all(member: Probe, rows: int) -> dict[TP, list[tuple[int, int]]]:
    member.start_at(0)
    member.poll_until(lambda: member.rows() >= rows and set(member.ends) >= member.consumer.held)
    return landed(member)


def test_plain_transactional_and_aborted_records_in_two_topics(
    probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    one, two = new_topic(3), new_topic(2)
    assert generator.send(one, 300, partitions=3, key=True, headers=[("h", b"1")]) == 300
    assert generator.transaction([one, two], 50, partitions=2) == 100
    assert generator.transaction([one, two], 70, partitions=2, abort=True) == 0
    assert generator.bulk(two, 501, partitions=2) == 501
    generator.unfinished(one, 9)
    assert generator.commit() == 9
    assert generator.ledger.rows() == 910
    assert read_all(probe([one, two]), 910) == truth(generator.ledger)
    numbers = [seq for pairs in truth(generator.ledger).values() for _, seq in pairs]
    assert len(set(numbers)) == len(numbers)


def test_bulk_notices_another_writer(kafka: KafkaCluster, new_topic: NewTopic, generator: Generator) -> None:
    topic = new_topic(1)
    other = Generator(kafka.bootstrap)
    with other.stream(topic, per_second=5_000), pytest.raises(GeneratorFailed, match="another writer"):
        until = time.monotonic() + 10
        while time.monotonic() < until:
            generator.bulk(topic, 20_000)


def test_a_stream_keeps_its_pace_and_survives_a_restart_of_the_broker(
    kafka: KafkaCluster, probe: MakeProbe, new_topic: NewTopic, generator: Generator
) -> None:
    topic = new_topic(2)
    with generator.stream(topic, per_second=500, partitions=2, abort_every=3) as ledger:
        began = time.monotonic()
        while ledger.rows() < 400:
            assert time.monotonic() < began + 20
            time.sleep(0.1)
        paced = ledger.rows() / (time.monotonic() - began)
        kafka.kill()
        kafka.start_node()
        before = ledger.rows()
        until = time.monotonic() + 20
        while ledger.rows() < before + 200:
            assert time.monotonic() < until
            time.sleep(0.1)
    assert paced < 1_000, "half of that was asked for"
    assert read_all(probe([topic]), ledger.rows()) == truth(ledger)


def test_a_ledger_is_saved_loaded_and_cut_to_a_range(tmp_path: Path) -> None:
    ledger = Ledger("abcdefgh")
    a, b = TP("a", 0), TP("b", 3)
    ledger.add(a, [5, 7, 9], [0, 2, 4])
    ledger.add(b, np.arange(3), np.arange(10, 13))
    ledger.add(a, [6], [1])
    ledger.save(tmp_path / "ledger")
    again = Ledger.load(tmp_path / "ledger")
    assert again.run == "abcdefgh"
    assert again.table().equals(ledger.table())
    assert again.of(a)[0].tolist() == [5, 6, 7, 9]
    assert Ledger("x").table().num_rows == 0


def test_values_are_read_back_one_by_one_and_at_once() -> None:
    values = [value_of("abcdefgh", seq, "shop.orders", b"~" * 9) for seq in (0, 7, 999_999_999_999)]
    assert [(int(number), topic.decode()) for _, number, topic, _ in (value.split(b" ", 3) for value in values)] == [
        (0, "shop.orders"),
        (7, "shop.orders"),
        (999_999_999_999, "shop.orders"),
    ]
    assert sequences(pa.array(values, pa.binary())).tolist() == [0, 7, 999_999_999_999]
