"""Row 21, without Java: segments of records with eight fields → files of a typed table and of its dead letters, by a pool of two processes.

The processes' own processor time says how many records a second two cores make: the wall clock would measure what else the machine does.
Each format has a median of five runs, in turns; a tenth of a percent of the records are bad.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import statistics
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bench.figure import Figure
from crkafka_core.decode.decoders import Avro, Decoder, Json, Protobuf
from crkafka_core.decode.typed import Typing
from crkafka_core.lake.new_files import Output
from crkafka_core.lake.pool import Pool
from crkafka_core.lake.worker import Segments, Source
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import HEADERS, Batch, Run
from crkafka_core.segments.batch import SCHEMA as RECORDS
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import SegmentWriter

ROWS, SEGMENTS, TURNS = 100_000, 4, 5
CORES = 2
BOUNDS = {"json": 300_000, "avro": 500_000, "protobuf": 500_000}
_FIELDS = [
    pa.field("id", pa.int64(), False),
    pa.field("customer", pa.string()),
    pa.field("amount", pa.float64()),
    pa.field("paid", pa.bool_()),
    pa.field("at", pa.timestamp("us", "UTC")),
    pa.field("country", pa.string()),
    pa.field("pieces", pa.int64()),
    pa.field("note", pa.string()),
]
KIND = pa.struct(_FIELDS)
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "country", "type": "string"},
        {"name": "pieces", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def figures(rows: list[int]) -> Iterable[Figure]:
    """Records a second of each format."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        yield from _figures(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _figures(folder: Path) -> Iterator[Figure]:
    cases = {name: (Typing(decoder, KIND, "dead_letter", False), make) for name, decoder, make in _cases()}
    storage = Storage.open(folder / "segments")
    sources = {name: _landed(storage, name, make) for name, (_, make) in cases.items()}
    found: dict[str, list[float]] = {name: [] for name in cases}
    memory = 0
    with Pool() as pool:
        for turn in range(TURNS + 1):
            for name, (typing, _) in cases.items():
                outputs = {
                    each: Output(Storage.open(folder / f"{name}-{each}"), f"turn-{turn}") for each in ("good", "dead")
                }
                before = _processor(pool)
                made = pool.files(sources[name], typing, outputs)
                spent = _processor(pool) - before
                if turn:  # the first one warms up
                    found[name].append(sum(made.records.values()) / spent)
        memory = sum(_memory(worker._process.pid) for worker in pool._all)
    for name, rates in found.items():
        rate = statistics.median(rates) * CORES
        note = f"({1e6 / statistics.median(rates):.2f} µs of processor a record; {memory >> 20} MiB, both processes)"
        what = f"typed, segments → files, {name}, {CORES} cores"
        yield Figure(21, what, rate, "records/s", BOUNDS[name], at_least=True, note=note)


def _processor(pool: Pool) -> float:
    """Seconds that the pool's processes have used, all threads."""
    ticks = 0
    for worker in pool._all:
        stat = Path(f"/proc/{worker._process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(stat[11]) + int(stat[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> int:
    """The most that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _landed(storage: Storage, name: str, make: Callable[[dict[str, Any]], bytes]) -> list[Source]:
    """A source for each process."""
    named = []
    for number in range(SEGMENTS):
        writer = SegmentWriter(storage, f"{name}-{number}.parquet")
        for at in range(0, ROWS, 10_000):
            writer.write(_batch(make, number, at, at + 10_000))
        named.append((writer.close().path, 1 + number // 2, ROWS))
    return [Segments(storage, tuple(named[i::CORES])) for i in range(CORES)]


def _batch(make: Callable[[dict[str, Any]], bytes], partition: int, start: int, stop: int) -> Batch:
    random, rows = Random(start), stop - start
    values = [make(_order(random, i)) if i % 1000 else b"\xff" for i in range(start, stop)]
    columns = [
        pa.array([b"%d" % (i % 5000) for i in range(start, stop)], pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(["orders"] * rows, pa.string()),
        pa.array([partition] * rows, pa.int32()),
        pa.array(range(start, stop), pa.int64()),
        pa.array(1_764_000_000_000_000 + 1000 * np.arange(start, stop)).cast(pa.timestamp("us", "UTC")),
        pa.array([0] * rows, pa.int32()),
        pa.nulls(rows, HEADERS),
    ]
    tp = TP("orders", partition)
    return Batch(pa.RecordBatch.from_arrays(columns, schema=RECORDS), (Run(tp, 0, rows, start, stop, start),))


def _order(random: Random, i: int) -> dict[str, Any]:
    return {
        "id": i,
        "customer": f"customer-{random.randrange(10_000)}",
        "amount": random.randrange(1, 100_000) / 100,
        "paid": random.random() < 0.5,
        "at": 1_764_000_000_000 + i,
        "country": random.choice(["de", "fr", "it", "es"]),
        "pieces": random.randrange(1, 100),
        "note": None if i % 3 else f"leave it at door {random.randrange(100)}",
    }


def _cases() -> Iterator[tuple[str, Decoder, Callable[[dict[str, Any]], bytes]]]:
    yield "json", Json(), lambda order: json.dumps(order).encode()
    parsed = fastavro.parse_schema(AVRO)

    def avro(order: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, order)
        return out.getvalue()

    yield "avro", Avro(schema=json.dumps(AVRO)), avro
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="google/protobuf/timestamp.proto", package="google.protobuf", syntax="proto3")
    moment = file.message_type.add(name="Timestamp")
    moment.field.add(name="seconds", number=1, type=3, label=1)
    moment.field.add(name="nanos", number=2, type=5, label=1)
    file = files.file.add(name="order.proto", package="shop", syntax="proto3", dependency=[file.name])
    message = file.message_type.add(name="Order")
    types = (3, 9, 1, 8, 11, 9, 5, 9)
    for number, (field, type_) in enumerate(zip(_FIELDS, types, strict=True), 1):
        message.field.add(name=field.name, number=number, type=type_, label=1)
        if type_ == 11:
            message.field[-1].type_name = ".google.protobuf.Timestamp"
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    order_class: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))

    def protobuf(order: dict[str, Any]) -> bytes:
        at = {"seconds": order["at"] // 1000, "nanos": order["at"] % 1000 * 1_000_000}
        body: bytes = order_class(**{**order, "at": at}).SerializeToString()
        return b"\0" + struct.pack(">I", 1) + b"\0" + body

    yield "protobuf", Protobuf(files.SerializeToString(), "shop.Order", wire_format=True, times=True), protobuf
