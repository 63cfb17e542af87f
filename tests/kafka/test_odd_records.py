"""Records that only a raw producer writes land as Kafka's own Java client reads them (SPEC X9; docs/clients.md C-K20, C-K22)."""

from __future__ import annotations

import os
import random
import re
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message

from crkafka_core.dev.find_java import find_java
from crkafka_core.dev.jars import KAFKA
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.kafka.errors import RecordUnreadable
from crkafka_core.kafka.messages import Taken, taken
from crkafka_core.kafka.range_reader import RangeReader
from crkafka_core.model.offsets import TP
from crkafka_core.testing.pytest_services import unique
from tests.kafka.conftest import BOTH_WAYS, MakeProbe, Probe
from tests.kafka.raw_producer import GZIP, Record, crc32c, produce

pytestmark = pytest.mark.kafka
NewTopic = Callable[..., str]

LAST_MICROSECOND = (2**63 - 1) // 1000
TIMES = (-1, 0, 1, -5, 253402300800000, 10**15, LAST_MICROSECOND, -LAST_MICROSECOND)
BEYOND = (10**16, LAST_MICROSECOND + 1, -(10**16), 2**63 - 1, -(2**63))
ODD_BYTES = bytes.fromhex("0000417a7f808f909fa0bfc0c1c2dfe0e1edeeeff0f1f3f4f5f7f8fbfcfeff")
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1", "retention.bytes": "-1"}


@pytest.fixture(scope="module")
def odd_topic(kafka: KafkaCluster) -> tuple[str, list[str]]:
    """Some hundred records, odd in every part, as the Java client reads them; the last ones have times that microseconds cannot say."""
    topic = kafka.topics.create(unique("odd"), 1, config=ANY_TIME)
    dice = random.Random(7)
    batches = [[_odd(dice) for _ in range(dice.randint(1, 9))] for _ in range(70)]
    batches += [[Record(b"v", timestamp=when)] for when in (*TIMES, *BEYOND)]
    batches.append([Record(b"many", headers=tuple((b"n%d" % i, b"") for i in range(100_000)))])
    produce(kafka.bootstrap, topic, batches)
    return topic, _read_by_java(kafka, topic)


@BOTH_WAYS
def test_84_each_record_lands_as_the_java_client_reads_it(
    kafka: KafkaCluster, odd_topic: tuple[str, list[str]], probe: MakeProbe, way: str
) -> None:
    """Only the native edge reads headers with any name."""
    topic, as_java = odd_topic
    assert len(as_java) > 300
    member = _read_all(probe, topic, len(as_java))
    parts = None if way == "native" else 5
    landed, expected = ([line.split()[:parts] for line in lines] for lines in (map(_line, _rows(member)), as_java))
    assert landed == [_without_beyond(" ".join(line)).split() for line in expected]
    with RangeReader({"bootstrap.servers": kafka.bootstrap}) as reader:
        again = [row for batch in reader.read(TP(topic, 0), 0, len(as_java)) for row in _plain(batch.pieces())]
    assert [_line(row) for row in again] == [_line(row) for row in _rows(member)]


def test_84_a_time_that_microseconds_cannot_say_is_null_and_told(
    kafka: KafkaCluster, new_topic: NewTopic, probe: MakeProbe
) -> None:
    topic = new_topic(1, config=ANY_TIME)
    produce(kafka.bootstrap, topic, [[Record(b"v", timestamp=when)] for when in (5, *BEYOND)])
    member = _read_all(probe, topic, 6)
    assert [row["timestamp"] for row in _rows(member)] == [5000, None, None, None, None, None]
    told = [u for polled in member.polled if polled.batch for u in polled.batch.unreadable]
    assert [(u.tp, u.offset) for u in told] == [(TP(topic, 0), i) for i in range(1, 6)]
    assert str(10**16) in told[0].why


