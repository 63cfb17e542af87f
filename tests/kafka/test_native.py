"""The native edge gives exactly what Python objects give: keys, values, headers, errors; and takes back what it cannot read."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.kafka import native
from crkafka_core.kafka.messages import Failure, Records
from crkafka_core.kafka.native import library
from crkafka_core.kafka.native.library import load
from crkafka_core.kafka.native.records import NativeRecords
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import SCHEMA, Batch

pytestmark = pytest.mark.kafka
NewTopic = Callable[..., str]


def read(kafka: KafkaCluster, tps: list[TP], rows: int, *, native: bool) -> tuple[list[Batch], list[Failure]]:
    """All records of these partitions, and what came in their place."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    library = load()
    assert library is not None
    records: Records = NativeRecords(consumer, library) if native else Records(consumer)
    consumer.assign([TopicPartition(tp.topic, tp.partition, 0) for tp in tps])
    records.hold(tps)
    batches: list[Batch] = []
    failures: list[Failure] = []
    until = time.monotonic() + 20
    while sum(b.rows for b in batches) < rows or len(failures) < len(tps):
        assert time.monotonic() < until, f"{sum(b.rows for b in batches)} of {rows} rows, {failures}"
        for taken in (records.serve(), records.take(500, 0.05)):
            batches += [taken.batch] if taken.batch is not None else []
            failures += taken.failures
    records.close()
    consumer.close()
    return batches, failures


def table(batches: list[Batch]) -> pa.Table:
    whole = pa.Table.from_batches([piece for batch in batches for piece in batch.pieces()], SCHEMA)
    whole.validate(full=True)
    return whole.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])


def test_odd_records_are_the_same_both_ways(kafka: KafkaCluster, new_topic: NewTopic) -> None:
    topics = [new_topic(n, config={"retention.ms": "-1"}) for n in (3, 2)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    keys: list[bytes | None] = [None, b"", b"k", b"\xff\x00" * 10]
    values: list[bytes | None] = [b"v", None, b"", b"x" * 70_000, bytes(range(256))]
    headers = [None, [], [("a", b"1")], [("a", None), ("", b""), ("ä€😀", b"\x00")], [("h", b"y")] * 300]
    count = 0
    for i in range(600):
        topic = topics[i % 2]
        producer.produce(
            topic,
            key=keys[i % 4],
            value=values[i % 5],
            headers=headers[i % 5 if i < 300 else 0],
            partition=i % (2 if i % 2 else 3),
            timestamp=1_700_000_000_000 + i,
        )
        count += 1
        producer.poll(0)
    producer.flush()
    tps = [TP(topics[0], p) for p in range(3)] + [TP(topics[1], p) for p in range(2)]
    (native, ends), (objects, same_ends) = (read(kafka, tps, count, native=way) for way in (True, False))
    assert table(native).equals(table(objects))
    assert {(f.tp, f.offset, f.error.code()) for f in ends} == {(f.tp, f.offset, f.error.code()) for f in same_ends}
    for batch in native:
        offsets = batch.records.column("offset").to_pylist()
        for run in batch.runs:
            assert (offsets[run.start], offsets[run.stop - 1] + 1) == (run.first, run.next)


def test_a_batch_is_bounded_by_bytes(kafka: KafkaCluster, new_topic: NewTopic) -> None:
    """Five hundred records of 900 KB would be 450 MB at once."""
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for _ in range(40):
        producer.produce(topic, value=b"x" * 900_000, partition=0)
        producer.poll(0)
    producer.flush()
    batches, _ = read(kafka, [TP(topic, 0)], 40, native=True)
    assert max(batch.records.nbytes for batch in batches) < 11_000_000
    assert sum(batch.rows for batch in batches) == 40


def test_what_was_taken_when_a_signal_raises_is_freed(kafka: KafkaCluster, new_topic: NewTopic) -> None:
    """Ctrl-C in the midst of reading: a client of which a message is not freed never ends."""
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for _ in range(100):
        producer.produce(topic, value=b"v", partition=0)
    producer.flush()
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    )
    library = load()
    assert library is not None
    records = NativeRecords(consumer, library)
    consumer.assign([TopicPartition(topic, 0, 0)])
    records.hold([TP(topic, 0)])
    with interrupted_after(3.0), pytest.raises(KeyboardInterrupt):
        records.take(1_000, 6.0)
    assert records._sizes.records == 100, "they had come before the signal"
    closing = threading.Thread(target=lambda: (records.close(), consumer.close()), daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_native_edge_of_another_layout_is_not_called(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Built from an older source, it takes other arguments."""
    caplog.set_level("INFO")
    monkeypatch.setattr(library, "_LAYOUT", library._LAYOUT + 1)
    load.cache_clear()
    assert load() is None
    assert "built from another version" in caplog.text
    load.cache_clear()


def test_no_byte_is_read_or_written_past_an_end(tmp_path: Path) -> None:
    """Random messages, built with the sanitizers of the compiler, against buffers of exactly the sizes that were told."""
    here, built = Path(__file__).parent, tmp_path / "edge_fuzz"
    source = Path(str(native.__file__)).parent
    flags = ["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["cc", *flags, "-I", str(source), "-o", str(built), str(here / "edge_fuzz.c")], check=True)
    done = subprocess.run([str(built), str(secrets.randbelow(1 << 30)), "3000"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.args}: {done.stderr[-4000:]}"
    assert done.stdout == "3000 rounds\n"
