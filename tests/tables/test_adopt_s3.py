"""A table in an object store adopts segments by copies inside it, and its log refuses the second of two commits (SPEC K6)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from crkafka_core.plane import tables as plane
from crkafka_core.tables import adopt, audit, maintain
from crkafka_core.tables.delta_log import DeltaLog
from crkafka_core.tables.log import Moved
from crkafka_core.tables.stamp import Stamp
from crkafka_core.testing.landing import Landing
from crkafka_core.testing.memory import MemoryStore


@pytest.fixture
def landing(tmp_path: Path, bucket: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Landing:
    for name in ("access_key", "secret_key"):
        monkeypatch.setenv(f"LAKE_{name}", s3_options[name])
    references = {name: f"${{env:LAKE_{name}}}" for name in ("access_key", "secret_key")}
    return Landing(
        MemoryStore(), tmp_path, partitions=2, storage_options={**s3_options, **references}, storage=f"s3://{bucket}/segments",
        tables=[{"name": "bronze", "format": "delta", "path": f"s3://{bucket}/bronze"}],
    )  # fmt: skip


def test_advance_fence_look_and_maintain_in_an_object_store(
    landing: Landing, bucket: str, s3_options: dict[str, str]
) -> None:
    for _ in range(3):
        landing.land(5)
        adopt.advance(landing.region, "bronze")
    assert audit.look(landing.region, "bronze").clean
    landing.rewind(1)
    adopt.fence(landing.region, "bronze")
    landing.land(5)
    adopt.advance(landing.region, "bronze")
    assert audit.look(landing.region, "bronze").clean
    landing.retire(1)
    done = maintain.maintain(landing.region, "bronze")
    assert (done.merged, done.into, audit.look(landing.region, "bronze").clean) == (2, 1, True)
    options = {
        "AWS_ENDPOINT_URL": s3_options["endpoint"], "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": s3_options["access_key"], "AWS_SECRET_ACCESS_KEY": s3_options["secret_key"],
    }  # fmt: skip
    read = DeltaTable(f"s3://{bucket}/bronze", storage_options=options).to_pyarrow_table(
        columns=["partition", "offset"]
    )
    rows = sorted((row["partition"], row["offset"]) for row in read.to_pylist())
    assert rows == sorted((p, o) for p in range(2) for o in range(10))


def test_of_two_commits_at_once_the_store_itself_refuses_one(landing: Landing, s3_options: dict[str, str]) -> None:
    table = landing.region.plane.read(lambda reader, row: plane.of(reader, "bronze"))
    log = DeltaLog(table, s3_options)
    log.create(Stamp("u", "bronze", 0, "t"))
    for number in range(1, 6):
        snapshots = [log.snapshot(), log.snapshot()]
        start, ends = threading.Barrier(2), []

        def commit(
            at: int,
            snapshots: list = snapshots,
            start: threading.Barrier = start,
            ends: list[str] = ends,
            n: int = number,
        ) -> None:  # type: ignore[type-arg]
            start.wait()
            try:
                snapshots[at].commit((), (), Stamp(f"u{at}", "bronze", n, "t"), {})
                ends.append("made")
            except Moved:
                ends.append("refused")

        threads = [threading.Thread(target=commit, args=(at,)) for at in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ends) == ["made", "refused"]
