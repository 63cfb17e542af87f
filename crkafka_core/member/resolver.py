"""The resolver: where the held partitions start, written in SQL before a record is accepted (SPEC S1, S3, S4, R4)."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping
from functools import partial

from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.kafka.edge import Admin, TopicInfo
from crkafka_core.kafka.errors import KafkaUnavailable, NotAllowed
from crkafka_core.loop import THREADS, Loop, Runtime
from crkafka_core.member import start_positions
from crkafka_core.member.kafka_troubles import REFUSAL_GAP, REFUSED_FOR, Lasting
from crkafka_core.member.outside_sql import look_outside
from crkafka_core.member.stall_watch import StallWatch
from crkafka_core.model.errors import ConfigError, CrkafkaError, NotOwner, ServiceUnavailable
from crkafka_core.model.limits import Limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Initial, Member, Region, StartReason
from crkafka_core.plane import alarms, contents, epochs, events, restored, starts
from crkafka_core.plane.member_plane import MemberPlane
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol import subscription
from crkafka_core.segments.storage import Storage

_log = logging.getLogger(__name__)
IDLE = 5.0
"""Seconds without a question after which strangers are looked for."""
_CONFIRM = 2.0
"""Seconds after which a topic that seems to be gone is looked for again: a broker that has just started may not know it yet."""
_PAUSE = 0.3
"""Seconds before a start that could not be resolved is asked for again."""


class Resolver(Loop):
    """A thread of its own, so that a slow broker delays no report. Only the newest question is answered."""

    def __init__(
        self,
        config: RegionConfig,
        plane: MemberPlane,
        admin: Admin,
        storage: Storage,
        post: Callable[[sg.Event], None],
        *,
        limits: Limits,
        ends: StallWatch,
        runtime: Runtime = THREADS,
    ) -> None:
        super().__init__("resolver", runtime)
        self._config, self._plane, self._post = config, plane, post
        self._admin, self._storage, self.ends = admin, storage, ends
        self._unheld_timeout = limits.unheld_timeout
        self._checked_outside_sql = False
        self._ids: dict[str, str] = {}
        """The ids of the topics as the client of this process first met them."""
        self.unavailable = ""
        """What a start waits for; stored with the metrics, since an attempt that Kafka holds up does not count (SPEC X6)."""
        self._refused = Lasting(REFUSAL_GAP)
        self._gone = Lasting()
        """This member holds partitions that Kafka does not describe."""
        self._strangers_at = runtime.now() + IDLE
        self._leaderless = frozenset[TP]()
        """Held partitions that were left out of the last answer."""
        self._questions: queue.SimpleQueue[sg.Resolve | None] = queue.SimpleQueue()

    def ask(self, question: sg.Resolve) -> None:
        self._questions.put(question)

    def end(self) -> None:
        self._questions.put(None)

    def turn(self, patience: float = IDLE) -> bool:
        """Answer the next question; while there is none, look for strangers, deleted topics, leaders and the ends of partitions."""
        try:
            question = self._questions.get(timeout=patience)
        except queue.Empty:
            if self._runtime.now() >= self._strangers_at:
                self._look("strangers in the group", self._name_strangers)
                self._look("deleted topics", self._check_deleted_topics)
                self._look("leaders", self._check_leaders)
                self._look("the ends of partitions", self._check_ends)
                self._strangers_at = self._runtime.now() + IDLE
            return True
        self._strangers_at = self._runtime.now() + IDLE
        return question is not None and self._resolve(question)

    def _look(self, what: str, look: Callable[[], None]) -> None:
        try:
            look()
        except CrkafkaError as error:
            _log.info("looking for %s: %s", what, error)
        except Exception:  # a thread that died in silence would leave a member that never starts anything again
            _log.exception("looking for %s", what)

    def _topics(self) -> dict[str, TopicInfo]:
        """What the configuration reads, as far as Kafka has it now."""
        return self._admin.topics(self._config.topics or (), pattern=self._config.pattern)

    def _resolve(self, question: sg.Resolve) -> bool:
        """Answer one question; False when no more can be answered."""
        if not self._questions.empty():
            self._post(sg.NotStarted(question.stamp))
            return True
        try:
            self._post(self._answer(question))
            self.unavailable = ""
            self._refused.over()
            self._gone.over()
            return True
        except (ServiceUnavailable, NotAllowed) as error:
            _log.warning("resolving starts: %s", error)
            self.unavailable = str(error)
            if isinstance(error, ServiceUnavailable):
                self._refused.over()  # an outage of a minute is not a refusal of a minute
            elif self._refused.seconds(self._runtime.now()) >= REFUSED_FOR:
                self._stop_region(str(error), question.stamp.epoch)
        except ConfigError as error:
            _log.error("resolving starts: %s", error)
            self._stop_region(str(error), question.stamp.epoch)
        except CrkafkaError as error:
            _log.info("resolving starts: %s", error)
            self.unavailable = str(error)
        except Exception as error:
            _log.exception("resolving starts failed")
            self._post(sg.Broken(f"resolving starts: {type(error).__name__}: {error}"))
            return False
        self._runtime.sleep(_PAUSE)
        self._post(sg.NotStarted(question.stamp))
        return True

    def _name_strangers(self) -> None:
        """Name foreign members of a group that does not settle (SPEC G8)."""
        group = self._plane.read(lambda reader, region: region.group_id if alarms.overdue(reader, region) else "")
        if not group:
            return
        clients = self._admin.client_ids(group)
        strangers, named = self._plane.read(
            lambda reader, region: (
                sorted(c for c in clients if alarms.is_foreign(region.uid, region.name, c)),
                events.raised(reader, region, events.STRANGERS) is not None,
            )
        )
        if strangers or named:
            self._plane.do(lambda tx: alarms.strangers(tx, strangers, by=self._plane.name))

    def _check_deleted_topics(self) -> None:
        """Look for deleted topics unasked: once all are deleted Kafka makes no assignment, and no start is asked for (SPEC S4)."""
        if epoch := self._plane.read(self._waiting_in):
            self._check_topics(self._topics(), epoch)

    def _waiting_in(self, reader: Reader, region: Region) -> int:
        """The epoch in which this member waits for Kafka to assign it something; 0 when it does not."""
        me = reader.get(Member, self._plane.name)
        waiting = me is not None and me.incarnation == self._plane.incarnation and not me.assignment_json
        return region.epoch if waiting and region.phase not in (Phase.IDLE, Phase.STOPPED) else 0

    def _check_leaders(self) -> None:
        """Notice that a partition has got the leader which its start waits for."""
        if self._leaderless and (led := self._admin.known_watermarks(self._leaderless)[0]):
            self._post(sg.Led(frozenset(led)))

    def _check_ends(self) -> None:
        """Write newly stalled partitions to the event log; for how long each is stalled goes with the metrics (SPEC X8)."""
        if self.ends.ask():
            stalled, why = self.ends.stalled, self.ends.reasons
            self._plane.do(lambda tx: alarms.stalled(tx, stalled, why, by=self._plane.name))

    def _answer(self, question: sg.Resolve) -> sg.Event:
        stamp = question.stamp
        if not self._checked_outside_sql:
            self._check_outside_sql(stamp.epoch)
        topics = self._topics()
        first = self._check_topics(topics, stamp.epoch)
        existing = {tp: info.id for topic, info in topics.items() for tp in info.tps(topic)}
        if gone := {str(tp) if tp.topic in topics else tp.topic for tp in question.held - existing.keys()}:
            names = ", ".join(sorted(gone))
            self._give_back(names)
            raise ServiceUnavailable(f"Kafka does not describe {names} yet.")
        ids = {tp: existing[tp] for tp in question.held}
        known = self._known(ids, stamp.epoch)
        proposals = self._proposals(existing, known, first)
        gaps = self._gaps(known)
        if gaps and self._topics() != topics:
            # The log of a topic that was recreated meanwhile would look like a log that was cut.
            raise ServiceUnavailable("A topic changed while its start was resolved.")
        resolved = self._plane.do(
            lambda tx: starts.resolve(
                tx,
                member=self._plane.name,
                incarnation=self._plane.incarnation,
                epoch=stamp.epoch,
                base=stamp.base,
                topic_ids=ids,
                proposals=proposals,
                gaps=gaps,
                accept_gaps=self._config.data_loss == "gap",
            )
        )
        if forgotten := resolved.missing - known.missing:
            raise ServiceUnavailable(f"{plural(len(forgotten), 'partition was', 'partitions were')} forgotten.")
        if recreated := self._recreated(topics):
            return sg.Broken(recreated)
        offsets = {tp: offset for tp, offset in resolved.offsets.items() if tp in question.held}
        self._leaderless = question.held - offsets.keys()
        landed = self._plane.read(lambda reader, region: contents.landed(reader, region, offsets.keys()))
        topic_ids = {tp.topic: ids[tp] for tp in offsets}
        return sg.Started(stamp, offsets, topic_ids, resolved.leader_epochs, self._leaderless, landed)

    def _give_back(self, gone: str) -> None:
        """Force a rebalance: static members that return get their old partitions back, even of a topic that was deleted, or recreated with
        fewer partitions (docs/clients.md C-K31)."""
        if self._gone.seconds(self._runtime.now()) > self._unheld_timeout:
            self._gone.over()
            self._post(sg.WronglyShared(f"a share of {gone} is held, which Kafka does not describe"))

    def _known(self, ids: Mapping[TP, str], epoch: int) -> starts.Resolved:
        """The starts that SQL knows. A recreated topic is forgotten first, where gaps are accepted (SPEC S4)."""
        known = self._plane.read(lambda reader, region: starts.lookup(reader, region, ids))
        if not known.recreated or self._config.data_loss != "gap":
            return known
        for topic in {tp.topic for tp in known.recreated}:
            by = f"{self._plane.name}: the topic was recreated, and data_loss is gap"
            self._plane.do(partial(starts.forget, topic=topic, by=by), epoch=epoch)
        return self._plane.read(lambda reader, region: starts.lookup(reader, region, ids))

    def _recreated(self, topics: Mapping[str, TopicInfo]) -> str:
        """The reason for a new client, where a topic was recreated: one that knew the old topic never reads the new one, if the old
        one's leader had ever changed (docs/clients.md C-K22)."""
        for topic, info in topics.items():
            was = self._ids.setdefault(topic, info.id) if info.id else ""
            if was != info.id:
                return f"topic {topic} was recreated (id {was}, now {info.id}): a new client reads it (docs/clients.md C-K22)"
        return ""

    def _check_outside_sql(self, epoch: int) -> None:
        """Before anything is written: has SQL issued what Kafka and the storage name? (SPEC G10)"""
        try:
            seen = look_outside(self._plane, self._storage, self._admin, self._config.group_id).seen
        except NotOwner as refused:
            self._stop_region(str(refused), epoch)
            raise
        self._plane.do(lambda tx: restored.check(tx, seen, by=self._plane.name), epoch=epoch)
        self._checked_outside_sql = True

    def _check_topics(self, topics: Mapping[str, TopicInfo], epoch: int) -> Mapping[TP, Initial]:
        """A known topic that this member reads and Kafka no longer has stops the region, without resets (SPEC S4). All that are known. What
        another configuration of the region reads, before or after a change, others look at."""
        mine = subscription.dump(self._config.topics, self._config.pattern)
        first = self._plane.read(lambda reader, region: starts.known(reader))
        known = {i.topic: i.topic_id for i in first.values()}
        gone = {topic: i for topic, i in known.items() if topic not in topics and subscription.reads(mine, topic)}
        if gone:
            self._runtime.sleep(_CONFIRM)
            still = self._topics()
            gone = {topic: i for topic, i in gone.items() if topic not in still}
        if gone:
            self._plane.do(lambda tx: starts.topics_gone(tx, gone, member=self._plane.name), epoch=epoch)
        return first

    def _proposals(
        self, existing: Mapping[TP, str], known: starts.Resolved, first: Mapping[TP, Initial]
    ) -> dict[TP, starts.Proposal]:
        """Offsets of partitions that are new to the region and have a leader, held or not; at birth in one transaction (SPEC S3). Static
        members that return get their old partitions back, so partitions that were added meanwhile would stay unheld. Once known, an unheld
        partition forces a rebalance (SPEC G8, docs/clients.md C-K31)."""
        by_name = {initial.topic: initial.topic_id for initial in first.values()}
        wanted = {
            tp: topic_id
            for tp, topic_id in existing.items()
            if not known.born
            or tp in known.missing
            or (tp not in first and by_name.get(tp.topic, topic_id) == topic_id)
        }
        if not wanted:
            return {}
        proposed = start_positions.propose(self._config, self._admin, self._plane.uid, wanted, born=known.born)
        return {tp: starts.Proposal(wanted[tp], offset, position) for tp, (offset, position) in proposed.items()}

    def _gaps(self, known: starts.Resolved) -> dict[TP, starts.Gap]:
        """Offsets that Kafka does not hold any more, or not yet, or only by another leader's log: retention, truncation (SPEC S4).

        A log that was cut may have grown again: its end shows neither that nor where. Records in the place of those that were read are new,
        also where the start lies behind a gap. A partition whose end is unknown starts all the same: once it has a leader the client
        finds a gap by itself, and the reset that follows finds it here.
        """
        ends, silent = self._admin.known_watermarks(known.offsets, "read_uncommitted")
        for tp, error in silent.items():
            if not isinstance(error, KafkaUnavailable):
                raise error
            _log.warning("%s starts unseen: %s", tp, error)
        gaps = {tp: starts.gap(known.offsets[tp], *ends[tp]) for tp in ends}
        left_off = {tp: known.left_off[tp] for tp in ends if tp in known.left_off}
        asked = {tp: (offset, epoch) for tp, (offset, epoch) in left_off.items() if ends[tp][0] <= offset}
        cut = self._admin.cut_below(asked) if asked else {}
        for tp, at in cut.items():
            gap = starts.regrown(known.offsets[tp], at, ends[tp][0])
            passed = known.reasons[tp] is StartReason.GAP and gap.available >= gap.wanted
            if at < ends[tp][1] and not passed:
                gaps[tp] = gap
        return {tp: gap for tp, gap in gaps.items() if gap is not None}

    def _stop_region(self, reason: str, epoch: int) -> None:
        try:
            self._plane.do(lambda tx: epochs.halt(tx, reason, member=self._plane.name), epoch=epoch)
        except CrkafkaError as error:
            _log.warning("stopping the region: %s", error)
