"""Row 14: Kafka → committed Parquet by the region, by Spark's own source and by Flink, on the same broker and topic in one session.

Each side is a process of its own, at its best known settings, with a first run and three warm ones; later a second process makes another
first run. The best warm run and the better first one count: one slow second of the machine decides a single run. Between the sides
nothing else changes. `python -m bench peers`; `CRKAFKA_BENCH_ROWS` sets the number of records (8,000,000).
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
        first = {
            name: min(found[name].first, _first(name.lower(), kafka, topic, folder / "again"))
            for name in ("region", "Spark")
        }
    ours = found["region"]
    for name, bound in (("Flink", 1.25), ("Spark", 2.6)):
        note = f"{speed(ours.warm)}; {name} {speed(found[name].warm)}"
        yield Figure(
            14, f"warm run against {name}'s best", found[name].warm / ours.warm, "×", bound, at_least=True, note=note
        )
    times = first["Spark"] / first["region"]
    note = f"{speed(first['region'])}; Spark {speed(first['Spark'])}"
    yield Figure(14, "first run against Spark's, each in a fresh session", times, "×", 2.5, at_least=True, note=note)


def _first(name: str, kafka: KafkaCluster, topic: str, folder: Path) -> float:
    folder.mkdir(exist_ok=True)
    found = side(name, kafka, topic, folder, warm_runs=0).first
    print(f"  {name} in another new process: {speed(found)}", flush=True)
    return found


def of_flink(kafka: KafkaCluster, topic: str, folder: Path) -> Runs:
    with flink.started(kafka.bootstrap, topic, folder / "flink") as running:
        took = [running.land(f"run{i}", folder / f"flink-{i}", ROWS) for i in range(1 + WARM_RUNS)]
    return Runs(tuple(took), (0.0,) * len(took))


def _once(runs: Runs) -> str:
    return f"; once settled {runs.once_settled:.2f} M/s" if any(runs.settled) else ""
