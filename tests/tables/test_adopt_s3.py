"""A table in an object store adopts segments by copies inside it, and its log refuses the second of two commits (SPEC K6)."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from crkafka_core.plane import tables as plane
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import adopt, audit, maintain
from crkafka_core.tables.delta_log import DeltaLog, _options
from crkafka_core.tables.log import Moved, storage_of
from crkafka_core.tables.stamp import Stamp
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore
from tests.tables.conftest import Lake
from tests.tables.test_any_order import STEPS_EACH, told_of


@pytest.fixture
def declared_options(s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """As a configuration has them: secrets by reference."""
    for name in ("access_key", "secret_key"):
        monkeypatch.setenv(f"LAKE_{name}", s3_options[name])
    return {**s3_options, **{name: f"${{env:LAKE_{name}}}" for name in ("access_key", "secret_key")}}


@pytest.fixture
def landing(tmp_path: Path, bucket: str, declared_options: dict[str, str]) -> Landing:
    return Landing(
        MemoryStore(),
        tmp_path,
        partitions=2,
        storage_options=declared_options,
        storage=f"s3://{bucket}/segments",
        tables=[{"name": "bronze", "format": "delta", "path": f"s3://{bucket}/bronze"}],
    )


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
    options = _options(s3_options)
    read = DeltaTable(f"s3://{bucket}/bronze", storage_options=options).to_pyarrow_table(
        columns=["partition", "offset"]
    )
    rows = sorted((row["partition"], row["offset"]) for row in read.to_pylist())
    assert rows == sorted((p, o) for p in range(2) for o in range(10))


class S3Lake(Lake):
    """A table in the bucket, with its segments beside it."""

    def __init__(self, folder: Path, bucket: str, options: dict[str, str], declared: dict[str, str]) -> None:
        self.bucket, self.given = bucket, options
        super().__init__(folder, storage=f"s3://{bucket}/segments", storage_options=declared)

    @property
    def place(self) -> str:
        return f"s3://{self.bucket}/bronze"

    @property
    def storage(self) -> Storage:
        return storage_of(self.place, self.given)

    def exists(self) -> bool:
        return any(self.storage.list("_delta_log"))

    def delta(self) -> DeltaTable:
        return DeltaTable(self.place, storage_options=_options(self.given))

    def restore(self, version: int) -> None:
        """Not tried: deltalake holds Python's lock meanwhile, and the object store of the tests is in this process."""
        raise OSError

    def clean_log(self) -> None:
        """Nor is this."""

    def remove(self) -> None:
        for found in list(self.storage.list("")):
            self.storage.delete(found.path)

    def put(self, folder: str, name: str, batch: pa.RecordBatch) -> None:
        parquet.write(storage_of(folder, self.given), name, [batch])


@pytest.mark.parametrize(
    ("seed", "steps"), [(1, 12), *(pytest.param(seed, STEPS_EACH, marks=pytest.mark.soak) for seed in range(6))]
)
def test_in_any_order_the_table_in_an_object_store_ends_with_what_the_line_says(
    tmp_path: Path,
    bucket: str,
    s3_options: dict[str, str],
    declared_options: dict[str, str],
    seed: int,
    steps: int,
) -> None:
    """Crashes at each step, late writers, two at once, rewinds, retries, and what a user does."""
    failed = told_of(S3Lake(tmp_path, bucket, s3_options, declared_options), seed, steps)
    assert not failed, failed


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
