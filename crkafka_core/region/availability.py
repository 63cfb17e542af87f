"""Checks that Kafka answers, and still has the records that a reset goes back to, before anything is destroyed (SPEC X4, S4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crkafka_core.config import RegionConfig, redact
from crkafka_core.config.problem import nearest
from crkafka_core.control import Reader
from crkafka_core.kafka.edge import Admin
from crkafka_core.model.errors import ConfigError, CrkafkaError, DataLoss, Refused, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import CheckpointStatus, Initial, Region
from crkafka_core.plane import checkpoints, epochs, starts, tables
from crkafka_core.plane.transact import ControlPlane

if TYPE_CHECKING:
    from crkafka_core.kafka.admin import KafkaAdmin
    from crkafka_core.kafka.edge import TopicInfo


def _asking(config: RegionConfig) -> closing[KafkaAdmin]:
    from crkafka_core.kafka.admin import KafkaAdmin

    return closing(KafkaAdmin(config.resolved_kafka(), timeout=4.0))


def kafka_away(config: RegionConfig, reported: set[str]) -> str:
    """Why Kafka does not answer; empty if it does, or if `reported` has it: a host reports it once for all its members."""
    try:
        with _asking(config) as admin:
            admin.cluster_id()
    except ServiceUnavailable as error:
        reason = redact(str(error))
        if reason in reported:
            return ""
        reported.add(reason)
        return reason
    except CrkafkaError:
        return ""  # a refusal, which a member reports
    reported.clear()
    return ""


def check_topics(admin: KafkaAdmin, config: RegionConfig) -> dict[str, TopicInfo]:
    """The topics that the configuration names or its pattern matches; refused if a named one does not exist."""
    named = config.topics or ()
    existing = admin.topics(named, pattern=config.pattern)
    missing = sorted(set(named) - set(existing))
    if missing:
        near = nearest(missing[0], admin.topics(pattern="^.*"))
        raise ConfigError(f"Kafka has no topic {', '.join(missing)}.{near}", hint="Create it, or mend topics.")
    return existing


def lacks_topics(config: RegionConfig) -> str:
    """The configuration's missing topics, in words; members wait for them."""
    try:
        with _asking(config) as admin:
            check_topics(admin, config)
    except ConfigError as error:
        return str(error)
    except CrkafkaError:
        return ""  # reported by `kafka_away`, or by a member
    return ""


def unusable(topics: Mapping[str, TopicInfo], known: Iterable[Initial]) -> Iterator[str]:
    """Topics that no checkpoint can restore: deleted, or made again under their old name (SPEC S4)."""
    for topic, topic_id in sorted({(i.topic, i.topic_id) for i in known}):
        now = topics.get(topic)
        if now is None:
            yield starts.deleted(topic, topic_id)
        elif now.id and topic_id and now.id != topic_id:
            yield starts.recreated(topic, topic_id, now.id)


