"""A raw Delta table that a user has clustered (CLUSTER BY): deltalake refuses to write it, and we go on (SPEC K6)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crkafka_core.lake.delta import table
from crkafka_core.lake.formats import folder_of
from crkafka_core.model.errors import Refused
from crkafka_core.segments.local import LocalStorage
from crkafka_core.segments.storage import Storage
from tests.tables.conftest import Lake, filled, upto

FEATURES = ["appendOnly", "invariants", "domainMetadata", "clustering"]
DOMAIN = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["topic"]]}', "removed": False}


class Clustered(Lake):
    """From the first look at it on."""

    @property
    def storage(self) -> Storage:
        return folder_of(str(self.path), {})

    def land(self, rows: int = 5, quiet: object = ()) -> int:
        if self.path.exists():
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
        self.storage.put(f"_delta_log/{self.delta().version() + 1:020d}.json", text.encode())

    def by_a_user(self, work: Callable[[], object]) -> None:
        """deltalake stands for Spark here, and does not write a clustered table."""
        self.cluster(False)
        try:
            work()
        finally:
            self.cluster(True)


@pytest.fixture
def lake(tmp_path: Path) -> Clustered:
    return Clustered(tmp_path)


def test_rows_come_and_leave_and_it_stays_clustered(lake: Clustered) -> None:
    filled(lake, 3)
    assert lake.delta().protocol().writer_features == FEATURES
    lake.landing.rewind(1)
    lake.fence()
    assert lake.places() == upto(5)
    filled(lake, 2)
    lake.landing.retire(1)
    lake.maintain(10**6)
    assert lake.places() == upto(15)
    assert lake.look().clean and lake.verified() == []
    lake.storage.delete(lake.delta().file_uris()[0].partition("bronze/")[2])
    assert lake.look().lost
    lake.mend()
    assert lake.look().clean and lake.places() == upto(15)


def test_the_log_gets_its_checkpoints_and_they_keep_by_what_it_is_clustered(
    lake: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_INTERVAL", 10)
    filled(lake, 11)
    (kept,) = (lake.path / "_delta_log").glob("*.checkpoint.parquet")
    assert kept.name == f"{9:020d}.checkpoint.parquet"
    assert DOMAIN in pq.read_table(kept).column("domainMetadata").to_pylist()
    assert lake.places() == upto(55) and lake.look().clean


def test_old_files_are_deleted_by_maintain(lake: Clustered) -> None:
    filled(lake, 2)
    lake.landing.rewind(1)
    lake.fence()
    lake.cluster(False)
    lake.delta().alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 days"})
    filled(lake, 1)
    for file in lake.path.rglob("*.parquet"):
        os.utime(file, (1, 1))
    lake.maintain(10**6)
    left = {str(p.relative_to(lake.path)) for p in lake.path.rglob("*.parquet")}
    assert left == {uri.partition("bronze/")[2] for uri in lake.delta().file_uris()}
    assert lake.places() == upto(10)


def test_append_only_is_heeded(lake: Clustered) -> None:
    filled(lake, 2)
    lake.by_a_user(lambda: lake.delta().alter.set_table_properties({"delta.appendOnly": "true"}))
    filled(lake, 1)
    lake.landing.rewind(1)
    with pytest.raises(Refused, match=r"delta\.appendOnly: superseded rows cannot leave"):
        lake.fence()
    assert lake.places() == upto(15)


def test_where_a_commit_of_our_own_cannot_be_made_the_feature_is_named(
    lake: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a store that has no write of a file only if it is new."""
    filled(lake, 2)
    lake.land()
    monkeypatch.setattr(LocalStorage, "puts_new", False)
    with pytest.raises(Refused, match="cannot be written there without Spark"):
        lake.advance()
    assert lake.places() == upto(10)