@pytest.mark.parametrize("way", ["objects"], indirect=True)
def test_73_without_the_native_edge_a_header_name_that_is_not_utf_8_makes_the_headers_null_and_is_reported(
    kafka: KafkaCluster, new_topic: NewTopic, probe: MakeProbe
) -> None:
    """A call of `headers()` that the interpreter has specialised does not notice the error, and ends the process."""
    topic = new_topic(1, config=ANY_TIME)
    fine = Record(b"1", headers=((b"a", b"\xff"), (b"b", None)))
    odd = Record(b"2", headers=((b"\xff", b"v"), (b"n", b"v")))
    produce(kafka.bootstrap, topic, [[fine, *[odd] * 100, Record(b"3")]])
    member = _read_all(probe, topic, 102)
    read = [{"key": "a", "value": b"\xff"}, {"key": "b", "value": None}]
    assert [row["headers"] for row in _rows(member)] == [read, *[None] * 101]
    unreadable = [u for polled in member.polled if polled.batch for u in polled.batch.unreadable]
    assert [(u.tp, u.offset) for u in unreadable] == [(TP(topic, 0), offset) for offset in range(1, 101)]


@pytest.mark.parametrize("part", ["value", pytest.param("key", marks=pytest.mark.soak)])
def test_73_records_that_expand_a_thousandfold_come_in_pieces(
    kafka: KafkaCluster, new_topic: NewTopic, probe: MakeProbe, part: str
) -> None:
    """100 MiB of records in 100 KiB of a log: no batch that is made of them is much larger than 64 MiB, and soon they are small."""
    topic = new_topic(1, config={**ANY_TIME, "max.message.bytes": "50000000"})
    large = Record(bytes(1 << 20)) if part == "value" else Record(None, key=bytes(1 << 20))
    produce(kafka.bootstrap, topic, [[Record(b"s")] * 3_000, [large] * 100], codec=GZIP)
    member = probe([topic])
    member.start_at(0)
    sizes, _ = _read_up_to(member, TP(topic, 0), 3_100)
    assert max(sizes) <= 73 << 20
    assert sizes[-1] <= 10 << 20


