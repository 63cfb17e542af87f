"""How speed goes with partitions, members, size and compression of records: `python -m bench growth` writes the table and the picture of
docs/speed.md.

Each case is a topic of its own and a region of local processes that reads it to its end, with SQLite and a cut every five seconds. The rate
is from the moment the group is settled to the last merge; the processor's time is that of all members, and memory the most that
one of them had. `CRKAFKA_BENCH_ROWS` sets the number of records of 140 bytes (3,000,000); of larger ones there are fewer.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.hosts.processes import ProcessHost
from crkafka_core.region import Region
from crkafka_core.region.caught_up import consume
from crkafka_core.region.driver import Driver

ROWS = int(os.environ.get("CRKAFKA_BENCH_ROWS", "3000000"))
MOST_BYTES = 1 << 30
"""Of one topic's values."""
SPEED = Path(__file__).parent.parent / "docs" / "speed.md"
PICTURE = SPEED.with_name("growth.svg")
BEGIN, END = "<!-- growth: made by `python -m bench growth` -->\n", "<!-- growth ends -->\n"


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    axis: str
    name: str
    partitions: int = 8
    members: int = 2
    size: int = 140
    compression: str = "lz4"

    @property
    def rows(self) -> int:
        return min(ROWS, MOST_BYTES // self.size)

    @property
    def topic(self) -> str:
        return f"p{self.partitions}-s{self.size}-{self.compression}"


CASES = (
    *(Case("partitions of one member", f"{n:,}", partitions=n, members=1) for n in (1, 10, 100, 1_000)),
    *(Case("members, 16 partitions", str(n), partitions=16, members=n) for n in (1, 2, 4, 8)),
    *(
        Case("size of a record", name, size=n)
        for name, n in (("10 B", 10), ("140 B", 140), ("1 KiB", 1 << 10), ("100 KiB", 100 << 10))
    ),
    *(Case("compressed by its producer", name, compression=name) for name in ("none", "lz4", "zstd")),
)


@dataclass(frozen=True)
class Seen:
    """What one case gave."""

    case: Case
    seconds: float
    processor: float
    """Seconds of all members."""
    mib: float

    @property
    def rate(self) -> float:
        """Million records a second."""
        return self.case.rows / self.seconds / 1e6

    @property
    def megabytes(self) -> float:
        return self.rate * self.case.size

    @property
    def cost(self) -> float:
        """Microseconds of processor for a record."""
        return self.processor / self.case.rows * 1e6


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="crk-bench-"))
    leash = Leash(folder / "kafka")
    seen: list[Seen] = []
    try:
        kafka = KafkaCluster(
            folder / "kafka", leash=leash, full_speed=True, settings={"message.max.bytes": "2000000"}
        ).start()
        made: set[str] = set()
        for case in CASES:
            if case.topic not in made:
                made.add(case.topic)
                kafka.topics.create(case.topic, case.partitions)
                fill(kafka, case)
            runs = [measure(kafka, case, folder / f"{len(seen)}-{i}") for i in range(2)]
            seen.append(best := min(runs, key=lambda run: run.seconds))
            print(_line(best), flush=True)
    finally:
        leash.release()
        shutil.rmtree(folder, ignore_errors=True)
    before, _, rest = SPEED.read_text().partition(BEGIN)
    SPEED.write_text(before + BEGIN + table(seen) + END + rest.partition(END)[2])
    PICTURE.write_text(picture(seen))


def fill(kafka: KafkaCluster, case: Case) -> None:
    """Random hex digits, half of which is information, as in text."""
    digits = os.urandom(1 << 20).hex().encode()
    places = len(digits) - case.size
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "compression.type": case.compression,
            "linger.ms": 20,
            "batch.num.messages": 10_000,
        }
    )
    for number in range(case.rows):
        at = number * 7919 % places
        while True:
            try:
                producer.produce(case.topic, digits[at : at + case.size], partition=number % case.partitions)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(60) != 0:
        raise RuntimeError(f"Kafka did not take all records of {case.topic}")


def measure(kafka: KafkaCluster, case: Case, folder: Path) -> Seen:
    """One region from its start to the topic's end."""
    folder.mkdir()
    url = f"sqlite:///{folder}/crkafka.db"
    initialise(url)
    config = RegionConfig.of(
        base=folder,
        region="growth",
        control_plane=url,
        storage=str(folder / "segments"),
        topics=[case.topic],
        kafka={"bootstrap.servers": kafka.bootstrap, "group.id": f"{case.topic}-{folder.name}"},
        members=case.members,
        trigger={"period": "5s"},
    )
    with Region.open(config) as region:
        region.init()
        region.start()
        host, driver = ProcessHost(config, region.plane, log=folder / "logs"), Driver(region)
        host.begin()
        driver.start()
        try:
            region.await_running(timeout=120)
            began, pids = time.monotonic(), list(host.pids().values())
            before = sum(map(_processor, pids))
            consume(region)
            took = time.monotonic() - began
            seen = Seen(case, took, sum(map(_processor, pids)) - before, max(map(_most_memory, pids)))
        finally:
            driver.end()
            region.stop()
            host.end()
    shutil.rmtree(folder)
    return seen


def _processor(pid: int) -> float:
    """Seconds of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _most_memory(pid: int) -> float:
    said = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(said["VmHWM"].split()[0]) / 1024


def table(seen: list[Seen]) -> str:
    head = "| | | M records/s | MB/s | µs of processor a record | memory of a member |\n|---|---|---|---|---|---|\n"
    return f"![{PICTURE.stem}]({PICTURE.name})\n\n" + head + "".join(_line(one) + "\n" for one in seen) + "\n"


def _line(one: Seen) -> str:
    rate = f"{one.rate:.3f}" if one.rate < 0.1 else f"{one.rate:.2f}"
    return f"| {one.case.axis} | {one.case.name} | {rate} | {one.megabytes:.0f} | {one.cost:.2f} | {one.mib:.0f} MiB |"


def picture(seen: list[Seen]) -> str:
    """Bars of megabytes a second, a panel for each axis."""
    most, width, height, high = max(one.megabytes for one in seen), 60, 190, 120
    parts, x = [], 10
    for axis in dict.fromkeys(one.case.axis for one in seen):
        ones = [one for one in seen if one.case.axis == axis]
        parts.append(f'<text x="{x}" y="18" font-weight="bold">{axis}</text>')
        for number, one in enumerate(ones):
            left, bar = x + number * width, max(1.0, high * one.megabytes / most)
            parts.append(
                f'<rect x="{left}" y="{160 - bar:.1f}" width="{width - 12}" height="{bar:.1f}" fill="#4a7ab5"/>'
                f'<text x="{left}" y="{154 - bar:.1f}">{one.megabytes:.0f}</text><text x="{left}" y="176">{one.case.name}</text>'
            )
        x += len(ones) * width + 30
    font = 'font-family="sans-serif" font-size="12" fill="#333"'
    title = f'<text x="10" y="{height + 8}">megabytes of values a second, from Kafka to committed Parquet</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x}" height="{height + 20}" {font}>\n'
        + "\n".join([*parts, title])
        + "\n</svg>\n"
    )
