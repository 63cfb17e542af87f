"""The resolver: where the held partitions start, written in SQL before a record is accepted (SPEC S1, S3, S4, R4)."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from crkafka_core.config import RegionConfig
from crkafka_core.kafka.admin import KafkaAdmin, TopicInfo
from crkafka_core.kafka.group import report
from crkafka_core.member import start_positions
from crkafka_core.member.look_back import look
from crkafka_core.model.errors import ConfigError, CrkafkaError, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.plane import alarms, resets, restored, starts
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol import signals as sg
from crkafka_core.segments.storage import Storage

_log = logging.getLogger(__name__)
_IDLE = 5.0
"""Seconds without a question after which strangers are looked for."""
_CONFIRM = 2.0
"""Seconds after which a topic that seems to be gone is looked for again: a broker that has just started may not know it yet."""
_PAUSE = 0.3
"""Seconds before a start that could not be resolved is asked for again."""


class Resolver(threading.Thread):
    """A thread of its own, so that a slow broker delays no report. Only the newest question is answered."""

    def __init__(
        self,
        config: RegionConfig,
        plane: ControlPlane,
        admin: KafkaAdmin,
        storage: Storage,
        name: str,
        incarnation: str,
        post: Callable[[sg.Event], None],
    ) -> None:
        super().__init__(name="resolver", daemon=True)
        self._config = config
        self._plane = plane
        self._admin = admin
        self._storage = storage
        self._member = name
        self._incarnation = incarnation
        self._post = post
        self._looked = False
        self.unavailable = ""
        """What a start waits for: told with the metrics, since an attempt that Kafka holds up does not count (SPEC X6)."""
        self._questions: queue.SimpleQueue[sg.Resolve | None] = queue.SimpleQueue()

    def ask(self, question: sg.Resolve) -> None:
        self._questions.put(question)

    def end(self) -> None:
        self._questions.put(None)

    def run(self) -> None:
        while (question := self._next()) is not None:
            if not self._questions.empty():
                self._post(sg.NotStarted(question.stamp))
                continue
            try:
                self._post(self._answer(question))
                self.unavailable = ""
                continue
            except ServiceUnavailable as error:
                _log.warning("resolving starts: %s", error)
                self.unavailable = str(error)
            except ConfigError as error:
                _log.error("resolving starts: %s", error)
                self._stop_region(str(error))
            except CrkafkaError as error:
                _log.info("resolving starts: %s", error)
            except Exception as error:
                _log.exception("resolving starts failed")
                self._post(sg.Broken(f"resolving starts: {type(error).__name__}: {error}"))
                return
            time.sleep(_PAUSE)
            self._post(sg.NotStarted(question.stamp))

    def _next(self) -> sg.Resolve | None:
        """The next question; while there is none, strangers are looked for."""
        while True:
            try:
                return self._questions.get(timeout=_IDLE)
            except queue.Empty:
                self._look_for_strangers()

    def _look_for_strangers(self) -> None:
        """A group that does not settle may have members that are none of ours: name them (SPEC G8)."""
        try:
            group = self._plane.read(lambda reader, region: region.group_id if alarms.overdue(reader, region) else "")
            if not group:
                return
            there = [m.client_id for m in report(self._admin, group).members]
            strangers = self._plane.read(lambda reader, region: alarms.foreign(reader, region, there))
            if strangers:
                self._plane.do(lambda tx: alarms.strangers(tx, strangers, by=self._member))
        except CrkafkaError as error:
            _log.info("looking for strangers in the group: %s", error)

    def _answer(self, question: sg.Resolve) -> sg.Event:
        stamp = question.stamp
        if not self._looked:
            self._look_back()
        topics = self._admin.topics(self._config.topics or (), pattern=self._config.pattern)
        self._check_topics(topics)
        ids = {tp: topics[tp.topic].id for tp in question.held if tp.topic in topics}
        if len(ids) < len(question.held):
            raise ServiceUnavailable(
                f"Kafka does not describe {', '.join(sorted({tp.topic for tp in question.held} - topics.keys()))} yet."
            )
        found = self._plane.read(lambda reader, region: starts.lookup(reader, region, ids))
        if found.made_anew and self._config.data_loss == "gap":
            for topic in {tp.topic for tp in found.made_anew}:
                by = f"{self._member}: the topic was made anew, and data_loss is gap"
                self._plane.do(partial(starts.forget, topic=topic, by=by))
            found = self._plane.read(lambda reader, region: starts.lookup(reader, region, ids))
        proposals = self._proposals(topics, found, ids)
        gaps = self._gaps(found.offsets)
        resolved = self._plane.do(lambda tx: starts.resolve(
            tx, member=self._member, incarnation=self._incarnation, epoch=stamp.epoch, base=stamp.base, topic_ids=ids, proposals=proposals,
            gaps=gaps, accept_gaps=self._config.data_loss == "gap",
        ))  # fmt: skip
        if resolved.missing:
            raise ServiceUnavailable(f"{len(resolved.missing)} partitions were found meanwhile.")
        offsets = {tp: resolved.offsets[tp] for tp in question.held}
        return sg.Started(stamp, offsets, {tp.topic: ids[tp] for tp in question.held})

    def _look_back(self) -> None:
        """Before anything is written: has SQL issued what Kafka and the storage name? (SPEC G10)"""
        uid, known = self._plane.read(lambda reader, region: (region.uid, list(starts.known(reader, region.name))))
        seen = look(uid, self._config.group_id, known, self._admin, self._storage)
        self._plane.do(lambda tx: restored.stop(tx, seen, by=self._member))
        self._looked = True

    def _check_topics(self, topics: Mapping[str, TopicInfo]) -> None:
        """A known topic that Kafka no longer has stops the region, without resets (SPEC S4)."""
        known = self._plane.read(
            lambda reader, region: {i.topic: i.topic_id for i in starts.known(reader, region.name).values()}
        )
        gone = {topic: topic_id for topic, topic_id in known.items() if topic not in topics}
        if gone:
            time.sleep(_CONFIRM)
            still = self._admin.topics(self._config.topics or (), pattern=self._config.pattern)
            gone = {topic: topic_id for topic, topic_id in gone.items() if topic not in still}
        if gone:
            self._plane.do(lambda tx: starts.topics_gone(tx, gone, member=self._member))

    def _proposals(
        self, topics: Mapping[str, TopicInfo], found: starts.Resolved, ids: Mapping[TP, str]
    ) -> dict[TP, starts.Proposal]:
        """Offsets for what nobody has seen; at birth for all that there is, in one transaction (SPEC S3)."""
        if found.born:
            wanted = {tp: ids[tp] for tp in found.missing}
        else:
            wanted = {tp: info.id for topic, info in topics.items() for tp in info.tps(topic)} | dict(ids)
        if not wanted:
            return {}
        uid = self._plane.read(lambda _, region: region.uid)
        proposed = start_positions.propose(self._config, self._admin, uid, wanted, born=found.born)
        return {tp: starts.Proposal(wanted[tp], offset, position) for tp, (offset, position) in proposed.items()}

    def _gaps(self, offsets: Mapping[TP, int]) -> dict[TP, starts.Gap]:
        """Offsets that Kafka does not hold any more, or not yet: retention, truncation (SPEC S4)."""
        ends = self._admin.watermarks(offsets, "read_uncommitted")
        found = {tp: starts.gap(offset, *ends[tp]) for tp, offset in offsets.items()}
        return {tp: gap for tp, gap in found.items() if gap is not None}

    def _stop_region(self, reason: str) -> None:
        try:
            self._plane.do(lambda tx: resets.stop(tx, reason, member=self._member))
        except CrkafkaError as error:
            _log.warning("stopping the region: %s", error)
