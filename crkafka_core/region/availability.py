"""Whether Kafka answers; and still holds what a reset would go back to, looked at before anything is destroyed (SPEC X4, S4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from crkafka_core.config import RegionConfig, redact
from crkafka_core.control import Reader
from crkafka_core.kafka.admin import KafkaAdmin, TopicInfo
from crkafka_core.kafka.edge import Admin
from crkafka_core.model.errors import CrkafkaError, DataLoss, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import CheckpointStatus, Initial, Region
from crkafka_core.plane import checkpoints, starts
from crkafka_core.plane.transact import ControlPlane


def kafka_away(config: RegionConfig, told: set[str]) -> str:
    """That Kafka does not answer, unless that was told: the host says it once, and members would each for themselves."""
    admin = KafkaAdmin(config.resolved_kafka(), timeout=4.0)
    try:
        admin.cluster_id()
    except ServiceUnavailable as error:
        said = redact(str(error))
        if said in told:
            return ""
        told.add(said)
        return said
    except CrkafkaError:
        return ""  # a member says what Kafka has against it
    finally:
        admin.close()
    told.clear()
    return ""


@dataclass(frozen=True)
class Holds:
    """What Kafka has now."""

    topics: Mapping[str, TopicInfo]
    ends: Mapping[TP, tuple[int, int]]
    """(earliest, high watermark)."""

    @classmethod
    def of(cls, admin: Admin, known: Mapping[TP, Initial]) -> Holds:
        topics = admin.topics({tp.topic for tp in known})
        there = [tp for tp in known if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
        return cls(topics, admin.watermarks(there, "read_uncommitted"))

    def unusable(self, known: Mapping[TP, Initial]) -> Iterator[str]:
        """Topics that no checkpoint can be restored of: deleted, or made anew under their old name."""
        for topic, topic_id in sorted({i.topic: i.topic_id for i in known.values()}.items()):
            now = self.topics.get(topic)
            if now is None:
                yield starts.deleted(topic, topic_id)
            elif now.id and topic_id and now.id != topic_id:
                yield starts.made_anew(topic, topic_id, now.id)

    def missing(self, wanted: Mapping[TP, int]) -> Iterator[str]:
        """Partitions that could not start where they should."""
        for tp, offset in sorted(wanted.items()):
            if tp not in self.ends:
                yield f"{tp} is gone"
            elif gap := starts.gap(offset, *self.ends[tp]):
                yield f"{tp} would start at {offset}, but {gap.why}: it goes from {self.ends[tp][0]} to {self.ends[tp][1]}"


def _targets(reader: Reader, region: Region, known: Mapping[TP, Initial], target: int) -> dict[TP, int]:
    """Where each known partition would be sought."""
    return starts.leaves_off(known, starts.merged(reader, target) if target else {})


def check_available(plane: ControlPlane, admin: Admin, target: int, *, otherwise: str = "") -> None:
    """Refuse a reset that could not be completed, with the nearest checkpoint that can be, or with what to do `otherwise`."""

    def sought(reader: Reader, region: Region) -> tuple[dict[TP, Initial], dict[TP, int]]:
        known = starts.known(reader)
        return known, _targets(reader, region, known, target)

    known, wanted = plane.read(sought)
    holds = Holds.of(admin, known)
    where = f"checkpoint {target}" if target else "initial state"
    refused = f"Region {plane.region} cannot go back to {where}"
    if gone := list(holds.unusable(known)):
        raise DataLoss(
            f"{refused}: {gone[0]}.",
            hint="`crkafka forget TOPIC` carries it forward and lets the others go back; its rows stay as they were merged.",
        )
    if lost := list(holds.missing(wanted)):
        nearest = plane.read(lambda reader, region: _nearest(reader, region, known, target, holds))
        can = "No checkpoint can be restored." if nearest is None else f"The nearest that can be restored is {nearest}."
        raise DataLoss(
            f"{refused}: {lost[0]}{f', and {len(lost) - 1} more' if len(lost) > 1 else ''}.", hint=otherwise or can
        )


def _nearest(reader: Reader, region: Region, known: Mapping[TP, Initial], target: int, holds: Holds) -> str | None:
    """On the head's line, counted in checkpoints; of two equally near the later, which undoes less."""
    kept, line = set(checkpoints.ids_with(reader, CheckpointStatus.MERGED)), [0, *reader.line(region.head)]
    able = [
        at
        for at, number in enumerate(line)
        if (number in kept or not number) and not any(holds.missing(_targets(reader, region, known, number)))
    ]
    if not able:
        return None
    middle = line.index(target) if target in line else 0
    best = line[min(able, key=lambda at: (abs(at - middle), -at))]
    return f"checkpoint {best}" if best else "initial state"
