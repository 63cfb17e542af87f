"""Before anything is destroyed, a reset's target is compared with what Kafka holds (SPEC X4, S4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

import pytest

from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.edge import TopicInfo
from crkafka_core.model.errors import DataLoss, Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Initial
from crkafka_core.plane import resets
from crkafka_core.region.availability import Holds, check_available, check_gone, check_inside, unusable
from tests.plane.conftest import P0, P1, Kit


class Kafka:
    """A topic of two partitions with so many records; answers what is asked here."""

    def __init__(
        self,
        earliest: int = 0,
        end: int = 1_000,
        topic_id: str = "id-t",
        partitions: int = 2,
        cuts: Mapping[int, int] | None = None,
    ) -> None:
        self.ends, self.cuts = (earliest, end), cuts or {}
        self.info = {"t": TopicInfo(topic_id, tuple(range(partitions)))} if partitions else {}

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        return {name: info for name, info in self.info.items() if name in names}

    def watermarks(self, tps: Iterable[TP], _: str) -> dict[TP, tuple[int, int]]:
        return dict.fromkeys(tps, self.ends)

    def cut_below(self, offsets: Mapping[TP, tuple[int, int]]) -> dict[TP, int]:
        return {
            tp: self.cuts[epoch] for tp, (offset, epoch) in offsets.items() if self.cuts.get(epoch, offset) < offset
        }


def test_x9_offsets_that_the_log_has_not_are_not_passed_over() -> None:
    """One digit too many: the region stopped for data loss at a start behind the log's end, and no second skip was taken."""
    kafka = cast(KafkaAdmin, Kafka(end=21))
    check_inside(kafka, P0, 20)
    with pytest.raises(Refused, match=r"t\[0\] ends before offset 21: 200 is not there"):
        check_inside(kafka, P0, 200)


@pytest.mark.parametrize(
    ("ids", "refused"), [(("id-t", "id-t"), True), (("old", "old"), False), (("old", "id-t"), False), (("", ""), False)]
)
def test_s4_only_a_topic_that_is_there_as_it_is_known_is_not_forgotten(ids: tuple[str, str], refused: bool) -> None:
    """One that was made anew may be known by both ids: a partition that came later has the new one (found by seed 250004957)."""
    known = {
        tp: Initial("r", topic_id, tp.partition, "t", 0, "beginning")
        for tp, topic_id in zip((P0, P1), ids, strict=True)
    }
    kafka = cast(KafkaAdmin, Kafka(topic_id="id-t" if ids[1] else ""))
    if refused:
        with pytest.raises(Refused, match="nothing of it is to be forgotten"):
            check_gone(kafka, "r", "t", known)
        return
    check_gone(kafka, "r", "t", known)
    check_gone(cast(KafkaAdmin, Kafka(partitions=0)), "r", "t", known)


@pytest.mark.parametrize("ids", [("id-t", "old"), ("old", "id-t")])
def test_x4_a_topic_that_is_known_by_two_ids_cannot_be_gone_back_to(ids: tuple[str, str]) -> None:
    """It was made anew, and a partition that came later is known by the new id."""
    known = {
        tp: Initial("r", topic_id, tp.partition, "t", 0, "beginning")
        for tp, topic_id in zip((P0, P1), ids, strict=True)
    }
    (said,) = unusable(Holds.of(cast(KafkaAdmin, Kafka()), known).topics, known.values())
    assert said == "topic t was made anew: the region knows it with the id old, and it has the id id-t now"


def _check(kit: Kit, target: int, **holds: Any) -> None:
    check_available(kit.plane, cast(KafkaAdmin, Kafka(**holds)), target)


@pytest.fixture
def four(kit: Kit) -> Kit:
    """Checkpoints 1 to 4, at offsets 10, 20, 30 and 40 of both partitions."""
    kit.running()
    for _ in range(4):
        kit.cut()
    return kit


@pytest.mark.parametrize(
    ("target", "earliest", "end", "why", "nearest"),
    [
        (0, 15, 99, "retention", "checkpoint 2"),
        (1, 40, 99, "retention", "checkpoint 4"),
        (3, 0, 25, "truncated", "checkpoint 2"),
        (1, 0, 5, "truncated", "initial state"),
        (2, 50, 60, "retention", "No checkpoint can be restored"),
        (2, 25, 60, "retention", "checkpoint 3"),
    ],
)
def test_x4_an_offset_that_kafka_has_not_refuses_with_the_nearest_that_it_has(
    four: Kit, target: int, earliest: int, end: int, why: str, nearest: str
) -> None:
    with pytest.raises(DataLoss, match=rf"t\[0\] would start at {target * 10}.*{why}.*and 1 more.*{nearest}"):
        _check(four, target, earliest=earliest, end=end)
    assert four.row.head == 4


def test_71_a_log_that_was_cut_below_a_checkpoint_and_has_grown_past_it_refuses(kit: Kit) -> None:
    """SPEC X4, S4: its ends say nothing, the leader's epoch does; what was read after the cut can be gone back to."""
    kit.running()
    for epoch in (3, 3, 3, 4):
        kit.cut(epochs={P0: epoch})
    _check(kit, 3)
    _check(kit, 4, cuts={3: 15})
    _check(kit, 1, cuts={3: 15})
    with pytest.raises(
        DataLoss, match=r"t\[0\] would start at 20, but the log was cut at 15 .*: it goes.*checkpoint 1"
    ):
        _check(kit, 2, cuts={3: 15})
    with pytest.raises(DataLoss, match=r"t\[0\] would start at 30, but the log was cut at 5 .*checkpoint 4"):
        _check(kit, 3, cuts={3: 5})
    with pytest.raises(DataLoss, match=r"nearest that can be restored is initial state"):
        _check(kit, 2, cuts={3: 5, 4: 5})


def test_x4_a_superseded_checkpoint_is_no_nearest_one(four: Kit) -> None:
    four.do(lambda tx: resets.request(tx, cause="c", by="me", target=1))
    four.settle()
    four.cut()
    with pytest.raises(DataLoss, match="nearest that can be restored is checkpoint 6"):
        _check(four, 0, earliest=15)


def test_x4_a_topic_made_anew_refuses_with_both_ids(four: Kit) -> None:
    with pytest.raises(DataLoss, match=r"made anew: .* the id id-t, and it has the id other now.*crkafka forget"):
        _check(four, 2, topic_id="other")
    _check(four, 2, topic_id="")  # a broker that does not tell


def test_x4_a_deleted_topic_and_a_lost_partition_refuse(four: Kit) -> None:
    with pytest.raises(DataLoss, match=r"topic t with id id-t was deleted.*crkafka forget"):
        _check(four, 2, partitions=0)
    with pytest.raises(DataLoss, match=r"t\[1\] is gone"):
        _check(four, 2, partitions=1)
