"""A raw Delta table that a user has clustered (CLUSTER BY): deltalake refuses to write it, and we go on (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crkafka_core.lake import writing
from crkafka_core.model.errors import LeaseLost, Refused
from crkafka_core.segments.local import LocalStorage
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import log_end
from crkafka_core.tables.log import Moved, storage_of
from crkafka_core.tables.stamp import Stamp
from tests.tables.conftest import STEPS, Crash, Lake, dies_at, upto
from tests.tables.test_adopt_s3 import S3Lake, declared_options  # noqa: F401
from tests.tables.test_any_order import STEPS_EACH, told_of

FEATURES = ["appendOnly", "invariants", "domainMetadata", "clustering"]
DOMAIN = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["topic"]]}', "removed": False}


class Clustered(Lake):
    """From the first look at it on."""

    @property
    def storage(self) -> Storage:
        return storage_of(self.place, {})

    def land(self, rows: int = 5) -> int:
        if self.exists():
            self.cluster(True)
        return super().land(rows)

    def cluster(self, yes: bool) -> None:
        """What Spark commits for CLUSTER BY, or for giving it up, where that changes anything."""
        protocol = self.delta().protocol()
        if ("clustering" in (protocol.writer_features or ())) == yes:
            return
        features = FEATURES if yes else FEATURES[:2]
        actions = [
            {"commitInfo": {"timestamp": 0, "operation": "CLUSTER BY" if yes else "DROP FEATURE"}},
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
            {"domainMetadata": {**DOMAIN, "removed": not yes}},
        ]
        text = "\n".join(map(json.dumps, actions))
        self.storage.put(f"_delta_log/{self.version() + 1:020d}.json", text.encode())

    def by_a_user(self, work: Callable[[], object]) -> None:
        """deltalake stands for Spark here, and does not write a clustered table."""
        self.cluster(False)
        try:
            work()
        finally:
            self.cluster(True)

    def compact(self) -> None:
        self.by_a_user(super().compact)

    def vacuum(self) -> None:
        self.by_a_user(super().vacuum)

    def restore(self, version: int) -> None:
        self.by_a_user(lambda: self.delta().restore(version))

    def write_again(self, start: int) -> None:
        self.by_a_user(lambda: super(Clustered, self).write_again(start))

    def clean_log(self) -> None:
        self.by_a_user(super().clean_log)


class ClusteredS3(Clustered, S3Lake):
    """In the bucket of the tests."""

    storage = S3Lake.storage

    def by_a_user(self, work: Callable[[], object]) -> None:
        """Not tried there (see S3Lake)."""
        raise OSError


@pytest.fixture
def lake(tmp_path: Path) -> Clustered:
    return Clustered(tmp_path)


def filled(lake: Lake, checkpoints: int) -> None:
    for _ in range(checkpoints):
        lake.land()
        lake.advance()


def test_rows_come_and_leave_and_it_stays_clustered(lake: Clustered) -> None:
    filled(lake, 3)
    assert lake.delta().protocol().writer_features == FEATURES
    lake.landing.rewind(1)
    lake.fence()
    assert lake.rows() == upto(5)
    filled(lake, 2)
    lake.landing.retire(1)
    lake.maintain(10**6)
    assert lake.rows() == upto(15)
    assert lake.look().clean and lake.verified() == []
    lake.storage.delete(lake.delta().file_uris()[0].partition("bronze/")[2])
    assert lake.look().lost
    lake.mend_what_is_found(fetch=lake.fetch)
    assert lake.look().clean and lake.rows() == upto(15)


def test_the_log_gets_its_checkpoints_and_they_keep_by_what_it_is_clustered(lake: Clustered) -> None:
    filled(lake, 101)
    (kept,) = (lake.path / "_delta_log").glob("*.checkpoint.parquet")
    assert kept.name == f"{99:020d}.checkpoint.parquet"
    assert DOMAIN in pq.read_table(kept).column("domainMetadata").to_pylist()
    assert lake.rows() == upto(505) and lake.look().clean


def test_old_files_are_deleted_by_maintain(lake: Clustered) -> None:
    filled(lake, 2)
    lake.landing.rewind(1)
    lake.fence()
    lake.cluster(False)
    lake.delta().alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 days"})
    filled(lake, 1)
    lake.maintain(10**6)
    left = {str(p.relative_to(lake.path)) for p in lake.path.rglob("*.parquet")}
    assert left == {uri.partition("bronze/")[2] for uri in lake.delta().file_uris()}
    assert lake.rows() == upto(10)


def test_append_only_is_heeded(lake: Clustered) -> None:
    filled(lake, 2)
    lake.by_a_user(lambda: lake.delta().alter.set_table_properties({"delta.appendOnly": "true"}))
    filled(lake, 1)
    lake.landing.rewind(1)
    with pytest.raises(Refused, match=r"delta\.appendOnly: superseded rows cannot leave"):
        lake.fence()
    assert lake.rows() == upto(15)


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_and_a_retry_leave_each_row_once(lake: Clustered, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    filled(lake, 2)
    lake.land()
    if step != "after making the table":
        with monkeypatch.context() as patch, pytest.raises(Crash):
            dies_at(step)(patch)
            lake.advance()
    lake.writer_dies()
    filled(lake, 1)
    assert lake.rows() == upto(20) and lake.look().clean


def test_a_late_writer_is_refused_by_the_log(lake: Clustered, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sleeps after its look; meanwhile the region is rewound and goes on."""
    filled(lake, 3)
    lake.land()
    usual = log_end.append

    def late(*given: object) -> bool:
        monkeypatch.setattr(log_end, "append", usual)
        monkeypatch.setattr(writing.Hold, "check", lambda _: None)
        lake.writer_dies()
        lake.landing.rewind(2)
        lake.fence()
        filled(lake, 1)
        return usual(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(log_end, "append", late)
    with pytest.raises((LeaseLost, Refused)):
        lake.advance()
    assert lake.rows() == upto(15) and lake.look().clean


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.soak) for n in range(3, 30))])
def test_in_any_order_the_table_ends_with_what_the_line_says(tmp_path: Path, seed: int) -> None:
    failed = told_of(Clustered(tmp_path, members=1 + seed % 2), seed)
    assert not failed, failed