@pytest.mark.parametrize("way", ["native"], indirect=True)
def test_73_large_records_behind_small_ones_pass_no_bound_of_32_bits(
    kafka: KafkaCluster, new_topic: NewTopic, probe: MakeProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of any size may follow small ones, and sixty-four are asked for at once: what is too much comes again, one by one."""
    monkeypatch.setattr("crkafka_core.kafka.native.records.TOO_MANY_BYTES", 16 << 20)
    topic = new_topic(1, config={**ANY_TIME, "max.message.bytes": "50000000"})
    produce(kafka.bootstrap, topic, [[Record(b"s")] * 300, [Record(bytes(1 << 20))] * 80], codec=GZIP)
    member = probe([topic])
    member.start_at(0)
    sizes, lost = _read_up_to(member, TP(topic, 0), 380)
    assert max(sizes) <= 17 << 20
    assert lost


@BOTH_WAYS
@pytest.mark.parametrize("codec", [pytest.param(0, id="none"), pytest.param(GZIP, id="gzip")])
def test_73_a_record_that_is_damaged_on_the_brokers_disk_is_told_with_its_offset_and_all_else_goes_on(
    kafka: KafkaCluster, new_topic: NewTopic, probe: MakeProbe, codec: int
) -> None:
    """Unless it is checked, a damaged record of an uncompressed batch is left out without a word."""
    damaged, fine = (new_topic(1, name=name, config=ANY_TIME) for name in ("damaged", "fine"))
    for topic in (damaged, fine):
        produce(kafka.bootstrap, topic, [[Record(b"%d" % i * 50) for i in range(10)]] * 3, codec=codec)
    (log,) = kafka.folder.rglob(f"{damaged}-0/00000000000000000000.log")
    first_length = 12 + int.from_bytes(log.read_bytes()[8:12])
    with log.open("r+b") as file:
        file.seek(first_length + 65)
        file.write(b"\xff" * 12)
    member = probe([damaged, fine])
    member.start_at(0)
    bad, good = TP(damaged, 0), TP(fine, 0)
    member.poll_until(lambda: bool(member.troubles) and len(member.offsets().get(good, [])) == 30)
    for _ in range(20):
        member.poll()
    (error,) = member.troubles.values()
    assert isinstance(error, RecordUnreadable) and f"{bad}@10" in str(error)
    assert member.offsets()[bad] == list(range(10)), "what comes before has landed"
    member.consumer.seek({bad: 20})
    member.consumer.flow(member.consumer.held)
    member.poll_until(lambda: len(member.offsets()[bad]) == 20)
    assert member.offsets()[bad] == [*range(10), *range(20, 30)]
    with RangeReader({"bootstrap.servers": kafka.bootstrap}) as reader:
        for start in (0, 20):
            assert sum(batch.rows for batch in reader.read(bad, start, start + 10)) == 10, "a range beside it is whole"
        with pytest.raises(RecordUnreadable, match=rf"{re.escape(str(bad))}@10 "):
            list(reader.read(bad, 5, 20))


@pytest.mark.parametrize("code", [KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._AUTO_OFFSET_RESET])
def test_73_nothing_of_a_partition_is_handed_out_behind_what_cannot_be_read(
    new_topic: NewTopic, probe: MakeProbe, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The client goes on behind it, in the same look; all else of the look counts."""
    topic = new_topic(2)
    bad, good = TP(topic, 0), TP(topic, 1)
    member = probe([topic])
    member.start_at(0)
    rows = [_message(bad, 0), _message(good, 0), _message(bad, 1), _message(bad, 2, code), _message(bad, 5)]
    looks = iter([taken([*rows, _message(good, 1), _message(bad, 6)]), taken([_message(bad, 7), _message(good, 2)])])
    monkeypatch.setattr(member.consumer._records, "serve", Taken)
    monkeypatch.setattr(member.consumer._records, "take", lambda most, timeout: next(looks))
    member.poll()
    assert member.offsets() == {bad: [0, 1], good: [0, 1]}
    assert [
        f"{bad}@2" in str(e) or f"offset 2 of {bad}" in str(e) for e in (*member.errors, *member.troubles.values())
    ] == [True]
    if code != KafkaError._AUTO_OFFSET_RESET:  # that one requests a reset
        member.poll()
        assert member.offsets() == {bad: [0, 1], good: [0, 1, 2]}, "what comes later of it is behind the hole, too"


def _message(tp: TP, offset: int, error: int = 0) -> Message:
    plain: Any = Message
    return plain(
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        value=b"v",
        timestamp=(0 if error else 1, 5),
        error=KafkaError(error) if error else None,
    )


@BOTH_WAYS
def test_x9_headers_that_the_client_can_make_nothing_of_are_null_and_told(
    kafka: KafkaCluster, new_topic: NewTopic, probe: MakeProbe, way: str
) -> None:
    """The broker's disk says two headers where there is one, and its sum agrees. Objects do not tell it (docs/clients.md C-K26)."""
    topic = new_topic(1, config=ANY_TIME)
    batch = [Record(b"1", headers=((b"a", b"x"),)), Record(b"2", headers=((b"b", b"y"),)), Record(b"3")]
    produce(kafka.bootstrap, topic, [batch])
    (log,) = kafka.folder.rglob(f"{topic}-0/00000000000000000000.log")
    whole = bytearray(log.read_bytes())
    at = whole.index(b"\x02\x02b\x02y")
    whole[at] = 4
    whole[17:21] = struct.pack(">I", crc32c(bytes(whole[21:])))
    log.write_bytes(whole)
    member = _read_all(probe, topic, 3)
    assert [row["headers"] for row in _rows(member)] == [[{"key": "a", "value": b"x"}], None, None]
    told = [u for polled in member.polled if polled.batch for u in polled.batch.unreadable]
    assert [(u.tp, u.offset) for u in told] == ([(TP(topic, 0), 1)] if way == "native" else [])
    assert all("headers" in u.why for u in told)


def _odd(dice: random.Random) -> Record:
    def some(longest: int) -> bytes:
        return bytes(dice.choice(ODD_BYTES) for _ in range(dice.randint(0, longest)))

    def maybe(longest: int) -> bytes | None:
        return None if dice.random() < 0.2 else some(longest)

    pairs = tuple((some(6), maybe(4)) for _ in range(dice.choice((0, 0, 1, 2, 5))))
    return Record(maybe(20), maybe(5), 1_000_000 + dice.randint(-(10**6), 10**12), pairs)


def _read_by_java(kafka: KafkaCluster, topic: str) -> list[str]:
    jars = os.pathsep.join(map(str, KAFKA.jars()))
    command = [find_java(), "-XX:TieredStopAtLevel=1", "-cp", jars, Path(__file__).parent / "JavaReader.java"]
    ran = subprocess.run([*command, kafka.bootstrap, topic], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, f"a JDK is needed, not only a JRE: {ran.stderr}"
    return ran.stdout.splitlines()


def _without_beyond(line: str) -> str:
    """A time that microseconds cannot say is null."""
    offset, kind, time, *rest = line.split(" ")
    return " ".join((offset, kind, "null" if abs(int(time)) > LAST_MICROSECOND else time, *rest))


def _read_up_to(member: Probe, tp: TP, stop: int) -> tuple[list[int], int]:
    """Without a hole, and again what was let go: the bytes of each batch, and how often that was."""
    frontier, lost, sizes = 0, 0, list[int]()
    until = time.monotonic() + 60
    while frontier < stop:
        assert time.monotonic() < until, f"at offset {frontier}, {lost} times let go"
        polled = member.consumer.poll(5_000, 0.1)
        if polled.disturbed:
            lost += 1
            member.consumer.seek({tp: frontier})
        elif polled.batch is not None:
            assert polled.batch.runs[0].since == frontier == polled.batch.runs[0].first
            frontier = polled.batch.offsets()[tp]
            sizes.append(polled.batch.nbytes)
    return sizes, lost


def _read_all(probe: MakeProbe, topic: str, count: int) -> Probe:
    member = probe([topic])
    member.start_at(0)
    member.poll_until(lambda: member.rows() >= count)
    return member


def _rows(member: Probe) -> list[dict[str, object]]:
    return [row for polled in member.polled if polled.batch for row in _plain(polled.batch.pieces())]


def _plain(pieces: list[pa.RecordBatch]) -> Iterator[dict[str, object]]:
    """Rows with their time in microseconds: Python's own times end with the year 9999."""
    at = pieces[0].schema.get_field_index("timestamp") if pieces else 0
    for piece in pieces:
        yield from piece.set_column(at, "timestamp", piece.column(at).cast(pa.int64())).to_pylist()


def _line(row: dict[str, object]) -> str:
    def shown(value: object) -> str:
        raw = value.encode() if isinstance(value, str) else value
        return "null" if raw is None else "x" + raw.hex()  # type: ignore[attr-defined]

    micros = row["timestamp"]
    assert micros is None or micros % 1000 == 0  # type: ignore[operator]
    time = "null" if micros is None else str(micros // 1000)  # type: ignore[operator]
    pairs = [shown(part) for pair in row["headers"] or () for part in (pair["key"], pair["value"])]  # type: ignore[attr-defined]
    return " ".join(
        (str(row["offset"]), str(row["timestampType"]), time, shown(row["key"]), shown(row["value"]), *pairs)
    )


def test_73_a_record_too_large_for_a_batch_behind_small_ones_is_read(
    kafka: KafkaCluster, new_topic: NewTopic, probe: MakeProbe
) -> None:
    """Alone it is a batch of its own, however large; what comes before it must not keep it from coming for ever."""
    topic = new_topic(1, config={**ANY_TIME, "max.message.bytes": "50000000"})
    produce(kafka.bootstrap, topic, [[Record(b"s")] * 3, [Record(bytes(70 << 20))], [Record(b"s")] * 3], codec=GZIP)
    member = probe([topic])
    member.start_at(0)
    _read_up_to(member, TP(topic, 0), 7)
