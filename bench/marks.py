"""Row 17: cuts without a pause: the longest time without a submission, throughput with many cuts and with few, freshness."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import numpy.typing as npt

from bench.figure import Figure, percentile
from bench.load import Load, loaded
from bench.tables import Case, freshness
from crkafka_core.dev.leash import Leash
from crkafka_core.dev.postgres import Postgres
from crkafka_core.region.driver import driving

PARTITIONS = 8
RECORDS = int(os.environ.get("CRKAFKA_BENCH_LOAD", "12000000"))
CUTS = int(os.environ.get("CRKAFKA_BENCH_MARKS", "100"))
EVERY = 0.3
"""Seconds from one cut's opening to the next, or more: a time as long as the cut goes by without one before the next."""
TURNS = 4
FRESH = Case("marks", "raw Delta table, host alone, a cut each 0.3 s", {"format": "delta"}, 0.4, 2, period="0.3s")


def figures(rows: list[int]) -> Iterable[Figure]:
    """On both databases; throughput and freshness on SQLite."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user where this is root
    leash = Leash(folder / "postgres")
    try:
        with loaded(folder, partitions=PARTITIONS, records=RECORDS) as load:
            yield from _pauses(load, f"sqlite:///{folder}/pauses.db", "SQLite")
            postgres = Postgres(folder / "postgres", leash=leash)
            postgres.start()
            yield from _pauses(load, postgres.url("pauses"), "PostgreSQL")
            postgres.stop()
            with _object_store() as storage:
                yield from _pauses(load, f"sqlite:///{folder}/objects.db", "S3's stand-in", **storage)
            yield _throughput(load)
        yield from freshness(folder / "fresh", FRESH, row=17)
    finally:
        leash.release()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _object_store() -> Iterator[dict[str, Any]]:
    """A region's keys for segments in a bucket, which a process of its own keeps."""
    os.environ["CRKAFKA_BENCH_SECRET"] = "bench"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        options = {
            "endpoint": f"http://127.0.0.1:{port}",
            "region": "us-east-1",
            "access_key": "${env:CRKAFKA_BENCH_SECRET}",
            "secret_key": "${env:CRKAFKA_BENCH_SECRET}",
        }
        _until_it_has_the_bucket(options)
        yield {"storage": "s3://bench/segments", "storage_options": options}
    finally:
        server.kill()
        server.wait()


def _until_it_has_the_bucket(options: Mapping[str, str]) -> None:
    end = time.monotonic() + 60
    while True:
        with suppress(OSError):
            request = Request(f"{options['endpoint']}/bench", method="PUT")
            urlopen(request, timeout=5).close()
            return
        if time.monotonic() > end:
            raise TimeoutError("the object store does not answer")
        time.sleep(0.2)


def _submissions(load: Load, name: str) -> list[npt.NDArray[np.float64]]:
    """Of each member: rows of (since, end, records)."""
    files = sorted((load.folder / f"{name}-submissions").iterdir())
    return [np.loadtxt(file, ndmin=2) for file in files if file.stat().st_size]


def _pauses(load: Load, url: str, where: str, **keys: Any) -> Iterable[Figure]:
    """The longest time without a submission in each cut, against the time as long before the next one, in one run."""
    name = re.sub("[^a-z0-9]+", "-", f"pauses-{where.lower()}")
    cuts: list[tuple[float, float, float]] = []  # opened, merged, until when no other was opened
    with load.running(name, url, noted=True, **keys) as (region, _):
        time.sleep(2)
        while len(cuts) < CUTS:
            opened = time.monotonic()
            cut, merged = region.cut(), time.monotonic()
            if not cut.rows:
                region.reset("initial", wait=True)
                time.sleep(1)
                continue
            time.sleep(max(opened + EVERY - merged, 1.5 * (merged - opened)))
            cuts.append((opened, merged, time.monotonic()))
    with_cut: list[float] = []
    without: list[float] = []
    for member in _submissions(load, name):
        since, end = member[:, 0], member[:, 1]
        for opened, merged, over in cuts:
            times = _longest(since, end, opened, merged), _longest(since, end, over - (merged - opened), over)
            if all(times):  # 0: nothing was left to read
                with_cut.append(times[0])
                without.append(times[1])
    for percent, bound in ((50, 2), (99, 10)):
        more = percentile(with_cut, percent) - percentile(without, percent)
        note = (
            f"({percentile(with_cut, percent) * 1000:.1f} ms with, {percentile(without, percent) * 1000:.1f} without)"
        )
        yield Figure(
            17,
            f"longest time without a submission, more in a cut, {where}, p{percent}",
            more * 1000,
            "ms",
            bound,
            note=note,
        )


def _longest(since: npt.NDArray[np.float64], end: npt.NDArray[np.float64], began: float, over: float) -> float:
    """The longest of the submissions that overlap with a time."""
    overlap = (end > began) & (since < over)
    return float((end - since)[overlap].max(initial=0.0))


def _throughput(load: Load) -> Figure:
    """Records a second with a cut each second, against a cut each minute, a Delta table fed, in turns."""
    rates: dict[str, list[float]] = {"1s": [], "60s": []}
    for turn in range(TURNS):
        for period in sorted(rates, reverse=turn % 2 == 1):  # what else the machine does grows or ebbs
            rates[period].append(_rate(load, f"every{period}-{turn}", period))
    seconds, minutes = median(rates["1s"]), median(rates["60s"])
    note = f"({seconds / 1e6:.2f} and {minutes / 1e6:.2f} M records/s)"
    return Figure(
        17, "throughput at a cut a second, against one a minute", seconds / minutes, "×", 0.97, at_least=True, note=note
    )


def _rate(load: Load, name: str, period: str) -> float:
    """Between a tenth and nine tenths of the records."""
    table = {"name": "raw", "format": "delta", "path": str(load.folder / f"{name}-raw")}
    running = load.running(name, noted=True, trigger={"period": period}, tables=[table])
    with running as (region, _), driving(region, drive=True):
        while sum(int(member[:, 2].sum()) for member in _submissions(load, name)) < RECORDS:
            time.sleep(2)
    noted = np.concatenate(_submissions(load, name))
    noted = noted[noted[:, 1].argsort()]
    done = noted[:, 2].cumsum()
    first, last = np.searchsorted(done, [RECORDS / 10, RECORDS * 0.9])
    for folder in (name, f"{name}-raw"):
        shutil.rmtree(load.folder / folder, ignore_errors=True)
    return float((done[last] - done[first]) / (noted[last, 1] - noted[first, 1]))
