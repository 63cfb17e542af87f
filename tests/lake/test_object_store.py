"""A raw Delta table in an object store: segments come by copies inside it, and the store refuses the second of two commits (SPEC K6)."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Reader

from crkafka_core.config.location import library_options
from crkafka_core.config.secret import is_secret_key
from crkafka_core.lake import audit, compact, road
from crkafka_core.lake.columns import RAW
from crkafka_core.lake.delta.table import DeltaTable
from crkafka_core.lake.port import Moved, Stamp
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore


@pytest.fixture
def landing(tmp_path: Path, place: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Landing:
    """Secrets are references, as a configuration has them."""
    url, options = place
    secrets = {name: f"LAKE_{name}" for name in options if is_secret_key(name)}
    for name, variable in secrets.items():
        monkeypatch.setenv(variable, options[name])
    declared: dict[str, str] = {**options, **{name: f"${{env:{variable}}}" for name, variable in secrets.items()}}
    return Landing(
        MemoryStore(),
        tmp_path,
        partitions=2,
        storage_options=declared,
        storage=f"{url}/segments",
        tables=[{"name": "bronze", "format": "delta", "path": f"{url}/bronze"}],
    )


def test_advance_fence_look_and_maintain(landing: Landing, place: tuple[str, dict[str, str]]) -> None:
    for _ in range(3):
        landing.land(5)
        road.advance(landing.region, "bronze")
    landing.rewind(1)
    road.fence(landing.region, "bronze")
    landing.land(5)
    road.advance(landing.region, "bronze")
    assert audit.look(landing.region, "bronze").clean
    landing.retire(1, history=10)
    done = compact.maintain(landing.region, "bronze")
    assert (done.merged, done.into, audit.look(landing.region, "bronze").clean) == (2, 1, True)
    bronze = f"{place[0]}/bronze"
    read = pa.table(
        Reader(bronze, storage_options=library_options(bronze, place[1])).to_pyarrow_table(
            columns=["partition", "offset"]
        )
    )
    rows = sorted((row["partition"], row["offset"]) for row in read.to_pylist())
    assert rows == sorted((p, o) for p in range(2) for o in range(10))


def test_of_two_commits_at_once_one_is_refused(place: tuple[str, dict[str, str]]) -> None:
    table = DeltaTable("bronze", f"{place[0]}/two", place[1])
    table.create(RAW, (), Stamp("u", "bronze", 0, 0, 0), {})
    for permit in range(1, 6):
        snapshots = [table.look(), table.look()]
        start, ends = threading.Barrier(2), list[str]()

        def commit(at: int, snapshots: list = snapshots, start: threading.Barrier = start, n: int = permit) -> None:  # type: ignore[type-arg]
            start.wait()
            try:
                snapshots[at].commit(Stamp(f"u{at}", "bronze", n, at, 0))
                ends.append("made")  # noqa: B023
            except Moved:
                ends.append("refused")  # noqa: B023

        threads = [threading.Thread(target=commit, args=(at,)) for at in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ends) == ["made", "refused"]