@pytest.mark.parametrize(
    ("seed", "steps"), [(1, 12), *(pytest.param(n, STEPS_EACH, marks=pytest.mark.soak) for n in range(4))]
)
def test_in_an_object_store_too(
    tmp_path: Path,
    bucket: str,
    s3_options: dict[str, str],
    declared_options: dict[str, str],  # noqa: F811
    seed: int,
    steps: int,
) -> None:
    lake = ClusteredS3(tmp_path, bucket, s3_options, declared_options)
    failed = told_of(lake, seed, steps)
    assert not failed, failed


def test_of_two_commits_at_once_the_store_itself_refuses_one(
    tmp_path: Path,
    bucket: str,
    s3_options: dict[str, str],
    declared_options: dict[str, str],  # noqa: F811
) -> None:
    lake = ClusteredS3(tmp_path, bucket, s3_options, declared_options)
    filled(lake, 2)
    lake.cluster(True)
    log = lake.log(lake.table(), s3_options)
    one, other = log.snapshot(), log.snapshot()
    one.commit((), (), Stamp("u", "bronze", 9, "one"), {})
    with pytest.raises(Moved):
        other.commit((), (), Stamp("u", "bronze", 9, "other"), {})
    with lake.storage.open_read(f"_delta_log/{one.version + 1:020d}.json") as source:
        assert b"one" in source.read()


def test_where_a_commit_of_our_own_cannot_be_made_the_feature_is_named(
    lake: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a store that has no write of a file only if it is new."""
    filled(lake, 2)
    lake.land()
    monkeypatch.setattr(LocalStorage, "puts_new", False)
    with pytest.raises(Refused, match="ClusteredTable"):
        lake.advance()
    assert lake.rows() == upto(10)