@dataclass(frozen=True)
class Holds:
    """Kafka's present topics and offsets."""

    topics: Mapping[str, TopicInfo]
    ends: Mapping[TP, tuple[int, int]]
    """(earliest, high watermark)."""

    @classmethod
    def of(cls, admin: Admin, known: Mapping[TP, Initial]) -> Holds:
        topics = admin.topics({tp.topic for tp in known})
        existing = [tp for tp in known if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
        return cls(topics, admin.watermarks(existing, "read_uncommitted"))

    def missing(self, wanted: Mapping[TP, int], cut: Mapping[TP, int]) -> Iterator[str]:
        """Partitions that cannot start at their offset; `cut` has the ends of logs that were cut below it."""
        for tp, offset in sorted(wanted.items()):
            if tp not in self.ends:
                yield f"{tp} is gone"
                continue
            gap = starts.gap(offset, *self.ends[tp])
            if gap is None and tp in cut:
                gap = starts.regrown(offset, cut[tp])
            if gap is not None:
                yield f"{tp} would start at {offset}, but {gap.why}: it goes from {self.ends[tp][0]} to {self.ends[tp][1]}"


def _targets(reader: Reader, known: Mapping[TP, Initial], target: int) -> dict[TP, int]:
    """The start of each known partition after a reset to `target`."""
    return starts.leaves_off(known, starts.merged(reader, target) if target else {})


def _cut_below(plane: ControlPlane, admin: Admin, target: int, wanted: Mapping[TP, int], holds: Holds) -> dict[TP, int]:
    """Ends of logs that were cut below the target, by leader epochs; end offsets do not show it once logs have grown again (SPEC S4)."""
    rows = plane.read(lambda reader, _: starts.merged(reader, target)) if target else {}
    asked = {
        tp: (o.to_offset, o.leader_epoch)
        for tp, o in rows.items()
        if o.leader_epoch >= 0 and wanted.get(tp) == o.to_offset and tp in holds.ends
    }
    asked = {tp: known for tp, known in asked.items() if starts.gap(known[0], *holds.ends[tp]) is None}
    return admin.cut_below(asked) if asked else {}


def check_available(plane: ControlPlane, admin: Admin, target: int, *, otherwise: str = "") -> None:
    """Refuse a reset that could not be completed, with the nearest possible checkpoint, or with what to do `otherwise`."""

    def sought(reader: Reader, _: Region) -> tuple[dict[TP, Initial], dict[TP, int]]:
        known = starts.known(reader)
        return known, _targets(reader, known, target)

    known, wanted = plane.read(sought)
    holds = Holds.of(admin, known)
    refused = f"Region {plane.region} cannot go back to {epochs.place(target)}"
    if gone := next(unusable(holds.topics, known.values()), ""):
        hint = "`crkafka forget TOPIC` carries it forward, and the others can go back as far as no rows of it are lost."
        raise DataLoss(f"{refused}: {gone}.", hint=hint)
    if lost := list(holds.missing(wanted, _cut_below(plane, admin, target, wanted, holds))):
        near = _nearest(plane, admin, known, target, holds)
        can = f"The nearest that can be restored is {epochs.place(near)}." if near is not None else ""
        more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise DataLoss(f"{refused}: {lost[0]}{more}.", hint=otherwise or can or "No checkpoint can be restored.")


def check_kept(plane: ControlPlane, files: Collection[str]) -> None:
    """Refuse to go on from a head with deleted segments that a table lacks: it would wait for them for ever (SPEC G10, T1)."""
    existing = set(files)
    waits = plane.read(lambda reader, region: tables.first_that_waits(reader, region, known=existing))
    if waits is not None:
        table, segment = waits
        raise Refused(
            f"Table {table.name} of region {plane.region} lacks checkpoint {segment.checkpoint}, whose segments are gone: they were "
            "retired after this backup of the control plane was taken.",
            hint="Put back a newer backup, or the control plane that went on from there. If there is none: `crkafka start --restored "
            "initial` empties the tables, and reads from Kafka again all that it still holds. Or keep what the table holds: "
            f"`crkafka tables undeclare {table.name}`, then the same again.",
        )


def check_gone(admin: Admin, region: str, topic: str, known: Mapping[TP, Initial]) -> None:
    """Refuse to forget a topic that is read and exists with its known id. If Kafka does not answer, it may be deleted."""
    ids = {i.topic_id for tp, i in known.items() if tp.topic == topic}
    try:
        existing = admin.topics([topic]).get(topic)
    except ServiceUnavailable:
        return
    if existing is not None and existing.id and ids == {existing.id}:
        raise Refused(
            f"Region {region} reads topic {topic}, which is there with the id that the region knows: nothing of it is to be forgotten.",
            hint="Leave it out of `topics` or `pattern`, and `crkafka init`, if it is to be read no more.",
        )


def check_inside(admin: Admin, tp: TP, last: int) -> None:
    """Refuse to skip offsets past the log's end: the region would start behind it, which is data loss (SPEC X9, S4)."""
    end = admin.watermarks([tp], "read_uncommitted")[tp][1]
    if last >= end:
        text = f"{tp} ends before offset {end}: {last} is not there to be passed over."
        raise Refused(text, hint="Mend the offsets.")


def _nearest(plane: ControlPlane, admin: Admin, known: Mapping[TP, Initial], target: int, holds: Holds) -> int | None:
    """The nearest possible checkpoint on the head's line, of two the later. Leader epochs are compared for few checkpoints: for the
    nearest by end offsets, and for the next if a log was cut below it."""

    def by_distance(reader: Reader, region: Region) -> list[int]:
        kept, line = {0, *checkpoints.ids_with(reader, CheckpointStatus.MERGED)}, [0, *reader.line(region.head)]
        middle = line.index(target) if target in line else 0
        nearest = sorted(range(len(line)), key=lambda at: (abs(at - middle), -at))
        return [line[at] for at in nearest if line[at] in kept and line[at] != target]

    for number in plane.read(by_distance):
        wanted = plane.read(lambda reader, _, number=number: _targets(reader, known, number))  # type: ignore[misc]
        if not any(holds.missing(wanted, {})) and not _cut_below(plane, admin, number, wanted, holds):
            return number
    return None
