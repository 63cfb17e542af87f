"""What Kafka knows of the group, as a run records it (SPEC A4)."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from crkafka_core.kafka.group import GroupReport, PartitionProgress
from crkafka_core.model.offsets import TP
from tests.dagster.conftest import Seat

pytestmark = pytest.mark.dagster


@pytest.mark.parametrize("ends, lag", [((None, None), {}), ((7, None), {"lag": 4}), ((7, 9), {"lag": 10})])
def test_a_lag_that_kafka_cannot_tell_is_not_0(
    seat: Seat, monkeypatch: pytest.MonkeyPatch, ends: tuple[int | None, ...], lag: dict[str, int]
) -> None:
    parts = tuple(PartitionProgress(TP("orders", p), 3, "", 0, end, end) for p, end in enumerate(ends))
    report = GroupReport("orders", "Unknown", "", "", (), parts, ("end offsets: the broker is away",))
    monkeypatch.setattr("dagster_project.ops.observe.report", lambda *_: report)
    assert seat.run("observe_group").success
    for asset in (seat.names.group, seat.names.topic("orders")):
        (told,) = seat.instance.fetch_observations(asset, limit=10).records
        shown: dict[str, Any] = dict(told.asset_observation.metadata) if told.asset_observation else {}
        assert {k: v.value for k, v in shown.items() if k == "lag"} == lag
        assert isinstance(shown["progress"], dg.TableMetadataValue)


@pytest.mark.parametrize("keys", [{"topics": None, "pattern": r"^shop\..*"}])
def test_each_topic_of_a_pattern_is_observed_as_its_own_asset_and_all_of_them_together(
    seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = tuple(PartitionProgress(TP(topic, 0), 3, "", 0, 5, 5) for topic in ("shop.a", "shop.b"))
    report = GroupReport("orders", "Stable", "", "", (), parts, ())
    monkeypatch.setattr("dagster_project.ops.observe.report", lambda *_: report)
    assert seat.run("observe_group").success
    for topic, lag in ((seat.names.topic("shop.a"), 2), (seat.names.topic("shop.b"), 2), (seat.names.topics, 4)):
        (told,) = seat.instance.fetch_observations(topic, limit=10).records
        assert told.asset_observation is not None and told.asset_observation.metadata["lag"].value == lag
