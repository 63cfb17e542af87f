"""Where a partition starts that nobody has seen before, by what the group has committed (SPEC S2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.edge import Committed
from crkafka_core.kafka.errors import KafkaUnavailable
from crkafka_core.member.start_positions import propose
from crkafka_core.model.errors import ConfigError, CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.protocol.commit_metadata import CommitMetadata
from tests.rigs.configs import configured

TPS = [TP("t", p) for p in range(3)]


class Kafka:
    """Three partitions of a hundred records; what the group has committed there."""

    def __init__(self, *committed: Committed | None) -> None:
        self.leaderless: TP | None = None
        self.commits = {tp: c for tp, c in zip(TPS, committed, strict=True) if c is not None}

    def committed(self, _: str, tps: Iterable[TP]) -> dict[TP, Committed]:
        return {tp: c for tp, c in self.commits.items() if tp in set(tps)}

    def cut_below(self, offsets: Mapping[TP, tuple[int, int]]) -> dict[TP, int]:
        return {tp: 35 for tp, (_, epoch) in offsets.items() if epoch == 3}

    def known_watermarks(self, tps: Iterable[TP]) -> tuple[dict[TP, tuple[int, int]], dict[TP, CrkafkaError]]:
        return {tp: (0, 100) for tp in tps if tp != self.leaderless}, {
            tp: KafkaUnavailable(f"{tp} has no leader.") for tp in tps if tp == self.leaderless
        }


def _propose(
    adopt: str, *committed: Committed | None, leaderless: TP | None = None, born: bool = False, **keys: Any
) -> dict[TP, tuple[int, str]]:
    default = {"position": "default", "auto_offset_reset": "latest"} | ({"adopt": adopt} if adopt else {})
    config = configured(topics=["t"], **{"start": default, **keys})
    kafka = Kafka(*committed)
    kafka.leaderless = leaderless
    return propose(config, cast(KafkaAdmin, kafka), "new", TPS, born=born)


def _commit(offset: int, uid: str, merged: int, tables: int | None = None) -> Committed:
    return Committed(offset, CommitMetadata(uid, 7, merged, tables).text())


def test_s2_default_believes_others_and_its_own_up_to_what_was_merged() -> None:
    found = _propose("", Committed(60, ""), _commit(50, "new", 40, tables=10), None)
    assert found == {TPS[0]: (60, "committed"), TPS[1]: (40, "adopted"), TPS[2]: (100, "latest")}


@pytest.mark.parametrize(("born", "start"), [(True, "end"), (False, "beginning")])
def test_94_a_new_partition_without_a_leader_holds_up_no_other(born: bool, start: str) -> None:
    found = _propose("", None, None, None, leaderless=TPS[1], born=born, start={"position": start})
    assert found == {TPS[0]: (0, "beginning"), TPS[2]: (0, "beginning")}


def test_94_a_birth_waits_for_a_leader_where_the_partition_would_start_elsewhere_later() -> None:
    with pytest.raises(KafkaUnavailable, match=r"t\[1\] has no leader"):
        _propose("", Committed(60, ""), None, None, leaderless=TPS[1])


def test_s2_a_foreign_regions_commit_is_refused_with_its_uid() -> None:
    with pytest.raises(ConfigError, match=r"uid old.*adopt: old"):
        _propose("", _commit(50, "old", 40), None, None)


def test_s2_adopt_takes_the_lower_of_the_last_merge_and_the_declared_tables() -> None:
    """A region whose tables were behind left merged records in segments that no SQL names any more: they are read again."""
    found = _propose(
        "old", _commit(50, "old", 40), _commit(50, "old", 40, tables=10), _commit(30, "old", 40, tables=35)
    )
    assert found == {TPS[0]: (40, "adopted"), TPS[1]: (10, "adopted"), TPS[2]: (30, "adopted")}


def test_71_a_commit_of_a_log_that_was_cut_and_has_grown_again_is_not_believed() -> None:
    """Cut at 35 under leader epoch 3; what was merged below that is there still."""
    cut, below, whole = (
        Committed(60, "", 3),
        Committed(50, CommitMetadata("new", 7, 30).text(), 3),
        Committed(60, "", 4),
    )
    with pytest.raises(ConfigError, match=r"offset 60 of t\[0\].*cut at 35"):
        _propose("", cut, below, whole)
    found = _propose("", cut, below, whole, data_loss="gap")
    assert found == {TPS[0]: (35, "committed"), TPS[1]: (30, "adopted"), TPS[2]: (60, "committed")}


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "7", '{"crkafka": 2}', '{"crkafka": 1, "region": "u", "checkpoint": "x"}']
)
def test_s2_metadata_that_is_not_ours_is_somebody_elses_commit(text: str) -> None:
    assert CommitMetadata.parse(text) is None


@pytest.mark.parametrize("tables", [None, 0, 5])
def test_s2_metadata_is_read_as_it_was_written(tables: int | None) -> None:
    said = CommitMetadata("u", 7, 40, tables)
    assert CommitMetadata.parse(said.text()) == said
    assert len(said.text()) < 4_000, "docs/clients.md C-R13"
