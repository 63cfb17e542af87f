"""Row 14: Kafka → committed Parquet by the region, by Spark's own source and by Flink, on the same broker and topic in one session.

Each side is a process of its own, at its best known settings, with a first run and three warm ones; the best warm run counts. Between
the sides nothing else changes. `python -m bench peers`; `CRKAFKA_BENCH_ROWS` sets the number of records (8,000,000).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import flink
from bench.figure import Figure
from bench.spark_source import ROWS, Runs, backlog, side, speed
from crkafka_core.dev.kafka import KafkaCluster

WARM_RUNS = 3


def figures(rows: Sequence[int]) -> Iterator[Figure]:
    found: dict[str, Runs] = {}
    with backlog() as (kafka, topic, folder):
        for name in ("region", "Spark", "Flink"):
            found[name] = runs = (
                of_flink(kafka, topic, folder)
                if name == "Flink"
                else side(name.lower(), kafka, topic, folder, WARM_RUNS)
            )
            print(f"  {name}: {', '.join(map(speed, runs.took))}" + _once(runs), flush=True)
    ours = found["region"]
    for name, bound in (("Flink", 1.25), ("Spark", 2.6)):
        note = f"{speed(ours.warm)}; {name} {speed(found[name].warm)}"
        yield Figure(
            14, f"warm run against {name}'s best", found[name].warm / ours.warm, "×", bound, at_least=True, note=note
        )
    first = found["Spark"].first / ours.first
    note = f"{speed(ours.first)}; Spark {speed(found['Spark'].first)}"
    yield Figure(14, "first run against Spark's, each in a fresh session", first, "×", 2.5, at_least=True, note=note)


def of_flink(kafka: KafkaCluster, topic: str, folder: Path) -> Runs:
    with flink.started(kafka.bootstrap, topic, folder / "flink") as running:
        took = [running.land(f"run{i}", folder / f"flink-{i}", ROWS) for i in range(1 + WARM_RUNS)]
    return Runs(tuple(took), (0.0,) * len(took))


def _once(runs: Runs) -> str:
    return f"; once settled {runs.once_settled:.2f} M/s" if any(runs.settled) else ""
