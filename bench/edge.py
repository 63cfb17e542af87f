"""The Kafka edge by itself: consume → Arrow → Parquet on one core, with the cost of each step (docs/speed.md, rows 1 and 7).

`python -m bench.edge [--rows 1000000] [--compression lz4] [--folder F]`: starts a real Kafka, fills a topic, reads it without
writing, natively and through Python objects, and once into a segment; prints rates, CPU per record, the pause of `close`, and peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.native.library import SWITCH
from crkafka_core.kafka.properties import client_properties
from crkafka_core.member.edges import Edges
from crkafka_core.model.limits import Limits
from crkafka_core.model.segment import segment_path
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import COMPRESSIONS, ROW_GROUP_BYTES, SegmentWriter
from crkafka_core.testing.generator import Generator

PARTITIONS = 8


def consume(bootstrap: str, topic: str, rows: int, folder: Path | None, compression: str) -> dict[str, float]:
    """One pass over the topic, in this process; into a segment if there is a folder."""
    given = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex}
    consumer = GroupConsumer(client_properties(given, Limits(), client_id="bench", single_topic=True))
    consumer.subscribe([topic])
    while not consumer.held:
        consumer.poll(1, 0.02)
    consumer.seek(dict.fromkeys(consumer.held, 0))
    writer = None
    if folder is not None:
        path = segment_path("bench", 1, uuid.uuid4().hex, 0, 0)
        writer = SegmentWriter(Storage.open(folder), path, compression=compression)
    Edges().settle()
    began, cpu, seen = time.perf_counter(), time.process_time(), 0
    consumer.flow(consumer.held)
    while seen < rows:
        batch = consumer.poll(5_000, 0.05).batch
        if batch is not None:
            seen += batch.rows
            if writer is not None:
                writer.write(batch)
    closing = time.perf_counter()
    size = writer.close().bytes if writer is not None else 0
    ended, used = time.perf_counter(), time.process_time() - cpu
    consumer.close()
    return {
        "million_per_second": round(rows / (ended - began) / 1e6, 3),
        "million_per_cpu_second": round(rows / used / 1e6, 3),
        "cpu_us_per_record": round(used / rows * 1e6, 3),
        "close_ms": round((ended - closing) * 1e3, 1),
        "bytes_per_record": round(size / rows, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def pass_in_child(arguments: list[str], *, native: bool = True) -> dict[str, float]:
    """Each pass in a process of its own, so that peak memory and warm caches are its own."""
    command = [sys.executable, "-m", "bench.edge", "--child", *arguments]
    env = {**os.environ, SWITCH: "1" if native else "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600, env=env)
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--compression", default="", help=f"one of {', '.join(COMPRESSIONS)}; default: all")
    parser.add_argument("--folder", type=Path, help="where segments go; default: a temporary folder")
    parser.add_argument(
        "--child", nargs=4, metavar=("BOOTSTRAP", "TOPIC", "FOLDER", "COMPRESSION"), help=argparse.SUPPRESS
    )
    parser.add_argument("--child-rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        bootstrap, topic, folder, compression = options.child
        target = Path(folder) if folder != "-" else None
        print(json.dumps(consume(bootstrap, topic, options.child_rows, target, compression)))
        return
    folder = Path(tempfile.mkdtemp(prefix="crk-bench-"))
    leash = Leash(folder / "kafka", remove=True)
    cluster = KafkaCluster(folder / "kafka", leash=leash)
    try:
        cluster.start()
        topic = cluster.topics.create("edge", PARTITIONS)
        Generator(cluster.bootstrap).bulk(topic, options.rows, partitions=PARTITIONS)
        rows = ["--child-rows", str(options.rows)]
        print(f"{options.rows} records of 140 B, {PARTITIONS} partitions, row groups of {ROW_GROUP_BYTES >> 20} MiB")
        for way, native in (("natively", True), ("objects", False)):
            result = pass_in_child([cluster.bootstrap, topic, "-", "none", *rows], native=native)
            print(f"consume → Arrow, {way:8}", result)
        for compression in [options.compression] if options.compression else COMPRESSIONS:
            target = options.folder or folder / "segments"
            result = pass_in_child([cluster.bootstrap, topic, str(target), compression, *rows])
            print(f"… → Parquet ({compression:6})   ", result)
    finally:
        cluster.stop()
        leash.release()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
